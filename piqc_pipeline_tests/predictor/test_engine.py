"""Do the answers follow live demand, hold on the way down, and end when nothing is known any more?"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from piqc_pipeline.errors import ArtifactAltered
from piqc_pipeline.predictor.answers import Answer, desired_answer, predict_answer
from piqc_pipeline.predictor.contract import Desired
from piqc_pipeline.predictor.engine import Engine
from piqc_pipeline.predictor.limits_watch import LimitsWatch
from piqc_pipeline.predictor.query import Query
from piqc_pipeline_tests.predictor.world import CHAT, NOW, Clock, Folder, ToldDemand, artifact, engine, forecast, tick

NAME = "inference/chat-8b"


def desired(running: Engine, name: str = NAME) -> tuple[int, dict[str, Any]]:
    assert running.board is not None
    return _open(desired_answer(running.board, name, running.clock()))


def predicted(running: Engine, horizon_seconds: int = 1800) -> tuple[int, dict[str, Any]]:
    assert running.board is not None
    return _open(predict_answer(running.board, Query(NAME, horizon_seconds), running.clock()))


def _open(answer: Answer) -> tuple[int, dict[str, Any]]:
    return answer.status, json.loads(answer.body)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "model", artifact())


def test_forecast_decides_where_demand_is_lower(folder: Folder) -> None:
    running = engine(folder, ToldDemand(demand=2.0))
    tick(running)
    status, body = desired(running)
    # Demand stays under 3.5 with probability 0.9: 3.5 / 0.90 = 3.9, so 4; the median 3.0 / 0.80 = 3.75, so 4 too.
    assert (status, body["desired_replicas"], body["binding"]) == (200, 4, "fcq")
    assert body["demand_now"] == 2.0 and body["live"] is True


def test_live_demand_is_a_floor(folder: Folder) -> None:
    running = engine(folder, ToldDemand(demand=7.9))
    tick(running)
    status, body = desired(running)
    assert (status, body["desired_replicas"], body["binding"]) == (200, 10, "observed")  # 7.9 / 0.80 = 9.875


def test_prediction_carries_the_contract(folder: Folder) -> None:
    running = engine(folder, ToldDemand(demand=2.0, replicas_ready=5))
    tick(running)
    status, body = predicted(running)
    assert status == 200
    # 3.0 replicas of demand on 5 ready replicas are 60 %; 2.5 and 3.5 are 50 and 70 %; two GPUs a replica.
    assert (body["predicted_util"], body["lower"], body["upper"]) == (60.0, 50.0, 70.0)
    assert body["predicted_gpu_util"] == 60.0
    assert body["predicted_busy_gpus"] == 6.0
    assert body["desired_replicas"] == 4
    assert body["at"] == "2025-01-20T00:30:00Z"
    assert body["model"] == "ensemble@abababababab"


def test_utilization_without_a_replica_count_refers_to_the_plan_and_says_so(folder: Folder) -> None:
    running = engine(folder)
    tick(running)
    _, body = predicted(running)
    assert (body["predicted_util"], body["replicas_basis"], body["replicas_basis_source"]) == (75.0, 4, "plan")


@pytest.mark.parametrize(
    ("away", "status"),
    [(timedelta(minutes=1), 200), (timedelta(minutes=9), 200), (timedelta(hours=1), 503), (timedelta(days=1), 503)],
    ids=["1 min", "9 min", "1 h", "a day"],
)
def test_prometheus_gone(folder: Folder, away: timedelta, status: int) -> None:
    clock, source = Clock(), ToldDemand(demand=6.5)
    running = engine(folder, source, clock)
    tick(running)
    source.error = "connection refused"
    for _ in range(4):
        clock.now += away / 4
        tick(running)
    got, body = desired(running)
    assert got == status
    if status == 200:
        # 6.5 / 0.80 = 8.1: the nine of before are held; the forecast alone would ask for 4.
        assert (body["desired_replicas"], body["binding"]) == (9, "hold")
        assert away < timedelta(minutes=5) or "live demand is not seen" in body["explain"]
    else:
        assert body["reason"] == "stale" and "2025-01-20T00:00:00Z" in body["detail"]
        assert "desired_replicas" not in body
    assert predicted(running)[0] == status


def test_prometheus_back_after_an_hour_answers_again(folder: Folder) -> None:
    clock, source = Clock(), ToldDemand(demand=2.0)
    running = engine(folder, source, clock)
    tick(running)
    source.error = "timed out"
    clock.forward(hours=1)
    tick(running)
    assert desired(running)[0] == 503
    source.error = None
    tick(running)
    assert desired(running)[0] == 200


def test_answers_end_even_when_no_refresh_comes_any_more(folder: Folder) -> None:
    clock = Clock()
    running = engine(folder, ToldDemand(demand=2.0), clock)
    tick(running)
    clock.forward(minutes=10, seconds=1)
    assert desired(running)[0] == 503


def test_vanished_series_goes_stale_while_others_live(tmp_path: Path) -> None:
    other = "demo/inference/Deployment/embed"
    clock, source = Clock(), ToldDemand(demand=2.0)
    source.say("inference", "embed", demand=1.0)
    running = engine(Folder(tmp_path / "m", artifact(forecast(), forecast(other))), source, clock)
    tick(running)
    del source.observed["inference", "chat-8b"]
    clock.forward(minutes=11)
    tick(running)
    assert desired(running)[0] == 503
    assert running.board is not None and desired_answer(running.board, "inference/embed", clock()).status == 200


def test_without_prometheus_the_forecast_is_served_until_it_ends(folder: Folder) -> None:
    clock = Clock()
    running = engine(folder, None, clock)
    clock.forward(hours=35)
    tick(running)
    status, body = desired(running)
    assert (status, body["live"], body["demand_now"]) == (200, False, None)
    clock.forward(hours=2)
    tick(running)
    status, body = desired(running)
    assert status == 503 and "train again" in body["detail"]


def test_clock_behind_the_data_is_refused(tmp_path: Path) -> None:
    ahead = forecast(data_until=NOW + timedelta(minutes=5), issued_at=NOW + timedelta(minutes=5))
    running = engine(Folder(tmp_path / "m", artifact(ahead)), None)
    tick(running)
    status, body = desired(running)
    assert (status, body["reason"]) == (503, "clock_skew")
    assert "300 s ahead" in body["detail"]


def test_small_clock_skew_is_tolerated(tmp_path: Path) -> None:
    running = engine(Folder(tmp_path / "m", artifact(forecast(data_until=NOW + timedelta(seconds=90)))), None)
    tick(running)
    assert desired(running)[0] == 200


def test_scale_in_waits_for_the_window_and_then_goes_step_by_step(folder: Folder) -> None:
    clock, source = Clock(), ToldDemand(demand=9.6)
    running = engine(folder, source, clock)
    tick(running)
    assert desired(running)[1]["desired_replicas"] == 12
    source.say("inference", "chat-8b", demand=2.0)
    counts = []
    for _ in range(40):
        clock.forward(seconds=30)
        tick(running)
        counts.append(desired(running)[1]["desired_replicas"])
    # Twelve were wanted within the last 300 s: ten ticks at 12. Then at most a quarter of what stood a minute ago:
    # 12 -> 9 -> 6 (6.75) -> 4 (4.5), where 3.5 / 0.85 = 4.1 asks for five.
    assert counts[:9] == [12] * 9
    assert counts == sorted(counts, reverse=True)
    assert [count for i, count in enumerate(counts) if i == 0 or count != counts[i - 1]] == [12, 9, 6, 5]
    for earlier, later in zip(counts, counts[2:], strict=False):
        assert later >= int(earlier * 0.75)


@pytest.mark.parametrize(
    ("figures", "why"),
    [({"waiting_requests": 3.0}, "3 requests wait"), ({"replicas_wanted": 12, "replicas_ready": 10}, "still starting")],
    ids=["queue", "pending"],
)
def test_scale_in_waits_for_queue_and_pending_pods(folder: Folder, figures: dict[str, float], why: str) -> None:
    clock, source = Clock(), ToldDemand(demand=9.6)
    running = engine(folder, source, clock)
    tick(running)
    source.say("inference", "chat-8b", demand=2.0, **figures)
    for _ in range(20):
        clock.forward(seconds=30)
        tick(running)
    body = desired(running)[1]
    assert body["desired_replicas"] == 12 and why in body["explain"]


def test_rejected_forecast_leaves_live_demand_alone(tmp_path: Path) -> None:
    rejected = forecast(accepted=False, reasons=("worse than the last value",))
    source = ToldDemand(demand=2.0)
    running = engine(Folder(tmp_path / "m", artifact(rejected)), source)
    tick(running)
    status, body = desired(running)
    assert (status, body["desired_replicas"], body["binding"]) == (200, 3, "observed")  # 2.0 / 0.80 = 2.5
    assert body["accepted"] is False and body["reasons"] == ["worse than the last value"]
    assert predicted(running)[1]["reason"] == "not_accepted"


def test_rejected_forecast_without_live_demand_is_no_number(tmp_path: Path) -> None:
    rejected = forecast(accepted=False, reasons=("worse than the last value",))
    running = engine(Folder(tmp_path / "m", artifact(rejected)), ToldDemand())
    tick(running)
    status, body = desired(running)
    assert (status, body["reason"]) == (503, "not_accepted") and "worse than the last value" in body["detail"]


def test_workload_that_could_not_be_trained_says_why(tmp_path: Path) -> None:
    running = engine(Folder(tmp_path / "m", artifact(failed={CHAT.replace("8b", "70b"): "only one sample"})))
    tick(running)
    assert running.board is not None
    status, body = _open(desired_answer(running.board, "inference/chat-70b", NOW))
    assert (status, body["reason"]) == (503, "no_forecast") and "only one sample" in body["detail"]


def test_ambiguous_name_lists_its_candidates(tmp_path: Path) -> None:
    twin = "demo/inference/StatefulSet/chat-8b"
    running = engine(Folder(tmp_path / "m", artifact(forecast(), forecast(twin))))
    tick(running)
    status, body = desired(running)
    assert status == 409 and body["candidates"] == [CHAT, twin]
    assert running.board is not None
    assert desired_answer(running.board, "inference/StatefulSet/chat-8b", NOW).status == 200
    assert desired_answer(running.board, twin, NOW).status == 200


def test_horizon_beyond_the_forecast_is_refused_with_its_end(folder: Folder) -> None:
    running = engine(folder)
    tick(running)
    status, body = predicted(running, 37 * 3600)
    assert (status, body["reason"]) == (400, "bad_query") and "2025-01-21T12:00:00Z" in body["detail"]


def test_limits_of_the_manifests_hold_and_are_named(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    row = {"min_replicas": 2, "max_replicas": 6, "max_reason": "quota team leaves 6 nvidia.com/gpu to it"}
    path.write_text(json.dumps({"schemaVersion": "piqc-limits.v1", "workloads": {CHAT: row}}))
    running = engine(folder, ToldDemand(demand=50.0), limits=LimitsWatch(path))
    tick(running)
    body = desired(running)[1]
    assert (body["desired_replicas"], body["binding"], body["max_replicas"]) == (6, "max", 6)
    assert "the maximum (quota team leaves 6 nvidia.com/gpu to it)" in body["explain"]


def test_roles_of_a_pair_are_raised_to_their_ratio(tmp_path: Path) -> None:
    ids = ["demo/inference/Deployment/p", "demo/inference/Deployment/d"]
    made = Folder(
        tmp_path / "model", artifact(*(forecast(name, q50, q50) for name, q50 in zip(ids, (0.1, 6.0), strict=True)))
    )
    pairs = {
        name: {"min_replicas": 1, "max_replicas": 20, "pair": {"mate": mate, "per_mate": 0.5}}
        for name, mate in (ids, ids[::-1])
    }
    path = tmp_path / "limits.json"
    path.write_text(json.dumps({"schemaVersion": "piqc-limits.v1", "workloads": pairs}))
    source = ToldDemand()
    source.say("inference", "p", demand=1.0)
    source.say("inference", "d", demand=12.0)
    running = engine(made, source, limits=LimitsWatch(path))
    tick(running)
    one, two = (desired(running, f"inference/{name}")[1] for name in ("p", "d"))
    # 12.0 / 0.80 = 15 decode replicas, half as many prefill ones at least: 8.
    assert (one["desired_replicas"], one["binding"], two["desired_replicas"]) == (8, "pair", 15)
    Desired.model_validate(one)
    # Ahead, the forecasts of 0.1 and 6.0 ask for 1 and 8: four prefill replicas keep the ratio.
    assert running.board is not None
    ahead = _open(predict_answer(running.board, Query("inference/p", 1800), running.clock()))[1]
    assert ahead["desired_replicas"] == 4


def test_new_artifact_is_taken_and_a_broken_one_refused(folder: Folder) -> None:
    running = engine(folder)
    tick(running)
    folder.put(ArtifactAltered("predictor.json is not what its hash says"))
    tick(running)
    tick(running)
    assert desired(running)[0] == 200 and running.counters.refused == 1
    assert running.refused is not None and "hash" in running.refused
    folder.put(artifact(forecast(q50=7.0, q90=8.0), sha256="cd" * 32))
    tick(running)
    body = desired(running)[1]
    assert body["model"] == "ensemble@cdcdcdcdcdcd" and running.refused is None
    assert body["desired_replicas"] == 9  # 8.0 / 0.90 = 8.9


def test_artifact_that_vanishes_leaves_the_old_one_in_use(folder: Folder) -> None:
    running = engine(folder)
    tick(running)
    folder.put(None)
    tick(running)
    assert desired(running)[0] == 200


def test_memory_of_what_was_published_survives_a_new_artifact(folder: Folder) -> None:
    clock, source = Clock(), ToldDemand(demand=9.6)
    running = engine(folder, source, clock)
    tick(running)
    folder.put(artifact(forecast(), sha256="cd" * 32))
    source.say("inference", "chat-8b", demand=2.0)
    clock.forward(seconds=30)
    tick(running)
    assert desired(running)[1]["desired_replicas"] == 12
