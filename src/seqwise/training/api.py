"""The Python interface: `seqwise.train(...)`, and the `TrainedModel` that it returns.

`seqwise.load`, which also accepts a comparison, is in `compare/loading.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import cached_property
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from seqwise.applicability import list_changed, reset_unused
from seqwise.budget import Budget
from seqwise.callbacks import LogFunction, ProgressCallback, no_log
from seqwise.config import DEVICES, SettingKeywords, Settings, combine_settings, merge_settings, parse_settings
from seqwise.data import in_memory
from seqwise.data.python_messages import explain_in_python, name_rows, rewrite
from seqwise.data.records import Data, check_data, is_frame, is_numeric
from seqwise.data.tables import split_commas
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import UsageError, check_type, in_command, suggest
from seqwise.families import get_family, get_model_name
from seqwise.locks import lock_folder
from seqwise.metrics.evaluation import Evaluation as Evaluation
from seqwise.new_folders import create_folder
from seqwise.recipe_files import Recipe, explain_recipe_settings, read_recipe
from seqwise.resolved_settings import ResolvedSettings
from seqwise.signals import defer_interrupts
from seqwise.tasks import get_task
from seqwise.tasks.contextual import ContextualEncoder
from seqwise.tasks.guess import detect_task
from seqwise.tasks.language.task import Language
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Task
from seqwise.tasks.training_summary import MISSING_SUMMARY, TrainingSummary
from seqwise.training.checkpoints import list_checkpoints, load_weights
from seqwise.training.choices import choose_device, describe_call, list_overrides, list_set
from seqwise.training.create import create_run
from seqwise.training.loop import Step
from seqwise.training.resume import change_settings, find_conflicts, resume_training
from seqwise.training.run import RUN_FOLDER, WEIGHTS, Run
from seqwise.training.single_pass import SinglePassRun
from seqwise.training.step import get_objective
from seqwise.training.training_run import TrainingRun, open_training


def train(
    data: Data | None = None,
    *,
    task: str | None = None,
    model: str | Callable[..., Any] | None = None,
    budget: str | None = None,
    out: str | Path | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    recipe: str | Path | None = None,
    resume: str | Path | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    log: LogFunction = no_log,
    **overrides: Unpack[SettingKeywords],
) -> TrainedModel:
    """Trains on `data` and returns the trained model: `train("a.txt", model="gru", budget="2m")`.

    data: a path, a DataFrame, an array, a list of rows or texts, or a dictionary of these by split (docs/python.md)
    task: language, masked, classify, tag, translate, caption, forecast, or one of your own; detected unless set
    model: the name of a family, or a cell or network of your own (`seqwise.families.register`)
    budget: how long to train, such as "90s", "5m", "1h", "2M-tokens" or "3-epochs"
    out: the run folder; runs/TASK-MODEL-1 or the next free one unless set
    settings: other settings, by section or by dotted name: {"network.width": 128}
    recipe: settings of a published result, which all others override: a name that `seqwise recipes` lists, or a file
    resume: the folder of a run to resume, instead of data and settings; a larger budget continues a complete one
    on_step: called with each step
    log: called with each message, such as the settings that were chosen and warnings about the data; print shows them
    overrides: settings as keywords, which take precedence: network={"width": 128}

    Ctrl-C ends training after the current update; the model so far is saved and returned. While the data is read, and
    for n-gram models, it raises KeyboardInterrupt.
    """
    check_type("out", out, (str, PathLike, type(None)), "the path of a folder")
    check_type("recipe", recipe, (str, PathLike, type(None)), "the name or the file of a recipe")
    check_type("resume", resume, (str, PathLike, type(None)), "the path of a run folder")
    check_type("on_step", on_step, Callable, "a function")  # type: ignore[arg-type]
    check_type("log", log, Callable, "a function such as print")  # type: ignore[arg-type]
    name = None if recipe is None else str(recipe)
    keywords = add_keywords(overrides, task=task, model=model, budget=budget)
    if resume is not None:
        _reject_beside_resume(data=data, out=out, recipe=recipe)
        return _resume(Run.open(resume), combine_settings(settings, keywords), on_step, log)
    if data is None and name is not None:
        problem = f"expected data: the recipe {name} is for {read_recipe(name).data_name}."
        raise UsageError(problem, fix="Pass its path as first argument.")
    with ExitStack() as lock:
        with explain_in_python(data):
            parsed = combine_settings(settings, keywords)
            if isinstance(settings, ResolvedSettings):  # of a run: they include values that another model does not use
                _reject_recipe(name)
                reset_unused(parsed, [parsed])
            source = None if name is None else read_recipe(name)
            parsed, recipe_settings = _add_recipe(source, parsed)
            is_of_run = isinstance(settings, ResolvedSettings)  # whose settings are too many for a line
            overridden = {} if is_of_run else list_overrides(parsed, Settings() if source is None else source.settings)
            call = describe_call(data, name, overridden)
        with explain_in_python(data), explain_recipe_settings(name, recipe_settings):
            if parsed.budget is not None:
                Budget.parse(parsed.budget)  # raises an error before the data is read
            path = save_data(data, parsed)  # type: ignore[arg-type]  # None is refused
            parsed = detect_task(parsed, path, log)
            new_folder = create_folder(RUN_FOLDER, None if out is None else Path(out), f"{parsed.task}-{parsed.model}")
            folder = lock.enter_context(new_folder)
            run, prepared_task = create_run(path, parsed, folder, command=call, recipe=name or "", log=log)
        with run.record_failure(), explain_in_python(data):
            with explain_recipe_settings(name, recipe_settings):
                training = open_training(run, task=prepared_task, log=log)
            _run_steps(training, on_step)
    return TrainedModel(run, run.settings.device)


def _reject_beside_resume(**arguments: Any) -> None:
    """Raises an error for an argument of a new run."""
    if names := [name for name, value in arguments.items() if value is not None]:
        problem = "a run is resumed in its own folder, with its own data and settings."
        raise UsageError(problem, fix=f"Leave out {' and '.join(names)}.")


def _resume(run: Run, settings: Settings, on_step: Callable[[Step], None], log: LogFunction) -> TrainedModel:
    """Resumes a run. Of `settings`, only the budget and the limits of the data may differ from those of the run."""
    names = list(list_set(settings))
    conflicts = find_conflicts(run, settings, names)
    if conflicts:
        values = [f"{name} {value!r} differs from {saved!r}." for name, (value, saved) in conflicts.items()]
        problem = "\n".join(["a run is resumed with its own settings.", *values])
        raise UsageError(problem, fix=f"Leave out {' and '.join(conflicts)}, or start a new run.")
    with explain_in_python():
        is_changed = change_settings(run, settings, names)
    call = f"seqwise.train(resume={str(run.folder)!r}, budget={run.settings.budget!r})  # in Python"
    with lock_folder(run.folder), run.record_failure(), explain_in_python(run.metadata.data):
        _run_steps(resume_training(run, log=log, command=call if is_changed else ""), on_step)
    return TrainedModel(run, run.settings.device)


def _run_steps(training: TrainingRun | SinglePassRun, on_step: Callable[[Step], None]) -> None:
    """Trains until the budget is spent or a signal arrives."""
    was_complete, folder = bool(training.ended), training.run.folder
    with defer_interrupts() as stop:
        for step in training.steps(stop):
            on_step(step)
    training.finish()
    if not training.ended:
        training.log(f"stopped and saved. Resume with: seqwise.train(resume={str(folder)!r})")
    elif not was_complete:
        training.log(f"done: {training.ended}. Saved in {folder}")


def _reject_recipe(name: str | None) -> None:
    """Raises an error for a recipe beside the settings of a run."""
    if name is not None:
        problem = "the settings of a run set every value, so a recipe has no effect beside them."
        raise UsageError(problem, fix="Leave out settings or recipe.")


def _add_recipe(recipe: Recipe | None, settings: Settings) -> tuple[Settings, list[str]]:
    """Returns the settings of a recipe overridden by others, and the names of those whose value is that of the recipe.

    Without a recipe these are `settings` and no names.
    """
    if recipe is None:
        return settings, []
    changes = settings.model_dump(exclude_unset=True)
    settings = parse_settings(merge_settings(recipe.get_setting_values(), changes))
    names = [
        each
        for each in list_changed(recipe.settings)
        if attrgetter(each)(settings) == attrgetter(each)(recipe.settings)
    ]
    return settings, names


def add_keywords(
    overrides: Mapping[str, Any],
    *,
    task: str | None = None,
    model: str | Callable[..., Any] | None = None,
    budget: str | None = None,
) -> dict[str, Any]:
    """Returns `overrides` with the keywords of `train` or `compare` that are settings and not None."""
    name = None if model is None else get_model_name(model)
    keywords = {"task": task, "model": name, "budget": budget}
    return {key: value for key, value in keywords.items() if value is not None} | dict(overrides)


def save_data(data: Data, settings: Settings) -> str:
    """Returns the path of the data; data in memory is saved in the cache first, in a format of its task.

    Without a task in the settings, numbers in memory set it to forecast.
    """
    check_data(data)
    if settings.task is None and is_numeric(data):
        settings.task = "forecast"
    if settings.task is None:
        return in_memory.save_data(data, split_commas(settings.columns) or ())
    return get_task(settings.task).save_data(data, settings.columns)


def load_run(folder: str | Path, device: str = "auto") -> TrainedModel:
    """Loads a trained run, ready to evaluate and predict."""
    check_type("folder", folder, (str, PathLike), "the path of a run folder")
    return TrainedModel(Run.open(folder), device)


def _has_more_weights(settings: ResolvedSettings, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Returns whether the settings, which may have been edited, seem to need far more weights than a file has."""
    network = settings.network
    largest = network.width * max(network.width * network.depth, network.embedding, settings.transformer.hidden)
    return largest > 4 * sum(tensor.numel() for tensor in tensors.values())


