"""Computations with models, in worker processes: each answer is a stream of JSON lines. And files to compute with."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import ValidationError

from seqwise.errors import UsageError
from seqwise.studio.functions import get_functions
from seqwise.studio.routes.reading import explain, read_object
from seqwise.studio.services import Services
from seqwise.studio.workers import BusyError, Event


def build_router(services: Services) -> APIRouter:
    """Returns the routes of computations."""
    router, functions = APIRouter(prefix="/api"), get_functions()

    @router.post("/call/{name}")
    async def call(name: str, request: Request) -> Response:
        function = functions.get(name)
        if function is None:
            return JSONResponse({"problem": "there is no such function."}, 404)
        values = await read_object(request)
        try:
            arguments = function.request.model_validate(values).resolve(services)
        except ValidationError as error:
            raise UsageError(explain(error)) from None
        events = services.workers.call(function, arguments)
        try:
            first = await anext(events)
        except BusyError as error:
            return JSONResponse({"problem": error.problem, "fix": error.fix}, 503)
        return StreamingResponse(_stream(first, events), media_type="application/x-ndjson")

    @router.post("/uploads")
    async def upload(request: Request) -> Any:
        name = request.query_params.get("name", "")
        return {"id": services.uploads.add(name, await request.body())}

    return router


async def _stream(first: Event, events: AsyncGenerator[Event]) -> AsyncIterator[bytes]:
    try:
        yield json.dumps(first).encode() + b"\n"
        async for event in events:
            yield json.dumps(event).encode() + b"\n"
    finally:
        await events.aclose()
