"""Answers as Prometheus 2.42 and VictoriaMetrics give them; texts transcribed from loopback and public pages."""

import json
import math

import httpx
import pytest

from piqc_pipeline.errors import PrometheusError
from piqc_pipeline.prometheus import answers
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline.prometheus.answers import Matrix, Passing, RangeTooLarge, matrix_of, result_of

ACCESS = PrometheusAccess("http://p.test")


@pytest.fixture(autouse=True, params=[0, answers.LONG_BYTES], ids=["as a long answer", "as a short one"])
def length(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is long is read by another way, which must come to the same."""
    monkeypatch.setattr(answers, "LONG_BYTES", request.param)


def read(body: str | dict[str, object], status: int = 200) -> Matrix:
    text = body if isinstance(body, str) else json.dumps(body)
    return matrix_of(*result_of(httpx.Response(status), text.encode(), ACCESS), ACCESS)


def answer(kind: str, *series: dict[str, object], **more: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": kind, "result": list(series)}, **more}


def test_a_matrix_of_four_pods_has_each_pods_points() -> None:
    rows = {"sd-0": ["0", "0"], "sd-1": ["5.5", "9"], "sd-2": ["92.25"], "sd-3": []}
    got = read(
        answer(
            "matrix",
            *(
                {"metric": {"pod": pod}, "values": [[1662854400 + 1800 * i, text] for i, text in enumerate(values)]}
                for pod, values in rows.items()
            ),
        )
    )
    assert [(labels["pod"], values) for labels, _, values in got.series()] == [
        ("sd-0", [0, 0]),
        ("sd-1", [5.5, 9]),
        ("sd-2", [92.25]),
        ("sd-3", []),
    ]
    assert got.times.tolist() == [1662854400, 1662856200] * 2 + [1662854400]


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "Inf", "null", "", "7,5"])
def test_what_is_no_finite_number_is_never_one_and_costs_no_other_sample(text: str) -> None:
    got = read(answer("vector", {"metric": {}, "value": [1.5, text]}, {"metric": {"a": "b"}, "value": [1.5, "3"]}))
    assert not math.isfinite(got.values[0]) and got.values[1] == 3
    points = [[300, "1"], [600, text], [900, "2.5"]]
    got = read(answer("matrix", {"metric": {}, "values": points}, {"metric": {"a": "b"}, "values": [[300, "3"]]}))
    assert got.times.tolist() == [300, 600, 900, 300]
    assert not math.isfinite(got.values[1]) and got.values[[0, 2, 3]].tolist() == [1, 2.5, 3]


@pytest.mark.parametrize(
    "points",
    [
        '[[1,"2",9],["3"]]',
        '[[1,"2","9"],[3]]',
        '[[1],["2",3,"4"]]',
        '[1,["2"],[3,"4"]]',
        '[[1,["2"],3,"4"]]',
        '[[1,"2,3"],["4"]]',
        '[[1,"2[]"],3,"4"]',
    ],
)
def test_two_spoilt_points_that_make_up_for_each_other_are_no_result(points: str) -> None:
    good = '{"metric":{"pod":"a"},"values":[[1,"7"],[2,"8"]]}'
    for series in (f'{{"metric":{{}},"values":{points}}},{good}', f'{good},{{"metric":{{}},"values":{points}}}'):
        with pytest.raises(PrometheusError, match="no result"):
            read(f'{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}')


def test_two_spoilt_series_that_make_up_for_each_other_are_no_result() -> None:
    series = '{"metric":{"pod":"a"},"values":[[1,"2",3]]},{"metric":{"pod":"b"},"values":[["4"],[5,"6"]]}'
    with pytest.raises(PrometheusError, match="no result"):
        read(f'{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}')


def test_a_native_histogram_has_no_points() -> None:
    histogram = {"count": "3", "sum": "6", "buckets": [[0, "1", "2", "3"]]}
    got = read(
        answer(
            "matrix",
            {"metric": {"__name__": "h"}, "histograms": [[1, histogram]]},
            {"metric": {"__name__": "both"}, "values": [[1, "2"]], "histograms": [[1, histogram]]},
        )
    )
    assert [values for _, _, values in got.series()] == [[], [2]]
    instant = read(
        answer("vector", {"metric": {}, "histogram": [1, histogram]}, {"metric": {"x": "y"}, "value": [1, "+Inf"]})
    )
    assert [values for _, _, values in instant.series()] == [[], [math.inf]]


def test_warnings_and_infos_are_kept() -> None:
    got = read(
        answer(
            "vector",
            warnings=["store 2 is unavailable"],
            infos=['PromQL info: metric might not be a counter, name does not end in _total: "DCGM_FI_DEV_GPU_UTIL"'],
        )
    )
    assert got.warnings[0] == "store 2 is unavailable"
    assert "might not be a counter" in got.warnings[1]
    assert read(answer("vector", warnings=None, isPartial=None)).warnings == ()


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        (
            '{"status":"error","errorType":"bad_data","error":"invalid parameter \\"query\\": 1:35: parse error: '
            'unclosed left parenthesis"}',
            400,
            PrometheusError,
            "unclosed left parenthesis",
        ),
        (
            '{"status":"error","errorType":"execution","error":"expanding series: context deadline exceeded"}',
            422,
            RangeTooLarge,
            "context deadline exceeded",
        ),
        (
            '{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per '
            'timeseries. Try decreasing the query resolution (?step=XX)"}',
            400,
            RangeTooLarge,
            "11,000 points",
        ),
        ('{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}', 200, Passing, "isPartial"),
        (
            '$ kubectl get --raw /api/v1/query\n{"status":"success","data":{"resultType":"vector","result":[]}}',
            200,
            PrometheusError,
            "no result",
        ),
        ('{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', 200, PrometheusError, "no result"),
        ('{"status":"success","data":{"resultType":"string","result":[1,"x"]}}', 200, PrometheusError, "no result"),
        ('{"status":"success","data":{"resultType":"streams","result":[]}}', 200, PrometheusError, "a streams where"),
        ('{"status":"success","data":{"resultType":"matrix","result":[{"met', 200, PrometheusError, "no result"),
        ('{"status":"success","data":{"resultType":"vector","result":[{"value":[]}]}}', 200, PrometheusError, "no res"),
        ('{"status":"success","data":{"resultType":"vector","result":null}}', 200, PrometheusError, "no result"),
        ("[]", 200, PrometheusError, "no result"),
        ("null", 200, PrometheusError, "no result"),
        ("", 200, PrometheusError, "no result"),
        ("\ufeff{}", 200, PrometheusError, "no result"),
        ("\n <html><title>Sign in</title>", 200, PrometheusError, "web page"),
        ('{"message":"no Route matched"}', 404, PrometheusError, "status 404"),
        ("too many requests", 429, Passing, "status 429"),
    ],
)
def test_what_is_no_result_is_one_sentence(body: str, status: int, kind: type[PrometheusError], words: str) -> None:
    with pytest.raises(PrometheusError, match=r"^http://p\.test .*") as caught:
        read(body, status)
    assert type(caught.value) is kind
    assert words in str(caught.value)
