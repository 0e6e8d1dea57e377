"""What does the cluster cost, and how much of it is wasted?

`assess(snapshot, prices)` answers; `load_prices` reads the catalog and the user's own prices.
"""

from piqc_pipeline.waste.as_facts import priced_facts
from piqc_pipeline.waste.assess import assess
from piqc_pipeline.waste.figures import (
    BUCKETS,
    Bucket,
    Finding,
    Fit,
    PendingPod,
    PoolCapacity,
    Price,
    WasteReport,
    WasteSummary,
    WorkloadFigures,
)
from piqc_pipeline.waste.prices import PriceList, load_prices

__all__ = [
    "BUCKETS",
    "Bucket",
    "Finding",
    "Fit",
    "PendingPod",
    "PoolCapacity",
    "Price",
    "PriceList",
    "WasteReport",
    "WasteSummary",
    "WorkloadFigures",
    "assess",
    "load_prices",
    "priced_facts",
]
