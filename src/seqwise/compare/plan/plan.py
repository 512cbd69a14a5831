"""`Plan`: the trials of a comparison, their settings and budgets, saved as `compare.yaml`.

Everything is decided before the first trial, except the learning rate of each family, which the learning-rate
search decides. A time budget is converted into tokens when the speed of each family is known. The plan knows nothing of
how trials are executed.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from seqwise.compare.plan.budgets import TokenBudgets, TrialBudgets, TrialKind
from seqwise.compare.plan.folder import PLAN_FILE
from seqwise.compare.plan.options import Match
from seqwise.config import Settings
from seqwise.errors import RunError
from seqwise.families import get_family
from seqwise.files import write_text
from seqwise.resolved_settings import ResolvedSettings
from seqwise.yaml_files import read_yaml

FORMAT = 2  # 1 was written by version 0.1
# Environment variables of a worker: the number of workers on its device, and in all.
DEVICE_WORKERS_VARIABLE = "SEQWISE_DEVICE_WORKERS"
WORKERS_VARIABLE = "SEQWISE_WORKERS"
RATE_FACTOR = 2.5  # between neighbouring learning rates
MAX_ADDED_RATES = 2  # of a family, while the best one is at the edge of the search
NEVER = 10**9  # updates between validations in the learning-rate search, and the patience of a training run

# Keys of format 1.
RENAMED_KEYS = {
    "split": "split_rule", "spending": "budgets", "target": "target_parameters", "examples": "num_examples",
    "home": "working_folder",
}  # fmt: skip
RENAMED_BUDGET_KEYS = {"budget": "total", "tries": "lr_trials", "a_try": "lr_trial"}


@dataclass(frozen=True)
class Trial:
    """One training run: a short one of the learning-rate search, or that of one seed."""

    name: str  # family/lr-1, family/seed-0
    family: str
    kind: TrialKind
    number: int  # of the learning rate, from 1; or the seed
    seed: int


@dataclass(frozen=True)
class Plan:
    """A complete comparison. `families` are resolved settings; those of a trial differ in rate, seed and budget."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    data: str
    task: str
    fingerprint: str
    split_rule: str
    about: tuple[str, ...]  # sentences about the data
    command: str
    seqwise: str  # version
    budgets: TrialBudgets
    match: Match
    target_parameters: int | None
    parameters: dict[str, int]
    notes: tuple[str, ...]
    metric: str  # key of the primary metric
    unit: str  # what is counted as a token
    nproc: int
    num_examples: int  # on which families disagree, for the report
    families: dict[str, ResolvedSettings]
    strict: bool = True  # raise an error for a time budget too short for `budgets.MIN_UPDATES` and one validation
    test: bool = True  # evaluate on the test split; False: on the validation split
    working_folder: str = ""  # of the command, to which file names are relative
    token_budgets: dict[str, TokenBudgets] = field(default_factory=dict)  # by family, of a time budget
    # Family → learning rates that were added to the search, because the best one was at its edge.
    added_rates: dict[str, tuple[float, ...]] = field(default_factory=dict)
    lr_prefix: str = "lr"  # of the names of trials; "try" in format 1

    @property
    def evaluated_split(self) -> Literal["test", "valid"]:
        """The split on which the trained models are evaluated and compared."""
        return "test" if self.test else "valid"

    # Trials

    def list_lr_trials(self) -> list[Trial]:
        """Returns the trials of the learning-rate search, in rounds: a slow phase of the machine affects all."""
        seed = self.budgets.seeds[0]
        counts = {name: len(self.list_rates(name)) for name in self.families if self.has_gradients(name)}
        if self.budgets.lr_trials == 1:
            return []
        return [
            Trial(f"{name}/{self.lr_prefix}-{number}", name, "lr", number, seed)
            for number in range(1, max(counts.values(), default=0) + 1)
            for name, count in counts.items()
            if number <= count
        ]

    def list_training_trials(self) -> list[Trial]:
        """Returns the training runs of all seeds; an n-gram model is fitted once."""
        first = self.budgets.seeds[0]
        return [
            self.make_training_trial(name, seed)
            for seed in self.budgets.seeds
            for name in self.families
            if seed == first or self.has_gradients(name)
        ]

    def make_training_trial(self, family: str, seed: int) -> Trial:
        return Trial(f"{family}/seed-{seed}", family, "train", seed, seed)

    def list_trials(self) -> list[Trial]:
        return [*self.list_lr_trials(), *self.list_training_trials()]

    def get_trial(self, name: str) -> Trial:
        for trial in self.list_trials():
            if trial.name == name:
                return trial
        raise RunError(f"the plan has no trial {name!r}.", fix="Was another comparison copied into its folder?")

    def has_gradients(self, family: str) -> bool:
        """Returns whether a family is trained by gradient descent; others have no learning rate and no seed."""
        return get_family(self.families[family].model).has_gradients

    def list_rates(self, family: str) -> list[float]:
        """Returns the learning rates of the search: the default one, its neighbours, then those added at an edge."""
        rate = self.families[family].training.learning_rate
        first = [_round_rate(rate * factor) for factor in get_rate_factors(self.budgets.lr_trials)]
        return [*first, *self.added_rates.get(family, ())]

    def add_rate(self, family: str, best: float) -> Plan | None:
        """Returns the plan with one more learning rate beyond the best; else None.

        No rate is added if the best is not at the edge of the search, or after `MAX_ADDED_RATES`.
        """
        rates, added = self.list_rates(family), self.added_rates.get(family, ())
        if best not in (min(rates), max(rates)) or len(added) == MAX_ADDED_RATES:
            return None
        rate = _round_rate(best * RATE_FACTOR if best == max(rates) else best / RATE_FACTOR)
        return replace(self, added_rates={**self.added_rates, family: (*added, rate)})

    def get_rate(self, lr_trial: Trial) -> float:
        return self.list_rates(lr_trial.family)[lr_trial.number - 1]

    def make_settings(self, trial: Trial, rate: float | None) -> ResolvedSettings:
        """Returns the settings of a trial; `rate` is that of a training run, which the search has chosen."""
        settings = self.families[trial.family].model_copy(deep=True)
        settings.seed = trial.seed
        settings.budget = self.budgets.lr_trial if trial.kind == "lr" else self.budgets.training
        if tokens := self.token_budgets.get(trial.family):
            settings.budget = f"{tokens.lr_trial if trial.kind == 'lr' else tokens.training}-tokens"
            settings.training.validate_every = tokens.validate_every
        if trial.kind == "lr":
            settings.training.validate_every = NEVER
            rate = self.get_rate(trial)
        if rate is not None and self.has_gradients(trial.family):
            settings.training.learning_rate = rate
        return settings

    # The file

    def save(self, folder: Path) -> None:
        values = {"format": FORMAT, **_get_adapter().dump_python(self, mode="json")}
        write_text(folder / PLAN_FILE, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))

    @classmethod
    def open(cls, folder: str | Path) -> Plan:
        path = Path(folder) / PLAN_FILE
        if not path.is_file():
            raise RunError(f"{folder} is not a comparison: it has no {PLAN_FILE}.", fix="Name the folder of --out.")
        problem: object
        try:
            return cls._parse(read_yaml(path), path)
        except ValidationError as error:
            problem = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
            problem = error
        fix = "Copy the folder again from where it was made, or compare again."
        raise RunError(f"not the plan of a comparison: {problem}.", file=path, fix=fix)

    @classmethod
    def _parse(cls, values: dict[str, Any], path: Path) -> Plan:
        version = int(values.pop("format"))
        if version > FORMAT:
            writer = f"this comparison was written by Seqwise {values.get('seqwise')} in format {version}"
            problem = f"{writer}; this version reads formats up to {FORMAT}."
            raise RunError(problem, file=path, fix="Update with: pip install --upgrade seqwise")
        values.pop("threads", None)  # of a version that limited them on a busy machine
        if version == 1:
            values = {RENAMED_KEYS.get(key, key): value for key, value in values.items()} | {"lr_prefix": "try"}
            values["budgets"] = {RENAMED_BUDGET_KEYS.get(key, key): each for key, each in values["budgets"].items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about renamed settings
            return _get_adapter().validate_python(values)


@cache
def _get_adapter() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


def prepare_settings(settings: Settings, budgets: TrialBudgets) -> Settings:
    """Returns the settings of a family before defaults are filled in: the budget, and no early stopping."""
    settings = settings.model_copy(deep=True)
    settings.budget, settings.training.patience = budgets.training, NEVER
    return settings


def get_rate_factors(count: int) -> list[float]:
    """Returns the factors of the default learning rate in the search: 1, 0.4, 2.5, 0.16, …"""
    steps = [0, *(sign * step for step in range(1, count) for sign in (-1, 1))]
    return [RATE_FACTOR**step for step in steps[:count]]


def _round_rate(rate: float) -> float:
    return float(f"{rate:.3g}")


def parse_names(text: str) -> list[str]:
    """Splits `rnn, gru` into names; `none` is an empty list."""
    names = [name for name in re.split(r"[,\s]+", text) if name]
    return [] if names == ["none"] else names
