"""The library's front door: `seqwise.train(...)` and `seqwise.load(run)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seqwise.config import DEVICES, DYNAMIC_RATE, MAX_LENGTH, Settings, parse_settings
from seqwise.data.prepare import prepare
from seqwise.data.sources import Corpus, TooShortError, open_corpus, open_whole, whole_of
from seqwise.data.store import TokenStore
from seqwise.decoding.choice import Choice
from seqwise.errors import UsageError, nearest
from seqwise.metrics.perplexity import DEFINITIONS, Perplexity
from seqwise.ngram import NGram
from seqwise.tasks.counted import CountedModel
from seqwise.tasks.language import LanguageModel, Model, write_on
from seqwise.tasks.scoring import evaluation_rows, perplexity, score, score_dynamically
from seqwise.training.checkpoints import load_weights
from seqwise.training.fit import choose_device, create_run, interruptible, training_of
from seqwise.training.loop import Step
from seqwise.training.run import WEIGHTS, Run

Progress = Callable[[int, int], None]


def train(
    data: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | dict[str, Any] | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    **overrides: Any,
) -> Loaded:
    """Train on `data` and return the trained run. Keywords are settings: `train("a.txt", model="gru", budget="2m")`.

    Ctrl-C ends training after the update at hand; what was learned is saved and returned.
    """
    base = settings.model_dump() if isinstance(settings, Settings) else dict(settings or {})
    run, task = create_run(str(data), parse_settings(_merged(base, overrides)), None if out is None else Path(out))
    with interruptible() as stop:
        for step in training_of(run, task=task).steps(stop):
            on_step(step)
    return Loaded(run, run.settings.device)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, section by section: setting the width keeps the depth."""
    both = {key: _merged(base[key], over[key]) for key in base.keys() & over if _are_sections(base[key], over[key])}
    return base | over | both


def _are_sections(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def load(folder: str | Path, device: str = "auto") -> Loaded:
    """A trained run, ready to evaluate and predict."""
    return Loaded(Run.open(folder), device)


@dataclass(frozen=True)
class Evaluation:
    """A perplexity with what it was measured on and how."""

    result: Perplexity
    on: str  # which text, in words
    how: str  # how the model read it, in words

    def metrics(self) -> dict[str, float]:
        return self.result.metrics()

    def as_dict(self) -> dict[str, Any]:
        """Metrics under plain names, with their definitions beside them."""
        return {
            **self.metrics(),
            "unknown_tokens": self.result.unknown,
            "on": self.on,
            "how": self.how,
            "definitions": DEFINITIONS,
        }


class Loaded:
    """A run with its best weights in memory."""

    def __init__(self, run: Run, device: str = "auto"):
        if device not in DEVICES:
            raise UsageError(f"there is no device {device!r}.", repair=nearest(device, DEVICES))
        self.run, self.settings = run, run.settings
        self.device = choose_device(self.settings.model_copy(update={"device": device}))

    @cached_property
    def model(self) -> Model:
        tensors = self.run.load_weights()
        if self.settings.model == "ngram":
            arrays = {name: tensor.numpy() for name, tensor in tensors.items() if not name.startswith("setting.")}
            numbers = {name[8:]: int(tensor) for name, tensor in tensors.items() if name.startswith("setting.")}
            return CountedModel(NGram.from_tensors(arrays, numbers))
        model = LanguageModel(self.settings, len(self.run.tokenizer))
        load_weights(model, tensors, self.run.folder / WEIGHTS)
        return model.to(self.device).eval()

    def evaluate(
        self,
        data: str | Path,
        *,
        split: str | None = None,
        dynamic: bool = False,
        rate: float = DYNAMIC_RATE,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Perplexity on the test split of the training data, on that of a folder, or on a whole text."""
        corpus, split = self._text(str(data), split)
        store = prepare(corpus, self.run.tokenizer)[split]
        on = f"{data}, {'all of it' if split == 'all' else f'the {split} split'}"
        if dynamic:
            scored = score_dynamically(self._learner(), store, self.settings, rate, progress)
            how = f"dynamic evaluation: each piece is scored, then learned from (SGD, rate {rate:g})"
            return Evaluation(perplexity(scored, store), on, how)
        scored = score(self.model, store, self.settings, progress=progress)
        return Evaluation(perplexity(scored, store), on, self._how(store))

    def predict(
        self, prompt: str = "", *, choice: Choice = Choice(), seed: int = 0, max_length: int = MAX_LENGTH, **how: Any
    ) -> Iterator[str]:
        """Pieces of the continuation as they are chosen; `"".join(...)` for the whole.

        Further keywords are the fields of `Choice` (greedy, temperature, top_k, top_p, repetition_penalty), laid over
        `choice`: `predict("It was", temperature=0.8, top_p=0.9)`.
        """
        known = [field.name for field in fields(Choice)]
        for name in how:
            if name not in known:
                raise UsageError(f"predict knows no {name!r}.", repair=nearest(name, known))
        return write_on(self.model, self.run.tokenizer, prompt, replace(choice, **how), seed, max_length)

    def _text(self, data: str, split: str | None) -> tuple[Corpus, str]:
        """Which part of the data to score."""
        fractions = self.settings.data
        try:
            corpus = open_corpus(data, fractions.valid_fraction, fractions.test_fraction)
        except TooShortError:
            if split not in (None, "all"):
                raise
            return open_whole(data), "all"
        known = corpus.given or corpus.fingerprint == self.run.origin.fingerprint
        if split == "all" or (split is None and not known):
            return whole_of(corpus), "all"
        if split is not None and split not in corpus.parts:
            raise UsageError(f"there is no split {split!r}.", repair=nearest(split, [*corpus.parts, "all"]))
        return corpus, split or "test"

    def _learner(self) -> LanguageModel:
        """A copy of the model that dynamic evaluation may change."""
        if isinstance(self.model, CountedModel):
            raise UsageError("an n-gram model cannot be evaluated dynamically.", repair="Leave out --dynamic.")
        return deepcopy(self.model)

    def _how(self, store: TokenStore) -> str:
        """How the model reads the text, in words."""
        if isinstance(self.model, CountedModel):
            return self.model.counts.describe()
        window = self.settings.data.window
        if not self.model.carries:
            reads = (
                f"each token seen with {window // 2 if isinstance(window, int) else 0} to {window} tokens of context"
            )
        elif (rows := evaluation_rows(store)) == 1:
            reads = "state carried over the whole text"
        else:
            reads = f"state carried over each of {rows} equal parts of the text"
        return f"{reads}; {self.model.head.output.describe()}"  # type: ignore[operator]
