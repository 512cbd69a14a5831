"""`Plan`: the trials of a comparison, their settings and budgets, saved as `compare.yaml`.

Everything is decided before the first trial, except the learning rate of the trainings, which the learning-rate
search decides. The plan knows nothing of how trials are executed.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from seqwise.budget import Budget
from seqwise.compare.plan.options import Match
from seqwise.config import Settings, parse_settings
from seqwise.errors import RunError, UsageError
from seqwise.families import get_family
from seqwise.files import write_text
from seqwise.resolved_settings import ResolvedSettings
from seqwise.training.run import ENVIRONMENT, WEIGHTS

FORMAT = 2  # 1 was written by version 0.1
PLAN_FILE = "compare.yaml"
TRIALS_FOLDER = "trials"
PREPROCESSOR_FOLDER = "preprocessor"
OLD_PREPROCESSOR_FOLDER = "learned"  # of format 1
WORKER_LOG = "workers.log"
CLAIM_FILE = ".claim"  # exists while a comparison is created
# Environment variables of a worker: the number of workers on its device, and in all.
DEVICE_WORKERS_VARIABLE = "SEQWISE_DEVICE_WORKERS"
WORKERS_VARIABLE = "SEQWISE_WORKERS"
SEARCH_SHARE = 0.25  # of a family's budget, for its learning-rate search
MAX_LR_TRIAL_SHARE = 1 / 3  # of the budget of one seed, for one learning rate
RATE_FACTOR = 2.5  # between neighbouring learning rates
MIN_AMOUNT = {"seconds": 0.01, "tokens": 1.0}  # of a trial's budget
ROUNDING = 1e-6  # error of sums and products of decimal numbers
NEVER = 10**9  # updates between validations in the learning-rate search, and the patience of a training

TrialKind = Literal["lr", "train"]
# Keys of format 1.
RENAMED_KEYS = {
    "split": "split_rule", "spending": "budgets", "target": "target_parameters", "examples": "num_examples",
    "home": "working_folder",
}  # fmt: skip
RENAMED_BUDGET_KEYS = {"budget": "total", "tries": "lr_trials", "a_try": "lr_trial"}


class BudgetTooSmallError(UsageError):
    """The budget is so small that a trial would get nothing."""


@dataclass(frozen=True)
class Trial:
    """One training: a short one of the learning-rate search, or the training with one seed."""

    name: str  # family/lr-1, family/seed-0
    family: str
    kind: TrialKind
    number: int  # of the learning rate, from 1; or the seed
    seed: int


@dataclass(frozen=True)
class TrialBudgets:
    """How the budget of a family is divided: `lr_trials` short trainings, then one training for each seed."""

    total: str  # per seed
    lr_trials: int
    seeds: tuple[int, ...]
    lr_trial: str
    training: str

    @classmethod
    def divide(cls, text: str, lr_trials: int, seeds: tuple[int, ...], tokens_per_epoch: int) -> TrialBudgets:
        """Divides a budget; epochs are converted to tokens."""
        budget = Budget.parse(text)
        if budget.unit == "epochs":
            budget = Budget(float(round(budget.amount * tokens_per_epoch)), "tokens")
        lr_trial = _lr_trial_share(lr_trials, len(seeds)) * budget.amount
        training = budget.amount - lr_trial * lr_trials / len(seeds)
        if min(training, lr_trial if lr_trials > 1 else training) < MIN_AMOUNT[budget.unit]:
            raise BudgetTooSmallError(
                f"the budget {text} is too small to be divided among the trials.",
                repair="Give a larger --budget, or fewer --lr-trials.",
            )
        amounts = (_format_amount(amount, budget.unit) for amount in (budget.amount, lr_trial, training))
        total, lr_trial_text, training_text = amounts
        return cls(total, lr_trials, seeds, lr_trial_text, training_text)

    def smallest_total(self, training: float, lr_trial: float) -> Budget:
        """Returns the smallest total that gives a training and a learning rate these amounts."""
        unit, share = Budget.parse(self.training).unit, _lr_trial_share(self.lr_trials, len(self.seeds))
        if unit == "tokens":
            training, lr_trial = math.ceil(training), math.ceil(lr_trial)  # parts are rounded down
        total = training / (1 - share * self.lr_trials / len(self.seeds))
        return Budget(max(total, lr_trial / share) if share else total, unit)

    @property
    def is_timed(self) -> bool:
        return Budget.parse(self.training).unit == "seconds"


def _lr_trial_share(lr_trials: int, seeds: int) -> float:
    """Returns the share of one seed's budget that one learning rate gets."""
    return min(SEARCH_SHARE * seeds / lr_trials, MAX_LR_TRIAL_SHARE) if lr_trials > 1 else 0.0


