"""The Python interface: `seqwise.train(...)` and `seqwise.load(run)`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from seqwise.applicability import reset_unused
from seqwise.callbacks import ProgressCallback
from seqwise.config import DEVICES, Settings, parse_settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import UsageError, suggest
from seqwise.families import get_family
from seqwise.metrics.evaluation import Evaluation as Evaluation
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import get_task
from seqwise.tasks.contextual import ContextualEncoder
from seqwise.tasks.language.task import Language
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Task
from seqwise.tasks.training_summary import UNKNOWN, TrainingSummary
from seqwise.training.checkpoints import load_weights
from seqwise.training.distribution import defer_interrupts
from seqwise.training.loop import Step
from seqwise.training.run import WEIGHTS, Run
from seqwise.training.training_run import choose_device, create_run, open_training


def train(
    data: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | dict[str, Any] | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    **overrides: Any,
) -> TrainedModel:
    """Train on `data` and return the trained model. Keywords are settings: `train("a.txt", model="gru", budget="2m")`.

    Ctrl-C ends training after the current update; the model so far is saved and returned.
    """
    base = settings.model_dump() if isinstance(settings, Settings) else dict(settings or {})
    parsed: Settings = parse_settings(merge_settings(base, overrides))
    if isinstance(settings, ResolvedSettings):  # of a run, perhaps with another model
        reset_unused(parsed, [parsed])
    run, task = create_run(str(data), parsed, None if out is None else Path(out))
    training = open_training(run, task=task)
    with defer_interrupts() as stop:
        for step in training.steps(stop):
            on_step(step)
    training.finish()
    return TrainedModel(run, run.settings.device)


def merge_settings(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `overrides`, section by section: setting the width keeps the depth."""
    sections = {
        key for key in base.keys() & overrides if isinstance(base[key], dict) and isinstance(overrides[key], dict)
    }
    return base | overrides | {key: merge_settings(base[key], overrides[key]) for key in sections}


def load(folder: str | Path, device: str = "auto") -> TrainedModel:
    """Load a trained run, ready to evaluate and predict."""
    return TrainedModel(Run.open(folder), device)


class TrainedModel:
    """A run with its best weights in memory."""

    def __init__(self, run: Run, device: str = "auto"):
        if device not in DEVICES:
            raise UsageError(f"there is no device {device!r}.", repair=suggest(device, DEVICES))
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

    @cached_property
    def bundle(self) -> ModelBundle:
        """The model, its settings and its preprocessor, as the methods of a task take them."""
        training = TrainingSummary.load(self.run.folder)
        return ModelBundle(self.model, self.settings, self.run.preprocessor, self.run.origin.fingerprint, training)

    def evaluate(
        self,
        data: str | Path,
        *,
        split: str | None = None,
        options: InferenceOptions | None = None,
        progress: ProgressCallback | None = None,
        **overrides: Any,
    ) -> Evaluation:
        """Return metrics on the test split of the training data or of a folder that has one; on all of any other data.

        Further keywords are fields of `InferenceOptions`, `BeamSearchOptions` and `SamplingOptions`, such as `beam=5`
        or `dynamic=True`.
        """
        if progress is not None:
            overrides["progress"] = progress
        evaluation = self.task.evaluate(self.bundle, str(data), split, self._override(options, overrides))
        unknown = () if self.bundle.training is not None else (UNKNOWN,)
        return replace(evaluation, warnings=(*evaluation.warnings, *unknown))

    def predict(
        self, inputs: str | Sequence[str] = "", *, options: InferenceOptions | None = None, **overrides: Any
    ) -> Any:
        """Return a `Prediction` for an input, or a list of them for a list of inputs.

        A language model yields its continuation piece by piece; `"".join(...)` gives the whole text. Further keywords
        are fields of `InferenceOptions`, `BeamSearchOptions` and `SamplingOptions`, such as `temperature=0.8`, `beam=5`
        or `top=3`.
        """
        options = self._override(options, overrides)
        if isinstance(inputs, str) and issubclass(self.task, Language):
            return self.task.stream(self.bundle, inputs, options)
        predictions = list(self.predict_all([inputs] if isinstance(inputs, str) else inputs, options))
        return predictions[0] if isinstance(inputs, str) else predictions

    def _override(self, options: InferenceOptions | None, overrides: dict[str, Any]) -> InferenceOptions:
        return override_options(options or InferenceOptions(beam_search=self.task.beam_search), overrides)

    def predict_all(self, inputs: Sequence[str], options: InferenceOptions | None = None) -> Iterator[Prediction]:
        """Yield one prediction per input, in the order of the inputs."""
        return self.task.predict(self.bundle, inputs, self._override(options, {}))

    def embed(self, texts: str | Sequence[str], layer: int | None = None) -> Any:
        """Return contextual vectors: an array (tokens, width) for a text, a list of them for several.

        They come from the last layer unless `layer` is set. `contextual.tokenize(text)` returns the tokens.
        """
        tokens = [self.contextual.tokenize(text) for text in ([texts] if isinstance(texts, str) else texts)]
        vectors = list(self.contextual.vectors(tokens, layer))
        return vectors[0] if isinstance(texts, str) else vectors

    @cached_property
    def contextual(self) -> ContextualEncoder:
        return ContextualEncoder(self.bundle)


OLD_OPTIONS = {"search": "beam_search", "choice": "sampling", "headline": "primary_metric"}  # until version 0.3


def override_options(options: InferenceOptions, overrides: dict[str, Any]) -> InferenceOptions:
    """Return the options with `overrides`, each in the dataclass that has a field of its name."""
    for old in OLD_OPTIONS.keys() & overrides:
        warnings.warn(f"the option {old!r} is now called {OLD_OPTIONS[old]!r}.", FutureWarning, stacklevel=3)
    overrides = {OLD_OPTIONS.get(name, name): value for name, value in overrides.items()}
    values: dict[type, dict[str, Any]] = {InferenceOptions: {}, BeamSearchOptions: {}, SamplingOptions: {}}
    kinds = {field.name: kind for kind in values for field in fields(kind)}
    for name, value in overrides.items():
        if name not in kinds:
            raise UsageError(f"there is no option {name!r}.", repair=suggest(name, sorted(kinds)))
        values[kinds[name]][name] = value
    beam_search, sampling = replace(options.beam_search, **values[BeamSearchOptions]), options.sampling
    if values[SamplingOptions]:
        sampling = replace(sampling or SamplingOptions(), **values[SamplingOptions])
    return replace(options, **{"beam_search": beam_search, "sampling": sampling} | values[InferenceOptions])
