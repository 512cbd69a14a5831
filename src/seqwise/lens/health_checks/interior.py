"""Checks of the inside of a model on validation examples: gates, units, heads and gradients.

Without the model (`quick`), gates and dead units come from `watch.jsonl`, if the run has one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.attention import MultiHeadAttention
from seqwise.layers.cells import Cell
from seqwise.layers.diagnostics import DEAD_FLOOR, DEAD_RATIO, make_label
from seqwise.layers.record import Recording
from seqwise.layers.transformer import FeedForward
from seqwise.lens.attention_layers import list_attention
from seqwise.lens.gates import CLOSED, GATES, OPEN
from seqwise.lens.gradients import compute_half_life
from seqwise.lens.health_checks.evidence import CheckResult, RunEvidence, list_some
from seqwise.lens.jacobians import measure_flow, record_trajectory
from seqwise.lens.recurrent import list_layers
from seqwise.lens.subject import Subject, evaluation_mode
from seqwise.page.figures import Finding

SATURATED, FULLY_SATURATED = 0.9, 0.97  # share of the values of a gate that are closed or open
DEAD_SHARE, MOSTLY_DEAD = 0.1, 0.5  # of the units of a layer
DEAD_HEAD = 0.01  # size of what a head adds, relative to the median head of its layer
MIN_POSITIONS = 40  # tokens on which units are measured
NO_GRADIENT = 1e-7  # gradient / weights of a layer, relative to the median layer
NUM_GRADIENT_EXAMPLES = 4
MAX_UNITS = 256  # of a layer whose Jacobians are computed
EXPLODING_NORM = 100.0  # ‖∂h_T/∂h_k‖ / √units
SHORT_HALF_LIFE = 0.7  # tokens after which the gradient through time has halved


def check_gates(evidence: RunEvidence) -> CheckResult:
    """Reports gates of which 90 % of the values are closed (< 0.1) or open (> 0.9): a problem from 97 % on."""
    if not evidence.subjects and not evidence.watch:
        return evidence.explain_missing_examples()
    shares = measure_gates(evidence.subjects) if evidence.subjects else read_watched_gates(evidence)
    if not shares:
        return "the model has no gates"
    findings = []
    for (layer, gate), (closed, opened) in shares.items():
        if closed + opened >= SATURATED:
            findings.append(
                Finding(
                    text=f"The {gate} gate of {layer} is saturated: it hardly reacts to its input.",
                    severity="problem" if closed + opened >= FULLY_SATURATED else "warning",
                    evidence=f"closed at {closed:.0%} and open at {opened:.0%} of all values",
                    command=evidence.suggest_view("gates", "--layer", layer),
                )
            )
    return findings


def measure_gates(subjects: list[Subject]) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the shares of closed and of open values for each layer and gate, over all examples."""
    sums: dict[tuple[str, str], np.ndarray] = {}
    layers = {layer.path: layer for layer in list_layers(subjects[0])}
    if not layers:
        return {}

    def reduce(name: str, value: Tensor) -> np.ndarray | None:
        path, _, gate = name.rpartition(".")
        if path not in layers or gate not in GATES:
            return None
        counts = np.array([int((value < CLOSED).sum()), int((value > OPEN).sum()), value.numel()])
        key = layers[path].label, gate
        sums[key] = sums.get(key, 0) + counts
        return None

    for subject in subjects:
        subject.record(transform=reduce)
    return {key: (closed / total, opened / total) for key, (closed, opened, total) in sums.items()}


