"""The model card: a self-contained page of Markdown about a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from seqwise.tasks import get_task
from seqwise.training.run import Run
from seqwise.training.step import get_objective


def model_card(
    run: Run,
    size: str,
    rows: Sequence[dict[str, Any]],
    primary_metric: tuple[str, str] = ("loss", "loss"),
    unit: str = "tokens",
) -> str:
    """Return the card: task, data, size, validation (from rows of `metrics.jsonl`), commands to train and use it."""
    settings, origin = run.settings, run.origin
    validations = [row for row in rows if row.get("validation")]
    joined = run.preprocessor.facts.get("vectors", {}).get("joined", 0)
    origin_of_vocabulary = "learned from the training split" + (
        f", with {joined:,} words of the word vectors" if joined else ""
    )
    lines = [
        f"# {settings.model}, {settings.task}",
        "",
        f"- data: `{origin.data}` (fingerprint `{origin.fingerprint}`)",
        f"- split: {origin.split}",
        *[
            f"- vocabulary of {name}: {tokenizer.kind}, {len(tokenizer):,} tokens, {origin_of_vocabulary}"
            for name, tokenizer in run.preprocessor.tokenizers.items()
        ],
        *_word_vectors(run),
        f"- model: {size}",
        *([f"- budget: {settings.budget}"] if settings.budget else []),
    ]
    if validations:
        last, best = validations[-1], min(validations, key=lambda row: get_objective(row["validation"]))
        value = best["validation"].get(primary_metric[0], best["validation"]["loss"])
        lines += [
            f"- trained: {last['tokens']:,} {unit} in {last['seconds']:.0f} s, {last['step']:,} updates",
            f"- validation {primary_metric[0].replace('_', ' ')} at the best step ({best['step']:,}): {value:.4g}",
            *(["", "![learning curve](curve.svg)"] if (run.folder / "curve.svg").exists() else []),
        ]
    lines += [
        "",
        f"Trained with Seqwise {origin.seqwise}:",
        "",
        "```",
        origin.command or "seqwise.train(...) from Python",
        "```",
        "",
        "Use it:",
        "",
        "```",
        shlex.join(["seqwise", "evaluate", str(run.folder), origin.data]),
        shlex.join(["seqwise", "predict", str(run.folder), example_input(run)]),
        "```",
        "",
        "All settings are in `config.yaml`, the machine in `env.json`, the curve in `metrics.jsonl`.",
    ]
    return "\n".join(lines) + "\n"


def _word_vectors(run: Run) -> list[str]:
    """Return the line about the word vectors that training started from, if any."""
    about = run.preprocessor.facts.get("vectors")
    if about is None:
        return []
    use = "frozen" if run.settings.network.freeze_embedding else "trained further"
    coverage = "; ".join(about["found"])
    return [f"- word vectors: `{about['file']}` (fingerprint `{about['fingerprint']}`): {coverage}; {use}"]


def example_input(run: Run) -> str:
    """Return an example input for the model."""
    return str(run.preprocessor.facts.get("example", get_task(run.settings.task).example))
