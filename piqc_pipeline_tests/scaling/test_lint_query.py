"""What a query can ask for, and where it misleads."""

import pytest
import yaml

from piqc_pipeline_tests.scaling.lint_objects import GOOD, QUERY, changed, errors, found_in, prometheus, rules


@pytest.mark.parametrize(
    ("query", "threshold", "most"),
    [
        pytest.param('avg(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"a.*"})', "75", 2, id="duty cycle, 0 to 100"),
        pytest.param(
            "avg by (x) (avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[2m])) * 100", "60", 2, id="share times 100"
        ),
        pytest.param("max(vllm:kv_cache_usage_perc)", "0.3", 4, id="a share against a share"),
        pytest.param("max(vllm:gpu_cache_usage_perc)", "80", 1, id="a share against a percentage"),
        pytest.param("clamp_max(avg(DCGM_FI_DEV_GPU_UTIL), 90)", "30", 3, id="clamped"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL) / 100", "0.5", 2, id="percentage over 100"),
    ],
)
def test_a_bounded_query_has_a_largest_count(query, threshold, most):
    (found,) = [entry for entry in found_in(prometheus(query, threshold)) if entry.rule == "target-unreachable"]
    assert f"never asks for more than {most} replicas" in found.message


@pytest.mark.parametrize(
    ("query", "threshold"),
    [
        pytest.param("sum(DCGM_FI_DEV_GPU_UTIL)", "75", id="a sum grows with replicas"),
        pytest.param("sum(vllm:num_requests_waiting)", "5", id="a queue"),
        pytest.param("sum(rate(http_requests_total[2m]))", "10", id="a rate"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL) * count(x)", "75", id="times a count"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL) + sum(queue)", "75", id="plus a queue"),
        pytest.param("avg(DCGM_FI_DEV_GPU_UTIL)", "5", id="twenty are reachable"),
    ],
)
def test_a_query_without_a_bound_below_the_maximum_is_not_accused(query, threshold):
    assert "target-unreachable" not in rules(prometheus(query, threshold))


def test_a_quantile_of_a_histogram_is_one_element():
    buckets = 'sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{namespace="a"}[5m]))'
    assert "promql-many-series" not in rules(prometheus(f"histogram_quantile(0.95, {buckets})", "2"))
    assert "promql-many-series" in rules(
        prometheus(f"histogram_quantile(0.95, {buckets.replace('le', 'le, pod')})", "2")
    )


def test_a_list_of_labels_may_end_in_a_comma_and_arguments_may_not():
    assert "promql-brackets" not in rules(prometheus('sum by (a,) (x{a="b",})', "1"))
    assert "promql-brackets" in rules(prometheus("max_over_time(x[5m],)", "1"))


@pytest.mark.parametrize("gauge", ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "DCGM_FI_DEV_FB_USED"])
def test_a_rate_of_any_known_gauge_is_found(gauge):
    assert "promql-rate-of-gauge" in errors(prometheus(f'sum(rate({gauge}{{namespace="a"}}[5m]))', "5"))


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ('avg by (pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_namespace="a"})', "promql-many-series"),
        ('sum(vllm:num_requests_waiting{namespace="a"}) by (pod)', "promql-many-series"),
        ('sum without (instance) (vllm:num_requests_waiting{namespace="a"})', "promql-many-series"),
        ("sum(vllm:num_requests_waiting)", "promql-no-selector"),
        ('sum(a{x="y"}) / sum(rate(b{x="y"}[2m]))', "promql-nan-at-zero"),
        ('avg(DCGM_FI_DEV_GPU_UTIL{GPU_I_PROFILE="1g.10gb",exported_pod=~"a.*"})', "mig-gpu-util"),
        ("sum(" + "x" * 30_000 + ")", "promql-too-long"),
    ],
)
def test_a_query_that_misleads_is_found(query, rule):
    assert rule in rules(changed(GOOD, QUERY, query))


@pytest.mark.parametrize(
    "query",
    [
        'sum(avg by (pod) (vllm:num_requests_waiting{namespace="a"}))',
        'avg by (namespace, workload) (x{namespace="a",workload="b"})',
        'max(sum(vllm:num_requests_waiting{namespace="a"}) by (pod))',
        'sum(a{x="y"}) / clamp_min(sum(rate(b{x="y"}[2m])), 1)',
        'sum(a{x="y"}) / (sum(rate(b{x="y"}[2m])) > 0)',
        'scalar(sum by (pod) (x{a="b"}))',
        'topk(1, sum by (pod) (x{a="b"}))',
    ],
)
def test_a_query_of_one_element_that_is_always_there_is_not_accused(query):
    accused = {"promql-many-series", "promql-no-selector", "promql-nan-at-zero"}
    assert rules(changed(GOOD, QUERY, query)) & accused == set()


@pytest.mark.parametrize(
    ("query", "stays"),
    [
        ('sum(vllm:num_requests_waiting{namespace="a"})', True),
        ('sum(router_requests_without_backend_total{namespace="a"})', False),
        ('sum(vllm:num_requests_waiting{namespace="a"}) or vector(1)', False),
    ],
)
def test_zero_replicas_export_nothing_that_could_bring_one_back(query, stays):
    body = yaml.safe_load(changed(GOOD, QUERY, query))
    del body["spec"]["triggers"][0]
    body["spec"]["minReplicaCount"] = 0
    assert ("zero-never-returns" in rules(yaml.safe_dump(body))) is stays
    body["spec"]["minReplicaCount"] = 1
    assert "zero-never-returns" not in rules(yaml.safe_dump(body))