class TrainedModel:
    """A run with its best weights in memory."""

    def __init__(self, run: Run, device: str = "auto"):
        if device not in DEVICES:
            raise UsageError(f"there is no device {device!r}.", fix=suggest(str(device), DEVICES))
        self.run, self.settings = run, run.settings
        self.device = choose_device(self.settings.model_copy(update={"device": device}))

    def __repr__(self) -> str:
        settings, metric = self.settings, self.task.primary_metric[0]
        rows = self.run.read_metrics()
        validated_rows = [row for row in rows if row.get("validation")]
        best = min(validated_rows, key=lambda row: get_objective(row["validation"]), default=None)
        size = f"width {settings.network.width}, depth {settings.network.depth}, "
        size = size if get_family(settings.model).has_gradients else ""
        result = "not validated yet"
        if best is not None and metric in best["validation"]:
            result = f"validation {metric} {best['validation'][metric]:.4g} at step {best['step']:,}"
        newest = max((step for step, _ in list_checkpoints(self.run.checkpoints)), default=0)
        # Not every step has a row: a continued run may have stopped after the row of its earlier end.
        is_complete = bool(rows) and rows[-1].get("ended") and rows[-1]["step"] >= newest
        state = "" if is_complete else "; the training is not complete"
        text = f"{settings.task}, {settings.model}, {size}{self.device}; {result}{state}"
        return f"<TrainedModel {self.run.folder}: {text}>"

    @cached_property
    def task(self) -> type[Task]:
        return get_task(self.settings.task)

    @cached_property
    def model(self) -> nn.Module:
        preprocessor, tensors = self.run.preprocessor, self.run.read_weights()
        has_gradients, file = get_family(self.settings.model).has_gradients, self.run.folder / WEIGHTS
        if has_gradients and _has_more_weights(self.settings, tensors):
            with torch.device("meta"):  # takes no memory, but a second to import
                load_weights(self.task.restore(self.settings, preprocessor), tensors, file)
        # Initial weights, which are overwritten, must not change random numbers.
        with torch.random.fork_rng(devices=[]):
            model: Any = self.task.restore(self.settings, preprocessor)
        if has_gradients:
            load_weights(model, tensors, file)
        else:
            model.load_tensors(tensors)
        return model.to(self.device).eval()

    @cached_property
    def bundle(self) -> ModelBundle:
        """The model with its settings and its preprocessor, an argument of the methods of a task."""
        training, metadata = TrainingSummary.load(self.run.folder), self.run.metadata
        preprocessor, fingerprint = self.run.preprocessor, metadata.fingerprint
        return ModelBundle(self.model, self.settings, preprocessor, fingerprint, training, training_data=metadata.data)

    def evaluate(
        self,
        data: Data,
        *,
        split: str | None = None,
        options: InferenceOptions | None = None,
        progress: ProgressCallback | None = None,
        **overrides: Any,
    ) -> Evaluation:
        """Returns metrics on the test split of the training data or of a folder that has one; on all of any other data.

        `data` is what `train` takes: a path, a DataFrame, an array, a list or a dictionary of splits. `split` chooses
        train, valid, test or all.

        Further keywords are fields of `InferenceOptions`, `BeamSearchOptions` and `SamplingOptions`, such as `beam=5`
        or `dynamic=True`.
        """
        if progress is not None:
            overrides["progress"] = progress
        check_type("split", split, (str, type(None)), "the name of a split")
        options = self._override_options(options, overrides)
        with explain_in_python(data):
            evaluation = self.task.evaluate(self.bundle, save_data(data, self.settings), split, options)
        missing = (MISSING_SUMMARY,) if self.bundle.training is None else ()
        evaluation = replace(evaluation, warnings=(*evaluation.warnings, *missing))
        return evaluation if in_command.get() else _rewrite_evaluation(evaluation, data)

    def predict(self, inputs: Any = "", *, options: InferenceOptions | None = None, **overrides: Any) -> Any:
        """Returns a `Prediction` for an input, or a list of them for several: a list, Series, DataFrame or iterable.

        An input is a text. For captions it is an image, as a path or array; for forecasts a table, as a path,
        DataFrame, Series or array. A language model yields its continuation piece by piece; `"".join(...)` gives the
        whole text.

        Further keywords are fields of `InferenceOptions`, `BeamSearchOptions` and `SamplingOptions`, such as
        `temperature=0.8`, `beam=5` or `top=3`.
        """
        options = self._override_options(options, overrides)
        with explain_in_python(inputs):
            single_input = self.task.save_input(inputs)  # as a text or path; None for several inputs
            if single_input is not None and issubclass(self.task, Language):
                return self.task.stream(self.bundle, single_input, options)
            predictions = list(self.predict_all(inputs if single_input is None else [single_input], options))
        return predictions if single_input is None else predictions[0]

    def _override_options(self, options: InferenceOptions | None, overrides: dict[str, Any]) -> InferenceOptions:
        check_type("options", options, (InferenceOptions, type(None)), "InferenceOptions")
        return override_options(options or InferenceOptions(beam_search=self.task.beam_search), overrides)

    def predict_all(self, inputs: Any, options: InferenceOptions | None = None) -> Iterator[Prediction]:
        """Yields one prediction per input, in the order of the inputs."""
        return self.task.predict(self.bundle, self._list_inputs(inputs), self._override_options(options, {}))

    def _list_inputs(self, inputs: Any) -> list[str]:
        """Returns several inputs as texts or paths; for a DataFrame, its column of inputs."""
        if is_frame(inputs):
            # The column of inputs in training, as named in the settings or else by the task; then all columns.
            names = [*(split_commas(self.settings.columns) or self.task.row_columns)[:1], *inputs.columns]
            if names[0] not in list(inputs.columns) and len(names) > 2:
                problem = f"inputs: there is no column {names[0]!r}."
                raise UsageError(problem, fix=f"Pass one column of {', '.join(map(str, names[1:]))}.")
            inputs = inputs[names[0] if names[0] in list(inputs.columns) else names[1]]
        expected = "a text or several" if self.task.unit == "tokens" else "an input or several"
        if isinstance(inputs, Mapping):  # whose values would be ignored
            raise UsageError(f"inputs: expected {expected}; received {type(inputs).__name__} {str(inputs)[:40]}.")
        check_type("inputs", inputs, Iterable, expected)
        texts = []
        for position, value in enumerate(inputs, start=1):
            text = self.task.save_input(value)
            check_type(f"input {position:,}", value if text is None else text, str, "a text")
            texts.append(str(text))
        return texts

    def embed(self, texts: str | Sequence[str], layer: int | None = None) -> Any:
        """Returns contextual vectors: an array (tokens, width) for a text, a list of them for several.

        They come from the last layer unless `layer` is set. `contextual.tokenize(text)` returns the tokens.
        """
        if isinstance(texts, Mapping):
            raise UsageError(f"texts: expected a text or several; received {type(texts).__name__} {str(texts)[:40]}.")
        check_type("texts", texts, Iterable, "a text or several")
        text_list = [texts] if isinstance(texts, str) else list(texts)
        for position, text in enumerate(text_list, start=1):
            check_type(f"text {position:,}", text, str, "a text")
        tokens = [self.contextual.tokenize(text) for text in text_list]
        vectors = list(self.contextual.compute_vectors(tokens, layer))
        return vectors[0] if isinstance(texts, str) else vectors

    @cached_property
    def contextual(self) -> ContextualEncoder:
        """The model as an encoder of contextual vectors."""
        return ContextualEncoder(self.bundle)