def _format_amount(amount: float, unit: str) -> str:
    """Formats whole tokens or hundredths of seconds for `Budget.parse`, rounded down lest parts exceed the total."""
    if unit == "tokens":
        return f"{math.floor(amount + ROUNDING)}-tokens"
    return f"{math.floor(100 * amount + ROUNDING) / 100:.2f}".rstrip("0").rstrip(".") + "s"


@dataclass(frozen=True)
class Plan:
    """A complete comparison. `families` are resolved settings; those of a trial differ in rate, seed and budget."""

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
    strict: bool = True  # a time too short for one validation is refused
    working_folder: str = ""  # of the command, to which file names are relative
    threads: int | None = None  # of a trial on the CPU, where they are limited
    lr_prefix: str = "lr"  # of the names of trials; "try" in format 1

    # Trials

    def lr_trials(self) -> list[Trial]:
        """Returns the trials of the learning-rate search, in rounds, so that a slow phase affects all families."""
        count, seed = self.budgets.lr_trials, self.budgets.seeds[0]
        if count == 1:
            return []
        return [
            Trial(f"{name}/{self.lr_prefix}-{number}", name, "lr", number, seed)
            for number in range(1, count + 1)
            for name in self.families
            if not self.is_counted(name)
        ]

    def trainings(self) -> list[Trial]:
        """Returns the trainings of all seeds; an n-gram model is fitted once."""
        first = self.budgets.seeds[0]
        return [
            self.training(name, seed)
            for seed in self.budgets.seeds
            for name in self.families
            if seed == first or not self.is_counted(name)
        ]

    def training(self, family: str, seed: int) -> Trial:
        return Trial(f"{family}/seed-{seed}", family, "train", seed, seed)

    def trials(self) -> list[Trial]:
        return [*self.lr_trials(), *self.trainings()]

    def get_trial(self, name: str) -> Trial:
        for trial in self.trials():
            if trial.name == name:
                return trial
        raise RunError(
            f"the plan has no trial {name!r}.", repair="Perhaps another comparison was copied into its folder."
        )

    def is_counted(self, family: str) -> bool:
        """Returns whether a family is fitted once by counting: no learning rate, no seed."""
        return not get_family(self.families[family].model).has_gradients

    def rates(self, family: str) -> list[float]:
        """Returns the learning rates of the search: the default one, then its neighbours at growing distance."""
        rate = self.families[family].training.learning_rate
        return [float(f"{rate * factor:.3g}") for factor in get_rate_factors(self.budgets.lr_trials)]

    def get_rate(self, lr_trial: Trial) -> float:
        return self.rates(lr_trial.family)[lr_trial.number - 1]

    def make_settings(self, trial: Trial, rate: float | None) -> ResolvedSettings:
        """Returns the settings of a trial; `rate` is the learning rate of a training."""
        settings = self.families[trial.family].model_copy(deep=True)
        settings.seed = trial.seed
        settings.budget = self.budgets.lr_trial if trial.kind == "lr" else self.budgets.training
        if trial.kind == "lr":
            settings.training.validate_every = NEVER
            rate = self.get_rate(trial)
        if rate is not None and not self.is_counted(trial.family):
            settings.training.learning_rate = rate
        return settings

    # The file

    def save(self, folder: Path) -> None:
        values: dict[str, Any] = {"format": FORMAT, **asdict(replace(self, families={}))}
        values["families"] = {name: settings.model_dump(mode="json") for name, settings in self.families.items()}
        write_text(folder / PLAN_FILE, yaml.safe_dump(_tuples_to_lists(values), sort_keys=False, allow_unicode=True))

    @classmethod
    def open(cls, folder: str | Path) -> Plan:
        path = Path(folder) / PLAN_FILE
        if not path.is_file():
            raise RunError(f"{folder} is not a comparison: it has no {PLAN_FILE}.", repair="Name the folder of --out.")
        try:
            return cls._parse(yaml.safe_load(path.read_text(encoding="utf-8")), path)
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
            repair = "Copy the folder again from where it was made, or compare again."
            raise RunError(f"not the plan of a comparison: {error}.", file=path, repair=repair) from None

    @classmethod
    def _parse(cls, values: dict[str, Any], path: Path) -> Plan:
        version = int(values.pop("format"))
        if version > FORMAT:
            raise RunError(
                f"this comparison was written by Seqwise {values.get('seqwise')} in format {version}; "
                f"this version reads formats up to {FORMAT}.",
                file=path,
                repair="Update with: pip install --upgrade seqwise",
            )
        if version == 1:
            values = {RENAMED_KEYS.get(key, key): value for key, value in values.items()} | {"lr_prefix": "try"}
            values["budgets"] = {RENAMED_BUDGET_KEYS.get(key, key): each for key, each in values["budgets"].items()}
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        budgets = values["budgets"]
        values["budgets"] = TrialBudgets(**budgets | {"seeds": tuple(budgets["seeds"])})
        values["families"] = {
            name: parse_settings(settings, path, ResolvedSettings) for name, settings in values["families"].items()
        }
        return cls(**values)


