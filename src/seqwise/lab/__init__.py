"""The lab: 90 statements of textbooks about sequence models, as experiments that can be run.

    result = seqwise.lab.run("C2", radius=0.95)
    print(result); result.verdict; result.measured; result.save("c2.html")

There is a folder per chapter; each file is a lesson: the equation, the measurement, the rule that decides, the figure.
`experiment.py` says what an experiment is, `catalogue.py` finds them, `fitting.py` trains small models.
"""

from __future__ import annotations

from seqwise.lab.catalogue import CHAPTERS, find_experiments, get_experiment, list_ids
from seqwise.lab.experiment import Experiment, Result, Verdict, decide, decide_condition
from seqwise.lab.running import build_experiment, run

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
