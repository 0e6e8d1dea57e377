"""Which status and which bytes does a request get? Pure: a board, a query and the time in, an answer out.

Parsing belongs to `query`, HTTP to `service`. A number is only given while it is fresh: everything else is a refusal
with a reason, never 0 and never null.
"""

import math
from datetime import datetime, timedelta
from typing import NamedTuple

import orjson

from piqc_pipeline.predictor.board import Board, Entry, Reason
from piqc_pipeline.predictor.query import Query
from piqc_pipeline.scaling.pairs import paired_plans
from piqc_pipeline.scaling.plan import ReplicaPlan, plan_workload

MAX_RENDERED = 4096
"""Answers kept per board; a client that asks every horizon of every workload cannot fill the memory."""


class Answer(NamedTuple):
    """HTTP status and JSON body."""

    status: int
    body: bytes


def refuse(status: int, code: str, detail: str, candidates: tuple[str, ...] = ()) -> Answer:
    """A refusal: a reason and no number."""
    return Answer(status, orjson.dumps({"reason": code, "detail": detail, "candidates": candidates}))


NOT_READY = refuse(
    503, "not_ready", "no artifact is loaded yet; promote one, and look at the service's log if one was refused"
)


def desired_answer(board: Board, name: str, now: datetime) -> Answer:
    """`/v1/desired`: replicas now, with the reason."""
    entry = find(board, name)
    if isinstance(entry, Answer):
        return entry
    if (reason := entry.refusal(now)) is not None:
        return _unavailable(reason)
    if (body := board.rendered.get(entry.workload)) is None:
        body = _keep(board, entry.workload, orjson.dumps(_desired(board, entry)))
    return Answer(200, body)


def predict_answer(board: Board, query: Query, now: datetime) -> Answer:
    """`/predict`: the load at now + horizon."""
    entry = find(board, query.workload)
    if isinstance(entry, Answer):
        return entry
    if (reason := entry.refusal(now)) is not None:
        return _unavailable(reason)
    forecast = entry.forecast
    if forecast is None or not forecast.accepted:
        why = "; ".join(forecast.reasons) if forecast else board.artifact.failed.get(entry.workload, "")
        return refuse(503, "not_accepted", f"{entry.workload} has no accepted forecast: {why or 'none was trained'}")
    moment = now + timedelta(seconds=query.horizon_seconds)
    index = forecast.table.index_at(moment)
    if index is None or moment > forecast.valid_until:
        end = min(
            forecast.valid_until,
            forecast.table.start + timedelta(seconds=forecast.step_seconds * len(forecast.table.q50)),
        )
        return refuse(
            400, "bad_query", f"the forecast of {entry.workload} reaches to {_iso(end)}; ask for a shorter horizon"
        )
    key = (entry.workload, index, query.horizon_seconds)
    if (body := board.rendered.get(key)) is None:
        content = _prediction(board, entry, index, moment, query.horizon_seconds)
        if isinstance(content, Reason):
            return _unavailable(content)
        body = _keep(board, key, orjson.dumps(content))
    return Answer(200, body)


def workloads_answer(board: Board, now: datetime) -> Answer:
    """`/v1/workloads`: every workload and its state."""
    rows = []
    for entry in board.entries.values():
        reason = entry.refusal(now)
        step = entry.plan.now if entry.plan is not None and reason is None else None
        rows.append(
            {
                "workload": entry.workload,
                "status": "ok" if reason is None else "stale" if reason.code == "stale" else "unavailable",
                "reason": reason.code if reason else None,
                "detail": reason.detail if reason else None,
                "desired_replicas": step.replicas if step else None,
                "accepted": entry.forecast is not None and entry.forecast.accepted,
                "data_until": _iso(entry.data_until),
                "valid_until": _iso(entry.fresh_until),
            }
        )
    artifact = board.artifact
    return Answer(
        200,
        orjson.dumps({"artifact_sha256": artifact.sha256, "trained_at": _iso(artifact.trained_at), "workloads": rows}),
    )


