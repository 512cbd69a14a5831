"""See inside a model: each view returns sentences, figures and numbers (`View`).

    view = seqwise.lens.gates(seqwise.load("runs/lstm"), "the cat sat on the mat")
    print(view); view.save("gates.html"); view.data

A view is a function of the same name as its module. It is imported when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqwise.lens.attention import attention as attention
    from seqwise.lens.attribution import attribution as attribution
    from seqwise.lens.cost import cost as cost
    from seqwise.lens.decoding import decoding as decoding
    from seqwise.lens.errors import errors as errors
    from seqwise.lens.gates import gates as gates
    from seqwise.lens.gradients import gradients as gradients
    from seqwise.lens.health import health as health
    from seqwise.lens.horizon import horizon as horizon
    from seqwise.lens.neighbours import neighbours as neighbours
    from seqwise.lens.senses import senses as senses
    from seqwise.lens.states import states as states
    from seqwise.lens.training import training as training
    from seqwise.lens.units import units as units

# Name of a view → its module, and what it shows in one line.
VIEWS = {
    "attention": ("seqwise.lens.attention", "where each head looks, its role, and how one weight comes about"),
    "attribution": ("seqwise.lens.attribution", "which tokens, values or image regions decide an answer"),
    "cost": ("seqwise.lens.cost", "operations, memory, sequential steps and time against length and width"),
    "decoding": ("seqwise.lens.decoding", "each step of generation with its alternatives, and the beam as a tree"),
    "errors": ("seqwise.lens.errors", "confusions, worst examples, calibration, and slices of the data with intervals"),
    "gates": ("seqwise.lens.gates", "what each gate of a recurrent model does at each token"),
    "gradients": (
        "seqwise.lens.gradients",
        "how far back the last state's gradient reaches, for one or several runs",
    ),
    "health": ("seqwise.lens.health", "what is wrong with a run, with evidence and a command to try"),
    "horizon": (
        "seqwise.lens.horizon",
        "how much of the past a model uses: loss or error against visible context, for one or several runs",
    ),
    "neighbours": ("seqwise.lens.neighbours", "the nearest words in the embedding that the model has learned"),
    "senses": ("seqwise.lens.senses", "one word in several sentences, layer by layer"),
    "states": ("seqwise.lens.states", "hidden states as a map, by PCA or t-SNE"),
    "training": (
        "seqwise.lens.training",
        "loss, learning rate and gradients of one or several runs over training, also while they are trained",
    ),
    "units": ("seqwise.lens.units", "what single units track, such as quotes, brackets or positions"),
}

__all__ = [*VIEWS]


def __getattr__(name: str) -> Any:
    if name not in VIEWS:
        raise AttributeError(f"module 'seqwise.lens' has no attribute {name!r}")
    value = getattr(import_module(VIEWS[name][0]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package: the name of a view stays that of its function when the module of the same name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in VIEWS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
