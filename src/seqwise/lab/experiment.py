"""`Experiment`: a statement of the textbook that can be run. `Verdict` and `Result`: what comes of it.

An experiment is a dataclass. Its class variables state the claim and how it is tested, its fields are parameters that a
reader may change, and three methods do the work:

    measure() → numbers and arrays      on tensors of this package's layers, trained where the claim is about learning
    judge(measured) → Verdict           the rule, computed from the measurement alone
    draw(measured) → figures

This module knows nothing of particular statements.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from seqwise.errors import SeqwiseError, UsageError
from seqwise.lens.view import View
from seqwise.page.figures import Figure, to_plain

VerdictKind = Literal["holds", "holds if", "refuted"]
Measured = Mapping[str, Any]  # name in snake case → a number, a text, or an array for the figures


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a claim holds. `evidence` is a sentence with the numbers that decide."""

    kind: VerdictKind
    evidence: str
    condition: str = ""  # of "holds if": the rest of the sentence, "the matrix is normal"
    instead: str = ""  # of "refuted": what is true instead, as a sentence

    def __str__(self) -> str:
        if self.kind == "holds if":
            return f"holds if {self.condition}"
        return f"refuted: {self.instead}" if self.kind == "refuted" else "holds"


def decide(is_true: bool, *, evidence: str, instead: str) -> Verdict:
    """Returns "holds" or "refuted".

    instead: what is true if the claim is refuted
    """
    if is_true:
        return Verdict(kind="holds", evidence=evidence)
    return Verdict(kind="refuted", evidence=evidence, instead=instead)


def decide_condition(
    is_true_within: bool, is_true_beyond: bool, *, condition: str, evidence: str, instead: str
) -> Verdict:
    """Returns "holds if" for a claim that is true where a condition is met and fails beyond it.

    A claim that is true in both cases holds; one that fails where the condition is met is refuted.
    """
    if is_true_within and not is_true_beyond:
        return Verdict(kind="holds if", evidence=evidence, condition=condition)
    return decide(is_true_within, evidence=evidence, instead=instead)


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A statement that can be run; see the module's docstring. Subclasses are frozen dataclasses too."""

    id: ClassVar[str]  # the chapter's letter and a number: "C2"
    claim: ClassVar[str]  # the statement in words
    equation: ClassVar[str]  # the statement as an equation, in Unicode
    measurement: ClassVar[str]  # what is measured, in a sentence
    rule: ClassVar[str]  # how the measurement decides, in a sentence
    try_next: ClassVar[str]  # a command with other parameters, and what to look for
    seconds: ClassVar[float]  # expected time on two cores
    quick: ClassVar[Mapping[str, Any]] = {}  # parameters of a quick run, which gives the same verdict
    minimums: ClassVar[Mapping[str, float]] = {}  # of parameters; 1 for other whole numbers, 0 for the seed
    maximums: ClassVar[Mapping[str, float]] = {}  # of parameters; others have none

    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        """Raises an error for a number that is too small, too large or not finite."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not is_number(value):
                continue
            is_whole = isinstance(each.default, int)
            default = 0 if each.name == "seed" else 1 if is_whole else -math.inf
            minimum, maximum = self.minimums.get(each.name, default), self.maximums.get(each.name, math.inf)
            if not math.isfinite(value) or not minimum <= value <= maximum:
                limits = [f"at least {minimum:g}"] if minimum > -math.inf else []
                limits += [f"at most {maximum:g}"] if maximum < math.inf else []
                expected = " and ".join(limits) if math.isfinite(value) else "a finite number"
                raise UsageError(f"{self.id}, {each.name}: expected {expected}; received {value}.")

    @abstractmethod
    def measure(self) -> Measured:
        """Returns the measured numbers and arrays."""

    @abstractmethod
    def judge(self, measured: Measured) -> Verdict:
        """Returns the verdict on what was measured."""

    @abstractmethod
    def draw(self, measured: Measured) -> Sequence[Figure]:
        """Returns the figures; the first is the most important."""

    def run(self) -> Result:
        """Measures, judges and draws. The caller's random state is left as it was."""
        start = time.perf_counter()
        with self._explain_errors():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                measured = self.measure()
            _check_numbers(measured)
            verdict, figures = self.judge(measured), tuple(self.draw(measured))
        seconds = time.perf_counter() - start
        return Result(experiment=self, measured=measured, verdict=verdict, figures=figures, seconds=seconds)

    def suggest_next(self) -> str:
        """Returns `try_next`, or the run with the usual parameters if this is what was tried."""
        changed = self.list_changed()
        values = [f"--{name.replace('_', '-')} {value:g}" for name, value in changed.items() if is_number(value)]
        if changed and len(values) == len(changed) and all(value in self.try_next for value in values):
            return f"seqwise lab run {self.id}: the same with the usual parameters."
        return self.try_next

    @property
    def size(self) -> str:
        """Which parameters it has: "full", "quick", or "changed" if some have other values."""
        values = {name: value for name, value in asdict(self).items() if name != "seed"}
        usual = {each.name: each.default for each in fields(self) if each.name != "seed"}
        return "full" if values == usual else "quick" if values == {**usual, **self.quick} else "changed"

    def list_changed(self) -> dict[str, Any]:
        """Returns the parameters, except for the seed, that are neither the default nor those of a quick run."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self) if each.name != "seed"}
        return {
            name: value for name, (value, default) in values.items() if value not in (default, self.quick.get(name))
        }

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Blames an error inside the block on the parameters if some were changed: not all combinations can work."""
        try:
            yield
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, SeqwiseError, TypeError, ValueError) as error:
            changed = self.list_changed()
            message = error.problem if isinstance(error, SeqwiseError) else str(error)
            if not changed or message.startswith(
                self.id
            ):  # it is a bug, or the message is about the parameters already
                raise
            values = ", ".join(f"{name} {value}" for name, value in changed.items())
            reason = message.splitlines()[0][:200].rstrip(".") if message else type(error).__name__
            fix = f"seqwise lab run {self.id} --help lists the parameters and their defaults."
            raise UsageError(f"{self.id} cannot be run with {values}: {reason}.", fix=fix) from error


