"""Rows of the contract table: recurrent layers. "By hand" means plain Python on lists, following the equations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from row import Row
from torch import Tensor, nn

from seqwise.layers import cells
from seqwise.layers.attentive import AttentiveRecurrent, StateAttention
from seqwise.layers.norm import LayerNorm
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent

Vector = list[float]
Matrix = list[Vector]

INPUT = [[0.5, -1.0], [1.5, 0.25], [-0.75, 2.0]]  # three steps of two inputs
ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "relu": lambda a: max(a, 0.0),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "identity": lambda a: a,
}


# --- plain arithmetic -------------------------------------------------------------------------------------------------


def sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a))


def matvec(matrix: Matrix, vector: Vector) -> Vector:
    return [sum(m * v for m, v in zip(row, vector)) for row in matrix]


def add_vectors(*vectors: Vector) -> Vector:
    return [sum(entries) for entries in zip(*vectors)]


def compute_norm(a: Vector, weight: Vector, bias: Vector) -> Vector:
    mean = sum(a) / len(a)
    deviation = math.sqrt(sum((e - mean) ** 2 for e in a) / len(a) + 1e-5)
    return [w * (e - mean) / deviation + b for e, w, b in zip(a, weight, bias)]


def compute_attention(query: Vector, keys: Matrix, values: Matrix) -> Vector:
    scores = [sum(q * k for q, k in zip(query, key)) / math.sqrt(len(query)) for key in keys]
    total = sum(math.exp(score) for score in scores)
    return [sum(math.exp(s) / total * value[u] for s, value in zip(scores, values)) for u in range(len(query))]


# --- the equations, by hand -------------------------------------------------------------------------------------------


def get_weights(cell: nn.Module) -> dict[str, Any]:
    return {name: parameter.double().tolist() for name, parameter in cell.named_parameters()}


def compute_rnn(cell: cells.RNNCell, xs: Matrix) -> Matrix:
    w, phi = get_weights(cell), ACTIVATIONS[cell.activation]
    h, hs = [0.0, 0.0], []
    for x in xs:
        a = add_vectors(matvec(w["weight_input"], x), matvec(w["weight_hidden"], h))
        a = add_vectors(a, w["bias"]) if "bias" in w else compute_norm(a, w["norm.weight"], w["norm.bias"])
        h = [phi(e) for e in a]
        hs.append(h)
    return hs


def compute_lstm(cell: cells.LSTMCell, xs: Matrix) -> Matrix:
    w = get_weights(cell)
    h, c, hs = [0.0, 0.0], [0.0, 0.0], []
    for x in xs:
        from_input, from_hidden = matvec(w["weight_input"], x), matvec(w["weight_hidden"], h)
        if "input_norm.weight" in w:
            from_input = compute_norm(from_input, w["input_norm.weight"], w["input_norm.bias"])
            from_hidden = compute_norm(from_hidden, w["hidden_norm.weight"], w["hidden_norm.bias"])
        a = add_vectors(from_input, from_hidden, w["bias"])
        i, f = [sigmoid(e) for e in a[0:2]], [sigmoid(e) for e in a[2:4]]
        g, o = [math.tanh(e) for e in a[4:6]], [sigmoid(e) for e in a[6:8]]
        if isinstance(cell, cells.CappedLSTMCell):
            i = [min(i[u], 1 - f[u]) for u in (0, 1)]
        c = [f[u] * c[u] + i[u] * g[u] for u in (0, 1)]
        normalized_c = compute_norm(c, w["cell_norm.weight"], w["cell_norm.bias"]) if "cell_norm.weight" in w else c
        h = [o[u] * math.tanh(normalized_c[u]) for u in (0, 1)]
        hs.append(h)
    return hs


def compute_gru(cell: cells.GatedCell, xs: Matrix, *, reset_after: bool, update_keeps: bool) -> Matrix:
    w, h, hs = get_weights(cell), [0.0, 0.0], []
    W, U, b = w["weight_input"], w["weight_hidden"], w["bias"]
    for x in xs:
        wx = add_vectors(matvec(W, x), b)
        r = [sigmoid(e) for e in add_vectors(wx[0:2], matvec(U[0:2], h))]
        z = [sigmoid(e) for e in add_vectors(wx[2:4], matvec(U[2:4], h))]
        if reset_after:
            product = add_vectors(matvec(U[4:6], h), w["bias_hidden"])
            n = [math.tanh(wx[4 + u] + r[u] * product[u]) for u in (0, 1)]
        else:
            product = matvec(U[4:6], [r[0] * h[0], r[1] * h[1]])
            n = [math.tanh(wx[4 + u] + product[u]) for u in (0, 1)]
        keep = z if update_keeps else [1 - z[0], 1 - z[1]]
        h = [keep[u] * h[u] + (1 - keep[u]) * n[u] for u in (0, 1)]
        hs.append(h)
    return hs


def compute_norm_gru(cell: cells.GatedCell, xs: Matrix, *, update_keeps: bool) -> Matrix:
    w, h, hs = get_weights(cell), [0.0, 0.0], []

    def norm(name: str, a: Vector) -> Vector:
        return compute_norm(a, w[f"{name}.weight"], w[f"{name}.bias"])

    for x in xs:
        wx, uh = matvec(w["weight_input"], x), matvec(w["weight_hidden"], h)
        gates = [sigmoid(e) for e in add_vectors(norm("input_gates_norm", wx[:4]), norm("gates_norm", uh[:4]))]
        r, z = gates[:2], gates[2:]
        from_input, from_hidden = norm("input_candidate_norm", wx[4:]), norm("candidate_norm", uh[4:])
        n = [math.tanh(from_input[u] + r[u] * from_hidden[u]) for u in (0, 1)]
        keep = z if update_keeps else [1 - z[0], 1 - z[1]]
        h = [keep[u] * h[u] + (1 - keep[u]) * n[u] for u in (0, 1)]
        hs.append(h)
    return hs


def compute_attentive(layer: AttentiveRecurrent, xs: Matrix) -> Matrix:
    w, attention_weights = get_weights(layer.cell), get_weights(layer)
    h, hs = [0.0, 0.0], []
    keys, values = [], []
    for x in xs:
        a = add_vectors(matvec(w["weight_input"], x), matvec(w["weight_hidden"], h), w["bias"])
        h = [math.tanh(e) for e in a]
        if keys:
            query, span = matvec(attention_weights["weight_query"], h), layer.attention_span
            h = add_vectors(h, compute_attention(query, keys[-span:], values[-span:]))
        keys.append(matvec(attention_weights["weight_memory"][:2], h))
        values.append(matvec(attention_weights["weight_memory"][2:], h))
        hs.append(h)
    return hs


def compute_state_attention(layer: StateAttention, xs: Matrix) -> Matrix:
    w = get_weights(layer)["weight"]
    outputs = []
    for t, s in enumerate(xs):
        visible = xs[max(0, t - layer.attention_span) : t + 1]
        keys, values = [matvec(w[2:4], past) for past in visible], [matvec(w[4:6], past) for past in visible]
        outputs.append(add_vectors(s, compute_attention(matvec(w[:2], s), keys, values)))
    return outputs


# --- building rows ----------------------------------------------------------------------------------------------------


def fill(module: nn.Module) -> nn.Module:
    """Sets fixed weights between −0.9 and 0.9, different for entries that could be confused."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            entries = torch.arange(parameter.numel()).reshape(parameter.shape)
            parameter.copy_(((7 * entries + 3 * i) % 19 - 9) / 10)
    return module


