from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from piqc_pipeline.errors import UsageError
from piqc_pipeline.forecast.calendar import Calendar, KnownEvent, holidays_between, parse_events, read_events
from piqc_pipeline.forecast.grid import event_factors, prepare
from piqc_pipeline.forecast.members import Night
from piqc_pipeline.forecast.members.levels import SeasonalNaive
from piqc_pipeline.forecast.members.seasons import fit_profile, fit_ridge
from piqc_pipeline.forecast.policy import TrainPolicy
from piqc_pipeline.forecast.series import DemandSeries
from piqc_pipeline.forecast.train import train

DAY = 144
SUMMER_TIME = datetime(2025, 3, 30, 1, tzinfo=UTC)
"""When clocks in Berlin go from 2:00 to 3:00 (EU directive 2000/84: last Sunday of March, 1:00 UTC)."""


def office_hours(start: datetime, days: int, zone: str = "Europe/Berlin") -> np.ndarray:
    """4 replicas from 8:00 to 18:00 local time, else 1."""
    seconds = start.timestamp() + 600.0 * np.arange(days * DAY)
    hour = (Calendar(zone).local(seconds) % 86_400) / 3600
    return np.where((hour >= 8) & (hour < 18), 4.0, 1.0)


def test_offset_changes_when_the_clocks_do():
    around = np.array([(SUMMER_TIME + timedelta(minutes=m)).timestamp() for m in (-1, 1)])
    assert Calendar("Europe/Berlin").offsets_seconds(around).tolist() == [3600.0, 7200.0]
    assert Calendar().offsets_seconds(around).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("make", ["day_carried", "profile", "ridge"])
def test_season_follows_the_local_clock_over_daylight_saving(make):
    start = SUMMER_TIME.replace(hour=0) - timedelta(days=10)
    demand = office_hours(start, 12)
    cutoff = 10 * DAY + 18  # Sunday 30 March, 3:00 UTC: clocks have changed, the working day has not begun
    grid = prepare(DemandSeries("w", start, 600, demand), Calendar("Europe/Berlin"))
    night = Night(grid, cutoff)
    # 8:00 in Berlin is now 6:00 UTC. In winter it was 7:00 UTC.
    ahead = np.arange(cutoff, cutoff + DAY // 2)
    if make == "day_carried":
        predicted = SeasonalNaive("yesterday", 1, carry=False).fit(night).predict(np.array([cutoff]), len(ahead))[0]
    else:
        predicted = {"profile": fit_profile, "ridge": fit_ridge}[make](night).values(ahead)
    error = np.abs(predicted - demand[ahead])
    # A clock that is an hour off is wrong by 3 for an hour in the morning: 6 of 72 buckets.
    if make == "ridge":
        assert error[21] < 1.5 and predicted[21] > 2.5  # 6:30 UTC
    else:
        assert error.sum() < 6


def test_holiday_counts_as_the_sunday_of_its_week():
    # Thursday 1 May 2025 is a public holiday in Germany.
    assert date(2025, 5, 1) in holidays_between("DE", date(2025, 4, 28), date(2025, 5, 4))
    noon = datetime(2025, 5, 1, 12, tzinfo=UTC).timestamp()
    moved = Calendar("UTC", "DE").week_clock(np.array([noon]))
    assert moved[0] - noon == 3 * 86_400


def test_unknown_country_is_a_usage_error():
    with pytest.raises(UsageError, match="ISO 3166"):
        holidays_between("XX", date(2025, 1, 1), date(2025, 1, 2))


def test_events_file_is_read_and_a_bad_row_is_named(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(
        "name,start,end,workload,factor\nlaunch,2025-01-20T08:00:00+01:00,2025-01-20T12:00:00+01:00,inference/chat,2\n"
    )
    (event,) = read_events(path)
    assert event.start == datetime(2025, 1, 20, 7, tzinfo=UTC) and event.factor == 2
    assert event.concerns("c/Deployment/inference/chat") and not event.concerns("c/n/D/other")
    with pytest.raises(UsageError, match="line 2.*no zone"):
        parse_events("name,start,end\nx,2025-01-20T08:00:00,2025-01-21T08:00:00\n", "events.csv")
    with pytest.raises(UsageError, match="no column end"):
        parse_events("name,start\n", "events.csv")
    with pytest.raises(UsageError, match="must follow"):
        parse_events("name,start,end\nx,2025-01-20T08:00:00Z,2025-01-20T08:00:00Z\n", "events.csv")
    with pytest.raises(UsageError, match="cannot read"):
        read_events(tmp_path / "none.csv")


def test_coming_launch_multiplies_the_table_and_a_past_one_is_not_learned_from():
    start = datetime(2025, 1, 6, tzinfo=UTC)
    demand = np.full(6 * DAY, 2.0)
    end = start + timedelta(days=6)
    launch = KnownEvent("launch", end + timedelta(hours=2), end + timedelta(hours=4), factor=3.0)
    past = KnownEvent("test", start + timedelta(days=2), start + timedelta(days=3))
    calendar = Calendar(events=(launch, past))
    series = DemandSeries("w", start, 600, demand)
    policy = TrainPolicy(with_prophet=False, replay_nights=2, calendar=calendar)
    table = train([series], end, policy).workloads["w"].table
    assert table.q50[11] == pytest.approx(2.0) and table.q50[12] == pytest.approx(6.0)
    assert table.q50[24] == pytest.approx(2.0)
    grid = prepare(series, calendar)
    assert not grid.usable[2 * DAY : 3 * DAY].any() and grid.usable[: 2 * DAY].all()
    assert event_factors(calendar, "w", np.array([launch.start.timestamp()])).tolist() == [3.0]


def test_unknown_zone_is_a_usage_error():
    with pytest.raises(UsageError, match="IANA"):
        Calendar("Mars/Olympus").offsets_seconds(np.array([0.0]))
