"""Pages as engines print them: vLLM V0 and V1, SGLang, TGI, Ray (shortened; facts of public pages, see each test)."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piqc_pipeline.cluster.engines.names import NAMES, metric_prefixes
from piqc_pipeline.cluster.engines.runtime import Reading, Scrape, add_readings, read_scrape
from piqc_pipeline.cluster.exposition import parse

V1 = (
    'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
    'vllm:num_requests_waiting{{engine="0",model_name="m"}} 1.0\n'
    'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.452\n'
    'vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {queries}\n'
    'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {hits}\n'
    'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}\n'
    'vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="0.5"}} {fast}\n'
    'vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="1.0"}} {all}\n'
    'vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="m",le="+Inf"}} {all}\n'
)


def v1(**values: float) -> str:
    return V1.format(**{"running": 64, "queries": 100, "hits": 50, "tokens": 1000, "fast": 90, "all": 100, **values})


def read(later: str, earlier: str | None = None, seconds: float | None = None) -> Reading:
    scrape = Scrape(parse(later), parse(earlier) if earlier is not None else None, seconds)
    found = read_scrape(scrape, "proxy", "ns/p")
    assert found is not None
    return found


def test_tokens_per_second_are_what_the_counter_gained_between_two_reads() -> None:
    found = read(v1(tokens=7400), v1(tokens=1000), 2.0).runtime
    assert found.generation_tokens_per_second == 3200.0
    assert (found.requests_running, found.requests_waiting, found.served_models) == (64.0, 1.0, ("m",))


def test_one_read_of_a_counter_is_no_rate_and_never_one_over_a_latency() -> None:
    found = read(v1()).runtime
    assert found.generation_tokens_per_second is None
    assert "two reads" in found.unknown[0].why


def test_an_idle_engine_generates_zero_tokens() -> None:
    assert read(v1(running=0), v1(running=0), 2.0).runtime.generation_tokens_per_second == 0.0


def test_a_counter_that_stands_still_while_requests_run_is_no_rate_of_zero() -> None:
    found = read(v1(), v1(), 2.0).runtime
    assert found.generation_tokens_per_second is None and "stood still" in found.unknown[0].why


def test_a_restart_between_two_reads_is_no_negative_rate() -> None:
    found = read(v1(tokens=5), v1(tokens=1000), 2.0).runtime
    assert found.generation_tokens_per_second is None and "began again" in found.unknown[0].why


def test_cache_use_is_a_percentage_and_a_mean_over_engines_never_a_sum() -> None:
    # vLLM 0.9 and 0.10 print both names; four data-parallel engines at 0.9 are 90 %, not 360 %.
    page = "".join(
        f'vllm:gpu_cache_usage_perc{{engine="{n}"}} 0.9\nvllm:kv_cache_usage_perc{{engine="{n}"}} 0.9\n'
        f'vllm:num_requests_running{{engine="{n}"}} 8\n'
        for n in range(4)
    )
    found = read(page).runtime
    assert found.kv_cache_usage_pct == pytest.approx(90.0) and found.requests_running == 32.0


def test_prefix_hits_are_hits_of_queries_in_the_window_else_since_the_start() -> None:
    assert read(v1(queries=200, hits=90), v1(queries=100, hits=50), 2.0).runtime.prefix_cache_hit_pct == 40.0
    assert read(v1(queries=100, hits=62)).runtime.prefix_cache_hit_pct == 62.0
    assert read(v1(queries=0, hits=0)).runtime.prefix_cache_hit_pct is None


def test_deprecated_and_new_cache_counters_are_not_added() -> None:
    # vllm-project/production-stack#617: vLLM 0.10 prints both; `_created` holds timestamps.
    page = (
        "vllm:num_requests_running 1\n"
        "vllm:gpu_prefix_cache_queries_total 32\nvllm:gpu_prefix_cache_hits_total 16\n"
        "vllm:prefix_cache_queries_total 32\nvllm:prefix_cache_hits_total 16\n"
        "vllm:gpu_prefix_cache_hits_created 1.7537953269353123e+09\n"
    )
    assert read(page).runtime.prefix_cache_hit_pct == 50.0


def test_a_hit_rate_of_minus_one_means_switched_off() -> None:
    page = "vllm:num_requests_running 0\nvllm:gpu_prefix_cache_hit_rate -1.0\nvllm:cpu_prefix_cache_hit_rate -1.0\n"
    assert read(page).runtime.prefix_cache_hit_pct is None
    assert (
        read(
            page.replace("gpu_prefix_cache_hit_rate -1.0", "gpu_prefix_cache_hit_rate 0.37")
        ).runtime.prefix_cache_hit_pct
        == 37.0
    )


def test_v0_engines_tell_their_own_throughput() -> None:
    page = (
        "vllm:num_requests_running 3\nvllm:avg_generation_throughput_toks_per_s 224.3\nvllm:generation_tokens_total 5\n"
    )
    assert read(page, page, 2.0).runtime.generation_tokens_per_second == 224.3


def test_two_models_of_one_page_add() -> None:
    # kubeai-project/kubeai: waiting 2 and 3, running 3 of the first model only.
    page = (
        'vllm:num_requests_running{model_name="a"} 3.0\n'
        'vllm:num_requests_waiting{model_name="a"} 2.0\nvllm:num_requests_waiting{model_name="other/OTHER"} 3.0\n'
    )
    found = read(page).runtime
    assert (found.requests_running, found.requests_waiting, found.served_models) == (3.0, 5.0, ("a", "other/OTHER"))


def test_latencies_are_those_of_the_window_where_requests_ended_in_it() -> None:
    # In the window 10 requests ended, all between 0.5 s and 1 s; since the start 90 of 100 were below 0.5 s.
    found = read(v1(fast=90, all=110), v1(fast=90, all=100), 2.0).runtime.time_to_first_token
    assert found is not None
    assert (found.p50_ms, found.window_seconds) == (pytest.approx(750), 2.0)
    whole = read(v1(fast=90, all=100), v1(fast=90, all=100), 2.0).runtime.time_to_first_token
    assert whole is not None
    assert (whole.p50_ms, whole.window_seconds) == (pytest.approx(500 * 50 / 90), None)


def test_one_nan_is_one_unknown_figure() -> None:
    found = read("vllm:num_requests_running NaN\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc NaN\n").runtime
    assert (found.requests_running, found.requests_waiting, found.kv_cache_usage_pct) == (None, 2.0, None)
    assert [entry.what for entry in found.unknown] == ["requests running of ns/p", "KV cache use of ns/p"]


def test_a_page_without_samples_of_an_engine_is_unknown_and_not_healthy_with_zero() -> None:
    help_only = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n"
    for text in ("", help_only, "process_cpu_seconds_total 5\n", "<html>503</html>"):
        assert read_scrape(Scrape(parse(text)), "proxy", "ns/p") is None


def test_ranks_of_sglang_add() -> None:
    # vllm-project/aibrix#1614: one series a data-parallel rank; seven of them are 565.99 tok/s.
    ranks = [141.7546862896204, 35.423840583853774, 35.41880810293355, 141.74408727960696, 35.43700884115304]
    ranks += [35.442541417324875, 140.76470568188876]
    page = "".join(f'sglang:gen_throughput{{dp_rank="{n}",tp_rank="{n}"}} {v}\n' for n, v in enumerate(ranks))
    page += 'sglang:num_running_reqs{dp_rank="0"} 1.0\nsglang:token_usage{dp_rank="0"} 0.0\n'
    found = read(page).runtime
    assert found.generation_tokens_per_second == pytest.approx(565.99, abs=0.01)
    assert (found.requests_running, found.kv_cache_usage_pct) == (1.0, 0.0)


def test_ranks_of_sglang_that_work_on_the_same_requests_count_once() -> None:
    # sgl-project/sglang#7720: two pipeline ranks say 192.25 and 192.28 tok/s of the same requests; #31896: 8 x 3.
    page = "".join(
        f'sglang:gen_throughput{{model_name="m",pp_rank="{n}",tp_rank="0"}} {value}\n'
        for n, value in enumerate([192.24507350455715, 192.28060837134453])
    )
    page += "".join(f'sglang:num_running_reqs{{model_name="m",pid="{n}",tp_rank="{n}"}} 3\n' for n in range(8))
    page += "".join(
        f'sglang:num_queue_reqs{{dp_rank="{n // 2}",tp_rank="{n}"}} {waiting}\n'
        for n, waiting in enumerate([4, 4, 1, 1])
    )
    found = read(page).runtime
    assert found.generation_tokens_per_second == pytest.approx(192.28, abs=0.01)
    assert (found.requests_running, found.requests_waiting) == (3.0, 5.0)


def test_tgi_and_ray_have_their_own_names() -> None:
    tgi = read("tgi_queue_size 2.0\ntgi_batch_current_size 4.0\n").runtime
    assert (tgi.requests_running, tgi.requests_waiting) == (4.0, 2.0)
    ray = read(
        'ray_vllm:num_requests_running{WorkerId="x"} 1\n'
        'ray_vllm:avg_generation_throughput_toks_per_s{WorkerId="x"} 17.757\n'
        'ray_vllm:gpu_prefix_cache_hit_rate{WorkerId="x"} -1\n'
    ).runtime
    assert (ray.requests_running, ray.generation_tokens_per_second, ray.prefix_cache_hit_pct) == (1.0, 17.757, None)
    assert metric_prefixes(parse("ray_vllm:num_requests_running 1\n")) == ("ray_vllm:",)


def triton(microseconds: float, requests: float, model: str = "densenet_onnx") -> str:
    labels = f'{{model="{model}",version="1"}}'
    return (
        f"nv_inference_request_success{labels} {requests}\n"
        f"nv_inference_request_duration_us{labels} {microseconds}\n"
        f"nv_inference_pending_request_count{labels} 0\n"
        f'nv_inference_request_summary_us{{model="{model}",version="1",quantile="0.99"}} 3\n'
    )


def test_triton_tells_a_mean_by_its_counters_and_its_summary_is_not_believed() -> None:
    # A published page: 3 requests took 1,327,965 us, while every quantile of its summary says 3 us.
    found = read(triton(1327965, 3)).runtime.end_to_end
    assert found is not None and found.mean_ms == pytest.approx(442.655)
    assert (found.p50_ms, found.p95_ms, found.p99_ms, found.window_seconds) == (None, None, None, None)


def test_triton_tells_the_mean_of_the_window_where_requests_ended_in_it() -> None:
    # 2 more requests in 4 s took 100 ms: 50 ms each, half a request a second. Else the mean since boot.
    found = read(triton(1427965, 5), triton(1327965, 3), 4.0).runtime
    assert found.end_to_end is not None and found.requests_per_second == 0.5
    assert (found.end_to_end.mean_ms, found.end_to_end.window_seconds) == (pytest.approx(50.0), 4.0)
    idle = read(triton(1327965, 3), triton(1327965, 3), 4.0).runtime
    assert idle.end_to_end is not None and idle.requests_per_second is None, "nobody ended in 4 s: that tells no rate"
    assert (idle.end_to_end.mean_ms, idle.end_to_end.window_seconds) == (pytest.approx(442.655), None)


def test_tritons_tensorrt_llm_backend_tells_its_figures_by_label() -> None:
    # triton-inference-server/tensorrtllm_backend, docs/: the metrics' table of its README.
    page = triton(2_000_000, 4, "ensemble") + "".join(
        f'nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="{kind}",version="1"}} {value}\n'
        for kind, value in (("waiting", 3), ("context", 1), ("scheduled", 5), ("max", 512), ("active", 8))
    )
    page += "".join(
        f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="tensorrt_llm",version="1"}} {value}\n'
        for kind, value in (("fraction", 0.25), ("tokens_per", 64), ("used", 10), ("free", 30), ("max", 40))
    )
    found = read(page).runtime
    assert (found.requests_running, found.requests_waiting, found.kv_cache_usage_pct) == (5.0, 3.0, 25.0)
    assert found.end_to_end is not None and found.end_to_end.mean_ms == 500.0


def test_a_triton_without_a_request_has_no_latency() -> None:
    assert read(triton(0, 0)).runtime.end_to_end is None


def test_means_of_replicas_are_weighted_by_their_requests() -> None:
    # 3 requests of 100 ms and 1 of 500 ms: 200 ms, and not 300.
    found = add_readings([read(triton(300_000, 3)), read(triton(500_000, 1))]).end_to_end
    assert found is not None and found.mean_ms == pytest.approx(200.0)


def test_replicas_without_a_histogram_add_what_ended_between_two_reads() -> None:
    # 2 requests of 50 ms and 2 of 150 ms in 4 s; the third replica has served none of them.
    early = triton(1327965, 3)
    busy = [read(triton(1327965 + gained, 5), early, 4.0) for gained in (100_000, 300_000)]
    found = add_readings([*busy, read(early, early, 4.0)])
    assert found.end_to_end is not None and found.requests_per_second is None
    assert (found.end_to_end.mean_ms, found.end_to_end.window_seconds) == (pytest.approx(100.0), 4.0)


def test_a_histogram_tells_its_mean_and_how_many_requests_ended() -> None:
    def page(seconds: float, count: int) -> str:
        name = 'vllm:e2e_request_latency_seconds{end}{{model_name="m"{le}}} {value}\n'
        rows = [("_bucket", ',le="1.0"', count), ("_bucket", ',le="+Inf"', count)]
        rows += [("_sum", "", seconds), ("_count", "", count)]  # type: ignore[list-item]
        return v1() + "".join(name.format(end=end, le=le, value=value) for end, le, value in rows)

    found = read(page(16.0, 30), page(10.0, 10), 10.0).runtime
    assert found.end_to_end is not None and found.end_to_end.mean_ms == pytest.approx(300.0)
    assert found.requests_per_second == 2.0


def test_tgi_exports_how_large_its_batches_are() -> None:
    page = 'tgi_batch_current_size 2\ntgi_queue_size 0\ntgi_batch_next_size_bucket{le="4"} 90\n'
    page += 'tgi_batch_next_size_bucket{le="8"} 100\ntgi_batch_next_size_bucket{le="+Inf"} 100\n'
    assert read(page).runtime.batch_p95 == 6.0
    assert read(v1()).runtime.batch_p95 is None


def test_prometheus_is_asked_for_every_series_of_a_figure() -> None:
    assert {"vllm:e2e_request_latency_seconds_sum", "vllm:num_requests_running"} <= NAMES["vllm:"].series()
    assert {"nv_inference_request_duration_us", "nv_inference_request_success"} <= NAMES["nv_inference"].series()


def test_replicas_add_and_their_histograms_add_by_bound() -> None:
    one = read(v1(tokens=1200, running=3), v1(tokens=1000, running=3), 2.0)
    two = read(v1(tokens=1100, running=5, fast=0), v1(tokens=1000, running=5, fast=0), 2.0)
    found = add_readings([one, two])
    assert (found.requests_running, found.generation_tokens_per_second) == (8.0, 150.0)
    assert found.kv_cache_usage_pct == pytest.approx(45.2)
    # 90 of 200 below 0.5 s, 200 below 1 s: the 100th lies at 0.5 + 0.5 x 10 / 110.
    assert found.time_to_first_token is not None
    assert found.time_to_first_token.p50_ms == pytest.approx(1000 * (0.5 + 0.5 * 10 / 110))


def test_a_replica_of_unknown_rate_makes_the_sum_unknown() -> None:
    found = add_readings([read(v1(tokens=1200), v1(tokens=1000), 2.0), read(v1())])
    assert found.generation_tokens_per_second is None and found.requests_running == 128.0


@pytest.mark.parametrize("engine", sorted(NAMES))
@given(random=st.randoms(use_true_random=True))
@settings(max_examples=20)
def test_no_values_make_it_fail_or_leave_their_range(engine: str, random: Random) -> None:
    series = sorted({name.partition("/")[0] for name in NAMES[engine].series()})

    def page() -> str:
        odd = (0, -1, 1e300, math.inf, math.nan)
        values = (random.choice(odd) if random.random() < 0.2 else random.uniform(0, 9) for _ in series)
        rows = zip(series, values, strict=True)
        return "".join(f'{name}{{le="1",request_type="waiting"}} {value}\n' for name, value in rows)

    readings = [read_scrape(Scrape(parse(page()), parse(page()), 2.0), "proxy", "x") for _ in range(2)]
    found = add_readings([reading for reading in readings if reading is not None])
    for share in (found.kv_cache_usage_pct, found.prefix_cache_hit_pct):
        assert share is None or 0 <= share <= 100
    for amount in (found.requests_running, found.requests_per_second):
        assert amount is None or amount >= 0


@pytest.mark.parametrize(
    ("line", "what", "says"),
    [
        ('vllm:num_requests_running{engine="1"} -1', "requests running", "-1"),
        ('vllm:num_requests_waiting{engine="1"} +Inf', "requests waiting", "inf"),
        ('vllm:kv_cache_usage_perc{engine="1"} 1.7', "KV cache use", "1.7"),
    ],
)
def test_a_rank_that_says_what_cannot_be_makes_the_figure_unknown_with_its_reason(
    line: str, what: str, says: str
) -> None:
    whole = [f'vllm:{name}{{engine="0"}} 0.5' for name in ("num_requests_running", "num_requests_waiting")]
    found = read("\n".join([*whole, 'vllm:kv_cache_usage_perc{engine="0"} 0.5', line]) + "\n").runtime
    figures = {
        "requests running": found.requests_running,
        "requests waiting": found.requests_waiting,
        "KV cache use": found.kv_cache_usage_pct,
    }
    assert [name for name, value in figures.items() if value is None] == [what]
    assert (f"{what} of ns/p", f"the engine says {says}") in [(one.what, one.why) for one in found.unknown]
