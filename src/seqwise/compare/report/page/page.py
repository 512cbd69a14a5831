"""A report as one page that loads nothing from elsewhere: the verdict, tables, our own charts, every setting.

`page.html` is the frame, `style.css` its looks, and each `.js` file one part of what is drawn. Names, answers and
messages are anybody's text: they reach the page as JSON in which no character can end a tag, and the script only ever
sets them as text. Nothing here computes a result; a number on the page is a number of the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from seqwise.compare.report.formatting import plain
from seqwise.vectors.map.page import script_json

# In the order in which the browser reads them: a part uses only what stands before it.
SCRIPTS = (
    *("numbers.js", "elements.js", "scales.js", "verdict.js", "leaderboard.js", "curves.js", "tradeoff.js"),
    *("costs.js", "pairs.js", "examples.js", "fairness.js", "settings.js", "assemble.js"),
)

TASKS = {
    "language": "Language modelling",
    "masked": "Masked language modelling",
    "classify": "Classification",
    "tag": "Tagging",
    "translate": "Translation",
    "caption": "Captioning",
    "forecast": "Forecasting",
}

_PLACE = re.compile(r"\{\{([A-Z]+)\}\}")
_FOLDER = Path(__file__).parent


def page(report: Mapping[str, Any]) -> str:
    """The text of the HTML file. `report` is what `report.json` holds."""
    verdict = report.get("verdict") or {}
    parts = {
        "TITLE": escape(title(report)),
        "STYLE": _read("style.css"),
        "SCRIPT": "\n".join(_read(name) for name in SCRIPTS),
        "SENTENCES": escape(" ".join(verdict.get("sentences") or ())),
        "DATA": script_json({"title": title(report), "report": plain(report)}),
    }
    # All at once: a name that looks like a place for something else must stay a name.
    return _PLACE.sub(lambda place: parts[place[1]], _read("page.html"))


def title(report: Mapping[str, Any]) -> str:
    """What was compared, in words."""
    task = str(report.get("task", ""))
    return f"{TASKS.get(task, task)} on {report.get('data', '')}"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
