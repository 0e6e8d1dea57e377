"""Which HTTP routes does the predictor have? FastAPI over an `Engine`: contract, probes, metrics, OpenAPI.

What an answer says belongs to `answers`; this module only turns requests into calls and answers into responses.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from piqc_pipeline.predictor import answers, contract, exposition
from piqc_pipeline.predictor.answers import NOT_READY, Answer, refuse
from piqc_pipeline.predictor.board import Board
from piqc_pipeline.predictor.engine import Engine, stop
from piqc_pipeline.predictor.query import BadQuery, check_workload, parse_query
from piqc_pipeline.predictor.token import BearerToken

UNHEALTHY_AFTER_REFRESHES = 10
"""A loop that has not ticked for so many refreshes hangs; the kubelet then starts the pod anew."""

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": contract.Refusal, "description": text}
    for status, text in {
        400: "The query cannot be meant.",
        401: "The bearer token is missing or wrong.",
        404: "No such workload.",
        409: "The name may be several workloads; the candidates are listed.",
        503: "No number may be given: stale, unknown, or no artifact yet. Never 0, never an old number.",
    }.items()
}

_WORKLOAD_PARAMETERS: list[dict[str, Any]] = [
    {
        "name": "workload",
        "in": "query",
        "required": True,
        "description": "NAMESPACE/NAME, NAMESPACE/KIND/NAME, or the whole id.",
        "schema": {"type": "string", "maxLength": 512, "example": "inference/chat-8b"},
    },
    {
        "name": "horizon",
        "in": "query",
        "required": False,
        "description": "How far ahead: 30m, 1h30m, 90s, or seconds; at most 48h.",
        "schema": {"type": "string", "default": "30m"},
    },
]


def create_app(engine: Engine, token: BearerToken | None = None) -> FastAPI:
    """The service over an engine. Its loop starts and ends with the application.

    Args:
        engine: Not yet ticking.
        token: What clients of `/predict` and `/v1` must send; None admits everyone. Probes and metrics stay open.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.create_task(engine.run())
        try:
            yield
        finally:
            await stop(loop)
            await engine.close()

    app = FastAPI(
        title="Capacity predictor",
        version=version("piqc_pipeline"),
        summary="How many replicas each GPU workload needs, and how busy it will be.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # the interactive page would load scripts from elsewhere; /openapi.json has it all
        redoc_url=None,
    )
    requests: Counter[int] = Counter()

    def respond(request: Request, ask: Callable[[Board], Answer]) -> Response:
        if token is not None and not token.admits(request.headers.get("authorization", "").encode()):
            answer = refuse(401, "unauthorized", "send the header Authorization: Bearer TOKEN")
        elif engine.board is None:
            answer = NOT_READY
        else:
            try:
                answer = ask(engine.board)
            except BadQuery as error:
                answer = refuse(400, "bad_query", str(error))
        requests[answer.status] += 1
        return Response(answer.body, answer.status, media_type="application/json")

    @app.get(
        "/predict",
        response_model=contract.Prediction,
        responses=_REFUSALS,
        openapi_extra={"parameters": _WORKLOAD_PARAMETERS},
        summary="The load expected at one moment ahead",
    )
    async def predict(request: Request) -> Response:
        query = request.scope["query_string"]
        return respond(request, lambda board: answers.predict_answer(board, parse_query(query), engine.clock()))

    @app.get(
        "/v1/desired/{namespace}/{name:path}",
        response_model=contract.Desired,
        responses=_REFUSALS,
        summary="Replicas wanted now: the number for KEDA",
        description="`name` is NAME, or KIND/NAME where two workloads share a name.",
    )
    async def desired(request: Request, namespace: str, name: str) -> Response:
        return respond(
            request,
            lambda board: answers.desired_answer(board, check_workload(f"{namespace}/{name}"), engine.clock()),
        )

    @app.get("/v1/workloads", response_model=contract.Workloads, responses=_REFUSALS, summary="Every workload's state")
    async def workloads(request: Request) -> Response:
        return respond(request, lambda board: answers.workloads_answer(board, engine.clock()))

    @app.get("/metrics", summary="Prometheus' text format", response_class=Response)
    async def metrics() -> Response:
        text = exposition.render(engine, requests, engine.clock())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz", summary="Is the process alive?", responses=_REFUSALS)
    async def healthz() -> Response:
        last, limit = engine.counters.last_tick_monotonic, engine.options.refresh_seconds * UNHEALTHY_AFTER_REFRESHES
        if last is not None and (silent := time.monotonic() - last) > limit:
            return JSONResponse({"reason": "hanging", "detail": f"no refresh for {silent:.0f} s"}, 503)
        return JSONResponse({"status": "ok"})

    @app.get("/readyz", summary="Is an artifact in use?", responses=_REFUSALS)
    async def readyz() -> Response:
        if engine.board is None:
            detail = engine.refused or "no refresh has finished yet"
            return JSONResponse({"reason": "not_ready", "detail": detail, "candidates": []}, 503)
        return JSONResponse({"status": "ready", "artifact_sha256": engine.board.artifact.sha256})

    return app
