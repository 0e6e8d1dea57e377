"""What does one scan hand to a report? The snapshot and the answers that were computed from it."""

from dataclasses import dataclass

from piqc_pipeline.coverage import CoverageReport, assess_coverage
from piqc_pipeline.facts.snapshot import ClusterSnapshot
from piqc_pipeline.waste import PriceList, WasteReport, assess


@dataclass(frozen=True)
class ScanResult:
    """One cluster's snapshot, waste and coverage."""

    snapshot: ClusterSnapshot
    waste: WasteReport
    coverage: CoverageReport


def scan_result(snapshot: ClusterSnapshot, prices: PriceList) -> ScanResult:
    """The answers to a snapshot."""
    return ScanResult(snapshot, assess(snapshot, prices), assess_coverage(snapshot))
