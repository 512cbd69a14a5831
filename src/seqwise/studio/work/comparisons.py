"""Reports of comparisons whose trials still run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.live import gather_live_report
from seqwise.compare.report.page.page import build_data
from seqwise.studio.comparisons import order_names
from seqwise.studio.worker import Context


def gather(context: Context, run: str) -> dict[str, Any]:
    """Returns the report so far, as the page reads it."""
    plan = Plan.open(run)
    report = gather_live_report(Path(run), plan)
    return build_data(report, order_names(plan, report))
