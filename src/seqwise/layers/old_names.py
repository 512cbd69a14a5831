"""Names of weights and recorded values before version 0.2, so that the runs and checkpoints of 0.1 load.

`current_name("backbone.deep.layer.0.lstm.bias")` is "backbone.stack.layer.0.lstm.bias". To be dropped with 0.3.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import cache
from typing import TypeVar

Value = TypeVar("Value")

# A component of a dotted name → its present name.
OLD_COMPONENTS = {
    "deep": "stack",
    "look_back": "state_attention",
    "forwards": "forward_layer",
    "backwards": "backward_layer",
    "enter": "input_projection",
    "cross": "cross_attention",
    "cross_norm": "cross_attention_norm",
    "writer": "decoder",
    "writers": "decoders",
    "straight": "linear_map",  # of the forecaster
    "effect": "known_effect",
    "spread": "quantile_head",
}
# Components whose present name depends on those before them.
OLD_PATHS = (
    (r"\b(attention|cross_attention|feedforward)\.inward\b", r"\1.in_proj"),
    (r"\b(attention|cross_attention|feedforward)\.outward\b", r"\1.out_proj"),
    (r"\bstage\.(\d+)\.(\d+)\.inward\b", r"stage.\1.\2.conv1"),
    (r"\bstage\.(\d+)\.(\d+)\.outward\b", r"stage.\1.\2.conv2"),
    (r"\bhead\.link$", "head.transition_scores"),  # of a conditional random field
    (r"\bhead\.begin$", "head.start_scores"),
    (r"\bhead\.end$", "head.end_scores"),
)


@cache
def current_name(name: str) -> str:
    """Returns the present name of a weight or recorded value; a name that did not change is returned as it is."""
    name = ".".join(OLD_COMPONENTS.get(component, component) for component in name.split("."))
    for pattern, replacement in OLD_PATHS:
        name = re.sub(pattern, replacement, name)
    return name


def use_current_names(values: Mapping[str, Value], model_names: Container[str]) -> dict[str, Value]:
    """Returns the values of weights by their present names.

    A name in `model_names`, those of the model, is kept: a model of the user's own may have a layer called `deep`.
    """
    return {name if name in model_names else current_name(name): value for name, value in values.items()}
