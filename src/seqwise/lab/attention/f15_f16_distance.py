"""F15, F16: how far apart are two positions, and how many steps does a layer need?

    recurrence        h_t = φ(W x_t + U h_(t−1))           x_1 → h_1 → h_2 → … → h_T             T updates, in order
    self-attention    y_t = Σ_s softmax(q_tᵀ k_s / √k) v_s        x_1 → y_T                      1 operation for all t

Every operation that autograd records is a node of a graph, so distances can be counted instead of argued. The
*shortest* path from y_T to x_1 is the distance that a gradient travels (F15): T updates of the state in a recurrence,
one weighted sum in self-attention, for every T. Each update multiplies the gradient by a Jacobian matrix, so it shrinks
(or grows) exponentially with T (C2, C3); untrained attention shares its weight among T keys, about 1/T each. The
*longest* chain of matrix products is the number of steps that cannot run at the same time, however many processors
there are (F16): constant in self-attention, T in a recurrence (Vaswani et al. 2017, table 1). On one core the number of
operations decides about the time, and the chain matters little; with enough processors the chain decides. This is true
of training and of reading. In generation each token is an input of the next step, and both kinds need T steps.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import MultiHeadAttention, Recurrent, RNNCell
from seqwise.layers.record import record
from seqwise.lens.cost_counts import count_module
from seqwise.page.figures import Figure, LineChart, Series

UPDATES = ("TanhBackward0", "BmmBackward0")  # one update of a state; one weighted sum, or the scores for its weights
SEQUENCES = 16  # over which the norm of a gradient is averaged
PRODUCTS = ("AddmmBackward0", "MmBackward0", "BmmBackward0")


@dataclass(frozen=True, kw_only=True)
class PathLength(Experiment):
    id = "F15"
    claim = "The distance between two positions is 1 in attention, T in recurrence."
    equation = "distance(x_1, y_T) = 1 in attention, T in a recurrence"
    measurement = "Updates on the shortest path from y_T to x_1 in autograd's graph, and the norm of ∂y_T/∂x_1, by T."
    rule = "Holds if the path has exactly 1 attention for every T, T updates in the recurrence, and ∂y_T/∂x_1 is not 0."
    try_next = "seqwise lab run F15 --gain 1.2: larger recurrent weights carry the gradient further; the path stays T."
    seconds = 1.0

    width: int = 16
    """Entries of each vector, and units of the recurrent layer."""
    max_length: int = 128
    """Longest sequence, T."""
    gain: float = 1.0
    """Factor of the initial recurrent matrix, which is orthogonal."""

    def measure(self) -> Measured:
        lengths = [2**power for power in range(1, max(3, self.max_length.bit_length()))]
        cell, attention = RNNCell(self.width, self.width).double(), MultiHeadAttention(self.width, heads=1).double()
        with torch.no_grad():
            cell.weight_hidden *= self.gain
        paths: dict[str, list[int]] = {"attention": [], "recurrence": []}
        norms: dict[str, list[float]] = {"attention": [], "recurrence": []}
        for length in lengths:
            xs = self.draw_inputs(length)
            for name, output in (("attention", self.attend(attention, xs)), ("recurrence", self.recur(cell, xs))):
                paths[name].append(count_shortest(output, xs[0], UPDATES))
                norms[name].append(compute_gradient_norm(output, xs[0]))
        return {
            "longest_path_in_attention": max(paths["attention"]),
            "longest_path_in_recurrence": max(paths["recurrence"]),
            "gradient_at_max_length_in_attention": norms["attention"][-1],
            "gradient_at_max_length_in_recurrence": norms["recurrence"][-1],
            "lengths": np.array(lengths),
            **{f"path_{name}": np.array(values) for name, values in paths.items()},
            **{f"gradient_{name}": np.array(values) for name, values in norms.items()},
        }

    def draw_inputs(self, length: int) -> list[Tensor]:
        """Returns one leaf (B, k) per position, so that each can be found in the graph."""
        sizes, generator = (length, SEQUENCES, self.width), make_generator(self.seed, length)
        return [x.requires_grad_() for x in torch.randn(*sizes, dtype=torch.float64, generator=generator).unbind(0)]

    def attend(self, layer: MultiHeadAttention, xs: Sequence[Tensor]) -> Tensor:
        """Returns the output of self-attention at the last position."""
        with record(layer, live=True):  # without fused kernels, whose inner operations are not in the graph
            return layer(torch.stack(list(xs), dim=1))[0][:, -1]

    def recur(self, cell: RNNCell, xs: Sequence[Tensor]) -> Tensor:
        """Returns the last state of a recurrence."""
        state = cell.start(SEQUENCES, xs[0])
        for x in xs:
            state = cell.step(cell.project(x), state, cell.weight_hidden)
        return state[0]

    def judge(self, measured: Measured) -> Verdict:
        paths, lengths = (measured["path_attention"], measured["path_recurrence"]), measured["lengths"]
        gradients = measured["gradient_at_max_length_in_attention"], measured["gradient_at_max_length_in_recurrence"]
        return decide(
            bool((paths[0] == 1).all() and (paths[1] == lengths).all()) and gradients[0] > 0,
            evidence=f"At T = {lengths[0]} and {lengths[-1]} the shortest path has {paths[0][0]} and {paths[0][-1]} "
            f"updates in attention, {paths[1][0]} and {paths[1][-1]} in the recurrence; at T = {lengths[-1]} "
            f"the gradient between the ends has norm {gradients[0]:.2g} and {gradients[1]:.2g}.",
            instead=f"At T = {lengths[-1]} the shortest path has {paths[0][-1]} updates in attention and "
            f"{paths[1][-1]} in the recurrence.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        lengths, names = measured["lengths"], {"self-attention": "attention", "recurrence": "recurrence"}
        gradients = LineChart(
            title="Gradient from the last output to the first input of an untrained layer",
            series=[Series(name=name, x=lengths, y=measured[f"gradient_{key}"]) for name, key in names.items()],
            x_label="length T (positions)",
            y_label="norm of ∂y_T/∂x_1",
            x_log=True,
            y_log=True,
            note=f"Mean of {SEQUENCES} sequences. In untrained attention T keys share the weight, about 1/T each; "
            "a recurrence multiplies the gradient by one Jacobian matrix per step.",
        )
        paths = LineChart(
            title="Updates between the first and the last position",
            series=[Series(name=name, x=lengths, y=measured[f"path_{key}"]) for name, key in names.items()],
            x_label="length T (positions)",
            y_label="updates on the shortest path",
            note="One attention connects any two positions; a recurrence passes through every state between them.",
        )
        return [gradients, paths]


@dataclass(frozen=True, kw_only=True)
class SequentialSteps(Experiment):
    id = "F16"
    claim = "Self-attention computes all positions at once."
    equation = "steps(T) = constant in self-attention, T + constant in a recurrence"
    measurement = "The longest chain of matrix products that need one another in autograd's graph, and times, by T."
    rule = (
        "Holds if the chain of self-attention is the same for every T and that of the recurrence grows by 1 per step."
    )
    try_next = "seqwise lab run F16 --max-length 512: the chain of self-attention has the same number of products."
    seconds = 1.5

    width: int = 32
    """Entries of each vector, and units of the recurrent layer."""
    max_length: int = 128
    """Longest sequence, T."""

    def measure(self) -> Measured:
        lengths = [2**power for power in range(2, max(4, self.max_length.bit_length()))]
        layers = {"attention": self.build_attention(), "recurrence": Recurrent(RNNCell(self.width, self.width))}
        measured: dict[str, Any] = {"lengths": np.array(lengths)}
        for name, layer in layers.items():
            inputs = [torch.randn(1, length, self.width) for length in lengths]
            chains = [self.count_chain(layer, x) for x in inputs]
            expected = sum(part.steps.evaluate(lengths[-1], 0) for part in count_module(layer))
            measured[f"chain_of_{name}_at_min_length"] = chains[0]
            measured[f"chain_of_{name}_at_max_length"] = chains[-1]
            measured[f"expected_steps_of_{name}_at_max_length"] = expected
            measured[f"chains_{name}"] = np.array(chains)
            measured[f"milliseconds_of_{name}_at_max_length"] = measure_milliseconds(layer, inputs[-1])
        return measured

    def build_attention(self) -> nn.Module:
        return MultiHeadAttention(self.width, heads=1)

    def count_chain(self, layer: nn.Module, x: Tensor) -> int:
        """Returns the longest chain of products; a live recording runs the layer without fused kernels."""
        with record(layer, live=True):
            output = layer(x.requires_grad_())[0]
        return count_longest(output, PRODUCTS)

    def judge(self, measured: Measured) -> Verdict:
        lengths, chains = measured["lengths"], measured["chains_attention"]
        growth = np.diff(measured["chains_recurrence"]) / np.diff(lengths)
        return decide(
            bool((chains == chains[0]).all() and (growth == 1).all()),
            evidence=f"At T = {lengths[0]} and {lengths[-1]} the chain has {chains[0]} and {chains[-1]} products in "
            f"self-attention, {measured['chain_of_recurrence_at_min_length']} and "
            f"{measured['chain_of_recurrence_at_max_length']} in the recurrence.",
            instead="The layer computes one position after the other: its chain of products grows with the length.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        lengths, names = measured["lengths"], {"self-attention": "attention", "recurrence": "recurrence"}
        chains = LineChart(
            title="Matrix products that must wait for one another in one layer",
            series=[Series(name=name, x=lengths, y=measured[f"chains_{key}"]) for name, key in names.items()],
            x_label="length T (positions)",
            y_label="longest chain of matrix products",
            x_log=True,
            y_log=True,
            note="Self-attention: projection, scores, weighted sum, output. Recurrence: one product per position.",
        )
        return [chains]


def count_shortest(output: Tensor, leaf: Tensor, names: Sequence[str]) -> int:
    """Returns how many nodes of these names are on the path from output to leaf that has the fewest of them."""
    queue: deque[tuple[Any, int]] = deque([(output.grad_fn, 0)])
    visited = set()
    while queue:  # a breadth-first search in which only nodes of these names count
        node, count = queue.popleft()
        if node in visited:
            continue
        visited.add(node)
        if getattr(node, "variable", None) is leaf:
            return count
        count += node.name() in names
        for parent, _ in node.next_functions:
            if parent is not None:
                is_counted = parent.name() in names
                queue.append((parent, count)) if is_counted else queue.appendleft((parent, count))
    return 0


def count_longest(output: Tensor, names: Sequence[str]) -> int:
    """Returns the largest number of nodes of these names on any path from output to an input."""
    longest: dict[Any, int] = {}
    stack: list[Any] = [output.grad_fn]
    while stack:  # a node is finished after all its parents; no recursion, which has a depth limit
        node = stack[-1]
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        waiting = [parent for parent in parents if parent not in longest]
        if waiting:
            stack += waiting
        else:
            longest[stack.pop()] = (node.name() in names) + max((longest[parent] for parent in parents), default=0)
    return longest[output.grad_fn]


def compute_gradient_norm(output: Tensor, x: Tensor) -> float:
    """Returns the Frobenius norm of ∂output/∂x for (B, k) each, the mean over the batch."""
    rows = [torch.autograd.grad(entry.sum(), x, retain_graph=True)[0] for entry in output.unbind(1)]
    return float(torch.stack(rows, dim=1).norm(dim=(1, 2)).mean())


@torch.no_grad()
def measure_milliseconds(layer: nn.Module, x: Tensor) -> float:
    """Returns the shortest time of some repeated calls."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        layer(x)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)
