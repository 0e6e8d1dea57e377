from datetime import timedelta

import polars as pl
import pytest

from piqc_pipeline.history import checks
from piqc_pipeline.history.samples import empty_history
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows


def test_a_clean_day_passes_every_check() -> None:
    day = rows([0.5] * 288, samples_seen=80, samples_expected=80, devices_seen=8, devices_expected=8)
    results = checks.all_checks(day, DAY, NEXT_DAY, NEXT_DAY, NEXT_DAY + timedelta(hours=1), 10_800)
    assert [(result.name, result.passed) for result in results] == [
        ("no_duplicate_samples", True),
        ("within_bounds", True),
        ("gaps", True),
        ("newest_sample_age", True),
        ("coverage", True),
        ("scrape_interval", True),
    ]
    # 300 s and 8 devices with 80 samples: one each 30 s.
    assert results[-1].measured == 30
    assert results[3].measured == 3600


def test_the_same_bucket_twice_and_overlapping_widths_are_duplicates() -> None:
    assert checks.no_duplicate_samples(pl.concat([rows([0.1]), rows([0.1])])).passed is False
    wide = rows([0.1], step_seconds=3600)
    narrow = pl.concat([rows([0.1], start=DAY + timedelta(minutes=20)), rows([0.1], start=DAY + timedelta(minutes=50))])
    assert checks.no_duplicate_samples(pl.concat([wide, narrow])).measured == 2


@pytest.mark.parametrize("value", [-0.1, 9.0, float("inf"), float("nan")])
def test_impossible_figures_are_out_of_bounds(value: float) -> None:
    result = checks.within_bounds(rows([0.5]).with_columns(utilization=pl.lit(value)))
    assert (result.passed, result.measured) == (False, 1)
    assert "prod/inference/Deployment/chat at 2025-01-06 00:00" in result.detail


def test_the_worst_workload_tells_the_gaps() -> None:
    embed = rows([0.5] * 144, workload="prod/inference/Deployment/embed")
    result = checks.gaps(pl.concat([rows([0.5] * 288), embed]), DAY, NEXT_DAY)
    assert (result.passed, result.measured) == (False, pytest.approx(0.5))
    assert "embed" in result.detail


def test_a_workload_that_started_late_has_no_gap_before_it() -> None:
    late = rows([0.5] * 144, start=DAY + timedelta(hours=12))
    assert checks.gaps(late, DAY, NEXT_DAY).measured == pytest.approx(0)


def test_old_samples_and_thin_samples_fail() -> None:
    assert checks.newest_sample_age(DAY, NEXT_DAY, 10_800).passed is False
    thin = rows([0.5], samples_seen=5, samples_expected=10, devices_expected=2)
    assert (checks.coverage(thin).passed, checks.coverage(thin).measured) == (False, 0.5)
    # 2 devices with 10 samples in 300 s: one each 60 s.
    assert (checks.scrape_interval(thin).passed, checks.scrape_interval(thin).measured) == (False, 60)


def test_nothing_measured_is_neither_passed_nor_failed() -> None:
    results = checks.all_checks(empty_history(), DAY, NEXT_DAY, None, NEXT_DAY, 10_800)
    assert [result.passed for result in results] == [True, True, None, None, None, None]


def test_of_several_parts_the_worst_counts() -> None:
    good, holes = rows([0.5] * 288), rows([0.5] * 144)
    parts = [checks.all_checks(part, DAY, NEXT_DAY, NEXT_DAY, NEXT_DAY, 10_800) for part in (good, holes)]
    for order in (parts, parts[::-1]):
        told = {result.name: result for result in checks.worst_of(order)}
        assert (told["gaps"].passed, told["gaps"].measured) == (False, 0.5)
        assert told["within_bounds"].passed
