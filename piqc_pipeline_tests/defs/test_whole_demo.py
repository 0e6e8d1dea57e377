"""The whole graph on the demo, once for all tests here; then what happens when a part of it is missing or wrong."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from piqc_pipeline.defs import collect, forecast, history, report, scaling, shards
from piqc_pipeline.defs.display import MAX_PLOT_BYTES
from piqc_pipeline.defs.partitions import range_tags
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.defs.run_all import Outcome, materialize_all
from piqc_pipeline.forecast import artifact
from piqc_pipeline.history import store as history_store
from piqc_pipeline.settings import Settings

LLAMA = "demo/inference/Deployment/llama-70b"
CHECKS = 23


@dataclass(frozen=True)
class Demo:
    """The finished run, its instance, and the steps it told."""

    outcome: Outcome
    instance: dg.DagsterInstance
    home: Path
    told: list[str]

    @property
    def data_dir(self) -> Path:
        return self.outcome.pipeline.settings.data_dir


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home = tmp_path_factory.mktemp("dagster_home")
    told: list[str] = []
    settings = Settings(cluster="demo", data_dir=tmp_path_factory.mktemp("demo") / "data")
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        yield Demo(materialize_all(settings, instance, told.append), instance, home, told)


@pytest.fixture
def copied(demo: Demo, tmp_path: Path) -> Pipeline:
    """The demo's results, free to be damaged."""
    shutil.copytree(demo.data_dir, tmp_path / "data", symlinks=True)
    return Pipeline(Settings(cluster="demo", data_dir=tmp_path / "data"))


