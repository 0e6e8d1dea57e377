from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.history.plots import load_plot, week_plot
from piqc_pipeline.history.profile import load_profile
from piqc_pipeline.history.samples import empty_history
from piqc_pipeline_tests.history.rows import DAY, rows

HOUR = 3600


def two_weeks(workday: float, weekend: float) -> pl.DataFrame:
    """Hourly rows from a Monday: busy from 8 to 20 on workdays and weekends as given, 0.1 else."""
    values = []
    for hour in range(14 * 24):
        busy = 8 <= hour % 24 < 20
        values.append((weekend if hour // 24 % 7 > 4 else workday) if busy else 0.1)
    return rows(values, step_seconds=HOUR).with_columns(demand_replicas=pl.col("utilization") * 2)


def test_mean_peak_night_and_busy_hours_are_those_of_the_zone() -> None:
    frame = two_weeks(0.9, 0.9)
    utc = load_profile(frame).profiles[0]
    assert utc.mean_pct == pytest.approx(50)
    assert (utc.peak_pct, utc.peak_at) == (pytest.approx(90), DAY + timedelta(hours=8))
    assert (utc.night_pct, utc.busy_hours_pct) == (pytest.approx(10), pytest.approx(90))
    # In Tokyo (UTC+9) 08-20 UTC is 17-05: of the six night hours five are busy, of the twelve busy hours three.
    tokyo = load_profile(frame, "Asia/Tokyo").profiles[0]
    assert tokyo.night_pct == pytest.approx((5 * 90 + 10) / 6)
    assert tokyo.busy_hours_pct == pytest.approx((3 * 90 + 9 * 10) / 12)


def test_night_follows_daylight_saving() -> None:
    # Berlin left summer time on 2024-10-27; midnight was 22:00 UTC before it and 23:00 UTC after.
    start = datetime(2024, 10, 20, tzinfo=UTC)
    moments = [start + timedelta(hours=hour) for hour in range(14 * 24)]
    night = [
        0.2
        if (
            moment.hour in (22, 23, 0, 1, 2, 3)
            if moment < datetime(2024, 10, 27, tzinfo=UTC)
            else moment.hour in (23, 0, 1, 2, 3, 4)
        )
        else 0.8
        for moment in moments
    ]
    profile = load_profile(rows(night, start=start, step_seconds=HOUR), "Europe/Berlin").profiles[0]
    assert profile.night_pct == pytest.approx(20)


def test_workdays_against_weekends_and_the_strength_of_the_week() -> None:
    flat = load_profile(two_weeks(0.5, 0.5)).profiles[0]
    weekly = load_profile(two_weeks(0.9, 0.1)).profiles[0]
    assert flat.workday_weekend_ratio == pytest.approx(1)
    assert flat.daily_strength == pytest.approx(1)
    assert flat.weekly_strength == 0
    # Workday mean (12 x 0.9 + 12 x 0.1) / 24 = 0.5; weekend 0.1.
    assert weekly.workday_weekend_ratio == pytest.approx(5)
    assert weekly.weekly_strength == pytest.approx(1)


def test_one_week_has_no_weekly_strength() -> None:
    profile = load_profile(two_weeks(0.9, 0.1).head(7 * 24)).profiles[0]
    assert profile.weekly_strength is None
    assert profile.daily_strength is not None


def test_outliers_and_gaps_are_told_with_their_spans() -> None:
    frame = pl.concat([rows([0.5, 0.96, 0.99, 0.5, 0.04]), rows([0.01], start=DAY + timedelta(hours=1))])
    profile = load_profile(frame)
    told = [(span.kind, span.start - DAY, span.end - DAY) for span in profile.spans]
    five = timedelta(minutes=5)
    assert told == [
        ("high", five, 3 * five),
        ("low", 4 * five, 5 * five),
        ("gap", 5 * five, 12 * five),
        ("low", 12 * five, 13 * five),
    ]
    assert profile.spans[0].peak_utilization == 0.99
    own = profile.profiles[0]
    assert (own.high_hours, own.low_hours, own.gaps) == (pytest.approx(1 / 6), pytest.approx(1 / 6), 1)
    assert own.gap_hours == pytest.approx(35 / 60)
    assert own.covered_pct == pytest.approx(100 * 6 / 13)


def test_the_censored_share_is_counted() -> None:
    frame = pl.concat([rows([1.0], censored=True), rows([0.5] * 3, start=DAY + timedelta(minutes=5), censored=False)])
    assert load_profile(frame).profiles[0].censored_pct == pytest.approx(25)


@pytest.mark.parametrize(
    ("values", "mean"),
    [([0.4], 40), ([0.0] * 50, 0), ([None, 0.5], 50)],
    ids=["one sample", "constant zero", "unknown"],
)
def test_thin_histories_have_a_profile_without_invented_figures(values: list[float | None], mean: float) -> None:
    profile = load_profile(rows(values)).profiles[0]
    assert profile.mean_pct == pytest.approx(mean)
    assert profile.weekly_strength is None
    assert profile.workday_weekend_ratio is None


def test_nothing_stored_has_no_profile_and_still_a_csv() -> None:
    profile = load_profile(empty_history())
    assert profile.profiles == ()
    assert profile.to_csv().startswith("workload,start,end,step_seconds")
    assert profile.spans_csv().startswith("workload,kind,start,end")


def test_the_csv_has_one_line_a_workload() -> None:
    frame = pl.concat([rows([0.5]), rows([0.1], workload="prod/inference/Deployment/embed")])
    lines = load_profile(frame).to_csv().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "workload",
        "prod/inference/Deployment/chat",
        "prod/inference/Deployment/embed",
    ]


def test_an_unknown_zone_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="no time zone 'Mars/Base'"):
        load_profile(rows([0.5]), "Mars/Base")


def test_plots_are_png_and_bear_gaps_and_nothing() -> None:
    frame = pl.concat([rows([0.5, 0.99], censored=True), rows([0.5], start=DAY + timedelta(hours=5))])
    for plot in (load_plot(frame), week_plot(frame), load_plot(empty_history()), week_plot(empty_history())):
        assert plot.startswith(b"\x89PNG")
