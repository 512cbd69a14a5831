"""A run is a folder: settings, environment, metrics, weights, tokeniser, checkpoints and a model card.

    config.yaml         settings, data, command      env.json            versions and hardware
    model.safetensors   the best weights             metrics.jsonl       one line per logged step
    tokenizer.json      the vocabulary               task.json           what else the task derived from the data
    checkpoints/step-N/ everything to resume         start.safetensors   initial token vectors, if any
    README.md           the model card               curve.svg           the learning curve
    summary.json        times, final validation

Loading one never executes code. `Run` reads and writes the folder; it does not train.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from seqwise.config import parse_settings
from seqwise.errors import RunError, SaveError, UsageError, suggest_path
from seqwise.families import FAMILY_FILES, family_names
from seqwise.files import explain_cause, explain_write_errors, write_text
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Preprocessor
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.checkpoints import get_resume_advice, resume_command, save_weights

if TYPE_CHECKING:
    from seqwise.training.loop import Step

SUMMARY = "summary.json"
FORMAT = 1  # increased when older versions of Seqwise cannot read the folder
CONFIG, ENVIRONMENT, WEIGHTS, START = "config.yaml", "env.json", "model.safetensors", "start.safetensors"
MODEL_FILE = "model_file"  # key in env.json: the file that defines a model of the user's own
COPY_AGAIN = "Copy the folder again from where it was made, or train again."


@dataclass(frozen=True)
class Origin:
    """Where a run comes from: its data, its command, and the version that wrote it."""

    data: str  # as the user named it
    fingerprint: str  # of the content and the split of the data
    split: str  # the split rule in words
    command: str
    seqwise: str  # version
    format: int = FORMAT


@dataclass(frozen=True)
class Summary:
    """What is known of a run when it has ended."""

    seconds: dict[str, float]  # spent on reading, training, validation and saving
    validation: dict[str, float] | None  # of the best weights
    share: float = 1.0  # of the validation split, evaluated during training
    final: float | None = None  # the larger share that `validation` is about, if it is another one
    step: int = 1  # the last one


class Run:
    """An existing run folder."""

    def __init__(self, folder: Path, settings: ResolvedSettings, origin: Origin):
        self.folder, self.settings, self.origin = folder, settings, origin

    @classmethod
    def create(
        cls,
        folder: Path,
        settings: ResolvedSettings,
        origin: Origin,
        preprocessor: Preprocessor,
        env: dict,
        start: dict[str, Tensor] | None = None,
        training: TrainingSummary | None = None,
    ) -> Run:
        """Create a new folder; an existing one is never overwritten. `start` are initial token vectors."""
        cls.check_new_folder(folder)
        run = cls(folder, settings, origin)
        with _remove_on_failure(folder):
            with explain_write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                preprocessor.save(folder)
            if training is not None:
                training.save(folder)
            if start:
                save_weights(folder / START, start)
            write_text(folder / ENVIRONMENT, json.dumps(env, indent=2) + "\n")
            # Written last: its presence makes the folder a run, and `run` at its end proves that it is complete.
            write_text(folder / CONFIG, run._format_config())
        return run

    @staticmethod
    def check_new_folder(folder: Path) -> None:
        """Raise an error unless the folder is missing or empty, so that no file is ever replaced."""
        if (folder / CONFIG).exists():
            repair = f"Resume it: {resume_command(folder)}\nOr name another folder with --out."
            raise UsageError(f"{folder} already contains a run.", repair=repair)
        is_empty = folder.is_dir() and not any(folder.iterdir())
        if folder.exists() and not is_empty:
            raise UsageError(f"{folder} is not an empty folder.", repair="Name another folder with --out.")

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open the run in `folder`; raise `RunError` if it is none, or damaged."""
        folder = Path(folder)
        path = folder / CONFIG
        if not path.is_file():
            siblings = (folder.parent if folder.parent.is_dir() else Path()).glob(f"*/{CONFIG}")
            advice = suggest_path(folder, sorted(path.parent for path in siblings))
            advice = advice or "Train one first: seqwise train DATA --task language --model lstm"
            raise RunError(f"{folder} is not a run: it has no {CONFIG}.", repair=advice)
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
            about = values.pop("run")
            version = int(about["format"])
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
            raise RunError("this is not the settings file of a run.", file=path, repair=COPY_AGAIN) from None
        if version > FORMAT:
            writer = f"this run was written by Seqwise {about.get('seqwise')} in format {version}"
            problem = f"{writer}; this version reads formats up to {FORMAT}."
            raise RunError(problem, file=path, repair="Update with: pip install --upgrade seqwise")
        keys = Origin.__dataclass_fields__
        if missing := [key for key in keys if key not in about]:
            raise RunError(
                f"{missing[0]!r} is missing from the settings file of the run.", file=path, repair=COPY_AGAIN
            )
        origin = Origin(**{key: about[key] for key in keys})
        if values.get("model") not in family_names():
            raise _unregistered_error(str(values.get("model")), folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about renamed settings
            settings = parse_settings(values, path, ResolvedSettings)
        return cls(folder, settings, origin)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.jsonl"

    @cached_property
    def preprocessor(self) -> Preprocessor:
        """Return the vocabularies and other facts that were computed from the training split."""
        return Preprocessor.load(self.folder)

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokeniser of the input text."""
        return self.preprocessor.tokenizer

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        save_weights(self.folder / WEIGHTS, weights)

    def load_weights(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the best weights so far."""
        path, command = self.folder / WEIGHTS, resume_command(self.folder)
        if not path.exists():
            problem = f"{self.folder} has no weights yet: training ended before its first validation."
            raise RunError(problem, repair=f"Resume it: {command}")
        try:
            return load_file(path, device=str(device))
        except SafetensorError as error:
            repair = f"Write them again from the newest checkpoint: {command}"
            raise RunError(f"the weights cannot be read: {error}.", file=path, repair=repair) from None

    def has_weights(self) -> bool:
        """Return whether there is a readable weights file."""
        try:
            with safe_open(self.folder / WEIGHTS, "pt"):
                return True
        except (OSError, SafetensorError):
            return False

    def save_summary(self, summary: Summary) -> None:
        self.write_text(SUMMARY, json.dumps(asdict(summary), indent=1) + "\n")

    def load_summary(self) -> Summary | None:
        """Return what `save_summary` has written; None for a missing or damaged file."""
        with suppress(OSError, ValueError, TypeError):
            return Summary(**json.loads((self.folder / SUMMARY).read_text(encoding="utf-8")))
        return None

    def change_budget(self, budget: str, command: str) -> None:
        """Record another budget in the settings file, and the command beside the earlier one."""
        self.settings.budget = budget
        self.origin = replace(self.origin, command=f"{self.origin.command}\n{command}".strip())
        self.write_text(CONFIG, self._format_config())

    def _format_config(self) -> str:
        about = yaml.safe_dump({"run": asdict(self.origin)}, sort_keys=False, allow_unicode=True)
        return self.settings.to_yaml() + about

    def add_to_environment(self, **facts: Any) -> None:
        """Add to `env.json` what was not known when the run was created."""
        path = self.folder / ENVIRONMENT
        known: dict[str, Any] = {}
        with suppress(OSError, ValueError):  # a missing or damaged file is replaced
            known = json.loads(path.read_text(encoding="utf-8"))
        if {**known, **facts} != known:
            self.write_text(ENVIRONMENT, json.dumps({**known, **facts}, indent=2) + "\n")

    def log(self, step: Step) -> None:
        """Append a line to `metrics.jsonl`."""
        values = {key: value for key, value in asdict(step).items() if value not in ("", ())}
        row = {"step": values.pop("number"), **values}
        with explain_write_errors(self.metrics_file, get_resume_advice(self.folder)):
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Return every complete line of `metrics.jsonl`."""
        if not self.metrics_file.exists():
            return []
        rows = []
        for line in self.metrics_file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # a line cut short by a kill or a full disk
                rows.append(json.loads(line))
        return rows

    def drop_metrics_after(self, step: int) -> None:
        """Remove what a killed process wrote after its last checkpoint; the resumed run writes it again."""
        lines = [json.dumps(row) + "\n" for row in self.metrics() if row["step"] <= step]
        self.write_text(self.metrics_file.name, "".join(lines))

    def write_text(self, name: str, text: str) -> None:
        """Replace a small file of the run."""
        write_text(self.folder / name, text, repair=get_resume_advice(self.folder))


def _unregistered_error(model: str, folder: Path) -> RunError:
    """Return the error for a run whose model the caller must define first: no code is loaded from a run."""
    file = "FILE"
    with suppress(OSError, ValueError, TypeError, KeyError):
        file = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))[MODEL_FILE]
    problem = f"the run has a model of your own, {model!r}, which is not registered."
    repair = (
        f"{'' if file == 'FILE' else f'It was defined in {file}. '}Import it and call seqwise.families.register(…), "
        f"or set the environment variable {FAMILY_FILES}={model}={file}"
    )
    return RunError(problem, file=folder, repair=repair)


@contextmanager
def _remove_on_failure(folder: Path) -> Iterator[None]:
    """Remove a run folder if the block that fills it raises."""
    is_new = not folder.exists()
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not is_new:
            folder.mkdir(exist_ok=True)
        if isinstance(error, SaveError):
            _, error.repair = explain_cause(error.__cause__, "Or name another folder with --out.")
        raise
