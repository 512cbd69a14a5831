"""A run is a folder: settings, environment, metrics, weights, tokeniser, checkpoints and a model card.

    config.yaml   env.json   metrics.jsonl   model.safetensors   tokenizer.json   task.json   checkpoints/step-N/
    README.md   curve.svg   start.safetensors

Nothing in it can execute code. `Run` reads and writes the folder; it does not train.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from seqwise.config import parse_settings
from seqwise.errors import RunError, SaveError, UsageError, nearest_path
from seqwise.files import explain_write_errors, write_text
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Preprocessor
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.checkpoints import how_to_resume, resume_command, save_weights

if TYPE_CHECKING:
    from seqwise.training.loop import Step

FORMAT = 1  # raised when an older Seqwise could not read the folder


@dataclass(frozen=True)
class Origin:
    """Where a run comes from."""

    data: str  # as the user named it
    fingerprint: str  # of the data's content and split
    split: str  # the rule, in words
    command: str
    seqwise: str
    format: int = FORMAT


class Run:
    """A run folder that exists."""

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
    ) -> Run:
        """A new folder. An existing run is never overwritten. `start` are the token vectors to start from, if given."""
        cls.refuse_existing(folder)
        about = yaml.safe_dump({"run": asdict(origin)}, sort_keys=False, allow_unicode=True)
        with _whole_or_gone(folder):
            with explain_write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                preprocessor.save(folder)
            if start:
                save_weights(folder / START, start)
            write_text(folder / ENVIRONMENT, json.dumps(env, indent=2) + "\n")
            # The last file, whose presence makes the folder a run; `about` at its end vouches for the rest of it.
            write_text(folder / CONFIG, settings.to_yaml() + about)
        return cls(folder, settings, origin)

    @staticmethod
    def refuse_existing(folder: Path) -> None:
        """Only a folder that is missing or empty may become a run: its files would replace others of the same name."""
        if (folder / CONFIG).exists():
            raise UsageError(
                f"{folder} already holds a run.",
                repair=f"Go on with it: {resume_command(folder)}\nOr name another folder with --out.",
            )
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise UsageError(f"{folder} is not an empty folder.", repair="Name another folder with --out.")

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in `folder`, checked for version and damage."""
        folder = Path(folder)
        path = folder / CONFIG
        if not path.is_file():
            raise RunError(f"{folder} is not a run: it has no {CONFIG}.", repair=_suggest_run(folder))
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
            about = values.pop("run")
            version = int(about["format"])
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
            raise RunError("not the settings file of a run.", file=path, repair=_COPY) from None
        if version > FORMAT:
            raise RunError(
                f"this run was written by Seqwise {about.get('seqwise')} in format {version}; "
                f"this version reads formats up to {FORMAT}.",
                file=path,
                repair="Update with: pip install --upgrade seqwise",
            )
        if missing := [key for key in Origin.__dataclass_fields__ if key not in about]:
            raise RunError(f"the settings file of the run has lost {missing[0]!r}.", file=path, repair=_COPY)
        origin = Origin(**{key: about[key] for key in Origin.__dataclass_fields__})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # settings that have been renamed since
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
        """Vocabularies and facts that were learned from the training split."""
        return Preprocessor.load(self.folder)

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of the text that is read."""
        return self.preprocessor.tokenizer

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        save_weights(self.folder / WEIGHTS, weights)

    def load_weights(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The best weights so far."""
        path = self.folder / WEIGHTS
        if not path.exists():
            raise RunError(
                f"{self.folder} has no weights yet: training ended before its first validation.",
                repair=f"Go on with: {resume_command(self.folder)}",
            )
        try:
            return load_file(path, device=str(device))
        except SafetensorError as error:
            raise RunError(
                f"the weights cannot be read: {error}.",
                file=path,
                repair=f"Write them again from the newest checkpoint: {resume_command(self.folder)}",
            ) from None

    def has_weights(self) -> bool:
        """Is there a weights file that can be read?"""
        try:
            with safe_open(self.folder / WEIGHTS, "pt"):
                return True
        except (OSError, SafetensorError):
            return False

    def add_to_environment(self, **facts: Any) -> None:
        """Add to `env.json` what was not known of the machine when the run began."""
        path = self.folder / ENVIRONMENT
        known: dict[str, Any] = {}
        with suppress(OSError, ValueError):  # lost or damaged: what is known now is better than nothing
            known = json.loads(path.read_text(encoding="utf-8"))
        if {**known, **facts} != known:
            self.write_text(ENVIRONMENT, json.dumps({**known, **facts}, indent=2) + "\n")

    def log(self, step: Step) -> None:
        """One more line of `metrics.jsonl`."""
        values = {key: value for key, value in asdict(step).items() if value not in ("", ())}
        row = {"step": values.pop("number"), **values}
        with explain_write_errors(self.metrics_file, how_to_resume(self.folder)):
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Every complete line of `metrics.jsonl`."""
        if not self.metrics_file.exists():
            return []
        rows = []
        for line in self.metrics_file.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # a kill or a full disk cut the line
                rows.append(json.loads(line))
        return rows

    def drop_metrics_after(self, step: int) -> None:
        """Drop what a killed process wrote after its last checkpoint; the resumed run writes it again."""
        kept = [json.dumps(row) for row in self.metrics() if row["step"] <= step]
        self.write_text(self.metrics_file.name, "".join(line + "\n" for line in kept))

    def write_text(self, name: str, text: str) -> None:
        """Replace a small file of the run."""
        write_text(self.folder / name, text, repair=how_to_resume(self.folder))


CONFIG, ENVIRONMENT, WEIGHTS, START = "config.yaml", "env.json", "model.safetensors", "start.safetensors"
_COPY = "Copy the folder again from where it was made, or train again."


@contextmanager
def _whole_or_gone(folder: Path) -> Iterator[None]:
    """Remove what was begun of a run folder that could not be made whole."""
    ours = not folder.exists()
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if not ours:
            folder.mkdir(exist_ok=True)
        if isinstance(error, SaveError):
            repair = "Free some space, or name a folder on another disk with --out."
            raise SaveError(error.problem, repair=repair, file=error.file) from error
        raise


def _suggest_run(folder: Path) -> str:
    around = folder.parent if folder.parent.is_dir() else Path()
    runs = [path.parent for path in sorted(around.glob(f"*/{CONFIG}"))]
    return nearest_path(folder, runs) or "Train one first: seqwise train DATA --task language --model lstm"
