"""What can we not see? `assess_coverage(snapshot)` answers."""

from piqc_pipeline.coverage.layers import CoverageCheck, CoverageLayer, CoverageReport, assess_coverage

__all__ = ["CoverageCheck", "CoverageLayer", "CoverageReport", "assess_coverage"]
