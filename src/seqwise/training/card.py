"""The model card: a self-contained page of Markdown about a run."""

from __future__ import annotations

import shlex

from seqwise.tasks import get_task
from seqwise.tasks.task import Task
from seqwise.training.run import Run
from seqwise.training.step import get_objective


def build_model_card(run: Run, task: Task, size: str) -> str:
    """Return the card: task, data, size of the model, validation, and the commands to train and use it."""
    origin = run.origin
    facts = "\n".join([*_list_facts(run, size), *_list_results(run, task)])
    return f"""# {run.settings.model}, {run.settings.task}

{facts}

Trained with Seqwise {origin.seqwise}:

```
{origin.command or "seqwise.train(...) from Python"}
```

Use it:

```
{shlex.join(["seqwise", "evaluate", str(run.folder), origin.data])}
{shlex.join(["seqwise", "predict", str(run.folder), example_input(run)])}
```

All settings are in `config.yaml`, the machine in `env.json`, the curve in `metrics.jsonl`.
"""


def _list_facts(run: Run, size: str) -> list[str]:
    """Return lines about the data, the vocabulary, the word vectors that training started from, and the model."""
    settings, origin, vectors = run.settings, run.origin, run.preprocessor.facts.get("vectors", {})
    facts = [f"- data: `{origin.data}` (fingerprint `{origin.fingerprint}`)", f"- split: {origin.split}"]
    source = "learned from the training split"
    if added := vectors.get("joined", 0):
        source += f", with {added:,} words of the word vectors"
    for name, tokenizer in run.preprocessor.tokenizers.items():
        facts.append(f"- vocabulary of {name}: {tokenizer.kind}, {len(tokenizer):,} tokens, {source}")
    if vectors:
        coverage = "; ".join([*vectors["found"], "frozen" if settings.network.freeze_embedding else "trained further"])
        facts.append(f"- word vectors: `{vectors['file']}` (fingerprint `{vectors['fingerprint']}`): {coverage}")
    return [*facts, f"- model: {size}", *([f"- budget: {settings.budget}"] if settings.budget else [])]


def _list_results(run: Run, task: Task) -> list[str]:
    """Return lines about the training so far; none before the first validation."""
    validations = [row for row in run.metrics() if row.get("validation")]
    if not validations:
        return []
    last, best = validations[-1], min(validations, key=lambda row: get_objective(row["validation"]))
    name = task.primary_metric[0]
    value = best["validation"].get(name, best["validation"]["loss"])
    return [
        f"- trained: {last['tokens']:,} {task.unit} in {last['seconds']:.0f} s, {last['step']:,} updates",
        f"- validation {name.replace('_', ' ')} at the best step ({best['step']:,}): {value:.4g}",
        *(["", "![learning curve](curve.svg)"] if (run.folder / "curve.svg").exists() else []),
    ]


def example_input(run: Run) -> str:
    """Return an example input for the model."""
    return str(run.preprocessor.facts.get("example", get_task(run.settings.task).example))
