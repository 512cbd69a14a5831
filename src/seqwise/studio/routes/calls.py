"""Computations with models, in worker processes: each answer is a stream of JSON lines. And files to compute with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from seqwise.studio.functions import get_functions
from seqwise.studio.routes.reading import read_model
from seqwise.studio.services import Services
from seqwise.studio.workers import Event


def build_router(services: Services) -> APIRouter:
    """Returns the routes of computations."""
    router, functions = APIRouter(prefix="/api"), get_functions()

    @router.post("/call/{name}")
    async def call(name: str, request: Request) -> Response:
        function = functions.get(name)
        if function is None:
            return JSONResponse({"problem": "there is no such function."}, 404)
        values = await read_model(request, function.request)
        events = services.workers.call(function, await asyncio.to_thread(values.resolve, services))
        first = await _wait_for_first(request, events)
        if first is None:
            return Response(status_code=204)  # the client is gone
        return StreamingResponse(_stream(first, events), media_type="application/x-ndjson")

    @router.post("/uploads")
    async def upload(request: Request) -> Any:
        name = request.query_params.get("name", "")
        return {"id": await asyncio.to_thread(services.uploads.add, name, await request.body())}

    return router


async def _wait_for_first(request: Request, events: AsyncGenerator[Event]) -> Event | None:
    """Returns the first event; None if the page has left meanwhile: then the computation is cancelled.

    Until an answer is streamed, nothing else notices that.
    """
    first = asyncio.ensure_future(anext(events))
    leaving = asyncio.ensure_future(_wait_for_end(request))
    try:
        await asyncio.wait((first, leaving), return_when=asyncio.FIRST_COMPLETED)
        return first.result() if first.done() else None
    finally:
        leaving.cancel()
        if not first.done():
            first.cancel()
            with suppress(asyncio.CancelledError):
                await first
            await events.aclose()


async def _wait_for_end(request: Request) -> None:
    """Waits until the page has closed the connection; the body of the request must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(first: Event, events: AsyncGenerator[Event]) -> AsyncIterator[bytes]:
    try:
        yield json.dumps(first).encode() + b"\n"
        async for event in events:
            yield json.dumps(event).encode() + b"\n"
    finally:
        await events.aclose()
