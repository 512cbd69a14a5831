"""The chapters of the lab and their experiments. A folder per chapter; a file is named after the ids in it.

`gradients/c2_spectral_radius.py` has C2, `lstm/d1_d2_gates.py` has D1 and D2. Only the files that are asked for are
imported; until then, nothing here imports PyTorch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from seqwise.errors import UsageError, check_type, suggest

if TYPE_CHECKING:
    from seqwise.lab.experiment import Experiment

_FOLDER = Path(__file__).parent
_ID = re.compile(r"[a-h]\d+")


@dataclass(frozen=True)
class Chapter:
    letter: str
    title: str
    folder: str


CHAPTERS = {
    chapter.letter: chapter
    for chapter in (
        Chapter("A", "Sequences and their shapes", "sequences"),
        Chapter("B", "Unrolling, weight sharing, backpropagation through time", "unrolling"),
        Chapter("C", "Vanishing and exploding gradients", "gradients"),
        Chapter("D", "LSTM", "lstm"),
        Chapter("E", "GRU", "gru"),
        Chapter("F", "Attention", "attention"),
        Chapter("G", "Transformer", "transformer"),
        Chapter("H", "Words and language models", "words"),
    )
}


@cache
def find_modules() -> dict[str, str]:
    """Returns the module of each id, sorted by chapter and number."""
    modules = {}
    for chapter in CHAPTERS.values():
        for path in (_FOLDER / chapter.folder).glob("[a-h][0-9]*_*.py"):
            for part in path.stem.split("_"):
                if _ID.fullmatch(part):
                    modules[part.upper()] = f"seqwise.lab.{chapter.folder}.{path.stem}"
    return dict(sorted(modules.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def list_ids(chapter: str | None = None) -> list[str]:
    """Returns the ids of all experiments, or of one chapter, in order."""
    return [each for each in find_modules() if chapter is None or each[0] == chapter]


def get_experiment(name: str) -> type[Experiment]:
    """Returns the class of an experiment by its id, in upper or lower case."""
    from seqwise.lab.experiment import Experiment

    check_type("name", name, str, "the id of an experiment, such as 'C2'")
    modules = find_modules()
    identifier = name.strip().upper()
    if identifier not in modules:
        raise UsageError(f"there is no experiment {name!r}.", fix=_suggest_id(identifier))
    members = vars(import_module(modules[identifier])).values()
    return next(
        each
        for each in members
        if isinstance(each, type) and issubclass(each, Experiment) and vars(each).get("id") == identifier
    )


def find_experiments(names: list[str] | tuple[str, ...]) -> list[type[Experiment]]:
    """Returns the classes of ids and whole chapters, each once, in the order of the textbook."""
    chosen: set[str] = set()
    for name in names:
        letter = name.strip().upper()
        chosen |= set(list_ids(letter)) if letter in CHAPTERS else {get_experiment(name).id}
    return [get_experiment(each) for each in list_ids() if each in chosen]


def _suggest_id(identifier: str) -> str:
    """Returns a sentence with the nearest ids: those of the same chapter if its letter is known."""
    known = list_ids(identifier[:1]) or list_ids()
    if identifier[:1] in CHAPTERS and known:
        return (
            f"{suggest(identifier, known)} Chapter {identifier[0]} has {known[0]} to {known[-1]}; see seqwise lab list."
        )
    return f"Chapters are {', '.join(CHAPTERS)}; see seqwise lab list."
