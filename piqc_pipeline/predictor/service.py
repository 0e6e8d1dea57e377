"""Which HTTP routes does the predictor have? FastAPI over an `Engine`: contract, probes, metrics, OpenAPI.

What an answer says belongs to `answers`; this module only turns requests into calls and answers into responses.
The two routes that autoscalers read are answered in front of FastAPI, whose routing costs more than half of a request
(2,760 requests/s through it and 6,230 past it on one busy machine); it documents them and serves all others.
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

_DESIRED = "/v1/desired/"
_NO_STORE = (b"cache-control", b"no-store")

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


class Desk:
    """Answers both hot routes: checks the token, asks the board, counts."""

    def __init__(self, engine: Engine, token: BearerToken | None) -> None:
        """Answer from the engine's board."""
        self.engine = engine
        self.token = token
        self.requests: Counter[int] = Counter()

    def predict(self, query: bytes, authorization: bytes) -> Answer:
        """`/predict` with the raw query string."""
        now = self.engine.clock()
        return self.answer(authorization, lambda board: answers.predict_answer(board, parse_query(query), now))

    def desired(self, name: str, authorization: bytes) -> Answer:
        """`/v1/desired` with what follows it in the path."""
        now = self.engine.clock()
        return self.answer(authorization, lambda board: answers.desired_answer(board, check_workload(name), now))

    def answer(self, authorization: bytes, ask: Callable[[Board], Answer]) -> Answer:
        """What `ask` says of the board, or the refusal."""
        if self.token is not None and not self.token.admits(authorization):
            answer = refuse(401, "unauthorized", "send the header Authorization: Bearer TOKEN")
        elif self.engine.board is None:
            answer = NOT_READY
        else:
            try:
                answer = ask(self.engine.board)
            except BadQuery as error:
                answer = refuse(400, "bad_query", str(error))
        self.requests[answer.status] += 1
        return answer


class Shortcut:
    """The ASGI application: hot routes at once, everything else through FastAPI."""

    def __init__(self, app: FastAPI, desk: Desk) -> None:
        """Stand before `app`."""
        self.app = app
        self._desk = desk

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the lifespan."""
        answer = None
        if scope["type"] == "http" and scope["method"] == "GET":
            path: str = scope["path"]
            if path == "/predict":
                answer = self._desk.predict(scope["query_string"], self._authorization(scope))
            elif path.startswith(_DESIRED):
                answer = self._desk.desired(path[len(_DESIRED) :], self._authorization(scope))
        if answer is None:
            await self.app(scope, receive, send)
            return
        length = b"%d" % len(answer.body)
        headers = [(b"content-type", b"application/json"), (b"content-length", length), _NO_STORE]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def _authorization(self, scope: Any) -> bytes:
        if self._desk.token is None:
            return b""
        return next((value for name, value in scope["headers"] if name == b"authorization"), b"")


def create_service(engine: Engine, token: BearerToken | None = None) -> Shortcut:
    """What the server runs. Arguments as `create_app`."""
    desk = Desk(engine, token)
    return Shortcut(create_app(engine, desk), desk)


def create_app(engine: Engine, desk: Desk) -> FastAPI:
    """The FastAPI application over an engine. The engine's loop starts and ends with it.

    Args:
        engine: Not yet ticking.
        desk: Answers `/predict` and `/v1`; where it has a token, clients must send it. Probes and metrics stay open.
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

    def respond(answer: Answer) -> Response:
        return Response(answer.body, answer.status, media_type="application/json")

    def authorization(request: Request) -> bytes:
        return request.headers.get("authorization", "").encode("latin-1")

    @app.get(
        "/predict",
        response_model=contract.Prediction,
        responses=_REFUSALS,
        openapi_extra={"parameters": _WORKLOAD_PARAMETERS},
        summary="The load expected at one moment ahead",
    )
    async def predict(request: Request) -> Response:
        return respond(desk.predict(request.scope["query_string"], authorization(request)))

    @app.get(
        "/v1/desired/{namespace}/{name:path}",
        response_model=contract.Desired,
        responses=_REFUSALS,
        summary="Replicas wanted now: the number for KEDA",
        description="`name` is NAME, or KIND/NAME where two workloads share a name.",
    )
    async def desired(request: Request, namespace: str, name: str) -> Response:
        return respond(desk.desired(f"{namespace}/{name}", authorization(request)))

    @app.get("/v1/workloads", response_model=contract.Workloads, responses=_REFUSALS, summary="Every workload's state")
    async def workloads(request: Request) -> Response:
        now = engine.clock()
        return respond(desk.answer(authorization(request), lambda board: answers.workloads_answer(board, now)))

    @app.get("/metrics", summary="Prometheus' text format", response_class=Response)
    async def metrics() -> Response:
        text = exposition.render(engine, desk.requests, engine.clock())
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