def is_number(value: Any) -> bool:
    """Returns whether a parameter is a number, rather than a switch or a text."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_numbers(measured: Measured) -> None:
    """Raises an error if a number could not be measured: no rule can decide on it."""
    undefined = [name for name, value in measured.items() if isinstance(value, float) and math.isnan(value)]
    if undefined:
        raise ValueError(f"{undefined[0].replace('_', ' ')} is not a number")


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What an experiment has found. Printing it draws it in the terminal; a notebook shows it as a page."""

    experiment: Experiment
    measured: Measured
    verdict: Verdict
    figures: Sequence[Figure]
    seconds: float

    def view(self) -> View:
        """Returns the result as a view, which can be printed and saved as .html, .png, .svg or .json."""
        experiment = self.experiment
        summary = [
            f"Claim: {experiment.claim}",
            f"Equation: {experiment.equation}",
            f"Measured: {experiment.measurement}",
            *([f"Numbers: {numbers}"] if (numbers := format_numbers(self.measured)) else []),
            f"Rule: {experiment.rule}",
            f"Verdict: {self.verdict}" + ("" if self.verdict.kind == "refuted" else "."),
            f"Evidence: {self.verdict.evidence}",
            f"Try next: {experiment.suggest_next()}",
        ]
        title = f"{experiment.id}: {self.verdict.kind if self.verdict.kind != 'holds if' else self.verdict}"
        return View(experiment.id, title, summary, self.figures, self.to_json())

    def __str__(self) -> str:
        return str(self.view())

    def __repr__(self) -> str:
        return f"<Result of {self.experiment.id}: {self.verdict}>"

    def _repr_html_(self) -> str:
        return self.view()._repr_html_()

    def save(self, path: str | Path) -> Path:
        """Writes a page (.html), an image (.png, .svg) or the numbers (.json)."""
        return self.view().save(path)

    def to_json(self) -> dict[str, Any]:
        """Returns the result as JSON values, without its figures."""
        experiment, verdict = self.experiment, self.verdict
        return {
            "id": experiment.id,
            "claim": experiment.claim,
            "equation": experiment.equation,
            "measurement": experiment.measurement,
            "rule": experiment.rule,
            "verdict": verdict.kind,
            "condition": verdict.condition or None,
            "instead": verdict.instead or None,
            "evidence": verdict.evidence,
            "measured": to_plain(dict(self.measured), digits=6),
            "size": experiment.size,
            "parameters": asdict(experiment),
            "try_next": experiment.try_next,
            "seconds": round(self.seconds, 3),
        }


def format_numbers(measured: Measured) -> str:
    """Returns the single numbers and texts of a measurement as one line; arrays are left to the figures."""
    values = {name: value for name, value in measured.items() if isinstance(value, (bool, int, float, str, np.number))}
    return "; ".join(f"{name.replace('_', ' ')} {format_value(value)}" for name, value in values.items())


def format_value(value: Any) -> str:
    """Returns a measured value for readers: whole and large numbers without fraction, others with four digits."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if abs(value) < 1e9 and (float(value).is_integer() or abs(value) >= 1e4):
        return f"{value:,.0f}"
    return f"{float(value):.4g}"
