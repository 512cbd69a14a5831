"""Requests about a run as a whole."""

from __future__ import annotations

from seqwise.studio.functions import Function, Request, RunId


class HealthRequest(Request):
    """Check a run. `quick`: by its curve only, without its data and its model."""

    run: RunId
    quick: bool = True


FUNCTIONS = {"check_health": Function(HealthRequest, "runs:check_health", "views")}