def _rewrite_evaluation(evaluation: Evaluation, data: Data) -> Evaluation:
    """Returns the evaluation with messages for Python: rows of `data` and arguments, not cached files and flags."""
    warnings = tuple(rewrite(each, data) for each in evaluation.warnings)
    notes = tuple(rewrite(each, data) for each in evaluation.data_notes)
    return replace(evaluation, data=name_rows(evaluation.data, data), warnings=warnings, data_notes=notes)


# Old name → present name; the old ones are accepted until version 0.3.
OLD_OPTIONS = {"search": "beam_search", "choice": "sampling", "headline": "primary_metric", "rate": "dynamic_rate"}


def override_options(options: InferenceOptions, overrides: dict[str, Any]) -> InferenceOptions:
    """Returns the options with the values of `overrides`, which are fields of the three classes of options."""
    for old in OLD_OPTIONS.keys() & overrides:
        warnings.warn(f"the option {old!r} is now called {OLD_OPTIONS[old]!r}.", FutureWarning, stacklevel=3)
    overrides = {OLD_OPTIONS.get(name, name): value for name, value in overrides.items()}
    values: dict[type, dict[str, Any]] = {InferenceOptions: {}, BeamSearchOptions: {}, SamplingOptions: {}}
    classes = {field.name: options_class for options_class in values for field in fields(options_class)}
    for name, value in overrides.items():
        if name not in classes:
            raise UsageError(f"there is no option {name!r}.", fix=suggest(name, sorted(classes)))
        values[classes[name]][name] = value
    beam_search, sampling = replace(options.beam_search, **values[BeamSearchOptions]), options.sampling
    if values[SamplingOptions]:
        sampling = replace(sampling or SamplingOptions(), **values[SamplingOptions])
    return replace(options, **{"beam_search": beam_search, "sampling": sampling} | values[InferenceOptions])
