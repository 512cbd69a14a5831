"""The report as one HTML page that loads nothing from elsewhere: verdict, tables, charts, every setting.

`page.html` is the body of the page, `style.css` its style besides that of all pages, and each `.js` file draws one part
with the components of `seqwise.page`. Names, answers and messages may contain any text: they reach the page as JSON in
which no character can end a tag, and the script sets them as text only. This module computes no results.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqwise.compare.report.schema import Report, to_json
from seqwise.page.html import build_document, fill_template
from seqwise.page.palette import choose_styles

TASK_NAMES = {
    "language": "Language modelling",
    "masked": "Masked language modelling",
    "classify": "Classification",
    "tag": "Tagging",
    "translate": "Translation",
    "caption": "Captioning",
    "forecast": "Forecasting",
}

FOLDER = Path(__file__).parent


def make_page(report: Report) -> str:
    """Returns the text of the HTML file."""
    sentences = report.verdict.sentences if report.verdict else ()
    data = build_data(report, [family.name for family in report.families])
    body = fill_template(FOLDER / "page.html", sentences=" ".join(sentences))
    return build_document(make_title(report), body, data, FOLDER / "assemble.js", FOLDER / "style.css")


def build_data(report: Report, names: Sequence[str]) -> dict[str, Any]:
    """Returns what the script reads. `names` are the families in the order in which variants get their styles."""
    styles = dict(zip(names, choose_styles(names)))
    return {
        "title": make_title(report),
        "report": json.loads(to_json(report)),
        "styles": [styles[family.name].to_plain() for family in report.families],
    }


def make_title(report: Report) -> str:
    return f"{TASK_NAMES.get(report.task, report.task)} on {report.data}"
