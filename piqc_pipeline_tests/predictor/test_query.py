"""Can a client say only what makes sense?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from piqc_pipeline.predictor.query import BadQuery, Query, check_workload, parse_duration, parse_query


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1800", 1800), ("2d", 172_800), ("0", 0)]
)
def test_duration_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "-5m", "1e3", "49h", "3d", "99999999999999", "30 m", "٣0m", "1.5h", "nan", "30m30m", "9" * 4000]
)
def test_absurd_horizon_is_refused(text: str) -> None:
    with pytest.raises(BadQuery, match="horizon"):
        parse_duration(text)


def test_query_of_the_specification_is_read() -> None:
    assert parse_query(b"workload=inference/chat-8b&horizon=30m") == Query("inference/chat-8b", 1800)
    assert parse_query(b"workload=inference%2Fchat-8b") == Query("inference/chat-8b", 1800)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "workload is missing"),
        (b"horizon=30m", "workload is missing"),
        (b"workload=a/b&workload=c/d", "twice"),
        (b"workload=a/b&horizen=30m", "unknown parameter 'horizen'"),
        (b"workload=chat", "NAMESPACE/NAME"),
        (b"workload=a//b", "NAMESPACE/NAME"),
        (b"workload=" + b"a/" + b"b" * 600, "at most 512"),
        (b"workload=a/b%00", "printable"),
        (b"workload=%ff/%fe", "percent-encoded UTF-8"),
        (b"workload=a/b&" + b"x=1&" * 600, "at most 2048"),
        (b"&".join(b"k%d=1" % i for i in range(20)), "percent-encoded"),
        (b"\xff\xfe", "percent-encoded"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_malformed_query_is_refused_with_what_would_be_right(raw: bytes, says: str) -> None:
    with pytest.raises(BadQuery, match=says):
        parse_query(raw)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        query = parse_query(raw)
    except BadQuery:
        return
    assert check_workload(query.workload) and 0 <= query.horizon_seconds <= 172_800