def run(
    pipeline: Pipeline, *assets: dg.AssetsDefinition, tags: dict[str, str] | None = None
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize(list(assets), instance=instance, resources={"pipeline": pipeline}, tags=tags)


def failure(pipeline: Pipeline, *assets: dg.AssetsDefinition, tags: dict[str, str] | None = None) -> str:
    """The sentence that a run of these assets ends with."""
    with pytest.raises(dg.Failure) as caught:
        run(pipeline, *assets, tags=tags)
    return caught.value.description or ""


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def day(number: int) -> datetime:
    return datetime(2025, 1, number, tzinfo=UTC)


def test_every_asset_is_materialized_in_one_run(demo: Demo) -> None:
    runs = demo.instance.get_runs()
    assert [entry.status for entry in runs] == [dg.DagsterRunStatus.SUCCESS]
    assert len(demo.outcome.figures) == 11
    steps_of_training = {"split_demand", "train_one_shard", "join_shards"}
    assert set(demo.told) == set(demo.outcome.figures) - {"demand_model"} | steps_of_training


def test_the_run_fills_all_fourteen_days(demo: Demo) -> None:
    filled = demo.instance.get_materialized_partitions(dg.AssetKey("gpu_utilization"))
    assert sorted(filled) == [f"2025-01-{number:02}" for number in range(6, 20)]


def test_every_check_is_evaluated_with_measured_value_and_limit(demo: Demo) -> None:
    logs = demo.instance.all_logs(demo.outcome.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    evaluations = [entry.dagster_event.asset_check_evaluation_data for entry in logs if entry.dagster_event]
    assert len({(entry.asset_key, entry.check_name) for entry in evaluations}) == CHECKS
    assert all({"measured", "limit", "unit"} <= set(entry.metadata) for entry in evaluations)


def test_no_blocking_check_fails_on_the_demo(demo: Demo) -> None:
    blocking = {"mae_below_10_pp", "loads_and_predicts", "manifests_valid", "target_reachable", "schema_valid"}
    assert not blocking & set(demo.outcome.failed_checks)


def test_nothing_is_pickled(demo: Demo) -> None:
    stored = [
        path for path in (demo.home / "storage").rglob("*") if path.is_file() and "compute_logs" not in path.parts
    ]
    assert stored == []


def test_errors_are_numbers_that_dagster_plots(demo: Demo) -> None:
    figures = demo.outcome.figures["demand_model"]
    assert 0 < figures["mae_pp_ensemble"] < 10
    assert figures["mae_pp_ensemble"] < figures["mae_pp_sma60"]
    assert figures["rmse_pp_ensemble"] >= figures["mae_pp_ensemble"]
    assert demo.outcome.figures["waste_report"]["waste_usd_per_day"] > 0


@pytest.mark.parametrize(
    ("asset", "name"), [("demand_model", "forecast"), ("load_profile", "load"), ("load_profile", "week")]
)
def test_a_plot_stands_on_the_asset_page(demo: Demo, asset: str, name: str) -> None:
    event = demo.instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    shown = str(event.asset_materialization.metadata[name].value)
    assert shown.startswith("![")
    assert "](data:image/png;base64," in shown
    assert len(shown) < MAX_PLOT_BYTES * 4 / 3 + 100


def test_a_workload_whose_model_was_rejected_gets_the_observed_trigger_alone(demo: Demo) -> None:
    entries = artifact.load(demo.outcome.pipeline.artifact_dir).workloads
    rejected = [name.rsplit("/", 1)[-1] for name, entry in entries.items() if not entry.accepted]
    assert rejected == ["codellama-34b"]
    manifest = (demo.outcome.pipeline.manifests_dir / "inference" / "codellama-34b.scaledobject.yaml").read_text()
    assert "Stays reactive (observed trigger alone)" in manifest
    assert "name: forecast" not in manifest
    other = (demo.outcome.pipeline.manifests_dir / "inference" / "llama-70b.scaledobject.yaml").read_text()
    assert "name: forecast" in other


def test_the_report_is_one_page_that_loads_nothing(demo: Demo) -> None:
    page = (demo.outcome.pipeline.report_dir / "index.html").read_text()
    assert LLAMA in page
    assert "http://" not in page
    assert "https://" not in page


def test_filling_a_day_twice_changes_no_row(copied: Pipeline) -> None:
    store = history_store.open_store(copied.settings.store_location())
    before = store.read()
    run(copied, history.gpu_utilization, tags=range_tags(day(6), day(8)))
    assert store.read().equals(before)


def test_rendering_twice_changes_no_byte(copied: Pipeline) -> None:
    before = files_below(copied.manifests_dir)
    run(copied, scaling.keda_manifests)
    assert files_below(copied.manifests_dir) == before


def test_an_altered_artifact_is_an_error_and_nothing_is_written(copied: Pipeline) -> None:
    before = files_below(copied.manifests_dir)
    place = copied.artifact_dir / "predictor.json"
    place.write_text(place.read_text().replace('"accepted":false', '"accepted":true'))
    assert "was altered" in failure(copied, scaling.keda_manifests)
    assert files_below(copied.manifests_dir) == before


def test_a_missing_artifact_is_an_error_and_nothing_is_written(copied: Pipeline) -> None:
    copied.artifact_dir.unlink()
    shutil.rmtree(copied.manifests_dir)
    assert "no predictor artifact" in failure(copied, scaling.keda_manifests)
    assert not copied.manifests_dir.exists()


def test_the_report_shows_the_rest_where_no_forecast_can_be_used(copied: Pipeline) -> None:
    copied.artifact_dir.unlink()
    run(copied, report.capacity_report)
    assert "no forecast" in (copied.report_dir / "index.html").read_text().lower()


def test_a_candidate_without_an_accepted_forecast_is_not_promoted(copied: Pipeline) -> None:
    before = artifact.load(copied.artifact_dir).sha256
    reject_candidate(copied)
    assert "no forecast of the 4 workloads was accepted" in failure(copied, forecast.predictor_artifact)
    assert artifact.load(copied.artifact_dir).sha256 == before


def reject_candidate(pipeline: Pipeline) -> None:
    folder = pipeline.model_dir / "candidate"
    found = artifact.load(folder)
    rejected = {name: replace(entry, accepted=False, reasons=("worse",)) for name, entry in found.workloads.items()}
    candidate = artifact.CandidateModel(found.trained_at, rejected, found.failed, found.versions, found.policy)
    artifact.write_candidate(candidate, folder)


def test_the_run_stops_after_training_only_where_no_workload_is_accepted(
    copied: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = shards.train_policy
    strict = functools.partial(replace, mae_limit_pp=0.0, with_prophet=False)
    monkeypatch.setattr(shards, "train_policy", lambda settings: strict(ours(settings)))
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [forecast.demand_model, forecast.demand_model_checks, forecast.predictor_artifact, scaling.keda_manifests],
            instance=instance,
            resources={"pipeline": copied},
            raise_on_error=False,
        )
    assert not result.success
    assert {event.asset_key for event in result.get_asset_materialization_events()} == {dg.AssetKey("demand_model")}
    failed = {check.check_name: check for check in result.get_asset_check_evaluations() if not check.passed}
    assert failed["mae_below_10_pp"].severity == dg.AssetCheckSeverity.ERROR
    assert failed["mae_below_10_pp"].metadata["limit"].value == 0.0


def test_training_by_shard_gives_the_same_forecasts(copied: Pipeline) -> None:
    before = artifact.load(copied.model_dir / "candidate").workloads
    config = {"ops": {"demand_model": {"ops": {"split_demand": {"config": {"workloads_per_shard": 3}}}}}}
    (copied.model_dir / "current").unlink()
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [forecast.demand_model], instance=instance, resources={"pipeline": copied}, run_config=config
        )
    steps = {event.step_key for event in result.all_events if event.is_step_success}
    assert {"demand_model.train_one_shard[shard_0]", "demand_model.train_one_shard[shard_1]"} <= steps
    after = artifact.load(copied.model_dir / "candidate").workloads
    assert {name: entry.table for name, entry in after.items()} == {name: entry.table for name, entry in before.items()}
    assert list((copied.model_dir / "shards").iterdir()) == []


def test_a_locked_history_names_the_process_that_holds_it(copied: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = functools.partial(history_store.open_store, wait_seconds=0.1)
    monkeypatch.setattr(history_store, "open_store", impatient)
    program = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, copied.settings.store_location()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        assert f"process {holder.pid}" in failure(copied, history.load_profile)
        holder.communicate("", timeout=20)


def test_a_prometheus_that_nobody_answers_at_is_named_after_the_retries(
    copied: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(dg.RetryPolicy, "calculate_delay", lambda policy, attempt: 0.0)
    settings = copied.settings.model_copy(update={"prometheus_url": "http://127.0.0.1:9", "now": day(20)})
    says = failure(Pipeline(settings), history.gpu_utilization, tags=range_tags(day(6), day(6)))
    assert "http://127.0.0.1:9" in says
    before = history_store.open_store(copied.settings.store_location()).read(day(6), day(7))
    assert before.height > 0


def test_a_day_that_has_not_begun_is_refused(copied: Pipeline) -> None:
    settings = copied.settings.model_copy(update={"now": day(10)})
    says = failure(Pipeline(settings), history.gpu_utilization, tags=range_tags(day(9), day(12)))
    assert says.startswith("cannot fill the day 2025-01-12: it has not begun")


def test_nothing_configured_is_one_sentence_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIQC_CLUSTER", raising=False)
    says = failure(Pipeline(Settings(data_dir=tmp_path)), collect.cluster_snapshot)
    assert "PIQC_CLUSTER" in says
    assert "piqc demo" in says


def test_assets_that_need_a_snapshot_say_how_to_get_one(tmp_path: Path) -> None:
    says = failure(Pipeline(Settings(cluster="demo", data_dir=tmp_path)), collect.waste_report)
    assert "scan the cluster" in says


def test_an_output_that_cannot_be_written_leaves_the_old_one(copied: Pipeline) -> None:
    settings = copied.settings.model_copy(update={"data_dir": copied.snapshot_path})
    assert "cannot write" in failure(Pipeline(settings), collect.cluster_snapshot)
    assert json.loads(copied.snapshot_path.read_text())


def test_training_without_history_says_what_to_materialize(tmp_path: Path) -> None:
    says = failure(Pipeline(Settings(cluster="demo", data_dir=tmp_path)), forecast.demand_model)
    assert "materialize gpu_utilization" in says
