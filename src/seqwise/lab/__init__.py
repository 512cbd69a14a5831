"""The lab: 90 statements of textbooks about sequence models, as experiments that can be run.

    result = seqwise.lab.run("C2", radius=0.95)
    print(result); result.verdict; result.measured; result.save("c2.html")

There is a folder per chapter; each file is a lesson: the equation, the measurement, the rule that decides, the figure.
`experiment.py` says what an experiment is, `catalogue.py` finds them, `fitting.py` trains small models. Modules are
imported when their names are first used: the statements can be listed without PyTorch (`statements.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqwise.lab.catalogue import CHAPTERS as CHAPTERS
    from seqwise.lab.catalogue import find_experiments as find_experiments
    from seqwise.lab.catalogue import get_experiment as get_experiment
    from seqwise.lab.catalogue import list_ids as list_ids
    from seqwise.lab.experiment import Experiment as Experiment
    from seqwise.lab.experiment import Result as Result
    from seqwise.lab.experiment import Verdict as Verdict
    from seqwise.lab.experiment import decide as decide
    from seqwise.lab.experiment import decide_condition as decide_condition
    from seqwise.lab.running import build_experiment as build_experiment
    from seqwise.lab.running import run as run

_MODULES = {  # public name → module
    **dict.fromkeys(("CHAPTERS", "find_experiments", "get_experiment", "list_ids"), "seqwise.lab.catalogue"),
    **dict.fromkeys(("Experiment", "Result", "Verdict", "decide", "decide_condition"), "seqwise.lab.experiment"),
    **dict.fromkeys(("build_experiment", "run"), "seqwise.lab.running"),
}

__all__ = [
    "CHAPTERS",
    "Experiment",
    "Result",
    "Verdict",
    "build_experiment",
    "decide",
    "decide_condition",
    "find_experiments",
    "get_experiment",
    "list_ids",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqwise.lab' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
