"""The facts bundle: right values and units, honest sources, and no fact where nothing is known."""

from dataclasses import replace

from piqc_pipeline.facts.build import build_bundle, family, parallelism
from piqc_pipeline.facts.bundle import FactsBundle, bundle_from_json
from piqc_pipeline.facts.snapshot import Autoscaler, ClusterSnapshot, EngineRuntime, Latency, Unknown
from piqc_pipeline.waste import assess, load_prices, priced_facts
from piqc_pipeline_tests.waste.clusters import NOW, cluster, node, pod, sample_cluster, workload


def bundle_of(snapshot: ClusterSnapshot) -> FactsBundle:
    return build_bundle(snapshot, priced_facts(assess(snapshot, load_prices()), snapshot))


def values(bundle: FactsBundle, object_id: str) -> dict[str, object]:
    found = bundle.object_of(object_id)
    assert found is not None
    return {key: entry.value for key, entry in found.facts.items()}


def test_the_bundle_survives_its_own_json() -> None:
    bundle = bundle_of(sample_cluster())
    assert bundle_from_json(bundle.to_json()) == bundle
    assert '"schemaVersion": "piqc-scan.v0.1"' in bundle.to_json()


def test_no_terminal_interprets_the_json_of_a_bundle() -> None:
    # U+009B begins an escape sequence of its own; U+202E turns what follows around.
    bundle = bundle_of(cluster([node("evil\x9b31m\u202ename")], []))
    assert bundle.to_json().isascii() and bundle_from_json(bundle.to_json()) == bundle


def test_a_cluster_without_a_workload_still_has_facts_and_dollars() -> None:
    bundle = bundle_of(cluster([node("dark")], []))
    assert values(bundle, "c/node/dark")["waste.darkUsdPerDay"] == 768
    assert bundle.cluster_facts["cluster.unallocatedUsdPerDay"].value == 768
    assert bundle.cluster_facts["cluster.unallocatedUsdPerDay"].units == "USD/day"
    assert [(one.kind, one.usd_per_day) for one in bundle.findings] == [("dark", 768.0)]


def test_dollars_of_a_workload_are_facts() -> None:
    facts = values(bundle_of(sample_cluster()), "c/inference/Deployment/llama-70b")
    assert facts["cost.usdPerHour"] == 68
    assert facts["waste.idleUsdPerDay"] == 1566.72
    assert facts["hardware.gpuCount"] == 16
    assert facts["hardware.gpuMemoryGB"] == 79.65
    assert facts["obs.gpu.utilAvgPct"] == 4


def test_cache_use_is_a_percentage_and_the_hit_rate_a_ratio() -> None:
    runtime = EngineRuntime(
        healthy=True,
        source="exec",
        kv_cache_usage_pct=45.2,
        prefix_cache_hit_pct=62.0,
        requests_running=3,
        generation_tokens_per_second=100.0,
        generation_tokens_p50=50.0,
        requests_per_second=2.5,
        end_to_end=Latency(1000.0, 5000.0, 9000.0, window_seconds=2.0),
    )
    snapshot = cluster([node("n")], [pod("a", "n", 1)], [workload(runtime=runtime)])
    bundle = bundle_of(snapshot)
    found = bundle.object_of("c/inference/Deployment/w")
    assert found is not None
    assert (found.facts["obs.vllm.kvCacheUsagePct"].value, found.facts["obs.vllm.kvCacheUsagePct"].units) == (45.2, "%")
    assert found.facts["obs.vllm.prefixCacheHitRate"].value == 0.62
    assert (found.facts["obs.rps.avg"].value, found.facts["obs.rps.avg"].units) == (2.5, "requests/s")
    assert "obs.effectiveBatch.p95" not in found.facts, "three requests run now; that is no percentile"
    assert found.facts["obs.requestLatency.p95Ms"].value == 5000


