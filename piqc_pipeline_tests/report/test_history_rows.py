"""The rows that a scan leaves in the history."""

from piqc_pipeline.report.history_rows import facts_rows
from piqc_pipeline.report.scan_result import scan_result
from piqc_pipeline.waste import load_prices
from piqc_pipeline_tests.waste.clusters import cluster, node


def accelerators_of(*nodes: object) -> float | None:
    result = scan_result(cluster(list(nodes), []), load_prices())  # type: ignore[arg-type]
    row: dict[str, float | None] = facts_rows(result, "{}").row(0, named=True)
    return row["accelerators"]


def test_seven_slices_of_one_card_are_one_accelerator() -> None:
    slices = node("a", 7, "NVIDIA-A100-SXM4-80GB", sharing="mig", units_per_device=7.0)
    shared = node("b", 8, "Tesla-T4", sharing="time-slicing", units_per_device=8.0)
    assert accelerators_of(slices, shared, node("c", 4)) == 6.0


def test_a_count_that_nobody_could_read_makes_the_sum_unknown() -> None:
    assert accelerators_of(node("a", None), node("b")) is None
