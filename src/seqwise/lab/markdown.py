"""Results as a page in Markdown: all statements by chapter, each with its verdict and the numbers that decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from seqwise.errors import pluralize
from seqwise.lab.catalogue import CHAPTERS
from seqwise.lab.experiment import format_numbers

INTRODUCTION = """# The textbook, executed

What textbooks and course notes state about sequence models, each statement run as an experiment. A verdict is computed
from the measurement: **holds**, **holds if** a condition is met (and the experiment shows how it fails beyond it), or
**refuted**, with what is true instead. `seqwise lab run ID` repeats one, with other parameters if you like;
`seqwise lab run --all` writes all of them as one page with figures, in which verdicts are hidden until you have
guessed. To guess before reading on: `seqwise lab quiz`.
"""


def build_markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the text of a page in Markdown.

    records: results as JSON values
    """
    verdicts = summarize_verdicts([record["verdict"] for record in records])
    seconds = sum(record["seconds"] for record in records)
    summary = f"{pluralize(len(records), 'statements')}: {verdicts}. This run took {seconds / 60:.1f} minutes."
    parts = [INTRODUCTION, summary]
    for letter, chapter in CHAPTERS.items():
        own = [record for record in records if record["id"][0] == letter]
        if own:
            parts += [f"\n## {letter}. {chapter.title}", *map(_format_record, own)]
    return "\n".join(parts) + "\n"


def summarize_verdicts(verdicts: Sequence[str]) -> str:
    """Returns how many statements hold, hold under a condition, and are refuted."""
    phrases = {"holds": ("holds", "hold"), "holds if": ("holds", "hold"), "refuted": ("is refuted", "are refuted")}
    ends = {"holds if": " under a condition"}
    counts = Counter(verdicts)
    return ", ".join(
        f"{counts[kind]} {phrases[kind][counts[kind] > 1]}{ends.get(kind, '')}" for kind in phrases if counts[kind]
    )


def _format_record(record: Mapping[str, Any]) -> str:
    """Returns the section of one statement."""
    verdict = {"holds": "**Holds.**", "holds if": f"**Holds if** {record['condition']}.", "refuted": "**Refuted.**"}
    text = f"{verdict[record['verdict']]} {record['instead'] or ''}".strip()
    lines = [
        f"\n### {record['id']}: {record['claim']}\n",
        f"`{record['equation']}`\n",
        f"{text} {record['evidence']}\n",
        f"- measured: {record['measurement']}",
        f"- rule: {record['rule']}",
    ]
    if numbers := format_numbers(record["measured"]):
        lines.append(f"- numbers: {numbers}")
    lines.append(f"- try next: {record['try_next']}")
    return "\n".join(lines)
