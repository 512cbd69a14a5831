"""What the page must know of a run before it can be used, and predictions of any task that reads text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seqwise.errors import UsageError
from seqwise.lens.subject import name_run
from seqwise.studio.worker import Context
from seqwise.tasks.task import Task
from seqwise.text.patterns import UNKNOWN
from seqwise.training.api import TrainedModel
from seqwise.training.card import get_example_input

TEXT_TASKS = ("language", "masked", "classify", "tag", "translate")
NUM_WORDS, NUM_CHARACTERS = 40, 200  # of a continuation, unless the page sets it
MAX_NAMED_WORDS = 8  # unknown words that a warning names


def load_task(context: Context, run: str, *tasks: str) -> TrainedModel:
    """Returns the model of a run; raises an error if it has another task."""
    trained = context.load(run)
    if trained.settings.task not in tasks:
        raise UsageError(f"the task of the run is {trained.settings.task}; expected {' or '.join(tasks)}.")
    return trained


def describe_model(context: Context, run: str) -> dict[str, Any]:
    """Returns the task of a run, an example input, and the limits and names that its input needs."""
    trained = context.load(run)
    _ = trained.model  # raises an error if its weights cannot be loaded
    settings, attributes = trained.settings, trained.run.preprocessor.attributes
    example = get_example_input(trained.run)
    is_generic = example in (Task.example, trained.task.example, "the [MASK] of") and settings.task != "tag"
    beam_search = trained.task.beam_search
    return {
        "task": settings.task,
        "model": settings.model,
        "name": name_run(trained),
        "example": example if settings.task in TEXT_TASKS else "",
        "is_generic": is_generic,  # an example of the data says more
        "num_tokens": get_num_tokens(trained),
        "targets": attributes.get("targets", []),
        "beam": beam_search.beam,
        "length_penalty": beam_search.length_penalty,
        "horizon": settings.horizon if settings.task == "forecast" else None,
        "lookback": settings.forecast.lookback if settings.task == "forecast" else None,
    }


def get_num_tokens(trained: TrainedModel) -> int:
    """Returns how many tokens a continuation has at first: about as many words with every tokeniser."""
    kinds = [tokenizer.kind for tokenizer in trained.run.preprocessor.tokenizers.values()]
    return NUM_CHARACTERS if "characters" in kinds else NUM_WORDS


def predict(context: Context, run: str, text: str) -> dict[str, Any]:
    """Returns the prediction for a text."""
    trained = load_task(context, run, *TEXT_TASKS)  # the input of others is a path, which the page must not choose
    if trained.settings.task == "language":
        pieces = []
        for piece in trained.predict(text):
            context.check_cancelled()
            context.emit({"piece": piece})
            pieces.append(piece)
        return {"text": "".join(pieces)}
    (prediction,) = trained.predict_all([text])
    return {"text": prediction.text, "values": prediction.values}


def warn_about_unknown(words: Iterable[str]) -> list[str]:
    """Returns a warning about words that are outside the vocabulary, if there are any."""
    distinct = [word for word in dict.fromkeys(words) if word != UNKNOWN]  # which some data spells out
    if not distinct:
        return []
    named = ", ".join(f"“{word}”" for word in distinct[:MAX_NAMED_WORDS])
    more = f" and {len(distinct) - MAX_NAMED_WORDS} more" if len(distinct) > MAX_NAMED_WORDS else ""
    return [f"The vocabulary of the model does not have {named}{more}: it reads <unk> instead."]


def warn_about_length(num_tokens: int, limit: int, unit: str = "tokens") -> list[str]:
    """Returns a warning about a text that is longer than the model reads."""
    if num_tokens <= limit:
        return []
    return [f"The text has {num_tokens:,} {unit}; the model reads the first {limit:,}."]
