"""`seqwise demo`: a minute of training on built-in text, to see what there is before bringing any data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.config import Settings
from seqwise.decoding.choice import Choice

PROMPT = "The "


@dataclass
class Demo:
    """Train a small LSTM for a minute on the language reference inside every CPython, and let it write."""

    budget: str = "60s"
    """How long to train."""
    out: Annotated[Path | None, UNSET] = None
    """Run folder; runs/demo-N unless set."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Demo, argv, prog="seqwise demo", example="seqwise demo --budget 2m")
    from seqwise.cli.progress import TrainingDisplay, sketch
    from seqwise.tasks.language.task import write_on
    from seqwise.training.api import Loaded
    from seqwise.training.fit import Fit, create_run, free_folder, interruptible

    folder = asked.out or free_folder("demo")
    settings = Settings(task="language", model="lstm", budget=asked.budget)
    run, task = create_run("builtin:docs", settings, folder, command="seqwise demo", say=console.say)
    fit = Fit(run, task=task, say=console.say)
    choice = Choice(temperature=0.6)
    model: Any = fit.model
    before = "".join(write_on(model, task.learned.tokenizer, PROMPT, choice, 0, 120))
    losses: list[float] = []
    with interruptible() as stop, TrainingDisplay(task.headline) as display:
        for step in fit.steps(stop):
            display.show(step)
            losses.append(step.loss)
    if not run.has_weights():
        console.say("stopped before the first validation: there is nothing to show yet.")
        return 0
    loaded = Loaded(run)
    after = "".join(loaded.predict(PROMPT, choice=choice, max_length=400))
    result = loaded.evaluate("builtin:docs")
    console.write("\nTraining loss, nats per token")
    console.write(sketch(losses))
    console.write(f"\nBefore training it wrote:\n{_quoted(PROMPT + before)}")
    console.write(f"\nAfter training it writes:\n{_quoted(PROMPT + after)}")
    metrics = result.metrics
    console.write(
        f"\nOn text it never saw: {metrics['bits_per_character']:.2f} bits per character, "
        f"perplexity {metrics['perplexity']:.2f} per token ({metrics['tokens']:,} tokens)."
    )
    console.write(f"\nThe run lies in {run.folder}: settings, metrics, weights, curve.svg. What to try next:")
    console.write(f"  seqwise predict {run.folder} 'The ' --temperature 0.6")
    console.write("  seqwise train builtin:docs --model transformer --budget 1m")
    console.write("  seqwise train YOUR.txt --model lstm --budget 5m")
    return 0


def _quoted(text: str) -> str:
    return "\n".join(f"  │ {line}" for line in text.splitlines())
