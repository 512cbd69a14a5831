"""One run: everything that its page shows. Its curves come with it, so that an update is one request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from seqwise.page.figures import to_plain
from seqwise.studio.catalogue import Entry
from seqwise.studio.curves import X_AXES, CurveFile, reduce_points
from seqwise.studio.routes.overlays import check_axes
from seqwise.studio.run_files import (
    CARD,
    list_checkpoints,
    list_commands,
    list_environment,
    list_settings,
    read_parameters,
    read_samples,
    read_text,
)
from seqwise.studio.services import Services

MAX_NOTES = 500
NUM_POINTS = 600  # of a curve
MAX_SERIES = 20  # of one request
NO_SERIES: list[str] = []


def build_router(services: Services) -> APIRouter:
    """Returns the routes of one run."""
    router, catalogue = APIRouter(prefix="/api"), services.catalogue

    @router.get("/run")
    def get_run(id: str, x: str = "step", y: Annotated[list[str], Query(max_length=MAX_SERIES)] = NO_SERIES) -> Any:
        curve = catalogue.get_curve(id)
        with curve.mutex:
            return {
                **to_plain(describe_run(catalogue.get(id), curve)),
                "x": x,
                "curves": reduce_curve(curve, x, y, NUM_POINTS),
            }

    return router


def describe_run(entry: Entry, curve: CurveFile) -> dict[str, Any]:
    """Returns the row of a run and what its files say."""
    folder = entry.folder
    return {
        **entry.describe(),
        "folder": str(folder),
        "summary": entry.summary,
        "failure": entry.failure,
        "notes": list_notes(curve),
        "metrics": sorted({str(name) for _, values in curve.validations for name in values}),
        "best_step": find_best_step(curve),
        "settings": list_settings(entry.settings, folder),
        "commands": list_commands(entry.settings, folder),
        "card": read_text(folder, CARD),
        "environment": list_environment(folder),
        "parameters": read_parameters(folder),
        "checkpoints": list_checkpoints(folder),
        "samples": read_samples(folder),
    }


def reduce_curve(
    curve: CurveFile, x: str, y: Sequence[str], num_points: int, start: float | None = None, stop: float | None = None
) -> dict[str, Any]:
    """Returns points of each series, few enough for a chart."""
    for name in y:
        check_axes(x, name)
    return {name: to_plain(vars(reduce_points(*curve.get_series(name, x), num_points, start, stop))) for name in y}


def list_notes(curve: CurveFile) -> list[dict[str, Any]]:
    """Returns the messages during training, and where they belong on each axis."""
    steps, notes = curve.columns["step"], []
    for step, text in curve.notes[:MAX_NOTES]:
        index = min(bisect_left(steps, step), len(steps) - 1)
        notes.append({**{axis: curve.columns[axis][index] for axis in X_AXES}, "text": text})
    return notes


def find_best_step(curve: CurveFile) -> float | None:
    """Returns the step of the best weights; None before the first validation."""
    values = []
    for index, metrics in curve.validations:
        value = metrics.get("objective", metrics.get("loss"))
        if isinstance(value, (int, float)) and value == value:
            values.append((value, index))
    return curve.columns["step"][min(values)[1]] if values else None
