"""What the asset graph promises by its shape alone; nothing is run."""

import inspect

import dagster as dg
import pytest

from piqc_pipeline.definitions import ASSETS, build_defs, defs
from piqc_pipeline.defs import shards
from piqc_pipeline.defs.resources import NETWORK_RETRIES

GRAPH = {
    "cluster_snapshot": ("collect", set()),
    "facts_bundle": ("collect", {"cluster_snapshot"}),
    "waste_report": ("collect", {"cluster_snapshot"}),
    "coverage_report": ("collect", {"cluster_snapshot"}),
    "gpu_utilization": ("history", {"facts_bundle"}),
    "load_profile": ("history", {"gpu_utilization"}),
    "demand_model": ("forecast", {"gpu_utilization"}),
    "predictor_artifact": ("forecast", {"demand_model"}),
    "scaling_replay": ("scaling", {"predictor_artifact", "gpu_utilization"}),
    "keda_manifests": ("scaling", {"predictor_artifact", "facts_bundle"}),
    "capacity_report": (
        "report",
        {"waste_report", "coverage_report", "load_profile", "scaling_replay", "keda_manifests"},
    ),
}
BLOCKING = {
    "cluster_snapshot": {"nodes_readable"},
    "facts_bundle": {"schema_valid"},
    "waste_report": {"waste_not_above_installed_cost", "every_accelerator_in_one_bucket"},
    "gpu_utilization": {"no_duplicate_samples", "within_bounds"},
    "demand_model": {"mae_below_10_pp", "beats_reference"},
    "predictor_artifact": {"loads_and_predicts"},
    "keda_manifests": {"manifests_valid", "target_reachable", "replicas_within_limits"},
}
WARNING = {
    "cluster_snapshot": {"permissions_complete"},
    "facts_bundle": {"every_workload_has_accelerator"},
    "waste_report": {"prices_known"},
    "gpu_utilization": {"gaps", "newest_sample_age", "coverage", "scrape_interval"},
    "demand_model": {"rmse_recorded", "interval_coverage", "forecast_holds"},
    "scaling_replay": {"no_worse_than_reactive"},
}


def names(keys: object) -> set[str]:
    return {key.path[-1] for key in keys}  # type: ignore[attr-defined]


def checks(blocking: bool) -> dict[str, set[str]]:
    graph = defs.resolve_asset_graph()
    found: dict[str, set[str]] = {}
    for key in graph.asset_check_keys:
        if graph.get(key).blocking is blocking:
            found.setdefault(key.asset_key.path[-1], set()).add(key.name)
    return found


def test_definitions_load_where_nothing_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIQC_CLUSTER", raising=False)
    dg.Definitions.validate_loadable(build_defs())


def test_assets_have_their_groups_and_follow_each_other() -> None:
    graph = defs.resolve_asset_graph()
    found = {
        key.path[-1]: (graph.get(key).group_name, names(graph.get(key).parent_keys))
        for key in graph.get_all_asset_keys()
    }
    assert found == GRAPH


def test_the_checks_that_hold_up_a_run_are_these() -> None:
    assert checks(blocking=True) == BLOCKING


def test_the_other_checks_only_warn() -> None:
    assert checks(blocking=False) == WARNING


@pytest.mark.parametrize("asset", ASSETS, ids=lambda asset: asset.key.path[-1])
def test_an_asset_has_owner_kinds_a_range_in_one_run_and_words_for_the_user(asset: dg.AssetsDefinition) -> None:
    spec = next(iter(asset.specs))
    assert list(spec.owners) == ["team:gpu-platform"]
    assert spec.kinds
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    assert spec.description is not None
    assert len(spec.description) > 80


PLAIN = [asset for asset in ASSETS if isinstance(asset.node_def, dg.OpDefinition)]


@pytest.mark.parametrize("asset", PLAIN, ids=lambda asset: asset.key.path[-1])
def test_an_asset_says_that_it_returns_no_value_to_be_pickled(asset: dg.AssetsDefinition) -> None:
    step = inspect.unwrap(asset.op.compute_fn.decorated_fn)  # type: ignore[union-attr]
    assert step.__annotations__["return"] is dg.MaterializeResult


def test_only_assets_that_talk_to_the_network_try_again() -> None:
    retried = {asset.key.path[-1] for asset in PLAIN if asset.op.retry_policy == NETWORK_RETRIES}
    assert retried == {"cluster_snapshot", "gpu_utilization"}


def test_steps_that_open_the_duckdb_file_share_one_pool() -> None:
    pooled = {asset.key.path[-1] for asset in PLAIN if asset.op.pool == "history"}
    assert pooled == {
        "facts_bundle",
        "waste_report",
        "gpu_utilization",
        "load_profile",
        "scaling_replay",
        "capacity_report",
    }
    assert shards.split_demand.pool == "history"
    assert shards.train_one_shard.pool is None


def test_nothing_passes_between_the_steps_of_a_training() -> None:
    steps = (shards.split_demand, shards.train_one_shard, shards.join_shards)
    kinds = [one.dagster_type for step in steps for one in (*step.input_defs, *step.output_defs)]
    assert all(kind.is_nothing for kind in kinds)


def test_data_and_forecast_turn_stale_in_the_ui() -> None:
    graph = defs.resolve_asset_graph()
    timed = {key.path[-1] for key in graph.get_all_asset_keys() if graph.get(key).freshness_policy}
    assert timed == {"gpu_utilization", "predictor_artifact"}


def test_each_job_has_a_time_limit_and_what_its_pod_asks_for() -> None:
    for name in ("collect", "history", "train", "train_shards", "everything"):
        tags = defs.resolve_job_def(name).tags
        assert int(tags["dagster/max_runtime"]) >= 1800
        assert '"memory"' in tags["dagster-k8s/config"]


def test_the_days_begin_where_the_settings_say() -> None:
    graph = build_defs(history_start="2026-03-01T00:00:00Z").resolve_asset_graph()
    days = graph.get(dg.AssetKey("gpu_utilization")).partitions_def
    assert days is not None
    assert days.get_first_partition_key() == "2026-03-01"


def test_the_demo_has_exactly_the_days_of_its_load() -> None:
    days = build_defs(cluster="demo").resolve_asset_graph().get(dg.AssetKey("gpu_utilization")).partitions_def
    assert days is not None
    keys = days.get_partition_keys()
    assert (len(keys), keys[0], keys[-1]) == (14, "2025-01-06", "2025-01-19")
