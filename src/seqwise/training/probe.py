"""`Probe`: gates and dead units of a model on a small fixed batch, by a forward pass without dropout."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import FeedForwardBackbone
from seqwise.data.batch import Batch
from seqwise.layers.cells import Cell
from seqwise.layers.diagnostics import GATES, compute_dead_share, compute_saturation, make_label
from seqwise.layers.record import record
from seqwise.layers.transformer import FeedForward

MAX_TOKENS, MAX_SEQUENCES = 256, 8  # of the batch; always at least one sequence


class ProbedValue(NamedTuple):
    """An interior value that is measured."""

    label: str  # of the layer, such as "layer 1"
    name: str  # one of `GATES`, or "hidden"


class ProbeResult(NamedTuple):
    """What a probe measures, by the label of the layer."""

    gates: dict[str, dict[str, list[float]]]  # gate → shares of its values that are closed and open
    dead_units: dict[str, float]  # share


class Probe:
    """Measures a model on the first sequences of a batch. The model stays as it is."""

    def __init__(self, model: nn.Module, batch: Batch, device: torch.device):
        count = max(1, min(MAX_SEQUENCES, MAX_TOKENS // max(1, batch.length)))
        self.model, self.batch = model, batch.slice(0, min(count, batch.num_sequences)).to(device)
        self.values = list_probed_values(model)

    @torch.no_grad()
    def measure(self) -> ProbeResult:
        """Runs the model once in evaluation mode; waits for the device."""
        result = ProbeResult({}, {})
        if not self.values:
            return result
        was_training = self.model.training
        self.model.eval()
        try:
            with warnings.catch_warnings(), record(self.model, transform=self._reduce) as recording:
                warnings.simplefilter("ignore")  # compiled layers record nothing
                self.model(self.batch, None)
        finally:
            self.model.train(was_training)
        names = [name for name in recording if name in self.values]
        shares = torch.stack([recording[name] for name in names]).tolist() if names else []
        for (label, quantity), (first, second) in zip((self.values[name] for name in names), shares, strict=True):
            if quantity in GATES:
                result.gates.setdefault(label, {})[quantity] = [first, second]
            else:
                result.dead_units[label] = first
        return result

    def _reduce(self, name: str, value: Tensor) -> Tensor | None:
        """Returns two numbers on the device: the shares of a gate, or twice the share of dead units."""
        if name not in self.values:
            return None
        if self.values[name].name in GATES:
            return compute_saturation(value.float())
        return compute_dead_share(value.float()).expand(2)


def list_probed_values(model: nn.Module) -> dict[str, ProbedValue]:
    """Returns the values to measure by the name under which they are recorded."""
    values: dict[str, ProbedValue] = {}
    paths: dict[str, str] = {}  # label → path of the layer; the second layer with a label names its path too
    for path, module in model.named_modules():
        if isinstance(module, Cell):
            recorded = {name: name for name in (*GATES, "hidden") if name in module.gates}
        elif isinstance(module, FeedForward):
            recorded = {"hidden": "hidden"}
        elif isinstance(module, FeedForwardBackbone):
            recorded = {f"hidden.{index}": "hidden" for index in range(1 + len(module.layer))}
        else:
            continue
        for key, name in recorded.items():
            layer = f"{path}.{key}".replace(".hidden.", ".layer.")  # hidden.1 of a feedforward network is of layer 2
            label = make_label(layer)
            if paths.setdefault(label, path) != path:
                label = f"{label} ({path})"
            values[f"{path}.{key}".removeprefix(".")] = ProbedValue(label, name)
    return values