def find(board: Board, name: str) -> Entry | Answer:
    """The entry that a client's name means, or the refusal."""
    ids = board.names.get(name, ())
    if len(ids) == 1:
        return board.entries[ids[0]]
    if not ids:
        return refuse(
            404, "unknown_workload", f"no forecast was trained for {name[:200]!r}; /v1/workloads lists those there are"
        )
    return refuse(
        409, "ambiguous_workload", f"{name} may be {len(ids)} workloads; ask by NAMESPACE/KIND/NAME or by id", ids
    )


def _unavailable(reason: Reason) -> Answer:
    return refuse(503, reason.code, reason.detail)


def _keep(board: Board, key: object, body: bytes) -> bytes:
    if len(board.rendered) >= MAX_RENDERED:
        board.rendered.clear()
    board.rendered[key] = body
    return body


def _model(board: Board, entry: Entry) -> str:
    name = "ensemble" if entry.forecast is not None and entry.forecast.accepted else "observed"
    return f"{name}@{board.artifact.sha256[:12]}"


def _desired(board: Board, entry: Entry) -> dict[str, object]:
    plan = entry.plan
    assert plan is not None and plan.now is not None, "an entry without a refusal has a decision"
    step, forecast = plan.now, entry.forecast
    return {
        "workload": entry.workload,
        "desired_replicas": step.replicas,
        "binding": step.binding,
        "explain": step.explain,
        "min_replicas": entry.limits.min_replicas,
        "max_replicas": entry.limits.max_replicas,
        "accepted": plan.accepted,
        "reasons": plan.reasons,
        "demand_now": _round(plan.demand_now),
        "demand_q50": _round(step.demand_q50),
        "demand_q90": _round(step.demand_q90),
        "lead_seconds": plan.lead_seconds,
        "issued_at": _iso(forecast.issued_at if forecast else plan.issued_at),
        "data_until": _iso(entry.data_until or plan.issued_at),
        "valid_until": _iso(entry.fresh_until),
        "live": entry.live,
        "model": _model(board, entry),
    }


def _prediction(
    board: Board, entry: Entry, index: int, moment: datetime, horizon_seconds: int
) -> dict[str, object] | Reason:
    forecast = entry.forecast
    assert forecast is not None
    table = forecast.table
    demand, low, high = table.q50[index], table.lower[index], table.q90[index]
    if not all(math.isfinite(value) for value in (demand, low, high)):
        return Reason("no_forecast", f"the forecast of {entry.workload} has no value for {_iso(moment)}")
    plan = _planned(board, entry, moment)
    if plan.now is None:
        return Reason("no_forecast", f"no plan reaches {_iso(moment)} for {entry.workload}")
    ready = entry.observed.replicas_ready if entry.observed else None
    basis, source = (ready, "live") if ready else (max(1, plan.now.replicas), "plan")

    def percent(value: float) -> float:
        return round(min(100.0, max(0.0, 100 * value / basis)), 3)

    return {
        "workload": entry.workload,
        "at": _iso(moment),
        "horizon_seconds": horizon_seconds,
        "predicted_util": percent(demand),
        "predicted_gpu_util": percent(demand),
        "predicted_busy_gpus": _round(demand * forecast.gpus_per_replica) if forecast.gpus_per_replica else None,
        "predicted_demand_replicas": _round(max(0.0, demand)),
        "desired_replicas": plan.now.replicas,
        "lower": percent(min(low, demand)),
        "upper": percent(max(high, demand)),
        "replicas_basis": basis,
        "replicas_basis_source": source,
        "issued_at": _iso(forecast.issued_at),
        "data_until": _iso(entry.data_until or forecast.data_until),
        "valid_until": _iso(entry.fresh_until),
        "live": entry.live,
        "confidence": forecast.confidence,
        "model": _model(board, entry),
    }


def _planned(board: Board, entry: Entry, moment: datetime) -> ReplicaPlan:
    """The plan of one moment ahead, with the other role of a pair in mind."""
    bound = entry.limits.pair
    mate = board.entries.get(bound.mate) if bound else None
    plans = [
        plan_workload(one.forecast, None, one.limits, board.policy, moment, timedelta(seconds=1))
        for one in (entry, mate)
        if one is not None
    ]
    return paired_plans(plans)[0]


def _round(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"