def test_what_nobody_knows_is_no_fact_and_a_required_one_is_named() -> None:
    bundle = bundle_of(cluster([node("n", 1, None)], [pod("a", "n", 1)], [workload()]))
    facts = values(bundle, "c/inference/Deployment/w")
    assert not {"hardware.gpuType", "obs.gpu.utilAvgPct", "cost.usdPerHour", "obs.vllm.requestsRunning"} & set(facts)
    assert {entry.fact_key for entry in bundle.fact_errors} >= {"hardware.gpuType", "obs.gpu.utilAvgPct", "vllm.dtype"}


def test_an_engine_that_has_no_vllm_facts_owes_none() -> None:
    snapshot = cluster([node("n")], [pod("a", "n", 1)], [workload()])
    ray = replace(snapshot.workloads[0], engine=replace(snapshot.workloads[0].engine, name="ray-serve"))
    bundle = bundle_of(replace(snapshot, workloads=(ray,)))
    assert not [entry for entry in bundle.fact_errors if entry.fact_key.startswith("vllm.")]


def test_figures_of_another_engine_do_not_bear_the_name_of_vllm() -> None:
    said = EngineRuntime(healthy=True, source="exec", requests_running=3)
    snapshot = cluster([node("n")], [pod("a", "n", 1)], [workload(runtime=said, dtype="float16")])
    sglang = replace(snapshot.workloads[0], engine=replace(snapshot.workloads[0].engine, name="sglang"))
    facts = values(bundle_of(replace(snapshot, workloads=(sglang,))), "c/inference/Deployment/w")
    assert facts["obs.engine.requestsRunning"] == 3
    assert facts["runtime.dtype"] == "float16"
    assert not [key for key in facts if "vllm" in key]


def test_autoscaling_is_told_only_where_autoscalers_could_be_read() -> None:
    scaler = Autoscaler("HorizontalPodAutoscaler", "inference", "hpa", "Deployment", "w", 1, 8, ("External",))
    seen = cluster([node("n")], [pod("a", "n", 1)], [workload(autoscaler=scaler)])
    facts = values(bundle_of(seen), "c/inference/Deployment/w")
    assert (facts["autoscaling.enabled"], facts["autoscaling.maxReplicas"]) == (True, 8)
    assert facts["autoscaling.metricType"] == "External"
    none = cluster([node("n")], [pod("a", "n", 1)], [workload()])
    assert values(bundle_of(none), "c/inference/Deployment/w")["autoscaling.enabled"] is False
    recorded = replace(none, autoscalers_read=False)
    assert "autoscaling.enabled" not in values(bundle_of(recorded), "c/inference/Deployment/w")
    for lost in (Unknown("x", "forbidden", read_failed=True, about="autoscalers"), Unknown("anything", "?", True)):
        refused = replace(none, unknown=(lost,))
        assert "autoscaling.enabled" not in values(bundle_of(refused), "c/inference/Deployment/w")
    other = replace(none, unknown=(Unknown("autoscaling of nodes", "forbidden", True, about="other objects"),))
    assert values(bundle_of(other), "c/inference/Deployment/w")["autoscaling.enabled"] is False


def test_a_pending_pod_has_its_own_object_with_what_is_free() -> None:
    facts = values(bundle_of(sample_cluster()), "c/inference/Pod/pending-0")
    assert facts["job.pendingGpuCount"] == 8
    assert facts["job.pendingSinceMinutes"] == 42
    assert (facts["cluster.totalFreeGpus"], facts["cluster.largestContiguousBlock"]) == (12, 8)


def test_every_fact_says_when_it_was_seen_and_where_it_is_from() -> None:
    bundle = bundle_of(sample_cluster())
    facts = [entry for one in bundle.objects for entry in one.facts.values()]
    assert all(entry.observed_at == NOW and entry.source.type and entry.source.method for entry in facts)


def test_names_give_a_family_and_parallelism_is_told_when_it_is_there() -> None:
    assert family("meta-llama/Llama-3.1-8B") == "llama"
    assert family("org/unheard-of") is None
    assert parallelism(8, 2) == "tensor+pipeline"
    assert parallelism(1, None) is None
