"""The model card: what a run is, in a page of Markdown that stands on its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from seqwise.training.run import Run


def model_card(run: Run, size: str, rows: Sequence[dict[str, Any]]) -> str:
    """Task, data, size, validation by the rows of `metrics.jsonl`, and how to make and use the model."""
    settings, origin = run.settings, run.origin
    validations = [row for row in rows if row.get("validation")]
    lines = [
        f"# {settings.model}, {settings.task}",
        "",
        f"- data: `{origin.data}` (fingerprint `{origin.fingerprint}`)",
        f"- split: {origin.split}",
        f"- tokeniser: {settings.text.tokenizer}, {len(run.tokenizer):,} tokens, learned from the training split",
        f"- model: {size}",
        *([f"- budget: {settings.budget}"] if settings.budget else []),
    ]
    if validations:
        last, best = validations[-1], min(validations, key=lambda row: row["validation"]["loss"])
        lines += [
            f"- trained: {last['tokens']:,} tokens in {last['seconds']:.0f} s, {last['step']:,} updates",
            f"- best validation perplexity: {best['validation']['perplexity']:.2f} per token, at step {best['step']:,}",
            *(["", "![learning curve](curve.svg)"] if (run.folder / "curve.svg").exists() else []),
        ]
    lines += [
        "",
        f"Made with Seqwise {origin.seqwise}:",
        "",
        "```",
        origin.command or "seqwise.train(...) from Python",
        "```",
        "",
        "Use it:",
        "",
        "```",
        shlex.join(["seqwise", "evaluate", str(run.folder), origin.data]),
        shlex.join(["seqwise", "predict", str(run.folder), "the "]),
        "```",
        "",
        "All settings are in `config.yaml`, the machine in `env.json`, the curve in `metrics.jsonl`.",
    ]
    return "\n".join(lines) + "\n"
