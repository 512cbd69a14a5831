"""Options of `evaluate` and `predict` that say how an answer is searched for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from seqwise.cli.options import UNSET
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError

_WRITTEN = ("translate", "caption")
# Option → the tasks it is for.
SEARCHED: dict[str, tuple[str, ...]] = {
    "max_length": ("language", *_WRITTEN),
    **dict.fromkeys(("beam", "length_penalty", "coverage_penalty", "min_length", "no_repeat"), _WRITTEN),
    "target": ("translate",),
}


@dataclass(kw_only=True)
class SearchOptions:
    """Both commands have these, so that a search can be measured as it is used."""

    max_length: Annotated[int | None, UNSET] = None
    """Most tokens to write."""
    beam: Annotated[int | None, UNSET] = None
    """translate, caption: hypotheses kept side by side; 1 is greedy."""
    length_penalty: float = BeamSearchOptions.length_penalty
    """translate, caption: above 0 favours long answers."""
    coverage_penalty: float = BeamSearchOptions.coverage_penalty
    """translate, caption: above 0 favours answers that use all of the input."""
    min_length: int = BeamSearchOptions.min_length
    """translate, caption: least tokens of an answer."""
    no_repeat: int = BeamSearchOptions.no_repeat
    """translate, caption: no run of so many tokens occurs twice; 0 is off."""
    target: Annotated[str | None, UNSET] = None
    """translate: target languages, where the run knows several."""


def refuse_foreign(asked: Any, task: str, tasks: Mapping[str, tuple[str, ...]]) -> None:
    """Complain about an option that was set and does not concern the task of the run."""
    for field in fields(asked):
        known = tasks.get(field.name, (task,))
        if task not in known and getattr(asked, field.name) != field.default:
            option = "--" + field.name.replace("_", "-")
            raise UsageError(f"{option} is for {', '.join(known)}; this run is {task}.", repair="Leave it out.")


def search_of(asked: SearchOptions, default: BeamSearchOptions, n_best: int = 1, start: str = "") -> BeamSearchOptions:
    """The search that was asked for; a beam is the task's own, or as wide as the answers wanted."""
    if asked.max_length is not None and asked.max_length < 1:
        raise UsageError(f"--max-length must be at least 1; received {asked.max_length}.")
    return BeamSearchOptions(
        beam=max(n_best, default.beam) if asked.beam is None else asked.beam,
        length_penalty=asked.length_penalty,
        coverage_penalty=asked.coverage_penalty,
        n_best=n_best,
        min_length=asked.min_length,
        no_repeat=asked.no_repeat,
        start=start,
    )