def read_watched_gates(evidence: RunEvidence) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the shares of the last row of `watch.jsonl`."""
    row = evidence.watch[-1]
    return {
        (layer, gate): (float(closed), float(opened))
        for layer, gates in row.get("gates", {}).items()
        for gate, (closed, opened) in gates.items()
    }


def check_units(evidence: RunEvidence) -> CheckResult:
    """Reports layers in which 10 % of the units have the same value at all tokens: a problem from 50 % on.

    A unit is dead if its standard deviation over tokens is below 1e-5, or below 1 % of that of the layer's units (their
    90th percentile).
    """
    if not evidence.subjects and not evidence.watch:
        return evidence.explain_missing_examples()
    if evidence.subjects:
        states = collect_states(evidence.subjects)
        if not states:
            return "the model has no recurrent or feed-forward units that are recorded"
        if max(map(len, states.values())) < MIN_POSITIONS:
            return f"the examples have fewer than {MIN_POSITIONS} tokens"
        shares = {label: float(find_dead_units(values).mean()) for label, values in states.items()}
    else:
        shares = {label: float(share) for label, share in evidence.watch[-1].get("dead_units", {}).items()}
    return [
        Finding(
            text=f"{share:.0%} of the units of {label} are dead: their value does not depend on the input.",
            severity="problem" if share >= MOSTLY_DEAD else "warning",
            evidence=f"their values vary by less than 1 % of those of other units; limit {DEAD_SHARE:.0%} of a layer",
            command=evidence.suggest_training(
                {"training.learning_rate": f"{evidence.trained.settings.training.learning_rate / 3:.1g}"}
            ),
        )
        for label, share in shares.items()
        if share >= DEAD_SHARE
    ]


def collect_states(subjects: list[Subject]) -> dict[str, np.ndarray]:
    """Returns the states of recurrent cells and the hidden values of feed-forward layers (tokens, units), by label."""
    modules = dict(subjects[0].module.named_modules())
    chunks: dict[str, list[np.ndarray]] = {}
    labels = label_units(modules)
    if not labels:
        return {}
    for subject in subjects:
        recording: Recording = subject.record("*hidden")
        for name in recording:
            path = name.rpartition(".")[0]
            if (label := labels.get(path)) is not None:
                values = [value.float().reshape(-1, value.shape[-1]).cpu().numpy() for value in recording.every(name)]
                chunks.setdefault(label, []).extend(values)
    return {label: np.concatenate(values) for label, values in chunks.items()}


def label_units(modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """Returns path → label, a different one each, of the recurrent cells and feed-forward layers."""
    labels: dict[str, str] = {}
    for path, module in modules.items():
        if isinstance(module, (Cell, FeedForward)):
            label = make_label(path) + (", feed-forward" if isinstance(module, FeedForward) else "")
            labels[path] = f"{label} ({path})" if label in labels.values() else label
    return labels


def find_dead_units(values: np.ndarray) -> np.ndarray:
    """Returns which units (U,) of values (tokens, units) do not vary."""
    deviation = values.std(axis=0)
    return deviation < max(DEAD_FLOOR, DEAD_RATIO * float(np.quantile(deviation, 0.9)))


def check_heads(evidence: RunEvidence) -> CheckResult:
    """Reports attention heads that add less than 1 % of what the median head of their layer adds."""
    if not evidence.subjects:
        return evidence.explain_missing_examples()
    sizes = measure_heads(evidence.subjects)
    if not sizes:
        return "the model has no layer with several attention heads"
    dead = [
        f"{label}, head {head + 1}"
        for label, values in sizes.items()
        for head, size in enumerate(values)
        if size < max(1e-9, DEAD_HEAD * float(np.median(values)))
    ]
    total = sum(map(len, sizes.values()))
    if not dead:
        return []
    return [
        Finding(
            text=f"{len(dead)} of {total} attention heads are dead: they add nothing to their layer.",
            severity="warning" if len(dead) >= 0.25 * total else "note",
            evidence=list_some(dead),
            command=evidence.suggest_view("attention"),
        )
    ]


def measure_heads(subjects: list[Subject]) -> dict[str, np.ndarray]:
    """Returns the norm, over all positions, of what each head adds to its layer (H,), by label of the layer."""
    squares: dict[str, np.ndarray] = {}

    def add(label: str, module: MultiHeadAttention, context: Tensor) -> None:
        parts = context.unflatten(-1, (module.heads, -1))  # (B, T, H, K)
        weights = module.out_proj.weight.unflatten(-1, (module.heads, -1))  # (D, H, K)
        added = torch.einsum("bthk,dhk->bthd", parts.float(), weights.float())
        added = added - added.mean((0, 1))  # a constant is a bias
        squares[label] = squares.get(label, 0) + added.square().sum((0, 1, 3)).detach().cpu().numpy()

    modules = [(layer.label, layer.module) for layer in list_attention(subjects[0])]
    hooks = [
        module.out_proj.register_forward_pre_hook(
            lambda _, inputs, label=label, module=module: add(label, module, inputs[0])
        )
        for label, module in modules
        if isinstance(module, MultiHeadAttention) and module.heads > 1
    ]
    try:
        for subject in subjects if hooks else ():
            with evaluation_mode(subject.module), torch.no_grad():
                subject.call()
    finally:
        for hook in hooks:
            hook.remove()
    return {label: np.sqrt(values) for label, values in squares.items()}


def check_layer_gradients(evidence: RunEvidence) -> CheckResult:
    """Reports layers whose gradient, relative to their weights, is below 1e-7 of that of the median layer."""
    if not evidence.subjects:
        return evidence.explain_missing_examples()
    if not evidence.has_gradients:
        return "the model has no gradients"
    ratios = measure_layer_gradients(evidence.subjects[:NUM_GRADIENT_EXAMPLES])
    if len(ratios) < 2:
        return "the model has a single layer"
    median = float(np.median(list(ratios.values())))
    without = [name for name, ratio in ratios.items() if ratio <= NO_GRADIENT * median or ratio == 0]
    if not without:
        return []
    return [
        Finding(
            text=f"No gradient reaches {len(without)} of {len(ratios)} layers: their weights are not trained.",
            severity="problem",
            evidence=f"{list_some(without)}: gradient / weights {ratios[without[0]]:.1e}; median layer {median:.1e}",
            command=evidence.suggest_view("gradients" if evidence.is_recurrent else "training"),
        )
    ]


def measure_layer_gradients(subjects: list[Subject]) -> dict[str, float]:
    """Returns ‖gradient‖ / ‖weights‖ of each matrix of a cell, attention or feed-forward layer, by name."""
    module = subjects[0].module
    weights = dict(_list_layer_weights(module))
    squares = dict.fromkeys(weights, 0.0)
    used: set[str] = set()
    with evaluation_mode(module):
        for subject in subjects:
            loss, _ = subject.call()
            gradients = torch.autograd.grad(loss.total, list(weights.values()), allow_unused=True)
            for name, gradient in zip(weights, gradients):
                if gradient is not None:
                    squares[name] += float(gradient.double().square().sum())
                    used.add(name)
    return {
        name: math.sqrt(squares[name]) / max(1e-30, float(weight.detach().norm()))
        for name, weight in weights.items()
        if name in used
    }


def _list_layer_weights(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for path, part in module.named_modules():
        if isinstance(part, (Cell, MultiHeadAttention, FeedForward)):
            for name, parameter in part.named_parameters():
                if parameter.dim() >= 2 and parameter.requires_grad:
                    yield f"{path}.{name}", parameter


def check_time_gradients(evidence: RunEvidence) -> CheckResult:
    """Reports recurrent layers whose gradient through time explodes (norm above 100) or halves within 0.7 tokens."""
    if not evidence.subjects:
        return evidence.explain_missing_examples()
    subject = max(evidence.subjects, key=lambda each: len(each.tokens))
    layers = [layer for layer in list_layers(subject) if layer.cell.units <= MAX_UNITS]
    if not layers:
        return f"the model has no recurrent layer of at most {MAX_UNITS} units"
    findings = []
    for layer in layers:
        try:
            norms = measure_flow(record_trajectory(subject, layer), num_radii=0).norms.numpy()
        except UsageError:  # the layer runs inside a decoder
            continue
        command = evidence.suggest_view("gradients", "--layer", layer.label)
        if norms.max() > EXPLODING_NORM:
            text = f"Gradients through time explode in {layer.label}: a small change of an early state grows."
            shown = f"‖∂h_T/∂h_k‖ / √units reaches {norms.max():.3g} over {len(norms)} tokens"
            findings.append(Finding(text=text, severity="warning", evidence=shown, command=command))
        elif len(norms) >= 8 and (half_life := compute_half_life(norms)) < SHORT_HALF_LIFE:
            text = f"Gradients through time vanish in {layer.label}: the state forgets within a token or two."
            shown = f"the gradient halves every {half_life:.2f} tokens"
            findings.append(Finding(text=text, severity="warning", evidence=shown, command=command))
    return findings
