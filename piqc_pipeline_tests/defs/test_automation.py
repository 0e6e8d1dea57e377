"""What a tick of each schedule starts."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from piqc_pipeline.definitions import build_defs
from piqc_pipeline.defs import automation
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.settings import Settings


def tick(schedule_name: str, when: datetime, settings: Settings) -> dg.RunRequest | str:
    pipeline = Pipeline(settings)
    defs = build_defs(pipeline)
    schedule = defs.resolve_schedule_def(schedule_name)
    with dg.build_schedule_context(
        scheduled_execution_time=when,
        resources={"pipeline": pipeline},
        repository_def=defs.get_repository_def(),
        instance=dg.DagsterInstance.ephemeral(),
    ) as context:
        data = schedule.evaluate_tick(context)
    return data.run_requests[0] if data.run_requests else data.skip_message or ""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, history_start=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("hour", "day"),
    [
        pytest.param(0, "2026-03-09", id="0010-completes-yesterday"),
        pytest.param(1, "2026-03-10", id="0110-begins-today"),
        pytest.param(9, "2026-03-10", id="0910-refills-today"),
    ],
)
def test_history_fills_the_day_of_one_hour_ago(settings: Settings, hour: int, day: str) -> None:
    request = tick("history_hourly", datetime(2026, 3, 10, hour, 10, tzinfo=UTC), settings)
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == day
    assert request.run_key == f"history-{day}-2026-03-10T{hour:02}"


def test_each_hour_has_a_run_key_of_its_own(settings: Settings) -> None:
    requests = [tick("collect_hourly", datetime(2026, 3, 10, hour, 5, tzinfo=UTC), settings) for hour in (0, 1)]
    assert [r.run_key for r in requests if isinstance(r, dg.RunRequest)] == [
        "collect-2026-03-10T00",
        "collect-2026-03-10T01",
    ]


def test_train_runs_once_a_day(settings: Settings) -> None:
    request = tick("train_daily", datetime(2026, 3, 10, 1, 30, tzinfo=UTC), settings)
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == "train-2026-03-10"


def test_on_the_demo_the_history_schedule_says_why_it_skips(tmp_path: Path) -> None:
    settings = Settings(cluster="demo", data_dir=tmp_path)
    assert "2025-01-20T00:00Z, where PIQC_NOW or the demo stands" in str(
        tick("history_hourly", datetime(2026, 3, 10, 9, 10, tzinfo=UTC), settings)
    )


def test_schedules_wait_until_a_user_starts_them() -> None:
    assert {s.default_status for s in automation.SCHEDULES} == {dg.DefaultScheduleStatus.STOPPED}
