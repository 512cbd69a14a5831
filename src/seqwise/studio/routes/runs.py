"""Runs and their learning curves as JSON, and their changes as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from seqwise.studio.routes import changes, overlays
from seqwise.studio.routes.overlays import MAX_CURVES, MAX_POINTS
from seqwise.studio.routes.run import MAX_SERIES, NUM_POINTS, reduce_curve
from seqwise.studio.services import Services

DEFAULT_SERIES = ["loss"]
PING_SECONDS = 15.0  # after which a silent connection is told that the server is alive


def build_router(services: Services) -> APIRouter:
    """Returns the routes of runs."""
    router, catalogue = APIRouter(prefix="/api"), services.catalogue

    @router.get("/events")
    async def stream_events(request: Request, last: str = "") -> Response:
        last = request.headers.get("last-event-id", last)  # the browser sets it when it connects again by itself
        return StreamingResponse(_stream_events(request, services, last), media_type="text/event-stream")

    @router.get("/runs")
    async def list_runs() -> Any:
        await services.watcher.look()
        return (await asyncio.to_thread(services.feed.collect, ""))[1]["rows"]

    @router.get("/curves")
    def get_curves(
        id: Annotated[list[str], Query(max_length=MAX_CURVES)],
        y: Annotated[list[str], Query(max_length=MAX_SERIES)] = DEFAULT_SERIES,
        x: str = "step",
        start: float | None = None,
        stop: float | None = None,
        points: Annotated[int, Query(ge=10, le=MAX_POINTS)] = NUM_POINTS,
    ) -> Any:
        return {name: reduce_curve(catalogue.get_curve(name), x, y, points, start, stop) for name in id}

    whole = APIRouter()
    whole.include_router(router)
    for module in (overlays, changes):
        whole.include_router(module.build_router(services))
    return whole


async def _stream_events(request: Request, services: Services, last: str) -> AsyncIterator[str]:
    watcher = services.watcher
    if watcher.is_idle:
        await watcher.look()
    with watcher.count_page():
        while not await request.is_disconnected():
            changed = watcher.changed
            event, content = await asyncio.to_thread(services.feed.collect, last)
            if content["rows"] or content["is_complete"]:
                yield f"id: {event}\ndata: {json.dumps(content, allow_nan=False, default=str)}\n\n"
            last = event
            try:
                await asyncio.wait_for(changed.wait(), PING_SECONDS)
            except TimeoutError:
                yield ": alive\n\n"
