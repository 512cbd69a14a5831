"""The plan of a comparison: which trials, with which settings, under which budgets. It is a file, `compare.yaml`.

Everything is decided before the first trial, but for the learning rate of the trainings, which the tries decide. The
plan knows nothing of who carries it out.
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

FORMAT = 1
PLAN, TRIALS, LEARNED, LOG = "compare.yaml", "trials", "learned", "workers.log"
CLAIM = ".claim"  # there while a comparison is made
# Environment variables of a worker: how many of them share its device, and how many there are in all.
BESIDE, AT_ONCE = "SEQWISE_BESIDE", "SEQWISE_AT_ONCE"
SEARCH = 0.25  # share of a family's budget that its tries may spend together
LONGEST_TRY = 1 / 3  # of the budget of one seed
FACTOR = 2.5  # between neighbouring learning rates
LEAST = {"seconds": 0.01, "tokens": 1.0}  # what a trial can be given
ROUNDING = 1e-6  # what sums and products of decimal numbers may be wrong by
NEVER = 10**9  # updates between the validations of a try, which is only judged at its end; and nobody's patience

Kind = Literal["try", "train"]


@dataclass(frozen=True)
class Trial:
    """One training: a try of a learning rate, or the training with one seed."""

    family: str
    kind: Kind
    number: int  # of the try, from 1; or the seed
    seed: int

    @property
    def name(self) -> str:
        return f"{self.family}/{'try' if self.kind == 'try' else 'seed'}-{self.number}"


class Undivided(UsageError):
    """The budget is so small that some part of it would be nothing."""


@dataclass(frozen=True)
class Spending:
    """The budget of a family, divided: `tries` short trainings, then one for each seed."""

    budget: str
    tries: int
    seeds: tuple[int, ...]
    a_try: str
    training: str

    @classmethod
    def of(cls, text: str, tries: int, seeds: tuple[int, ...], tokens: int) -> Spending:
        """Divide a budget; one in epochs is turned into tokens, of which the training split has so many."""
        budget = Budget.parse(text)
        if budget.unit == "epochs":
            budget = Budget(float(round(budget.amount * tokens)), "tokens")
        each = _share_of_try(tries, len(seeds)) * budget.amount
        rest = budget.amount - each * tries / len(seeds)
        if min(rest, each if tries > 1 else rest) < LEAST[budget.unit]:
            raise Undivided(
                f"the budget {text} is too small to be divided: a try or a training would get nothing.",
                repair="Give a larger --budget, or fewer --tries.",
            )
        return cls(_text(budget.amount, budget.unit), tries, seeds, _text(each, budget.unit), _text(rest, budget.unit))

    def least(self, training: float, a_try: float) -> Budget:
        """The smallest budget of which a training and a try would get so much."""
        unit, share = Budget.parse(self.training).unit, _share_of_try(self.tries, len(self.seeds))
        if unit == "tokens":
            training, a_try = math.ceil(training), math.ceil(a_try)  # parts are rounded down
        whole = training / (1 - share * self.tries / len(self.seeds))
        return Budget(max(whole, a_try / share) if share else whole, unit)


def _share_of_try(tries: int, seeds: int) -> float:
    """What a try gets of the budget of one seed."""
    return min(SEARCH * seeds / tries, LONGEST_TRY) if tries > 1 else 0.0


def _text(amount: float, unit: str) -> str:
    """As `Budget.parse` reads it; whole tokens, hundredths of seconds, rounded down lest parts exceed the whole."""
    if unit == "tokens":
        return f"{math.floor(amount + ROUNDING)}-tokens"
    return f"{math.floor(100 * amount + ROUNDING) / 100:.2f}".rstrip("0").rstrip(".") + "s"


@dataclass(frozen=True)
class Plan:
    """A comparison, complete. `families` are resolved settings; those of a trial differ in rate, seed and budget."""

    data: str
    task: str
    fingerprint: str
    split: str
    about: tuple[str, ...]  # sentences about the data
    command: str
    seqwise: str
    spending: Spending
    match: Match
    target: int | None  # parameters to agree on
    parameters: dict[str, int]
    notes: tuple[str, ...]
    metric: str  # key of the headline metric
    unit: str  # what is counted as a token
    nproc: int
    examples: int  # on which families disagree, to be kept
    families: dict[str, ResolvedSettings]
    strict: bool = True  # a time too short for one validation is refused
    home: str = ""  # the folder in which the user was, to which names of files are relative
    threads: int | None = None  # of a trial on the CPU, where they were counted

    # Trials

    def tries(self) -> list[Trial]:
        """Round by round, so that a machine that slows down slows all families down."""
        count, seed = self.spending.tries, self.spending.seeds[0]
        if count == 1:
            return []
        preprocessor = [name for name in self.families if not self.counted(name)]
        return [Trial(name, "try", number, seed) for number in range(1, count + 1) for name in preprocessor]

    def trainings(self) -> list[Trial]:
        first = self.spending.seeds[0]
        return [
            Trial(name, "train", seed, seed)
            for seed in self.spending.seeds
            for name in self.families
            if seed == first or not self.counted(name)
        ]

    def trials(self) -> list[Trial]:
        return [*self.tries(), *self.trainings()]

    def trial(self, name: str) -> Trial:
        for trial in self.trials():
            if trial.name == name:
                return trial
        raise RunError(f"the plan has no trial {name!r}.", repair="Perhaps another comparison was put into its folder.")

    def counted(self, family: str) -> bool:
        """An n-gram model is counted once: no rate to choose, no seed to depend on."""
        return not get_family(self.families[family].model).has_gradients

    def rates(self, family: str) -> list[float]:
        """The learning rates to try: that of the rule, then its neighbours, further and further away."""
        rate = self.families[family].training.learning_rate
        return [float(f"{rate * factor:.3g}") for factor in factors(self.spending.tries)]

    def settings_of(self, trial: Trial, rate: float | None) -> ResolvedSettings:
        """The settings of a trial; `rate` is that of a training."""
        settings = self.families[trial.family].model_copy(deep=True)
        settings.seed = trial.seed
        settings.budget = self.spending.a_try if trial.kind == "try" else self.spending.training
        if trial.kind == "try":
            settings.training.validate_every = NEVER
            rate = self.rates(trial.family)[trial.number - 1]
        if rate is not None and not self.counted(trial.family):
            settings.training.learning_rate = rate
        return settings

    # The file

    def save(self, folder: Path) -> None:
        values: dict[str, Any] = {"format": FORMAT, **asdict(replace(self, families={}))}
        values["families"] = {name: settings.model_dump(mode="json") for name, settings in self.families.items()}
        write_text(folder / PLAN, yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True))

    @classmethod
    def open(cls, folder: str | Path) -> Plan:
        path = Path(folder) / PLAN
        if not path.is_file():
            raise RunError(f"{folder} is not a comparison: it has no {PLAN}.", repair="Name the folder of --out.")
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
            version = int(values.pop("format"))
            if version > FORMAT:
                raise RunError(
                    f"this comparison was written by Seqwise {values.get('seqwise')} in format {version}; "
                    f"this version reads formats up to {FORMAT}.",
                    file=path,
                    repair="Update with: pip install --upgrade seqwise",
                )
            spending = values.pop("spending")
            families = {
                name: parse_settings(each, path, ResolvedSettings) for name, each in values.pop("families").items()
            }
            rest: dict[str, Any] = {
                k: tuple(value) if isinstance(value, list) else value for k, value in values.items()
            }
            return cls(**rest, spending=Spending(**spending | {"seeds": tuple(spending["seeds"])}), families=families)
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
            repair = "Copy the folder again from where it was made, or compare again."
            raise RunError(f"not the plan of a comparison: {error}.", file=path, repair=repair) from None


def resume_command(folder: Path) -> str:
    return f"seqwise compare --resume {shlex.quote(str(folder))}"


def begun(folder: Path) -> bool:
    """Has any trial saved something that it learned?"""
    runs = folder / TRIALS
    return any(runs.glob("*/*/checkpoints/step-*")) or any(runs.glob(f"*/*/{WEIGHTS}"))


def withdraw(folder: Path) -> None:
    """Remove a comparison in which nothing was trained, to make room for another; what else is there stays."""
    if begun(folder):
        return
    for name in (PLAN, LOG, ENVIRONMENT, CLAIM):
        with suppress(OSError):
            (folder / name).unlink()
    for name in (LEARNED, TRIALS):
        shutil.rmtree(folder / name, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def _plain(value: Any) -> Any:
    """Tuples as lists, which is all that YAML needs."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def requested(settings: Settings, spending: Spending) -> Settings:
    """What every family is asked, before the rules fill in the rest: the budget, and to spend all of it."""
    settings = settings.model_copy(deep=True)
    settings.budget, settings.training.patience = spending.training, NEVER
    return settings


def factors(tries: int) -> list[float]:
    """By what the rule's rate is multiplied in each try: 1, 0.4, 2.5, 0.16, …"""
    steps = [0, *(sign * step for step in range(1, tries) for sign in (-1, 1))]
    return [FACTOR**step for step in steps[:tries]]


def seeds_of(count: int, first: int) -> tuple[int, ...]:
    if count < 1:
        raise UsageError(f"--seeds: expected at least 1; received {count}.")
    return tuple(range(first, first + count))


def names_of(text: str) -> list[str]:
    """`rnn, gru` → its names; `none` → no names."""
    names = [name for name in re.split(r"[,\s]+", text) if name]
    return [] if names == ["none"] else names
