"""Sizes that agree: the width of each family is solved so that all have about as many parameters.

Parameters are counted on the meta device, where a model has no memory behind it, so asking costs some milliseconds.
What follows from a width (heads, dropout, learning rate) is left to the rules in `training/defaults`. This page knows
nothing of budgets, trials or training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.task import Task

TOLERANCE = 0.03  # the largest of the matched families has at most so much more than the smallest
NEAR = math.log(1 + TOLERANCE) / 2  # so each may be half of that away from the target, as a logarithm
NARROW = 4  # a network narrower by such a factor than its rule has narrower token vectors, where the rule fixes these
WIDEST = 2**16  # a network beyond it is refused by every machine, and counting it is no use

Second = Literal["hidden", "embedding", "width"]
# A second size closes the gap where the steps of the width are too coarse, in this order. It may leave the rule's value
# by this factor only. "width" is the width alone, with the embedding kept as it was: where a vocabulary is large, a
# token vector that is one wider costs more than a network that is much wider.
SECOND: dict[Second, int] = {"hidden": 2, "embedding": 2, "width": 8}


@dataclass(frozen=True)
class Matched:
    """Resolved settings and parameters by name. Without a target there was nobody to match."""

    settings: dict[str, ResolvedSettings]
    parameters: dict[str, int]
    target: int | None
    notes: tuple[str, ...]  # whom the matching left out or treated in a special way


def parameters_of(task: Task, settings: ResolvedSettings) -> int:
    """Numbers that training changes in the model of resolved settings. An n-gram model has none: it counts."""
    if not get_family(settings.model).has_gradients:
        return 0
    with torch.device("meta"):
        model = type(task).restore(settings, task.preprocessor)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def resolved(requested: Settings, facts: DefaultsContext, width: int | None = None) -> ResolvedSettings:
    """Settings without a gap; with a `width`, all that the rules derive from one follows it."""
    if width is not None:
        requested = _changed(requested, "network", width=width)
    if requested.vectors is None:
        facts = replace(facts, vectors=0)  # a variant may do without those of the others
    return resolve(requested, facts)[0]


def match(
    task: Task, contestants: Mapping[str, Settings], facts: DefaultsContext, target: int | None = None
) -> Matched:
    """Solve the widths that are open. Unless given, the target is the (lower) median of the sizes by rule.

    A median that some family cannot have gives way to the nearest size by rule that all can have.
    """
    if target is not None and target < 1:
        raise UsageError(f"a network has at least one parameter; received {target:,}.", repair="Raise --parameters.")
    all_of_them = [_Contestant(name, task, settings, facts) for name, settings in contestants.items()]
    free = [each for each in all_of_them if each.free]
    aims = [target] if target is not None else _aims([each.count(each.start) or 0 for each in free])
    aim, sizes, notes = _solved(free, aims)
    settings = {each.name: each.settings(sizes.get(each.name)) for each in all_of_them}
    parameters = {name: parameters_of(task, values) for name, values in settings.items()}
    for each in all_of_them:
        notes += each.notes(sizes.get(each.name), parameters[each.name], aim)
    return Matched(settings, parameters, aim, tuple(notes))


def _aims(sizes: Sequence[int]) -> list[int]:
    """The lower median, then the larger sizes, then the smaller ones."""
    ranked = sorted(set(sizes))
    at = ranked.index(sorted(sizes)[(len(sizes) - 1) // 2]) if sizes else 0
    return [*ranked[at:], *reversed(ranked[:at])]


def _solved(free: Sequence[_Contestant], aims: Sequence[int]) -> tuple[int | None, dict[str, _Sizes], list[str]]:
    """The first of the aims that all can have, what they have then, and what there is to say of it."""
    first: list[_Unreachable] = []
    for aim in aims:
        sizes, errors = {}, []
        for each in free:
            try:
                sizes[each.name] = each.solve(aim)
            except _Unreachable as error:
                errors.append(error)
        if not errors:
            moved = f"not all can have the median of the sizes by rule, {aims[0]:,} parameters: all have about {aim:,}."
            return aim, sizes, [moved] if first else []
        first = first or errors
    if first:
        other = max(error.nearest for error in first)
        raise UsageError(
            "\n".join(error.problem for error in first),
            repair=f"Name another size for all, such as --parameters {other}, or keep the sizes: --match tokens.",
        )
    return None, {}, []


class _Unreachable(UsageError):
    """A family has no network of some size; `nearest` is a size that it has."""

    def __init__(self, problem: str, nearest: int):
        super().__init__(problem)
        self.nearest = nearest


@dataclass(frozen=True)
class _Sizes:
    """What is solved; None is what the rules make of the width."""

    width: int
    heads: int | None = None
    hidden: int | None = None
    embedding: int | None = None


class _Contestant:
    """One family at any size."""

    def __init__(self, name: str, task: Task, requested: Settings, facts: DefaultsContext):
        self.name, self.task, self.requested, self.facts = name, task, requested, facts
        self.rule = resolved(requested, facts)
        self.free = get_family(requested.model).has_gradients and requested.network.width is None
        attends = requested.model == "transformer" or self.rule.caption.encoder == "patches"
        self.heads = self.rule.transformer.heads if attends else None
        self.narrowed = self._open("embedding") and self._embedding_is_fixed()
        self._counts: dict[_Sizes, int | None] = {}
        if self.free:
            step = self.step(self.heads)
            self.start = _Sizes(max(1, round(self.rule.network.width / step)) * step, self.heads)
            try:
                self._counts[self.start] = parameters_of(task, self.settings(self.start))
            except UsageError as error:
                raise UsageError(f"{name}: {error.problem}", repair=error.repair) from None

    def step(self, heads: int | None) -> int:
        """What the width must be a multiple of: heads, each even for rotary positions; or two directions."""
        if heads:
            return heads * (2 if self.rule.transformer.positions == "rotary" else 1)
        return 2 if self.rule.recurrent.bidirectional else 1

    def settings(self, sizes: _Sizes | None) -> ResolvedSettings:
        """Resolved settings of these sizes, or by the rules alone."""
        if sizes is None:
            return self.rule
        requested = self.requested
        embedding = self._narrow(sizes.width) if sizes.embedding is None and self.narrowed else sizes.embedding
        if embedding is not None:
            requested = _changed(requested, "network", embedding=embedding)
        if sizes.heads is not None:
            requested = _changed(requested, "transformer", heads=sizes.heads)
        if sizes.hidden is not None:
            requested = _changed(requested, "transformer", hidden=sizes.hidden)
        return resolved(requested, self.facts, sizes.width)

    def _embedding_is_fixed(self) -> bool:
        """Does the rule give every width the same token vectors? Else they follow the width."""
        width, embedding = self.rule.network.width, self.rule.network.embedding
        return resolved(self.requested, self.facts, 2 * width).network.embedding == embedding

    def _narrow(self, width: int) -> int | None:
        """Narrower token vectors for a network much narrower than its rule: they must not be all there is of it."""
        usual, embedding = self.rule.network.width, self.rule.network.embedding
        return -(-embedding * NARROW * width // usual) if NARROW * width < usual else None

    def count(self, sizes: _Sizes) -> int | None:
        """Parameters at these sizes; None where some layer refuses them, as narrow ones are refused."""
        if sizes not in self._counts:
            try:
                self._counts[sizes] = parameters_of(self.task, self.settings(sizes))
            except (UsageError, RuntimeError):  # the latter: a matrix with more bytes than a number can say
                self._counts[sizes] = None
        return self._counts[sizes]

    def solve(self, target: int) -> _Sizes:
        """Sizes with about so many parameters: the width alone if that will do, else with a second size.

        Fewer heads are tried last: where heads are many and must be even, narrow networks have no room for them.
        """

        def distance(sizes: _Sizes) -> float:
            return abs(math.log((self.count(sizes) or math.inf) / target))

        if distance(self.start) <= NEAR:
            return self.start
        seen: list[_Sizes] = []
        for heads in range(self.heads, 0, -1) if self.heads and self._open("heads") else (self.heads,):
            by_width = self._widths(heads, target)
            seen += by_width
            nearest = min(by_width, key=distance, default=None)
            if nearest is not None and distance(nearest) <= NEAR:
                return nearest
            for second in SECOND:
                varied = [option for sizes in by_width for option in self._varied(sizes, second, target)]
                near = [(change, sizes) for change, sizes in varied if distance(sizes) <= NEAR]
                if near:
                    return min(near, key=lambda option: option[0])[1]
                seen += [sizes for _, sizes in varied]
        raise self._unreachable(target, sorted(count for sizes in seen if (count := self.count(sizes)) is not None))

    def _widths(self, heads: int | None, target: int) -> list[_Sizes]:
        """The widths on both sides of the target."""
        step = self.step(heads)

        def sizes(number: int) -> _Sizes:
            return _Sizes(number * step, heads)

        start = max(1, self.start.width // step)
        numbers = _around(lambda number: self.count(sizes(number)), start, target, WIDEST // step)
        return [sizes(number) for number in numbers]

    def _varied(self, sizes: _Sizes, second: Second, target: int) -> list[tuple[float, _Sizes]]:
        """Sizes on both sides of the target with another second size, and how far each leaves the rule."""
        if not self._open(second):
            return []
        settings, step = self.settings(sizes), self.step(sizes.heads) if second == "width" else 1
        embedding = settings.network.embedding
        value = {"hidden": settings.transformer.hidden, "embedding": embedding, "width": sizes.width}[second]
        if second == "width":
            sizes = replace(sizes, embedding=embedding)

        def varied(number: int) -> _Sizes:
            return replace(sizes, **{second: number * step})

        start, factor = value // step, SECOND[second]
        numbers = _around(lambda number: self.count(varied(number)), start, target, start * factor)
        return [(abs(math.log(n / start)), varied(n)) for n in numbers if n * factor >= start]

    def _open(self, size: str) -> bool:
        """May it be changed: did nobody set it, and does the model have it?"""
        if size in ("heads", "hidden"):
            return self.heads is not None and getattr(self.requested.transformer, size) is None
        fixed = self.requested.network.embedding is not None or (self.requested.vectors and self.facts.vectors)
        return not fixed

    def _unreachable(self, target: int, counts: list[int]) -> _Unreachable:
        below, above = [count for count in counts if count < target], [count for count in counts if count > target]
        if not below:
            why = f"its smallest network has {above[0]:,}" if above else "none of its widths can be built"
            if above and self.facts.vocabulary > 1:
                why += f", with a vocabulary of {self.facts.vocabulary:,}"
        elif not above:
            why = f"the largest that is tried has {below[-1]:,}"
        else:
            why = f"the nearest have {below[-1]:,} and {above[0]:,}"
        problem = f"{self.name}: no network of this family has about {target:,} parameters: {why}."
        return _Unreachable(problem, above[0] if above else below[-1] if below else target)

    def notes(self, sizes: _Sizes | None, count: int, target: int | None) -> list[str]:
        """What a reader of the comparison should know of the sizes."""
        if not get_family(self.requested.model).has_gradients:
            return [f"{self.name}: not matched; it counts n-grams and has no parameters."]
        if sizes is None:
            if target is not None and abs(math.log(count / target)) <= NEAR:
                return []
            return [f"{self.name}: not matched; its width is set to {self.rule.network.width} ({count:,} parameters)."]
        ours, usual = self.settings(sizes), resolved(self.requested, self.facts, sizes.width)
        pairs = {
            "heads": (sizes.heads, self.heads),
            "hidden": (ours.transformer.hidden, usual.transformer.hidden),
            "embedding": (ours.network.embedding, usual.network.embedding),
        }
        changed = [f"{key} {here} instead of {rule}" for key, (here, rule) in pairs.items() if here != rule]
        return [f"{self.name}: width {sizes.width} with {', '.join(changed)}, to come near enough."] if changed else []


def _around(count: Callable[[int], int | None], start: int, target: int, most: int) -> list[int]:
    """The largest number that counts less than the target, and the smallest that does not; both where both are.

    What cannot be counted is taken for too small.
    """

    def small(number: int) -> bool:
        counted = count(number)
        return counted is None or counted < target

    low, high = 0, max(1, min(start, most))
    while small(high) and high < most:
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if small(middle) else (low, middle)
    return [number for number in (low, high) if number and count(number) is not None]


def _changed(settings: Settings, section: str, **values: int) -> Settings:
    """A copy with other values in one section."""
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=values)})
