"""Curves of several runs in one chart, and the settings in which they differ."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from seqwise.errors import UsageError
from seqwise.metrics.evaluation import LOWER_IS_BETTER
from seqwise.studio.curves import COLUMNS, X_AXES
from seqwise.studio.entries import Entry, get_mapping, get_number
from seqwise.studio.functions import RunId
from seqwise.studio.overlays import Window, build_line, describe_groups, list_differences
from seqwise.studio.routes.reading import read_model
from seqwise.studio.services import Services

MAX_CURVES = 100  # of one request
MAX_POINTS = 2_000  # of a curve
HIDDEN_METRICS = ("objective", "goal", "spans", "tokens")  # in validations, but not to be looked at
MAX_SMOOTHING = 0.5  # share of a curve over which it is smoothed
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
    """Returns the routes of charts of several runs."""
    router, catalogue = APIRouter(prefix="/api"), services.catalogue

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
        body = await read_model(request, OverlayBody)
        check_axes(body.x, body.y)
        if sum(map(len, body.groups)) > MAX_CURVES:
            raise UsageError(f"at most {MAX_CURVES} curves are drawn at once.")
        return await asyncio.to_thread(_build_lines, services, body)

    return router


def check_axes(x: str, y: str) -> None:
    """Raises an error unless these are axes of a chart."""
    if x not in X_AXES or (y not in COLUMNS and not y.startswith("valid.")):
        raise UsageError("expected the name of a column.", fix=f"x is one of {', '.join(X_AXES)}.")


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
