"""The prefill and the decode role of one service keep their ratio."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.facts.snapshot import EngineIdentity
from piqc_pipeline.scaling.limits import PairBound
from piqc_pipeline.scaling.pairs import pair_plans, paired, pairs_of
from piqc_pipeline.scaling.plan import plan_workload
from piqc_pipeline_tests.scaling.plans import NOW, POLICY, forecast, limits
from piqc_pipeline_tests.scaling.test_limits import snapshot, workload


def role(name, kind, replicas, **labels):
    engine = EngineIdentity("llm-d", 1.0, "high", role=kind)
    fields = {"id": f"demo/inference/Deployment/{name}", "name": name, "engine": engine, "replicas_wanted": replicas}
    return workload(labels=labels, **fields)


def told(*workloads):
    return replace(snapshot((), ()), workloads=workloads)


def test_a_pair_is_one_workload_of_each_role_of_a_service():
    graph = {"nvidia.com/dynamo-graph-deployment-name": "chat"}
    other = {"nvidia.com/dynamo-graph-deployment-name": "code"}
    found = pairs_of(
        told(role("p", "prefill", 2, **graph), role("d", "decode", 4, **graph), role("x", "decode", 1, **other))
    )
    assert [(pair.prefill[-1], pair.decode[-1], pair.least, pair.most) for pair in found] == [("p", "d", 0.25, 1.0)]
    assert found[0].why == "2 prefill and 4 decode replicas run now"


def test_the_served_model_tells_a_service_that_no_label_names():
    assert len(pairs_of(told(role("p", "prefill", 1), role("d", "decode", 1)))) == 1


@pytest.mark.parametrize(
    "workloads",
    [
        pytest.param(
            [role("p", "prefill", 1), role("d", "decode", 1), role("e", "decode", 1)], id="two decode workloads"
        ),
        pytest.param([role("p", "prefill", 0), role("d", "decode", 1)], id="no prefill replica runs"),
        pytest.param([role("p", "prefill", 1), role("d", None, 1)], id="one role is not told"),
        pytest.param(
            [role("p", "prefill", 1, **{"llm-d.ai/model": "a"}), role("d", "decode", 1, **{"llm-d.ai/model": "b"})],
            id="two services",
        ),
    ],
)
def test_what_is_not_certain_is_no_pair(workloads):
    assert pairs_of(told(*workloads)) == ()


def test_the_users_ratio_counts_also_where_a_role_has_no_replica():
    (pair,) = pairs_of(told(role("p", "prefill", 0), role("d", "decode", 1)), (0.5, 2.0))
    bounds = pair.bounds()
    assert (bounds[pair.prefill].per_mate, bounds[pair.decode].per_mate) == (0.5, 0.5)


def of_pair(name, mate, per_mate, q50, **fields):
    bound = PairBound(f"d/n/Deployment/{mate}", per_mate, "stated")
    return plan_workload(
        forecast([q50], [q50]),
        None,
        limits(f"d/n/Deployment/{name}", min_replicas=1, pair=bound, **fields),
        POLICY,
        NOW,
    )


def test_the_smaller_count_is_raised_and_says_so():
    one, two = pair_plans(of_pair("prefill", "decode", 0.5, 0.5), of_pair("decode", "prefill", 1.0, 6.0))
    assert (one.now.replicas, one.now.binding, two.now.replicas) == (4, "pair", 8)
    assert one.now.explain.startswith("4 replicas: decode has 8; 1 replica: ")
    assert one.binding_share == {"pair": 1.0}


def test_a_ratio_that_the_maximum_forbids_is_a_shortfall():
    one, _ = pair_plans(of_pair("prefill", "decode", 0.5, 0.5, max_replicas=3), of_pair("decode", "prefill", 1.0, 6.0))
    assert (one.now.replicas, one.now.unclamped, one.shortfalls[0].gpus_short) == (3, 4, 1.0)
    assert "4 would keep the ratio" in one.now.explain


@pytest.mark.parametrize(
    ("needed", "limits", "expected"),
    [
        pytest.param((2, 8), (0.25, 0.5), (2, 8), id="one to four is allowed"),
        pytest.param((1, 8), (0.25, 0.5), (2, 8), id="prefill is raised"),
        pytest.param((6, 8), (0.25, 0.5), (6, 12), id="decode is raised"),
        pytest.param((0, 0), (0.25, 4.0), (1, 1), id="one of each at least"),
    ],
)
def test_counts_are_raised_to_the_nearest_that_keep_the_ratio(needed, limits, expected):
    assert paired(*needed, limits[0], 1 / limits[1]) == expected


@given(st.integers(0, 50), st.integers(0, 50), st.floats(0.1, 2), st.floats(1, 3))
def test_a_pair_is_never_lowered_and_grows_with_need(prefill, decode, least, factor):
    other = 1 / (least * factor)
    one, two = paired(prefill, decode, least, other), paired(prefill + 1, decode, least, other)
    assert one[0] >= prefill
    assert one[1] >= decode
    assert two[0] >= one[0] or two[1] >= one[1]
    assert one[0] >= least * one[1] - 1e-6
