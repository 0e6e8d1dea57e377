"""The checks on the table, alone."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from piqc_pipeline.defs import history
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.history import store as history_store
from piqc_pipeline.history.duckdb_store import DuckDbStore
from piqc_pipeline.settings import Settings
from piqc_pipeline_tests.history.rows import DAY, NEXT_DAY, rows


def run_checks(pipeline: Pipeline) -> dg.ExecuteInProcessResult:
    selection = dg.AssetSelection.checks(history.gpu_utilization_checks)
    definitions = dg.Definitions(
        assets=[history.gpu_utilization],
        asset_checks=[history.gpu_utilization_checks],
        jobs=[dg.define_asset_job("checks", selection)],
        resources={"pipeline": pipeline},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        return definitions.resolve_job_def("checks").execute_in_process(instance=instance)


def test_checks_on_a_locked_store_fail_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "open_store", lambda location: DuckDbStore(location, wait_seconds=0.1))
    pipeline = Pipeline(Settings(data_dir=tmp_path, now=datetime(2025, 1, 7, tzinfo=UTC)))
    location = pipeline.settings.store_location()
    DuckDbStore(location).replace(DAY, NEXT_DAY, rows([0.1] * 288))
    assert len(run_checks(pipeline).get_asset_check_evaluations()) == len(history.TABLE_CHECKS)
    program = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(dg.Failure) as caught:
            run_checks(pipeline)
        holder.communicate("", timeout=20)
    assert caught.value.description is not None
    assert caught.value.description.startswith(f"cannot open {location}: process {holder.pid}")
