"""Matches sizes: solves for the width of each family, so that all have about the same number of parameters.

Parameters are counted on the meta device, where a model takes no memory, in some milliseconds. What follows from a
width (heads, dropout, learning rate) is chosen by the default rules (`tasks/defaults.py`, `tasks/TASK/`). This module
knows nothing of budgets or trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Literal

import torch
from torch import nn

from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import get_family
from seqwise.heads.ngrams import NGramHead
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.task import Task

TOLERANCE = 0.03  # by which the largest of the matched families may exceed the smallest
MAX_LOG_ERROR = math.log(1 + TOLERANCE) / 2  # so each may be half of that away from the target, as a logarithm
# A network narrower by more than this factor than its default gets narrower embeddings, if the default rules give every
# width the same embedding.
NARROW_FACTOR = 4
MAX_WIDTH = 2**16  # no machine trains a wider network

SecondSize = Literal["hidden", "embedding", "width"]
# A second size closes the gap where the steps of the width are too coarse, in this order. It may differ from
# its value at the solved width by at most this factor. "hidden" is the width of the feed-forward layers of a
# Transformer. "width" is the width alone, with the embedding kept as it was: for a large vocabulary, an embedding that
# is one wider costs more than a network that is much wider.
SECOND_SIZES: dict[SecondSize, int] = {"hidden": 2, "embedding": 2, "width": 8}


@dataclass(frozen=True)
class MatchedSizes:
    """Resolved settings and numbers of parameters, both by family; n-gram heads (`classify.ngrams`) are not counted."""

    settings: dict[str, ResolvedSettings]
    parameters: dict[str, int]
    target: int | None  # number of parameters; None: default sizes are used, or no family has a width to solve for
    notes: tuple[str, ...]  # sentences for the report: what is not matched or not counted, and unusual sizes


def count_parameters(task: Task, settings: ResolvedSettings) -> int:
    """Returns the number of trainable parameters without those of an n-gram head; 0 for an n-gram model.

    The head has the same number beside every network, so that it would hide differences between the networks.
    """
    model = _build_on_meta(task, settings)
    return 0 if model is None else _count_trainable(model) - _count_ngram_weights(model)


def _build_on_meta(task: Task, settings: ResolvedSettings) -> nn.Module | None:
    if not get_family(settings.model).has_gradients:
        return None
    with torch.device("meta"):
        return type(task).restore(settings, task.preprocessor)


def _count_trainable(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _count_ngram_weights(model: nn.Module) -> int:
    return sum(_count_trainable(module) for module in model.modules() if isinstance(module, NGramHead))


def list_ngram_notes(task: Task, settings: Mapping[str, ResolvedSettings]) -> list[str]:
    """Returns a sentence about the weights of n-gram heads, which are not counted, if there are any."""
    models = {name: _build_on_meta(task, each) for name, each in settings.items() if each.classify.ngrams}
    counts = {
        name: count for name, model in models.items() if model is not None and (count := _count_ngram_weights(model))
    }
    if not counts:
        return []
    sizes = sorted(set(counts.values()))
    if len(sizes) == 1 and len(counts) == len(settings):
        number = f"{sizes[0]:,}, the same for all"
    else:
        number = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return [f"The numbers of parameters leave out the weights of n-grams (classify.ngrams): {number}."]


def resolve_sizes(requested: Settings, context: DefaultsContext, width: int | None = None) -> ResolvedSettings:
    """Returns resolved settings; with a `width`, those that the rules derive from the width are derived from it."""
    if width is not None:
        requested = _replace_values(requested, "network", width=width)
    if requested.vectors is None:
        context = replace(context, vector_width=0)  # a variant without the pretrained vectors of the others
    return resolve(requested, context)[0]


def use_default_sizes(task: Task, families: Mapping[str, Settings], context: DefaultsContext) -> MatchedSizes:
    """Gives every family its default size, or the size that was set."""
    settings = {name: resolve_sizes(each, context) for name, each in families.items()}
    parameters = {name: count_parameters(task, each) for name, each in settings.items()}
    return MatchedSizes(settings, parameters, None, tuple(list_ngram_notes(task, settings)))


def match_sizes(
    task: Task, families: Mapping[str, Settings], context: DefaultsContext, target: int | None = None
) -> MatchedSizes:
    """Solves for the widths that are not set. The default target is the (lower) median of the default sizes.

    If some family cannot have the median, the nearest larger default size that all can have is used, or else the
    nearest smaller one.
    """
    if target is not None and target < 1:
        raise UsageError(f"a network has at least one parameter; received {target:,}.", fix="Raise --parameters.")
    solvers = [_SizeSolver(name, task, settings, context) for name, settings in families.items()]
    free = [solver for solver in solvers if solver.has_free_width]
    targets = [target] if target is not None and free else []
    if target is None and free:
        counts = [solver.get_count(solver.default_sizes) or 0 for solver in free]
        median = median_low(counts)
        targets = sorted(set(counts), key=lambda count: (count < median, abs(count - median)))  # larger ones first
    reached_target, sizes, notes = _solve_all(free, targets)
    settings = {solver.name: solver.make_settings(sizes.get(solver.name)) for solver in solvers}
    parameters = {name: count_parameters(task, values) for name, values in settings.items()}
    for solver in solvers:
        notes += solver.list_notes(sizes.get(solver.name), parameters[solver.name], reached_target)
    notes += list_ngram_notes(task, settings)
    return MatchedSizes(settings, parameters, reached_target, tuple(notes))


def _solve_all(
    solvers: Sequence[_SizeSolver], targets: Sequence[int]
) -> tuple[int | None, dict[str, _Sizes], list[str]]:
    """Returns the first target that all families can have, their sizes, and notes about it."""
    first_errors: list[_UnreachableSizeError] = []
    for target in targets:
        sizes, errors = {}, []
        for solver in solvers:
            try:
                sizes[solver.name] = solver.solve(target)
            except _UnreachableSizeError as error:
                errors.append(error)
        if not errors:
            note = f"not all can have the median of the default sizes, {targets[0]:,} parameters: all have about "
            return target, sizes, [f"{note}{target:,}."] if first_errors else []
        first_errors = first_errors or errors
    if first_errors:
        nearest = max(error.nearest for error in first_errors)
        raise UsageError(
            "\n".join(error.problem for error in first_errors),
            fix=f"Name another size for all, such as --parameters {nearest}; or, without --parameters, keep the "
            "default sizes: --match time, or --match tokens with a budget in tokens.",
        )
    return None, {}, []


class _UnreachableSizeError(UsageError):
    """A family has no network of some size; `nearest` is a size that it has."""

    def __init__(self, problem: str, nearest: int):
        super().__init__(problem)
        self.nearest = nearest


@dataclass(frozen=True)
class _Sizes:
    """The sizes that are solved for; None is derived from the width by the rules."""

    width: int
    heads: int | None = None
    hidden: int | None = None
    embedding: int | None = None


class _SizeSolver:
    """Counts the parameters of one family at any size, and finds sizes for a target."""

    def __init__(self, name: str, task: Task, requested: Settings, context: DefaultsContext):
        self.name, self.task, self.requested, self.context = name, task, requested, context
        self.default = resolve_sizes(requested, context)
        self.has_free_width = get_family(requested.model).has_gradients and requested.network.width is None
        # The patch encoder of images is a Transformer.
        has_heads = requested.model == "transformer" or self.default.caption.encoder == "patches"
        self.heads = self.default.transformer.heads if has_heads else None
        network = self.default.network
        double = resolve_sizes(requested, context, 2 * network.width).network
        # Where the rules give every width the same embedding, it would dominate a much narrower network.
        self.narrows_embedding = self._may_change("embedding") and double.embedding == network.embedding
        self._counts: dict[_Sizes, int | None] = {}
        if self.has_free_width:
            step = self.get_step(self.heads)
            self.default_sizes = _Sizes(max(1, round(self.default.network.width / step)) * step, self.heads)
            try:
                self._counts[self.default_sizes] = count_parameters(task, self.make_settings(self.default_sizes))
            except UsageError as error:
                raise UsageError(f"{name}: {error.problem}", fix=error.fix) from None

    def get_step(self, heads: int | None) -> int:
        """Returns what the width must be a multiple of: the number of heads, twice that for rotary positions, 2 for a
        bidirectional network, otherwise 1."""
        if heads:
            return heads * (2 if self.default.transformer.positions == "rotary" else 1)
        return 2 if self.default.recurrent.bidirectional else 1

    def make_settings(self, sizes: _Sizes | None) -> ResolvedSettings:
        """Returns resolved settings of these sizes, or of the default ones."""
        if sizes is None:
            return self.default
        requested, embedding = self.requested, sizes.embedding
        default = self.default.network
        if embedding is None and self.narrows_embedding and NARROW_FACTOR * sizes.width < default.width:
            embedding = math.ceil(default.embedding * NARROW_FACTOR * sizes.width / default.width)
        if embedding is not None:
            requested = _replace_values(requested, "network", embedding=embedding)
        transformer = {"heads": sizes.heads, "hidden": sizes.hidden}
        requested = _replace_values(requested, "transformer", **{k: v for k, v in transformer.items() if v is not None})
        return resolve_sizes(requested, self.context, sizes.width)

    def get_count(self, sizes: _Sizes) -> int | None:
        """Returns the parameters at these sizes; None where a layer cannot have them."""
        if sizes not in self._counts:
            try:
                self._counts[sizes] = count_parameters(self.task, self.make_settings(sizes))
            except (UsageError, RuntimeError):  # RuntimeError: a matrix whose size in bytes overflows
                self._counts[sizes] = None
        return self._counts[sizes]

    def solve(self, target: int) -> _Sizes:
        """Returns sizes with about the target number of parameters, changing the width alone where that suffices.

        Fewer heads are tried last: where heads are many and their widths must be even, narrow networks have no room for
        them.
        """

        def compute_log_error(sizes: _Sizes) -> float:
            return abs(math.log((self.get_count(sizes) or math.inf) / target))

        if compute_log_error(self.default_sizes) <= MAX_LOG_ERROR:
            return self.default_sizes
        candidates: list[_Sizes] = []
        for heads in range(self.heads, 0, -1) if self.heads and self._may_change("heads") else (self.heads,):
            by_width = self._find_bracket(_Sizes(0, heads), "width", self.default_sizes.width, MAX_WIDTH, target)
            candidates += by_width
            nearest = min(by_width, key=compute_log_error, default=None)
            if nearest is not None and compute_log_error(nearest) <= MAX_LOG_ERROR:
                return nearest
            for second in SECOND_SIZES:
                options = [option for sizes in by_width for option in self._find_second_bracket(sizes, second, target)]
                near = [(change, sizes) for change, sizes in options if compute_log_error(sizes) <= MAX_LOG_ERROR]
                if near:
                    return min(near, key=lambda option: option[0])[1]
                candidates += [sizes for _, sizes in options]
        counts = sorted(count for sizes in candidates if (count := self.get_count(sizes)) is not None)
        raise self._make_unreachable_error(target, counts)

    def _find_bracket(self, sizes: _Sizes, key: str, start: int, limit: int, target: int) -> list[_Sizes]:
        """Returns sizes that differ in one of them: the largest below the target, and the smallest that is not.

        They are found by bisection from `start`. Sizes that cannot be built are treated as too small, and left out.
        """
        step = self.get_step(sizes.heads) if key == "width" else 1

        def make_sizes(multiple: int) -> _Sizes:
            return replace(sizes, **{key: multiple * step})

        def is_small(multiple: int) -> bool:
            count = self.get_count(make_sizes(multiple))
            return count is None or count < target

        low, high, limit = 0, max(1, min(start, limit) // step), limit // step
        while is_small(high) and high < limit:
            low, high = high, min(2 * high, limit)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_small(middle) else (low, middle)
        return [
            make_sizes(multiple)
            for multiple in (low, high)
            if multiple and self.get_count(make_sizes(multiple)) is not None
        ]

    def _find_second_bracket(self, sizes: _Sizes, second: SecondSize, target: int) -> list[tuple[float, _Sizes]]:
        """Returns pairs: the change of the second size as a logarithm, and sizes below and above the target with it."""
        if not self._may_change(second):
            return []
        settings = self.make_settings(sizes)
        embedding = settings.network.embedding
        value = {"hidden": settings.transformer.hidden, "embedding": embedding, "width": sizes.width}[second]
        if second == "width":
            sizes = replace(sizes, embedding=embedding)
        factor = SECOND_SIZES[second]
        options = self._find_bracket(sizes, second, value, value * factor, target)
        changes = [(getattr(option, second) / value, option) for option in options]
        return [(abs(math.log(ratio)), option) for ratio, option in changes if ratio * factor >= 1]

    def _may_change(self, size: str) -> bool:
        """Returns whether a size exists here and is not set by the user; "width" needs an embedding that is not set."""
        if size in ("heads", "hidden"):
            return self.heads is not None and getattr(self.requested.transformer, size) is None
        return self.requested.network.embedding is None and not (self.requested.vectors and self.context.vector_width)

    def _make_unreachable_error(self, target: int, counts: list[int]) -> _UnreachableSizeError:
        below, above = [count for count in counts if count < target], [count for count in counts if count > target]
        if not below:
            reason = f"its smallest network has {above[0]:,}" if above else "none of its widths can be built"
            if above and self.context.vocabulary_size > 1:
                reason += f", with a vocabulary of {self.context.vocabulary_size:,}"
        elif not above:
            reason = f"the largest that is tried has {below[-1]:,}"
        else:
            reason = f"the nearest have {below[-1]:,} and {above[0]:,}"
        problem = f"{self.name}: no network of this family has about {target:,} parameters: {reason}."
        return _UnreachableSizeError(problem, above[0] if above else below[-1] if below else target)

    def list_notes(self, sizes: _Sizes | None, count: int, target: int | None) -> list[str]:
        """Returns what the report says about the sizes of this family."""
        if not get_family(self.requested.model).has_gradients:
            return [f"{self.name}: not matched; it counts n-grams and has no trainable parameters."]
        if sizes is None:
            if target is not None and abs(math.log(count / target)) <= MAX_LOG_ERROR:
                return []
            width = self.default.network.width
            return [f"{self.name}: not matched; its width is set to {width} ({count:,} parameters)."]
        actual, default = self.make_settings(sizes), resolve_sizes(self.requested, self.context, sizes.width)
        pairs = {
            "heads": (sizes.heads, self.heads),
            "hidden": (actual.transformer.hidden, default.transformer.hidden),
            "embedding": (actual.network.embedding, default.network.embedding),
        }
        changes = [
            f"{key} {value} instead of {default_value}"
            for key, (value, default_value) in pairs.items()
            if value != default_value
        ]
        if not changes:
            return []
        return [f"{self.name}: width {sizes.width} with {', '.join(changes)}, to match the number of parameters."]


def _replace_values(settings: Settings, section: str, **values: int) -> Settings:
    """Returns a copy with other values in one section."""
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=values)})
