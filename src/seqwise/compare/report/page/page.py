"""The report as one HTML page that loads nothing from elsewhere: verdict, tables, charts, every setting.

`page.html` is the frame, `style.css` the style, and each `.js` file draws one part. Names, answers and messages may
contain any text: they reach the page as JSON in which no character can end a tag, and the script sets them as text
only. This module computes no results.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

from seqwise.compare.report.schema import Report, to_json
from seqwise.page.script import dump_json_for_script

# In loading order: a part uses only those before it.
SCRIPTS = (
    *("numbers.js", "elements.js", "scales.js", "verdict.js", "leaderboard.js", "curves.js", "tradeoff.js"),
    *("costs.js", "pairs.js", "examples.js", "fairness.js", "settings.js", "assemble.js"),
)

TASK_NAMES = {
    "language": "Language modelling",
    "masked": "Masked language modelling",
    "classify": "Classification",
    "tag": "Tagging",
    "translate": "Translation",
    "caption": "Captioning",
    "forecast": "Forecasting",
}

_PLACEHOLDER = re.compile(r"\{\{([A-Z]+)\}\}")
_FOLDER = Path(__file__).parent


def make_page(report: Report) -> str:
    """Returns the text of the HTML file."""
    title = make_title(report)
    sentences = report.verdict.sentences if report.verdict else ()
    parts = {
        "TITLE": escape(title),
        "STYLE": _read("style.css"),
        "SCRIPT": "\n".join(_read(name) for name in SCRIPTS),
        "SENTENCES": escape(" ".join(sentences)),
        "DATA": dump_json_for_script({"title": title, "report": json.loads(to_json(report))}),
    }
    # All at once: a name that looks like a placeholder must stay a name.
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], _read("page.html"))


def make_title(report: Report) -> str:
    return f"{TASK_NAMES.get(report.task, report.task)} on {report.data}"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
