"""Training by shard, each step in a process of its own, as on pods that share no memory."""

from pathlib import Path

import dagster as dg
import pytest

from piqc_pipeline.definitions import build_defs
from piqc_pipeline.defs import collect, history
from piqc_pipeline.defs.partitions import range_tags
from piqc_pipeline.defs.resources import Pipeline
from piqc_pipeline.forecast import artifact
from piqc_pipeline.settings import DEMO_NOW, Settings
from piqc_pipeline_tests.defs.dagster_home import environment

pytestmark = pytest.mark.cli


def train_shards() -> dg.JobDefinition:
    """What each step's process loads, with the settings of its environment."""
    return build_defs().resolve_job_def("train_shards")


def test_shards_train_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, data_dir = tmp_path / "home", tmp_path / "data"
    for name, value in environment(home, data_dir).items():
        monkeypatch.setenv(name, value)
    config = {"ops": {"demand_model": {"ops": {"split_demand": {"config": {"workloads_per_shard": 2}}}}}}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        dg.materialize(
            [collect.cluster_snapshot, collect.facts_bundle, history.gpu_utilization],
            instance=instance,
            resources={"pipeline": Pipeline(Settings(cluster="demo", data_dir=data_dir))},
            tags=range_tags(DEMO_NOW.replace(day=6), DEMO_NOW.replace(day=19)),
        )
        with dg.execute_job(
            dg.reconstructable(train_shards),
            instance=instance,
            run_config=config,
            asset_selection=[dg.AssetKey("demand_model")],
        ) as result:
            assert result.success
            ended = [event.step_key for event in result.all_events if event.is_step_success]
    assert {f"demand_model.train_one_shard[shard_{i}]" for i in range(2)} <= set(ended)
    assert len(artifact.load(data_dir / "model" / "candidate").workloads) == 4
