"""Saturated gates and dead units, and names of layers for readers. The module knows nothing of any particular layer."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor

CLOSED, OPEN = 0.1, 0.9  # a gate below or above is saturated: it passes hardly any gradient to its own weights
GATES = ("input", "forget", "output", "update", "reset")  # values of recurrent cells between 0 and 1
DEAD_RATIO, DEAD_FLOOR = 0.01, 1e-5  # of a unit's standard deviation: relative to large ones of its layer, and absolute


@dataclass(frozen=True)
class LayerName:
    """A name of a layer for readers, in parts; `label` joins them: "decoder, layer 1, backward"."""

    layer: int | str  # number from 1; or a name, such as "pooling", of a layer without a number
    side: str = ""  # "encoder", "decoder", or "decoder 2"
    direction: str = ""  # "forward" or "backward", of a bidirectional layer
    kind: str = ""  # which part of the layer: "cross" (attention), "state"
    path: str = ""  # of the module, if another one has the same name otherwise

    @property
    def label(self) -> str:
        layer = f"layer {self.layer}" if isinstance(self.layer, int) else self.layer
        label = ", ".join(part for part in (self.side, layer, self.direction, self.kind) if part)
        return f"{label} ({self.path})" if self.path else label

    def get_label_without(self, *parts: str) -> str:
        """Returns the label without some of its parts, such as "direction"."""
        return replace(self, **dict.fromkeys(parts, "")).label


def make_label(path: str) -> str:
    """Returns a name of a layer for readers, from its dotted path: "decoder, layer 1, backward"."""
    return name_layer(path).label


def name_layer(path: str) -> LayerName:
    """Returns side, number and direction of a layer, from its dotted path."""
    parts = path.split(".")
    side = {"decoder": "decoder", "decoders": "decoder", "encoder": "encoder"}.get(parts[0], "")
    if decoder := re.match(r"decoders\.([1-9]\d*)\b", path):  # that of the second target language, and so on
        side = f"decoder {int(decoder[1]) + 1}"
    number = re.search(r"\.layer\.(\d+)|\bl(\d+)\b", f".{path}")
    depth = int(next(group for group in number.groups() if group)) + 1 if number else 1
    direction = "backward" if "backward_layer" in parts else "forward" if "forward_layer" in parts else ""
    return LayerName(depth, side, direction)


def compute_saturation(gate: Tensor) -> Tensor:
    """Returns the shares (2,) of the values of a gate (B, T, U) that are closed and open; padding does not count."""
    is_valid = find_valid_steps(gate)
    num_values = (is_valid.sum() * gate.shape[-1]).clamp(min=1)
    closed, opened = ((saturated & is_valid).sum() / num_values for saturated in (gate < CLOSED, gate > OPEN))
    return torch.stack((closed, opened))


def compute_dead_share(units: Tensor) -> Tensor:
    """Returns the share () of units (B, T, U) whose value hardly varies over the tokens; padding does not count."""
    is_valid = find_valid_steps(units)
    num_steps = is_valid.sum().clamp(min=1)
    mean = (units * is_valid).sum((0, 1)) / num_steps
    variance = ((units - mean).square() * is_valid).sum((0, 1)) / num_steps
    deviation = variance.sqrt()
    threshold = (DEAD_RATIO * deviation.quantile(0.9)).clamp(min=DEAD_FLOOR)
    return (deviation < threshold).float().mean()


def find_valid_steps(values: Tensor) -> Tensor:
    """Returns which steps (B, T, 1) are no padding: recorded values of recurrent layers are zero there."""
    return (values != 0).any(dim=-1, keepdim=True)
