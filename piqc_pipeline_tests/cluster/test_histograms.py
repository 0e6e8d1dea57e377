import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.cluster.exposition import parse
from piqc_pipeline.cluster.histograms import add_buckets, latency, quantile, read_buckets, since

INF = math.inf


def _page(rows: list[tuple[str, str, float]]) -> str:
    return "".join(f'e2e_bucket{{engine="{engine}",le="{le}"}} {value}\n' for engine, le, value in rows)


def test_buckets_of_four_engines_add_before_the_quantile_is_taken() -> None:
    # Engine 0 has 90 below 1 s and 100 below 5 s; the three others have all 100 between 5 s and 10 s.
    # 400 in all; the 380th lies in (5, 10], which holds 300: 5 + 5 x (380 - 100) / 300 = 9.667 s.
    rows = [("0", "1.0", 90.0), ("0", "5.0", 100.0), ("0", "10.0", 100.0), ("0", "+Inf", 100.0)]
    for engine in "123":
        rows += [(engine, "1.0", 0.0), (engine, "5.0", 0.0), (engine, "10.0", 100.0), (engine, "+Inf", 100.0)]
    buckets = read_buckets(parse(_page(rows)), "e2e")
    assert buckets == {1.0: 90.0, 5.0: 100.0, 10.0: 400.0, INF: 400.0}
    assert quantile(buckets, 0.95) == pytest.approx(5 + 5 * 280 / 300)


def test_the_median_inside_the_first_bucket_is_interpolated_from_zero() -> None:
    assert quantile({0.1: 50.0, 0.5: 90.0, 1.0: 100.0, INF: 100.0}, 0.5) == pytest.approx(0.1)
    assert quantile({0.2: 100.0, INF: 100.0}, 0.5) == pytest.approx(0.1)


def test_a_quantile_in_the_open_bucket_is_its_lower_bound() -> None:
    assert quantile({1.0: 10.0, INF: 100.0}, 0.99) == 1.0


@pytest.mark.parametrize(
    "buckets", [{}, {1.0: 0.0, INF: 0.0}, {1.0: 5.0, 2.0: 7.0}, {INF: 5.0}], ids=["none", "empty", "cut off", "one"]
)
def test_a_histogram_without_observations_or_end_has_no_quantile(buckets: dict[float, float]) -> None:
    assert quantile(buckets, 0.95) is None
    assert latency(buckets, None, None) is None


def test_latency_is_in_milliseconds_and_says_its_window() -> None:
    found = latency({0.1: 100.0, INF: 100.0}, None, 2.5)
    assert found is not None
    assert (found.p50_ms, found.p95_ms, found.window_seconds) == (pytest.approx(50), pytest.approx(95), 2.5)


def test_only_what_was_observed_between_two_reads_counts() -> None:
    assert since({1.0: 12.0, INF: 20.0}, {1.0: 10.0, INF: 10.0}) == {1.0: 2.0, INF: 10.0}
    assert since({1.0: 1.0, INF: 1.0}, {1.0: 10.0, INF: 10.0}) is None, "the engine was restarted in between"


def test_buckets_that_not_all_have_are_left_out() -> None:
    assert add_buckets([{1.0: 1.0, 2.0: 2.0, INF: 3.0}, {1.0: 4.0, INF: 5.0}]) == {1.0: 5.0, INF: 8.0}


def test_odd_bounds_and_counts_are_left_out() -> None:
    page = parse('h_bucket{le="x"} 1\nh_bucket{le="NaN"} 1\nh_bucket 1\nh_bucket{le="1"} -4\nh_bucket{le="+Inf"} NaN\n')
    assert read_buckets(page, "h") == {}


@given(
    st.dictionaries(st.floats(0.001, 1000), st.floats(0, 1e9), max_size=8),
    st.floats(0, 1e9),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_a_quantile_lies_within_the_bounds(counts: dict[float, float], last: float, share: float) -> None:
    buckets = {**counts, INF: last}
    found = quantile(buckets, share)
    assert found is None or 0 <= found <= max(counts)
