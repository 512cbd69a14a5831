"""Requests for reports of comparisons."""

from __future__ import annotations

from seqwise.studio.functions import Function, Request, RunId


class ReportRequest(Request):
    """Gather the report of a comparison as far as it has come."""

    run: RunId


FUNCTIONS = {"gather-report": Function(ReportRequest, "comparisons:gather", "views", max_seconds=300.0)}
