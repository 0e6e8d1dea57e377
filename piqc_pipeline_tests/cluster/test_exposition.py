import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from piqc_pipeline.cluster.exposition import parse, parse_line


@pytest.mark.parametrize(
    ("line", "name", "labels", "value"),
    [
        ("up 1", "up", {}, 1.0),
        ("up{} 1", "up", {}, 1.0),
        ("process_virtual_memory_bytes 3.9024848896e+010", "process_virtual_memory_bytes", {}, 39024848896.0),
        ('vllm:num_requests_running{model_name="a}b"} 5', "vllm:num_requests_running", {"model_name": "a}b"}, 5.0),
        ('a{b="x",} 1', "a", {"b": "x"}, 1.0),
        ('a{ b = "x" , c="y" } 1', "a", {"b": "x", "c": "y"}, 1.0),
        (r'a{b="say \"hi\"\nthere\\"} 2', "a", {"b": 'say "hi"\nthere\\'}, 2.0),
        ('a{b="x"} 1.5 1700000000000', "a", {"b": "x"}, 1.5),
        ('a_bucket{le="0.5"} 3 # {trace_id="x"} 0.4 1700000000.1', "a_bucket", {"le": "0.5"}, 3.0),
        ('{"dotted.name",b="x"} 7', "dotted.name", {"b": "x"}, 7.0),
        ("m{method=\"{'method': 'prefill'}\"} 0.0", "m", {"method": "{'method': 'prefill'}"}, 0.0),
        ("a -Inf", "a", {}, -math.inf),
    ],
)
def test_a_sample_is_read_as_it_was_written(line: str, name: str, labels: dict[str, str], value: float) -> None:
    sample = parse_line(line)
    assert sample is not None
    assert (sample.name, sample.labels, sample.value) == (name, labels, value)


@pytest.mark.parametrize(
    "line",
    [
        "4 Active Workloads",
        "Emtpy MIG enabled",
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",...,modelName="NVIDIA L40S",...} 0',
        "up",
        "up1",
        "up one",
        'a{b="x" 1',
        'a{b="x"}',
        'a{b="1",b="2"} 1',
        "a{b=x} 1",
        "a 1 2 3",
        "a 0x10",
        "{} 1",
    ],
)
def test_a_line_that_is_no_sample_is_counted_and_never_guessed(line: str) -> None:
    page = parse(f"good 1\n{line}\nalso_good 2\n")
    assert page.malformed == 1
    assert [sample.name for sample in page] == ["good", "also_good"]


def test_help_and_type_without_samples_is_a_page_that_knows_nothing() -> None:
    page = parse("# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\n")
    assert page.samples == {} and page.malformed == 0
    assert page.total("vllm:num_requests_running") is None


def test_one_nan_makes_that_figure_unknown_and_no_other() -> None:
    page = parse('r{m="a"} NaN\nr{m="b"} 2\nw 3\n')
    assert page.total("r") is None
    assert page.mean("r") is None
    assert page.total("w") == 3.0


def test_series_add_and_average_over_their_label_sets() -> None:
    page = parse('kv{engine="0"} 0.9\nkv{engine="1"} 0.5\n')
    assert page.total("kv") == 1.4
    assert page.mean("kv") == 0.7


def test_only_wanted_prefixes_are_kept() -> None:
    page = parse("a_x 1\nb_x 2\nnot a line\n", ("b_",))
    assert list(page.samples) == ["b_x"] and page.malformed == 0


@given(st.text(max_size=300))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    page = parse(text)
    assert page.malformed >= 0


@given(st.dictionaries(st.sampled_from(["a", "b", "model_name"]), st.text(max_size=20), min_size=1), st.floats())
def test_what_prometheus_client_writes_is_read_as_it_reads_it(labels: dict[str, str], value: float) -> None:
    registry = CollectorRegistry()
    Gauge("m", "help", sorted(labels), registry=registry).labels(**labels).set(value)
    text = generate_latest(registry).decode()
    (family,) = text_string_to_metric_families(text)
    (sample,) = parse(text).get("m")
    assert sample.labels == family.samples[0].labels
    assert sample.value == family.samples[0].value or math.isnan(value)


def test_values_that_no_sum_can_hold_are_no_numbers() -> None:
    page = parse('running{n="0"} 9e307\nrunning{n="1"} 9e307\nrunning{n="2"} 3\n')
    assert page.total("running") is None and page.values("running") == [3.0]
