"""Runs and their learning curves as JSON, and their changes as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from seqwise.page.figures import to_plain
from seqwise.studio.curves import CurveFile, reduce_points
from seqwise.studio.routes import changes, overlays
from seqwise.studio.routes.overlays import MAX_CURVES, MAX_POINTS, check_axes
from seqwise.studio.services import Services

PING_SECONDS = 15.0  # after which a silent connection is told that the server is alive


def build_router(services: Services) -> APIRouter:
    """Returns the routes of runs."""
    router, catalogue = APIRouter(prefix="/api"), services.catalogue

    @router.get("/events")
    async def stream_events(request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(_stream_events(request, services, last), media_type="text/event-stream")

    @router.get("/runs")
    async def list_runs() -> Any:
        await services.watcher.look()
        return (await asyncio.to_thread(services.feed.collect, ""))[1]["rows"]

    @router.get("/curves")
    def get_curves(
        id: Annotated[list[str], Query(max_length=MAX_CURVES)],
        y: str = "loss",
        x: str = "step",
        start: float | None = None,
        stop: float | None = None,
        points: Annotated[int, Query(ge=10, le=MAX_POINTS)] = 600,
    ) -> Any:
        check_axes(x, y)
        return {name: _reduce(catalogue.get_curve(name), y, x, points, start, stop) for name in id}

    whole = APIRouter()
    whole.include_router(router)
    for module in (overlays, changes):
        whole.include_router(module.build_router(services))
    return whole


def _reduce(curve: CurveFile, y: str, x: str, points: int, start: float | None, stop: float | None) -> dict[str, Any]:
    return to_plain(vars(reduce_points(*curve.get_series(y, x), points, start, stop)))


async def _stream_events(request: Request, services: Services, last: str) -> AsyncIterator[str]:
    watcher = services.watcher
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
