from datetime import timedelta

import httpx

from piqc_pipeline.history.inventory import WorkloadInventory
from piqc_pipeline.history.prometheus import PrometheusSource
from piqc_pipeline.prometheus.access import PrometheusAccess
from piqc_pipeline_tests.history.rows import DAY

CHAT = WorkloadInventory("prod/llm/StatefulSet/chat", "llm", "StatefulSet", "chat", gpus_per_replica=1.0)
GPU = {"UUID": "GPU-0", "namespace": "llm", "pod": "chat-0"}
STEP = 300
HALF_A_DAY = 144


def half_a_day_at_most(request: httpx.Request) -> httpx.Response:
    """A device at 40 % all day, with 10 samples a bucket but for the first, which has 3; larger ranges are refused."""
    if "/label/" in request.url.path:
        return httpx.Response(200, json={"status": "success", "data": ["DCGM_FI_DEV_GPU_UTIL"]})
    form = request.url.params
    first, last, step = float(form["start"]), float(form["end"]), int(form["step"])
    stamps = [first + step * number for number in range(round((last - first) / step) + 1)]
    if len(stamps) > HALF_A_DAY:
        return httpx.Response(422, json={"status": "error", "error": "query processing would load too many samples"})
    counts = [(at, 3 if at < DAY.timestamp() + STEP else 10) for at in stamps]
    if "<" in form["query"]:
        points = [(at, count) for at, count in counts if count < 10]
    else:
        points = counts if "count_over_time" in form["query"] else [(at, 40) for at in stamps]
    result = [{"metric": GPU, "values": [[at, str(value)] for at, value in points]}] if points else []
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_a_device_whose_day_comes_in_two_answers_is_one_and_its_short_bucket_is_told() -> None:
    source = PrometheusSource(
        PrometheusAccess("http://prometheus.test"), transport=httpx.MockTransport(half_a_day_at_most)
    )
    frame = source.fetch(DAY, DAY + timedelta(days=1), (CHAT,), STEP).frame
    assert set(frame["devices_seen"]) == {1}
    assert set(frame["utilization"]) == {0.4}
    assert frame["samples_seen"].to_list() == [3] + [10] * 287
    assert set(frame["samples_expected"]) == {10}