def build_hand_comparison(
    layer: nn.Module, compute_by_hand: Callable[[Any], Matrix]
) -> Callable[[], tuple[Tensor, Tensor]]:
    def compare() -> tuple[Tensor, Tensor]:
        fill(layer).double().eval()
        outputs = run(layer, torch.tensor([INPUT], dtype=torch.float64), None)
        return outputs, torch.tensor([compute_by_hand(layer)], dtype=torch.float64)

    return compare


def run(layer: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
    return layer(x, None, lengths)[0]


def run_with_state(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    return layer(x, state)


def create_inputs() -> Tensor:
    return torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(5))


def build_recurrent_torch_comparison(
    ours: nn.Module, our_cells: list[cells.Cell], reference: nn.Module
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Returns a comparison with PyTorch's layer, which gets the weights of our cells and the same random biases.

    The cells are in the order of its parameters.
    """

    def compare() -> tuple[Tensor, Tensor]:
        parameters = list(reference.parameters())
        with torch.no_grad():
            for number, cell in enumerate(our_cells):
                weight_input, weight_hidden, bias, bias_hidden = parameters[4 * number : 4 * number + 4]
                weight_input.copy_(cell.weight_input)
                weight_hidden.copy_(cell.weight_hidden)
                bias.copy_(cell.bias.normal_())  # type: ignore[union-attr]
                bias_hidden.zero_()
                if isinstance(cell, cells.GRUCell):
                    bias_hidden[2 * cell.units :] = cell.bias_hidden.normal_()
        return run(ours, create_inputs(), None), reference(create_inputs())[0]

    return compare


def build_cell_row(
    name: str,
    build: Callable[[int, int], cells.Cell],
    compute_by_hand: Callable[[Any, Matrix], Matrix],
    reference: Any = None,
) -> Row:
    ours = Recurrent(build(4, 3))
    return Row(
        name=name,
        build=lambda: Recurrent(build(4, 3)),
        inputs=create_inputs,
        run=run,
        compare_by_hand=build_hand_comparison(Recurrent(build(2, 2)), lambda layer: compute_by_hand(layer.cell, INPUT)),
        compare_with_torch=None
        if reference is None
        else build_recurrent_torch_comparison(ours, [ours.cell], reference(4, 3, batch_first=True)),
        run_with_state=run_with_state,
        causal=True,
        records=tuple(f"{ours.name}.{gate}" for gate in ours.cell.gates),
    )


def make_rnn_builder(
    activation: str, cell_class: type[cells.RNNCell] = cells.RNNCell
) -> Callable[[int, int], cells.Cell]:
    """Returns a function from inputs and units to a cell."""
    return lambda inputs, units: cell_class(inputs, units, activation)


CELL_ROWS = [
    build_cell_row("rnn tanh", make_rnn_builder("tanh"), compute_rnn, lambda *a, **k: nn.RNN(*a, **k)),
    build_cell_row(
        "rnn relu", make_rnn_builder("relu"), compute_rnn, lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)
    ),
    build_cell_row("rnn sigmoid", make_rnn_builder("sigmoid"), compute_rnn),
    build_cell_row("rnn identity", make_rnn_builder("identity"), compute_rnn),
    build_cell_row("lstm", cells.LSTMCell, compute_lstm, nn.LSTM),
    build_cell_row(
        "gru reset after, z keeps", cells.GRUCell, partial(compute_gru, reset_after=True, update_keeps=True), nn.GRU
    ),
    build_cell_row(
        "gru reset after, z replaces",
        cells.ReplacingGRUCell,
        partial(compute_gru, reset_after=True, update_keeps=False),
    ),
    build_cell_row(
        "gru reset before, z keeps", cells.EarlyResetGRUCell, partial(compute_gru, reset_after=False, update_keeps=True)
    ),
    build_cell_row(
        "gru reset before, z replaces",
        cells.EarlyResetReplacingGRUCell,
        partial(compute_gru, reset_after=False, update_keeps=False),
    ),
    build_cell_row("rnn layer norm", make_rnn_builder("tanh", cells.LayerNormRNNCell), compute_rnn),
    build_cell_row("lstm layer norm", cells.LayerNormLSTMCell, compute_lstm),
    build_cell_row("lstm capped input gate", cells.CappedLSTMCell, compute_lstm),
    build_cell_row("gru layer norm, z keeps", cells.LayerNormGRUCell, partial(compute_norm_gru, update_keeps=True)),
    build_cell_row(
        "gru layer norm, z replaces", cells.LayerNormReplacingGRUCell, partial(compute_norm_gru, update_keeps=False)
    ),
]


def build_weight_dropout_row() -> Row:
    """Returns the row of a layer with weight dropout: in evaluation mode, it equals the layer without."""
    ours = Recurrent(cells.LSTMCell(4, 3), 0.5).eval()
    return Row(
        name="lstm weight dropout",
        build=lambda: Recurrent(cells.LSTMCell(4, 3), 0.5),
        inputs=create_inputs,
        run=run,
        compare_by_hand=build_hand_comparison(
            Recurrent(cells.LSTMCell(2, 2), 0.5), lambda layer: compute_lstm(layer.cell, INPUT)
        ),
        compare_with_torch=build_recurrent_torch_comparison(ours, [ours.cell], nn.LSTM(4, 3, batch_first=True)),
        run_with_state=run_with_state,
        causal=True,
        records=("lstm.forget", "lstm.hidden"),
    )


def build_stack(inputs: int, units: int) -> StackedRecurrent:
    return StackedRecurrent(
        [Recurrent(cells.LSTMCell(inputs, units)), Recurrent(cells.LSTMCell(units, units))], dropout=0.3
    )


def build_stacked_row() -> Row:
    ours = build_stack(4, 3).eval()

    def compute_by_hand(layer: Any) -> Matrix:
        return compute_lstm(layer.layer[1].cell, compute_lstm(layer.layer[0].cell, INPUT))

    return Row(
        name="stacked lstm",
        build=lambda: build_stack(4, 3),
        inputs=create_inputs,
        run=run,
        compare_by_hand=build_hand_comparison(build_stack(2, 2), compute_by_hand),
        compare_with_torch=build_recurrent_torch_comparison(
            ours, [layer.cell for layer in ours.layer], nn.LSTM(4, 3, 2, batch_first=True)
        ),  # type: ignore[misc]
        run_with_state=run_with_state,
        causal=True,
        records=("layer.0.lstm.forget", "layer.1.lstm.cell"),
    )


def build_bidirectional(inputs: int, units: int) -> Bidirectional:
    return Bidirectional(Recurrent(cells.GRUCell(inputs, units)), Recurrent(cells.GRUCell(inputs, units)))


def build_bidirectional_row() -> Row:
    ours = build_bidirectional(4, 3)

    def compute_by_hand(layer: Any) -> Matrix:
        forward = compute_gru(layer.forward_layer.cell, INPUT, reset_after=True, update_keeps=True)
        backward = compute_gru(layer.backward_layer.cell, INPUT[::-1], reset_after=True, update_keeps=True)[::-1]
        return [a + b for a, b in zip(forward, backward)]

    reference = nn.GRU(4, 3, batch_first=True, bidirectional=True)
    return Row(
        name="bidirectional gru",
        build=lambda: build_bidirectional(4, 3),
        inputs=create_inputs,
        run=run,
        compare_by_hand=build_hand_comparison(build_bidirectional(2, 2), compute_by_hand),
        compare_with_torch=build_recurrent_torch_comparison(
            ours, [ours.forward_layer.cell, ours.backward_layer.cell], reference
        ),
        records=("forward_layer.gru.update", "backward_layer.gru.update"),
    )


def build_attentive_row(name: str, build: Callable[[], cells.Cell]) -> Row:
    return Row(
        name=name,
        build=lambda: AttentiveRecurrent(build(), attention_span=3),
        inputs=create_inputs,
        run=run,
        compare_by_hand=build_hand_comparison(
            AttentiveRecurrent(cells.RNNCell(2, 2), 1), lambda layer: compute_attentive(layer, INPUT)
        ),
        run_with_state=run_with_state,
        causal=True,
        records=("weights", "context", f"{build().name}.hidden"),
    )


def compare_state_attention_with_torch() -> tuple[Tensor, Tensor]:
    """Compares with one head of PyTorch's attention: identity as output projection, the window as mask."""
    ours, x = StateAttention(4, attention_span=2), create_inputs()
    reference = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(ours.weight)
        reference.out_proj.weight.copy_(torch.eye(4))
    distance = torch.arange(6)[:, None] - torch.arange(6)
    masked = (distance < 0) | (distance > 2)
    return run(ours, x, None), x + reference(x, x, x, attn_mask=masked)[0]


STATE_ATTENTION_ROW = Row(
    name="state attention",
    build=lambda: StateAttention(4, attention_span=3),
    inputs=create_inputs,
    run=run,
    compare_by_hand=build_hand_comparison(StateAttention(2, 1), lambda layer: compute_state_attention(layer, INPUT)),
    compare_with_torch=compare_state_attention_with_torch,
    run_with_state=run_with_state,
    causal=True,
    records=("weights",),
)


def run_norm(layer: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
    return layer(x)


def compare_norm_by_hand() -> tuple[Tensor, Tensor]:
    layer = LayerNorm(2)
    fill(layer).double()
    w = get_weights(layer)
    expected = [compute_norm(x, w["weight"], w["bias"]) for x in INPUT]
    return layer(torch.tensor(INPUT, dtype=torch.float64)), torch.tensor(expected, dtype=torch.float64)


def compare_norm_with_torch() -> tuple[Tensor, Tensor]:
    ours, reference = LayerNorm(4), nn.LayerNorm(4)
    reference.load_state_dict(fill(ours).state_dict())
    return ours(create_inputs()), reference(create_inputs())


NORM_ROW = Row(
    name="layer norm",
    build=lambda: LayerNorm(4),
    inputs=create_inputs,
    run=run_norm,
    compare_by_hand=compare_norm_by_hand,
    compare_with_torch=compare_norm_with_torch,
    causal=True,
    supports_padding=False,
    records=("norm",),
)

ROWS = [
    *CELL_ROWS,
    build_weight_dropout_row(),
    build_stacked_row(),
    build_bidirectional_row(),
    build_attentive_row("attentive rnn", lambda: cells.RNNCell(4, 3)),
    build_attentive_row("attentive lstm", lambda: cells.LSTMCell(4, 3)),
    STATE_ATTENTION_ROW,
    NORM_ROW,
]
