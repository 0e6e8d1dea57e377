import polars as pl

from piqc_pipeline.history.profile import load_profile
from piqc_pipeline.history.words import in_words, longest
from piqc_pipeline_tests.history.rows import rows


def test_a_profile_is_told_in_sentences() -> None:
    values = [(0.9 if hour // 24 % 7 < 5 else 0.1) if 8 <= hour % 24 < 20 else 0.1 for hour in range(14 * 24)]
    frame = rows(values, step_seconds=3600, signal="DCGM_FI_DEV_GPU_UTIL", confidence="low")
    told = in_words(load_profile(frame.with_columns(demand_replicas=pl.col("utilization"))).profiles[0])
    assert told == (
        "inference/chat was 39 % busy on average over 14.0 days, at most 90 % (Monday 06 January 08:00). "
        "From 8 to 20 o'clock it was 67 % busy, at night 10 %: a moderate daily pattern. "
        "Workdays carry 5.00 times the load of weekends: a strong weekly pattern. "
        "Signal: DCGM_FI_DEV_GPU_UTIL, confidence low."
    )


def test_what_cannot_be_told_is_not_made_up() -> None:
    assert in_words(load_profile(rows([None])).profiles[0]) == (
        "inference/chat: 0.0 days stored, its utilization is unknown."
    )
    short = in_words(load_profile(rows([0.99] * 12, censored=True)).profiles[0])
    assert "cannot be told before two weeks" in short
    assert "1.0 h above 95 % and 0.0 h below 5 %" in short
    assert "In 100.0 % of the time its replicas were saturated" in short


def test_the_longest_outliers_come_first() -> None:
    profile = load_profile(rows([0.99, 0.5, 0.99, 0.99, 0.5, 0.01]))
    assert [round(span.hours * 60) for span in longest(profile, "high")] == [10, 5]
    assert longest(profile, "gap") == []
