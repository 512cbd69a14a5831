"""A run is a folder: settings, environment, metrics, weights, tokeniser, checkpoints and a model card.

    config.yaml          settings, data, command         env.json            versions and hardware
    model.safetensors    the best weights                metrics.jsonl       one line per logged step
    tokenizer.json       the vocabulary                  task.json           other attributes that the task needs
    checkpoints/step-N/  all that resuming needs         start.safetensors   vectors of `--vectors`, if any
    README.md            the model card                  curve.svg           the learning curve
    summary.json         times and final validation      watch.jsonl         layers over training (`--training.watch`)
    samples.jsonl        predictions during training     choices.json        settings chosen by rule, and why
    training_summary.safetensors  hashes of the training examples, and baselines
    failure.json         why training has failed: problem, fix and time; until the run is resumed

While a process writes the folder, it has the file `.lock` (`seqwise/locks.py`); one that a killed process left behind
locks nothing. Loading a run never executes code. `Run` reads and writes the folder; it does not train.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from torch import Tensor

from seqwise.applicability import list_changed
from seqwise.config import parse_settings
from seqwise.digests import read_object
from seqwise.errors import RunError, SaveError, UsageError, suggest_path
from seqwise.families import FAMILY_FILES, list_family_names
from seqwise.files import explain_cause, explain_write_errors, remove_empty, write_text
from seqwise.locks import read_command
from seqwise.new_folders import OTHER_FOLDER_FIX, FolderKind
from seqwise.recipe_files import read_recipe
from seqwise.resolved_settings import ResolvedSettings, drop_placeholders
from seqwise.tasks.attributes import check_attributes
from seqwise.tasks.task import ATTRIBUTES_FILE, DAMAGED_RUN_FIX, Preprocessor
from seqwise.tasks.training_summary import SUMMARY_FILE, TrainingSummary
from seqwise.text.tokenizer import Tokenizer
from seqwise.training import rows
from seqwise.training.checkpoints import get_resume_command, get_resume_fix, read_weights, save_weights
from seqwise.training.distribution import is_connection_error
from seqwise.training.failures import record_failure
from seqwise.training.file_names import COMPARISON_FILE, CONFIG, ENVIRONMENT, METRICS, SUMMARY, WEIGHTS
from seqwise.training.metadata import RunMetadata
from seqwise.yaml_files import parse_yaml, read_yaml_text

if TYPE_CHECKING:
    from seqwise.training.loop import Step

CHOICES = "choices.json"  # dotted name of a setting that was chosen by rule → the reason, or ""
INITIAL_EMBEDDINGS = "start.safetensors"
TRIAL_DEPTH = 4  # folders between a comparison and one of its runs, at most
MAX_NAMED_RUNS = 12  # in an error
MODEL_FILE = "model_file"  # key in env.json: the file that defines a user-defined model
CREATED_FILES = (
    "tokenizer*.json",
    ATTRIBUTES_FILE,
    SUMMARY_FILE,
    INITIAL_EMBEDDINGS,
    ENVIRONMENT,
    CHOICES,
)  # before CONFIG
RUN_FOLDER = FolderKind("run", CONFIG, CREATED_FILES, get_resume_command)
REQUIRED_SETTINGS = ("task", "model", "network.width", "network.depth")  # with another value, the weights do not fit


@dataclass(frozen=True)
class Summary:
    """Times and metrics of a finished run, saved as `summary.json`."""

    seconds: dict[str, float]  # spent on reading, training, validation and saving
    validation: dict[str, float] | None  # metrics of the best weights
    share: float = 1.0  # share of the validation split that was evaluated during training
    final: float | None = None  # share of the split for `validation`, if it was evaluated again after training
    step: int = 1  # number of the last step
    num_averaged: int = 0  # validations whose weights the best ones are the mean of; 0: those of one validation


class Run:
    """An existing run folder."""

    def __init__(self, folder: Path, settings: ResolvedSettings, metadata: RunMetadata):
        self.folder, self.settings, self.metadata = folder, settings, metadata

    @classmethod
    def create(
        cls,
        folder: Path,
        settings: ResolvedSettings,
        metadata: RunMetadata,
        preprocessor: Preprocessor,
        environment: dict,
        initial_embeddings: dict[str, Tensor] | None = None,
        training_summary: TrainingSummary | None = None,
        choices: dict[str, str] | None = None,
    ) -> Run:
        """Creates a new folder; an existing one is never overwritten."""
        RUN_FOLDER.check_new(folder)
        run = cls(folder, settings, metadata)
        with _remove_on_failure(folder):
            with explain_write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                preprocessor.save(folder)
            if training_summary is not None:
                training_summary.save(folder)
            if initial_embeddings:
                save_weights(folder / INITIAL_EMBEDDINGS, initial_embeddings)
            write_text(folder / ENVIRONMENT, json.dumps(environment, indent=2) + "\n")
            if choices is not None:
                write_text(folder / CHOICES, json.dumps(choices, indent=1, ensure_ascii=False) + "\n")
            # Written last: its presence makes the folder a run, and `run` at its end proves that it is complete.
            write_text(folder / CONFIG, run._format_config())
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Opens the run in `folder`; raises `RunError` if it is none, or damaged."""
        folder = Path(folder)
        path = folder / CONFIG
        if not path.is_file():
            raise _build_not_a_run_error(folder)
        try:
            text = read_yaml_text(path)
            values = parse_yaml(text)
            saved_metadata = values.pop("run")
            int(saved_metadata["format"])
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
            raise RunError("this is not the settings file of a run.", file=path, fix=DAMAGED_RUN_FIX) from None
        metadata = RunMetadata.from_values(saved_metadata, path)
        network = values["network"] if isinstance(values.get("network"), dict) else {}
        saved_names = {*values, *(f"network.{name}" for name in network)}
        if missing := [name for name in REQUIRED_SETTINGS if name not in saved_names]:
            problem = f"{missing[0]!r} is missing from the settings file of the run."
            raise RunError(problem, file=path, fix=DAMAGED_RUN_FIX)
        if values.get("model") not in list_family_names():
            raise _build_unregistered_error(str(values.get("model")), folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about renamed settings
            # `Settings` has the limits: a horizon of at least 1
            parse_settings(drop_placeholders(values), path, text=text)
            settings = parse_settings(values, path, ResolvedSettings, text)
        return cls(folder, settings, metadata)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        return self.folder / METRICS

    @property
    def watch_file(self) -> Path:
        return self.folder / "watch.jsonl"

    @property
    def samples_file(self) -> Path:
        return self.folder / "samples.jsonl"

    @cached_property
    def preprocessor(self) -> Preprocessor:
        """Returns the vocabularies and other attributes that were computed from the training split."""
        preprocessor = Preprocessor.load(self.folder)
        file = self.folder / ATTRIBUTES_FILE
        check_attributes(str(self.settings.task), preprocessor.attributes, file, DAMAGED_RUN_FIX)
        return preprocessor

    @property
    def tokenizer(self) -> Tokenizer:
        """Returns the tokeniser of the input text."""
        return self.preprocessor.tokenizer

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        save_weights(self.folder / WEIGHTS, weights)

    def read_weights(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Returns the best weights so far, by the names in the file."""
        path, command = self.folder / WEIGHTS, get_resume_command(self.folder)
        if not path.exists():
            problem = f"{self.folder} has no weights yet: they are saved at the first validation."
            view = shlex.join(["seqwise", "inspect", str(self.folder), "--view", "training"])
            fix = f"Wait for it if the run is training; its curve can be shown already: {view}"
            raise RunError(problem, fix=f"{fix}\nIf it has ended, resume it: {command}")
        fix = f"Resume the run, which writes the weights of its newest checkpoint: {command}"
        return read_weights(path, fix, device)

    def has_weights(self) -> bool:
        """Returns whether there is a weights file that is intact."""
        try:
            self.read_weights()
        except RunError:
            return False
        return True

    def save_summary(self, summary: Summary) -> None:
        self.write_text(SUMMARY, json.dumps(asdict(summary), indent=1) + "\n")

    def load_summary(self) -> Summary | None:
        """Returns what `save_summary` has written; None for a missing or damaged file."""
        with suppress(OSError, ValueError, TypeError):
            values = read_object(self.folder / SUMMARY)
            return Summary(**values) if rows.is_summary(values) else None
        return None

    def record_failure(self) -> AbstractContextManager[None]:
        """Saves the error that ends the block, which trains the run, as `failure.json`; removes that of an earlier one.

        A lost connection is left out, because the process that failed saves its own error. So is a request to resume a
        finished run that is refused, such as with other data.
        """

        def is_recorded(error: Exception) -> bool:
            is_refused = isinstance(error, UsageError) and self.load_summary() is not None
            return not is_refused and not is_connection_error(error)

        return record_failure(self.folder, CONFIG, is_recorded=is_recorded)

    def build_training_command(self, options: Sequence[str]) -> str:
        """Returns the command of a new run with the data and the settings of this one, and with other options.

        With a recipe, it has that recipe and what overrides it; the rest is chosen by rule again.
        """
        words, recipe = [self.metadata.data, "--config", str(self.folder / CONFIG)], self.metadata.recipe
        with suppress(UsageError):
            if recipe and read_recipe(recipe):  # whose file may be gone
                words = ["--recipe", recipe, self.metadata.data, *self._list_override_options(options)]
        return shlex.join(["seqwise", "train", *words, *options])

    def _list_override_options(self, options: Sequence[str]) -> list[str]:
        """Returns options with what overrides the recipe, and with seed and device, but for those in `options`."""
        names = [
            *self.metadata.overrides,
            *(name for name in ("seed", "device") if name in list_changed(self.settings)),
        ]
        flags = {f"--{name.replace('_', '-')}": str(attrgetter(name)(self.settings)) for name in names}
        other_flags = {word.partition("=")[0] for word in options}
        return [word for flag, value in flags.items() if flag not in other_flags for word in (flag, value)]

    def change_budget(self, budget: str, command: str) -> None:
        """Records another budget in the settings file, and the command beside the earlier one."""
        self.settings.budget = budget
        self.metadata = self.metadata.add_budget(command)
        self.write_text(CONFIG, self._format_config())

    def _format_config(self) -> str:
        return self.settings.to_yaml() + self.metadata.to_yaml()

    def update_environment(self, **values: Any) -> None:
        """Adds values to `env.json` that were not known when the run was created."""
        path = self.folder / ENVIRONMENT
        saved: dict[str, Any] = {}
        with suppress(OSError, ValueError):  # a missing or damaged file is replaced
            saved = read_object(path)
        if {**saved, **values} != saved:
            self.write_text(ENVIRONMENT, json.dumps({**saved, **values}, indent=2) + "\n")

    def log(self, step: Step) -> None:
        """Appends a line to `metrics.jsonl`."""
        values = {key: value for key, value in asdict(step).items() if value not in ("", ())}  # no empty notes
        self._append(self.metrics_file, {"step": values.pop("number"), **values})

    def log_layers(self, row: dict[str, Any]) -> None:
        """Appends a line to `watch.jsonl`: a row of `training.watch.LayerWatch`."""
        self._append(self.watch_file, row)

    def log_samples(self, row: dict[str, Any]) -> None:
        """Appends a line to `samples.jsonl`: a row of `training.samples.SampleLog`."""
        self._append(self.samples_file, row)

    def _append(self, path: Path, row: dict[str, Any]) -> None:
        with explain_write_errors(path, get_resume_fix(self.folder)):
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Returns every complete line of `metrics.jsonl`; damaged ones are skipped."""
        return rows.read_metrics(self.metrics_file)

    def read_layers(self) -> list[dict[str, Any]]:
        """Returns every complete line of `watch.jsonl`; none if the run was trained without `--training.watch`."""
        return rows.read_layers(self.watch_file)

    def read_samples(self) -> list[dict[str, Any]]:
        """Returns every complete line of `samples.jsonl`."""
        return rows.read_samples(self.samples_file)

    def drop_metrics_after(self, step: int) -> None:
        """Removes what a killed process wrote after its last checkpoint; the resumed run writes it again."""
        for path in (self.metrics_file, self.watch_file, self.samples_file):
            if path.exists() or path == self.metrics_file:
                lines = [json.dumps(row) + "\n" for row in rows.read_rows(path) if row["step"] <= step]
                self.write_text(path.name, "".join(lines))

    def write_text(self, name: str, text: str) -> None:
        """Replaces a small file of the run."""
        write_text(self.folder / name, text, fix=get_resume_fix(self.folder))


def find_comparison(run_folder: Path) -> Path | None:
    """Returns the folder of the comparison that a run belongs to; None if it belongs to none."""
    parents = run_folder.absolute().parents[:TRIAL_DEPTH]
    return next((folder for folder in parents if (folder / COMPARISON_FILE).is_file()), None)


def _build_not_a_run_error(folder: Path) -> RunError:
    """Returns the error for a path without the settings file of a run."""
    if (folder / COMPARISON_FILE).is_file():
        run = next((path.parent for path in sorted(folder.glob(f"*/*/seed-*/{CONFIG}"))), None)
        example = "" if run is None else f"\nOr name one of its runs, such as {run}"
        fix = f"Resume it: {shlex.join(['seqwise', 'compare', '--resume', str(folder)])}{example}"
        return RunError(f"{folder} is not a run, but a comparison of several.", fix=fix)
    if runs := sorted(path.parent for path in folder.glob(f"*/{CONFIG}")):
        names = ", ".join(str(run) for run in runs[:MAX_NAMED_RUNS]) + (", …" if len(runs) > MAX_NAMED_RUNS else "")
        return RunError(f"{folder} is not a run, but a folder of runs.", fix=f"Name one of them: {names}")
    siblings = (folder.parent if folder.parent.is_dir() else Path()).glob(f"*/{CONFIG}")
    fix = suggest_path(folder, sorted(path.parent for path in siblings))
    fix = fix or "Train one first: seqwise train DATA --task language --model lstm"
    if command := read_command(folder):
        problem = f"{folder} is not a run yet: it has no {CONFIG}, because its creation was interrupted or goes on."
        return RunError(problem, fix=f"If it was interrupted, repeat the command: {command}")
    reason = f"it has no {CONFIG}" if folder.is_dir() else "it is a file" if folder.exists() else "it does not exist"
    return RunError(f"{folder} is not a run: {reason}.", fix=fix)


def _build_unregistered_error(model: str, folder: Path) -> RunError:
    """Returns the error for a run whose model the caller must define first: no code is loaded from a run."""
    file = "FILE"
    with suppress(OSError, ValueError, TypeError, KeyError):
        file = read_object(folder / ENVIRONMENT)[MODEL_FILE]
    problem = f"the run has a model of your own, {model!r}, which is not registered."
    fix = (
        f"{'' if file == 'FILE' else f'It was defined in {file}. '}Import it and call seqwise.families.register(…), "
        f"or set the environment variable {FAMILY_FILES}={model}={file}"
    )
    return RunError(problem, file=folder, fix=fix)


@contextmanager
def _remove_on_failure(folder: Path) -> Iterator[None]:
    """Removes the new content of a run folder if the block raises."""
    is_new = not folder.exists()
    try:
        yield
    except BaseException as error:
        RUN_FOLDER.remove_unfinished(folder)
        remove_empty([folder] if is_new else [])
        if isinstance(error, SaveError):
            _, error.fix = explain_cause(error.__cause__, OTHER_FOLDER_FIX)
        raise
