"""Decoding options that `evaluate` and `predict` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from seqwise.cli.options import UNSET
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError

_SEQUENCE_TASKS = ("translate", "caption")
# Option → the tasks that use it.
DECODING_OPTION_TASKS: dict[str, tuple[str, ...]] = {
    "max_length": ("language", *_SEQUENCE_TASKS),
    **dict.fromkeys(("beam", "length_penalty", "coverage_penalty", "min_length", "no_repeat_ngram"), _SEQUENCE_TASKS),
    "target": ("translate",),
}


@dataclass(kw_only=True)
class DecodingOptions:
    """Shared by both commands, so that a model can be evaluated exactly as it is used."""

    renamed: ClassVar[dict[str, str]] = {"--no-repeat": "--no-repeat-ngram"}

    max_length: Annotated[int | None, UNSET] = None
    """Maximum number of tokens to generate."""
    beam: Annotated[int | None, UNSET] = None
    """translate, caption: beam size; 1 is greedy search."""
    length_penalty: float = BeamSearchOptions.length_penalty
    """translate, caption: above 0 favours long outputs."""
    coverage_penalty: float = BeamSearchOptions.coverage_penalty
    """translate, caption: above 0 favours outputs that attend to all of the input."""
    min_length: int = BeamSearchOptions.min_length
    """translate, caption: minimum number of tokens."""
    no_repeat_ngram: int = BeamSearchOptions.no_repeat_ngram
    """translate, caption: no n-gram of this length occurs twice; 0 is off."""
    target: Annotated[str | None, UNSET] = None
    """translate: target languages, if the run has several."""


def reject_options_of_other_tasks(args: Any, task: str, tasks: Mapping[str, tuple[str, ...]]) -> None:
    """Raise an error for an option that was set but is not used by the task of the run."""
    for field in fields(args):
        known = tasks.get(field.name, (task,))
        if task not in known and getattr(args, field.name) != field.default:
            option = "--" + field.name.replace("_", "-")
            raise UsageError(
                f"{option} applies to {', '.join(known)}; the task of this run is {task}.", repair="Leave it out."
            )


def build_beam_search(
    args: DecodingOptions, default: BeamSearchOptions, n_best: int = 1, start: str = ""
) -> BeamSearchOptions:
    """Beam search options from the command line; the default beam is the task's own, at least `n_best`."""
    if args.max_length is not None and args.max_length < 1:
        raise UsageError(f"--max-length must be at least 1; received {args.max_length}.")
    return BeamSearchOptions(
        beam=max(n_best, default.beam) if args.beam is None else args.beam,
        length_penalty=args.length_penalty,
        coverage_penalty=args.coverage_penalty,
        n_best=n_best,
        min_length=args.min_length,
        no_repeat_ngram=args.no_repeat_ngram,
        start=start,
    )