def get_preprocessor_folder(folder: Path) -> Path:
    """Returns the folder with the shared vocabularies of a comparison."""
    old = folder / OLD_PREPROCESSOR_FOLDER
    return old if old.is_dir() else folder / PREPROCESSOR_FOLDER


def resume_command(folder: Path) -> str:
    return f"seqwise compare --resume {shlex.quote(str(folder))}"


def has_trained(folder: Path) -> bool:
    """Returns whether any trial has saved weights or a checkpoint."""
    trials = folder / TRIALS_FOLDER
    return any(trials.glob("*/*/checkpoints/step-*")) or any(trials.glob(f"*/*/{WEIGHTS}"))


def remove_untrained(folder: Path) -> None:
    """Removes a comparison in which nothing was trained, to make room for another; other files stay."""
    if has_trained(folder):
        return
    for name in (PLAN_FILE, WORKER_LOG, ENVIRONMENT, CLAIM_FILE):
        with suppress(OSError):
            (folder / name).unlink()
    for name in (PREPROCESSOR_FOLDER, OLD_PREPROCESSOR_FOLDER, TRIALS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def _tuples_to_lists(value: Any) -> Any:
    """Replaces tuples, which YAML does not know."""
    if isinstance(value, dict):
        return {key: _tuples_to_lists(item) for key, item in value.items()}
    return [_tuples_to_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def prepare_settings(settings: Settings, budgets: TrialBudgets) -> Settings:
    """Returns the settings of a family before defaults are filled in: the budget, and no early stopping."""
    settings = settings.model_copy(deep=True)
    settings.budget, settings.training.patience = budgets.training, NEVER
    return settings


def get_rate_factors(count: int) -> list[float]:
    """Returns the factors of the default learning rate in the search: 1, 0.4, 2.5, 0.16, …"""
    steps = [0, *(sign * step for step in range(1, count) for sign in (-1, 1))]
    return [RATE_FACTOR**step for step in steps[:count]]


def list_seeds(count: int, first: int) -> tuple[int, ...]:
    if count < 1:
        raise UsageError(f"--seeds: expected at least 1; received {count}.")
    return tuple(range(first, first + count))


def parse_names(text: str) -> list[str]:
    """Splits `rnn, gru` into names; `none` is an empty list."""
    names = [name for name in re.split(r"[,\s]+", text) if name]
    return [] if names == ["none"] else names
