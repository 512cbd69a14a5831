"""`RunMetadata`: the data and the command of a run, saved as the section `run` of its config.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from seqwise.environment import get_version
from seqwise.errors import RunError
from seqwise.tasks.task import DAMAGED_RUN_FIX, Task

FORMAT = 1  # increased when older versions of Seqwise cannot read the folder
OLD_KEYS = {"split_rule": "split", "seqwise_version": "seqwise"}  # field of `RunMetadata` → its key in config.yaml
RECIPE_DEFAULTS: dict[str, Any] = {"recipe": "", "overrides": []}  # not saved without a recipe


@dataclass(frozen=True)
class RunMetadata:
    """The data and the command of a run, and the version that wrote it."""

    data: str  # as the user named it
    fingerprint: str  # of the content and the split of the data
    split_rule: str  # in words
    command: str  # or the call of Python, as text
    seqwise_version: str
    format: int = FORMAT
    recipe: str = ""  # its name or file, as given
    overrides: tuple[str, ...] = ()  # names of settings that differ from those of the recipe

    @classmethod
    def create(
        cls, data: str, task: Task, command: str = "", recipe: str = "", overrides: Iterable[str] = ()
    ) -> RunMetadata:
        """Returns the metadata of a new run on the data of the prepared task."""
        names = tuple(sorted(overrides))
        return cls(data, task.fingerprint, task.split_rule, command, get_version(), recipe=recipe, overrides=names)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], path: Path) -> RunMetadata:
        """Returns the metadata of a section of the file `path`; raises `RunError` for one that is damaged or newer."""
        version = int(values["format"])
        if version > FORMAT:
            origin = f"this run was written by Seqwise {values.get('seqwise')} in format {version}"
            problem = f"{origin}; this version reads formats up to {FORMAT}."
            raise RunError(problem, file=path, fix="Update with: pip install --upgrade seqwise")
        values = RECIPE_DEFAULTS | dict(values)
        keys = {field: OLD_KEYS.get(field, field) for field in cls.__dataclass_fields__}
        if missing := [key for key in keys.values() if key not in values]:
            problem = f"{missing[0]!r} is missing from the settings file of the run."
            raise RunError(problem, file=path, fix=DAMAGED_RUN_FIX)
        overrides = values["overrides"]
        if not isinstance(overrides, list):
            problem = f"run.overrides: expected a list of settings; received {overrides!r}."
            raise RunError(problem, file=path, fix=DAMAGED_RUN_FIX)
        texts = {field: str(values[key]) for field, key in keys.items() if field not in ("format", "overrides")}
        return cls(**texts, format=version, overrides=tuple(map(str, overrides)))

    def add_budget(self, command: str) -> RunMetadata:
        """Returns the metadata of the run after a command that has resumed it with another budget."""
        # Also if it is the budget of the recipe: the schedule of the first part was another.
        overrides = sorted({*self.overrides, "budget"}) if self.recipe else ()
        return replace(self, command=f"{self.command}\n{command}".strip(), overrides=tuple(overrides))

    def to_yaml(self) -> str:
        """Returns the section of config.yaml."""
        fields = asdict(self) | {"overrides": list(self.overrides)}
        saved = {name: value for name, value in fields.items() if self.recipe or name not in RECIPE_DEFAULTS}
        values = {OLD_KEYS.get(name, name): value for name, value in saved.items()}
        return yaml.safe_dump({"run": values}, sort_keys=False, allow_unicode=True)
