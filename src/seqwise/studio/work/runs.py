"""Checks of a run."""

from __future__ import annotations

from typing import Any

from seqwise.page.figures import LineChart
from seqwise.page.packing import pack_figures
from seqwise.studio.worker import Context

MAX_BYTES = 2_000_000  # of the figures


def check_health(context: Context, run: str, quick: bool) -> dict[str, Any]:
    """Returns the findings about a run as figures, and a sentence. The page draws the curve itself."""
    from seqwise.lens.health import health
    from seqwise.training.api import load_run

    # A quick check reads no weights, which may be missing or be written at this moment.
    view = health(load_run(run) if quick else context.load(run), quick=quick, progress=context.report_progress)
    figures = [figure for figure in view.figures if not isinstance(figure, LineChart)]
    return {"summary": " ".join(view.summary), "figures": pack_figures(figures, MAX_BYTES)}
