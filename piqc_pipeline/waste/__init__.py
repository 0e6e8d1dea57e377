"""What does the cluster cost, and how much of it is wasted?

`assess(snapshot, prices)` answers; `load_prices` reads the catalog and the user's own prices.
"""

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

__all__ = [
    "BUCKETS",
    "Bucket",
    "Finding",
    "Fit",
    "PendingPod",
    "PoolCapacity",
    "Price",
    "WasteReport",
    "WasteSummary",
    "WorkloadFigures",
]
