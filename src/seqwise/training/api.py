"""The library's front door: `seqwise.train(...)` and `seqwise.load(run)`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from seqwise.config import DEVICES, Settings, parse_settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import UsageError, nearest
from seqwise.families import get_family
from seqwise.metrics.evaluation import Evaluation as Evaluation
from seqwise.tasks import get_task
from seqwise.tasks.contextual import Contextual
from seqwise.tasks.language.task import Language
from seqwise.tasks.task import InferenceOptions, Prediction, ProgressCallback, Task
from seqwise.training.checkpoints import load_weights
from seqwise.training.loop import Step
from seqwise.training.run import WEIGHTS, Run
from seqwise.training.training_run import choose_device, create_run, defer_interrupts, training_of


def train(
    data: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | dict[str, Any] | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    **overrides: Any,
) -> TrainedModel:
    """Train on `data` and return the trained run. Keywords are settings: `train("a.txt", model="gru", budget="2m")`.

    Ctrl-C ends training after the update at hand; what was learned is saved and returned.
    """
    base = settings.model_dump() if isinstance(settings, Settings) else dict(settings or {})
    run, task = create_run(str(data), parse_settings(merged(base, overrides)), None if out is None else Path(out))
    with defer_interrupts() as stop:
        for step in training_of(run, task=task).steps(stop):
            on_step(step)
    return TrainedModel(run, run.settings.device)


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, section by section: setting the width keeps the depth."""
    both = {key: merged(base[key], over[key]) for key in base.keys() & over if _are_sections(base[key], over[key])}
    return base | over | both


def _are_sections(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def load(folder: str | Path, device: str = "auto") -> TrainedModel:
    """A trained run, ready to evaluate and predict."""
    return TrainedModel(Run.open(folder), device)


class TrainedModel:
    """A run with its best weights in memory."""

    def __init__(self, run: Run, device: str = "auto"):
        if device not in DEVICES:
            raise UsageError(f"there is no device {device!r}.", repair=nearest(device, DEVICES))
        self.run, self.settings = run, run.settings
        self.device = choose_device(self.settings.model_copy(update={"device": device}))

    @cached_property
    def task(self) -> type[Task]:
        return get_task(self.settings.task)

    @cached_property
    def model(self) -> nn.Module:
        preprocessor, tensors = self.run.preprocessor, self.run.load_weights()
        model: Any = self.task.restore(self.settings, preprocessor)
        if get_family(self.settings.model).has_gradients:
            load_weights(model, tensors, self.run.folder / WEIGHTS)
        else:
            model.load_tensors(tensors)
        return model.to(self.device).eval()

    def evaluate(
        self,
        data: str | Path,
        *,
        split: str | None = None,
        options: InferenceOptions | None = None,
        progress: ProgressCallback | None = None,
        **how: Any,
    ) -> Evaluation:
        """Metrics on the test split of the training data, on that of a folder, or on all of other data.

        Further keywords say how: those of `InferenceOptions`,
        `BeamSearchOptions` and `SamplingOptions`, such as `beam=5` or `dynamic=True`.
        """
        return self.task.evaluate(
            self.model,
            self.settings,
            self.run.preprocessor,
            str(data),
            split=split,
            trained_on=self.run.origin.fingerprint,
            options=self._asked(options, how),
            progress=progress,
        )

    def predict(self, inputs: str | Sequence[str] = "", *, options: InferenceOptions | None = None, **how: Any) -> Any:
        """What the model makes of an input: a `Prediction`, or a list of them for a list of inputs.

        A language model gives the pieces of its continuation as they are chosen; `"".join(...)` for the whole. Further
        keywords say how: those of `InferenceOptions`,
        `BeamSearchOptions` and `SamplingOptions`, such as `temperature=0.8`, `beam=5` or `top=3`.
        """
        options = self._asked(options, how)
        if isinstance(inputs, str) and issubclass(self.task, Language):
            return self.task.stream(self.model, self.run.preprocessor, inputs, options)  # type: ignore[arg-type]
        found = list(self.predict_all([inputs] if isinstance(inputs, str) else inputs, options))
        return found[0] if isinstance(inputs, str) else found

    def _asked(self, options: InferenceOptions | None, how: dict[str, Any]) -> InferenceOptions:
        return asked(options or InferenceOptions(beam_search=self.task.beam_search), how)

    def predict_all(self, inputs: Sequence[str], options: InferenceOptions | None = None) -> Iterator[Prediction]:
        """One answer per input, in their order."""
        return self.task.predict(self.model, self.settings, self.run.preprocessor, inputs, self._asked(options, {}))

    def embed(self, texts: str | Sequence[str], layer: int | None = None) -> Any:
        """Contextual vectors: an array (tokens, width) for a text, a list of them for several.

        They are those of the last layer unless set. `run.contextual.read(text)` tells which tokens they belong to.
        """
        several = [texts] if isinstance(texts, str) else texts
        found = list(self.contextual.vectors([self.contextual.read(text) for text in several], layer))
        return found[0] if isinstance(texts, str) else found

    @cached_property
    def contextual(self) -> Contextual:
        return Contextual(self.model, self.settings, self.run.preprocessor)


OLD_OPTIONS = {"search": "beam_search", "choice": "sampling", "headline": "primary_metric"}  # until version 0.3


def asked(options: InferenceOptions, how: dict[str, Any]) -> InferenceOptions:
    """Returns the options with single ones replaced, each in the dataclass that has a field of its name."""
    for old in OLD_OPTIONS.keys() & how:
        warnings.warn(f"the option {old!r} is now called {OLD_OPTIONS[old]!r}.", FutureWarning, stacklevel=3)
    how = {OLD_OPTIONS.get(name, name): value for name, value in how.items()}
    homes = {
        kind: {field.name for field in fields(kind)} for kind in (InferenceOptions, BeamSearchOptions, SamplingOptions)
    }
    known = sorted(set().union(*homes.values()))
    for name in how:
        if name not in known:
            raise UsageError(f"there is no option {name!r}.", repair=nearest(name, known))
    parts = {kind: {name: value for name, value in how.items() if name in names} for kind, names in homes.items()}
    beam_search = replace(options.beam_search, **parts[BeamSearchOptions])
    sampling = options.sampling
    if parts[SamplingOptions]:
        sampling = replace(sampling or SamplingOptions(), **parts[SamplingOptions])
    return replace(options, **{"beam_search": beam_search, "sampling": sampling} | parts[InferenceOptions])
