"""Runs and their learning curves as JSON, and their changes as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from seqwise.errors import UsageError
from seqwise.metrics.evaluation import LOWER_IS_BETTER
from seqwise.page.figures import to_plain
from seqwise.studio.curves import COLUMNS, X_AXES, CurveFile, reduce_points
from seqwise.studio.entries import Entry, get_mapping, get_number
from seqwise.studio.functions import RunId
from seqwise.studio.overlays import Window, build_line, describe_groups, list_differences
from seqwise.studio.routes import changes
from seqwise.studio.services import Services

PING_SECONDS = 15.0  # after which a silent connection is told that the server is alive
MAX_POINTS = 2_000  # of a curve
MAX_CURVES = 100  # of one request
MAX_SMOOTHING = 0.5  # share of a curve over which it is smoothed
HIDDEN_METRICS = ("objective", "goal", "spans", "tokens")  # in validations, but not to be looked at

YName = Annotated[str, Field(max_length=200)]


class OverlayBody(BaseModel):
    """Lines of a chart: each group of runs is one."""

    model_config = ConfigDict(extra="forbid", strict=True)
    groups: Annotated[list[Annotated[list[RunId], Field(max_length=MAX_CURVES)]], Field(max_length=MAX_CURVES)]
    x: Literal["step", "tokens", "seconds"] = "step"
    y: YName = "loss"
    start: float | None = None
    stop: float | None = None
    points: Annotated[int, Field(ge=10, le=MAX_POINTS)] = 600
    smoothing: Annotated[float, Field(ge=0, le=MAX_SMOOTHING)] = 0.0


def build_router(services: Services) -> APIRouter:
    """Returns the routes of runs."""
    router, catalogue = APIRouter(prefix="/api"), services.catalogue

    @router.get("/events")
    async def stream_events(request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(_stream_events(request, services, last), media_type="text/event-stream")

    @router.get("/runs")
    def list_runs() -> Any:
        services.feed.poll()
        return services.feed.collect("")[1]["rows"]

    @router.get("/run")
    def get_run(id: str) -> Any:
        entry, curve = catalogue.get(id), catalogue.get_curve(id)
        return to_json_values(
            {
                **entry.describe(),
                "settings": entry.settings,
                "summary": entry.summary,
                "failure": entry.failure,
                "folder": str(entry.folder),
                "notes": [{"step": step, "text": text} for step, text in curve.notes],
                "metrics": curve.list_metrics(),
            }
        )

    @router.get("/curves")
    def get_curves(
        id: Annotated[list[str], Query(max_length=MAX_CURVES)],
        y: str = "loss",
        x: str = "step",
        start: float | None = None,
        stop: float | None = None,
        points: Annotated[int, Query(ge=10, le=MAX_POINTS)] = 600,
    ) -> Any:
        _check_axes(x, y)
        return {name: _reduce(catalogue.get_curve(name), y, x, points, start, stop) for name in id}

    @router.get("/selection")
    def describe_selection(id: Annotated[list[str], Query(max_length=MAX_CURVES)]) -> Any:
        entries = [catalogue.get(each) for each in dict.fromkeys(id)]
        names = sorted({name for entry in entries for name in _list_metrics(entry)})
        return {
            "groups": describe_groups(entries),
            "differences": list_differences(entries),
            "metrics": [{"name": name, "higher_is_better": name not in LOWER_IS_BETTER} for name in names],
        }

    @router.post("/overlay")
    async def draw_overlay(request: Request) -> Any:
        body = await changes.read_body(request, OverlayBody)
        _check_axes(body.x, body.y)
        if sum(map(len, body.groups)) > MAX_CURVES:
            raise UsageError(f"at most {MAX_CURVES} curves are drawn at once.")
        return await asyncio.to_thread(_build_lines, services, body)

    whole = APIRouter()
    whole.include_router(router)
    whole.include_router(changes.build_router(services))
    return whole


def _check_axes(x: str, y: str) -> None:
    if x not in X_AXES or (y not in COLUMNS and not y.startswith("valid.")):
        raise UsageError("expected the name of a column.", fix=f"x is one of {', '.join(X_AXES)}.")


def _reduce(curve: CurveFile, y: str, x: str, points: int, start: float | None, stop: float | None) -> dict[str, Any]:
    return to_plain(vars(reduce_points(*curve.get_series(y, x), points, start, stop)))


def _build_lines(services: Services, body: OverlayBody) -> Any:
    window = Window(body.points, body.start, body.stop, body.smoothing)
    lines = []
    for group in body.groups:
        curves = [services.catalogue.get_curve(each).get_series(body.y, body.x) for each in group]
        lines.append(build_line(curves, window))
    return lines


def _list_metrics(entry: Entry) -> list[str]:
    """Returns the validation metrics of a run that are numbers."""
    values = get_mapping(entry.validated, "validation") or get_mapping(entry.summary, "validation")
    return [name[:200] for name in values if get_number(values, name) is not None and name not in HIDDEN_METRICS][:100]


def to_json_values(value: Any) -> Any:
    """Returns values of a settings file as JSON values: NaN and infinities become None, dates and the like texts."""
    if isinstance(value, dict):
        return {str(key): to_json_values(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_json_values(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (str, int, bool)) or value is None else str(value)


async def _stream_events(request: Request, services: Services, last: str) -> AsyncIterator[str]:
    watcher = services.watcher
    with watcher.attend():
        while not await request.is_disconnected():
            changed = watcher.changed
            event, content = services.feed.collect(last)
            if content["rows"] or content["is_complete"]:
                yield f"id: {event}\ndata: {json.dumps(content, allow_nan=False, default=str)}\n\n"
            last = event
            try:
                await asyncio.wait_for(changed.wait(), PING_SECONDS)
            except TimeoutError:
                yield ": alive\n\n"
