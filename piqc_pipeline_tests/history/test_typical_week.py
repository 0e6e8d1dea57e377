import io
import threading
from datetime import UTC, datetime, timedelta

import httpx
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from piqc_pipeline.errors import UsageError
from piqc_pipeline.history.exporter import LiveExporter
from piqc_pipeline.history.openmetrics import GaugeSeries, write_openmetrics
from piqc_pipeline.history.typical_week import TypicalWeek, dcgm_series, typical_week

MONDAY = datetime(2025, 1, 6, tzinfo=UTC)


def mean(load: pl.DataFrame, first: int, last: int, weekend: bool) -> float:
    hour, weekday = pl.col("ts").dt.hour(), pl.col("ts").dt.weekday()
    part = load.filter(hour.is_between(first, last - 1) & ((weekday > 5) == weekend))
    return float(part["utilization"].mean())  # type: ignore[arg-type]


def test_days_are_high_nights_low_and_weekends_calm() -> None:
    load = typical_week(TypicalWeek(MONDAY, days=14, noise=0.0, bursts_per_day=0.0))
    assert load.height == 14 * 288
    assert mean(load, 10, 18, weekend=False) == pytest.approx(0.75)
    assert mean(load, 0, 6, weekend=False) == pytest.approx(0.15)
    assert mean(load, 10, 18, weekend=True) == pytest.approx(0.15 + 0.6 * 0.5)


def test_the_same_seed_is_the_same_load_and_another_is_not() -> None:
    first, again, other = (typical_week(TypicalWeek(MONDAY, seed=seed)) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
    assert first["utilization"].is_between(0, 1).all()


def test_gaps_have_no_rows_and_a_shift_changes_the_level() -> None:
    quiet = {"noise": 0.0, "bursts_per_day": 0.0}
    assert typical_week(TypicalWeek(MONDAY, gaps=3)).height < 14 * 288
    shifted = typical_week(TypicalWeek(MONDAY, level_shift=0.5, **quiet))  # type: ignore[arg-type]
    before, after = shifted.filter(pl.col("ts") < MONDAY + timedelta(days=7)), shifted.tail(7 * 288)
    assert after["utilization"].mean() == pytest.approx(before["utilization"].mean() / 2)  # type: ignore[operator]


def test_the_day_begins_in_its_zone() -> None:
    load = typical_week(TypicalWeek(MONDAY, days=1, noise=0.0, bursts_per_day=0.0, timezone="Asia/Tokyo"))
    assert mean(load, 1, 9, weekend=False) == pytest.approx(0.75)


def test_shapes_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(UsageError, match="low 0.9 and high 0.5"):
        TypicalWeek(MONDAY, low=0.9, high=0.5)
    with pytest.raises(UsageError, match="positive"):
        TypicalWeek(MONDAY, days=0)


def test_openmetrics_escape_labels_and_end_with_eof() -> None:
    stream = io.StringIO()
    written = write_openmetrics(
        stream,
        {"requests_total": [GaugeSeries({"pod": 'a"b\\c\n'}, [1.5], [2])]},
        counters=frozenset({"requests_total"}),
    )
    assert written == 1
    assert stream.getvalue() == '# TYPE requests counter\nrequests_total{pod="a\\"b\\\\c\\n"} 2 1.500\n# EOF\n'


def test_the_live_exporter_plays_faster_than_the_clock_and_starts_over() -> None:
    now = [0.0]
    series = [GaugeSeries({"pod": "chat-0"}, [0, 300, 600], [10, 20, 30])]
    exporter = LiveExporter("DCGM_FI_DEV_GPU_UTIL", series, speed=60, port=0, clock=lambda: now[0])
    thread = threading.Thread(target=exporter.serve)
    thread.start()
    try:
        seen = []
        for second in (0, 5, 9.9, 10.1):
            now[0] = second
            [family] = text_string_to_metric_families(httpx.get(exporter.address, timeout=5).text)
            [sample] = family.samples
            assert (sample.name, sample.labels) == ("DCGM_FI_DEV_GPU_UTIL", {"pod": "chat-0"})
            seen.append(sample.value)
    finally:
        exporter.close()
        thread.join()
    assert seen == [10, 20, 20, 10]


def test_a_taken_port_is_one_sentence() -> None:
    load = dcgm_series(typical_week(TypicalWeek(MONDAY, days=0.1)), 1, "prod", "chat")
    first = LiveExporter("m", load, 1, port=0)
    port = int(first.address.rsplit(":", 1)[1].split("/")[0])
    try:
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
            LiveExporter("m", load, 1, port=port)
    finally:
        threading.Thread(target=first.serve, daemon=True).start()
        first.close()
