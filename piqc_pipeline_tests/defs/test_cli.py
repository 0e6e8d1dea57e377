"""Dagster's own command line on the demo, as the README shows it."""

import sys
from pathlib import Path

import dagster as dg
import pytest

from piqc_pipeline.history.store import open_store
from piqc_pipeline_tests.defs.dagster_home import dagster, environment, started, wait_until

pytestmark = pytest.mark.cli


def test_two_weeks_are_filled_in_one_run_without_a_daemon(tmp_path: Path) -> None:
    env = environment(tmp_path / "home", tmp_path / "data")
    ended = dagster(
        *("asset", "materialize", "-m", "piqc_pipeline.definitions", "--select", "*"),
        *("--partition-range", "2025-01-06...2025-01-19"),
        env=env,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(open_store(tmp_path / "data" / "history.duckdb").days()) == 14
    assert (tmp_path / "data" / "manifests" / "kustomization.yaml").exists()
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.SUCCESS]


def test_a_job_backfill_works_with_the_daemon(tmp_path: Path) -> None:
    env = environment(tmp_path / "home", tmp_path / "data")
    asked = dagster(
        *("asset", "materialize", "-m", "piqc_pipeline.definitions", "--select", "cluster_snapshot,facts_bundle"),
        env=env,
    )
    assert asked.returncode == 0, asked.stderr[-3000:]
    queued = dagster(
        *("job", "backfill", "-w", "workspace.yaml", "-j", "history", "--noprompt"),
        *("--partitions", "2025-01-06,2025-01-07"),
        env=env,
    )
    assert queued.returncode == 0, queued.stderr[-3000:]
    # Without -w, as `dagster dev` is started: a run waits for the location that queued it, whatever named it.
    daemon = [str(Path(sys.executable).with_name("dagster-daemon")), "run"]
    with (
        started(daemon, env, tmp_path / "daemon.log"),
        dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance,
    ):
        wanted = dg.RunsFilter(job_name="history", statuses=[dg.DagsterRunStatus.SUCCESS])
        wait_until(lambda: len(instance.get_runs(wanted)) == 2, "two successful runs", 400)
    assert len(open_store(tmp_path / "data" / "history.duckdb").days()) == 2


def test_an_unconfigured_run_ends_with_the_sentence(tmp_path: Path) -> None:
    env = environment(tmp_path / "home", tmp_path / "data")
    del env["PIQC_CLUSTER"]
    ended = dagster("asset", "materialize", "-m", "piqc_pipeline.definitions", "--select", "cluster_snapshot", env=env)
    assert ended.returncode != 0
    assert "no cluster is configured: set PIQC_CLUSTER" in ended.stdout + ended.stderr
