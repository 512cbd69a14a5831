"""`seqwise.layers.LSTM`, `GRU` and `RNN` against `torch.nn`'s own, on the same weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqwise import record
from seqwise.errors import UsageError
from seqwise.layers import GRU, LSTM, RNN
from seqwise.layers.recurrent import Recurrent

B, T, D, H = 3, 7, 5, 4
LENGTHS = torch.tensor([4, 7, 2])
PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTM, nn.LSTM, {}),
    "gru": (GRU, nn.GRU, {}),
    "rnn tanh": (RNN, nn.RNN, {}),
    "rnn relu": (RNN, nn.RNN, {"nonlinearity": "relu"}),
}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}

each_layer = pytest.mark.parametrize("name", PAIRS)


def build_pair(name: str, **settings: Any) -> tuple[Any, Any]:
    """Returns our layer and PyTorch's, built from the same seed."""
    ours, theirs, options = PAIRS[name]
    pair = []
    for layer_class in (ours, theirs):
        torch.manual_seed(0)
        pair.append(layer_class(D, H, **settings, **options))
    return pair[0], pair[1]


def flatten_tensors(value: Any) -> list[Tensor]:
    """Returns the floating-point tensors of outputs and states, in order."""
    if isinstance(value, PackedSequence):
        return [value.data]
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in flatten_tensors(part)]


def run(layer: Any, call: Callable[[Any], Any], x: Tensor) -> list[Tensor]:
    """Outputs, states, and the gradients of a weighted sum of them for the input and every parameter."""
    values = flatten_tensors(call(layer))
    total = sum(
        (value * torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view_as(value)).sum() for value in values
    )
    return [*values, *torch.autograd.grad(total, [x, *layer.parameters()])]


def assert_equal(ours: list[Tensor], theirs: list[Tensor]) -> None:
    assert len(ours) == len(theirs)
    for actual, expected in zip(ours, theirs):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        torch.testing.assert_close(actual, expected, rtol=TOLERANCE[actual.dtype], atol=TOLERANCE[actual.dtype])


def random_state(layer: Any, batch: int | None, dtype: torch.dtype) -> Any:
    count = layer.num_layers * (1 + layer.bidirectional)
    shape = (count, H) if batch is None else (count, batch, H)
    torch.manual_seed(2)
    h, c = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    return (h, c) if isinstance(layer, nn.LSTM) else h


@each_layer
@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (2, False), (1, True), (2, True)])
@pytest.mark.parametrize(("batch_first", "bias"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_states_and_gradients_equal_those_of_torch(name, num_layers, bidirectional, batch_first, bias, dtype):
    settings = {"num_layers": num_layers, "bidirectional": bidirectional, "batch_first": batch_first, "bias": bias}
    ours, theirs = build_pair(name, **settings, dtype=dtype, device="cpu")
    x = torch.randn((B, T, D) if batch_first else (T, B, D), dtype=dtype, requires_grad=True)
    state = random_state(ours, B, dtype)
    assert_equal(run(ours, lambda layer: layer(x), x), run(theirs, lambda layer: layer(x), x))
    assert_equal(run(ours, lambda layer: layer(x, state), x), run(theirs, lambda layer: layer(x, state), x))
    unbatched = x[0] if batch_first else x[:, 0]
    unbatched_state = random_state(ours, None, dtype)
    assert_equal(run(ours, lambda layer: layer(unbatched), x), run(theirs, lambda layer: layer(unbatched), x))
    assert_equal(
        run(ours, lambda layer: layer(unbatched, unbatched_state), x),
        run(theirs, lambda layer: layer(unbatched, unbatched_state), x),
    )
    assert any(part.backend == "compiled" for part in ours.modules() if isinstance(part, Recurrent))


@each_layer
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_packed_sequences_return_packed_sequences(name, bidirectional, is_sorted):
    ours, theirs = build_pair(name, num_layers=2, bidirectional=bidirectional, dtype=torch.float64)
    lengths = LENGTHS.sort(descending=True)[0] if is_sorted else LENGTHS
    x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    state = random_state(ours, B, torch.float64)

    def pack():
        return pack_padded_sequence(x, lengths, enforce_sorted=is_sorted)

    assert_equal(*(run(layer, lambda layer: layer(pack()), x) for layer in (ours, theirs)))
    assert_equal(*(run(layer, lambda layer: layer(pack(), state), x) for layer in (ours, theirs)))
    (outputs, _), (torch_outputs, _) = ours(pack()), theirs(pack())
    assert all(
        torch.equal(actual, expected)
        for actual, expected in zip(outputs[1:], torch_outputs[1:])
        if expected is not None
    )
    assert (outputs.sorted_indices is None) == (torch_outputs.sorted_indices is None)


@each_layer
@pytest.mark.parametrize(("bidirectional", "batch_first"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("steps", [T, 2])  # for two steps PyTorch's own scan is faster
def test_lengths_give_the_result_of_packing(name, bidirectional, batch_first, steps):
    ours, theirs = build_pair(name, num_layers=2, bidirectional=bidirectional, batch_first=batch_first)
    x = torch.randn((B, steps, D) if batch_first else (steps, B, D), requires_grad=True)
    lengths = LENGTHS.clamp(max=steps)

    def pack_and_pad(layer):
        outputs, state = layer(pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False))
        return pad_packed_sequence(outputs, batch_first, total_length=steps)[0], state

    assert_equal(run(ours, lambda layer: layer(x, lengths=lengths), x), run(theirs, pack_and_pad, x))


@each_layer
def test_a_row_of_length_zero_keeps_its_state(name):
    ours, _ = build_pair(name, num_layers=2, bidirectional=True)
    state = random_state(ours, B, torch.float32)
    outputs, last_state = ours(torch.randn(T, B, D), state, lengths=torch.tensor([7, 0, 3]))
    assert not outputs[:, 1].any()
    for last, initial in zip(flatten_tensors(last_state), flatten_tensors(state)):
        assert torch.equal(last[:, 1], initial[:, 1])


@each_layer
def test_initial_weights_equal_those_of_torch_and_state_dicts_are_interchangeable(name):
    ours, theirs = build_pair(name, num_layers=2, bidirectional=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(
        torch.equal(actual, expected) for actual, expected in zip(ours.parameters(), theirs.parameters(), strict=True)
    )
    nn.init.ones_(theirs.weight_hh_l1_reverse)
    ours.load_state_dict(theirs.state_dict())
    assert (ours.weight_hh_l1_reverse == 1).all()
    nn.init.zeros_(ours.weight_ih_l0)
    theirs.load_state_dict(ours.state_dict())
    assert not theirs.weight_ih_l0.any()


@each_layer
def test_modules_convert_from_and_to_torch(name):
    _, theirs = build_pair(name, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3, dtype=torch.float64)
    theirs.eval().weight_ih_l0.requires_grad_(False)
    ours = PAIRS[name][0].from_torch(theirs)
    converted = ours.to_torch()
    x = torch.randn(B, T, D, dtype=torch.float64)
    assert isinstance(ours, type(theirs))
    assert type(converted) is type(theirs)
    assert not ours.training
    assert not converted.training
    assert not ours.weight_ih_l0.requires_grad
    assert ours.weight_ih_l0 is not theirs.weight_ih_l0
    with torch.no_grad():
        expected = flatten_tensors(theirs(x))
        assert_equal(flatten_tensors(ours(x)), expected)
        assert all(torch.equal(actual, reference) for actual, reference in zip(flatten_tensors(converted(x)), expected))
    with pytest.raises(UsageError, match=r"expected a torch\.nn"):
        PAIRS[name][0].from_torch(nn.Linear(2, 2))


def test_copies_and_other_dtypes_use_their_own_weights(tmp_path):
    ours, theirs = build_pair("lstm", bidirectional=True)
    x = torch.randn(T, B, D)
    before = ours(x)[0]
    copied_layer = copy.deepcopy(ours)
    torch.save(ours, tmp_path / "lstm.pt")
    nn.init.zeros_(ours.weight_ih_l0)
    assert torch.equal(copied_layer(x)[0], before)
    assert torch.equal(torch.load(tmp_path / "lstm.pt", weights_only=False)(x)[0], before)
    assert_equal(flatten_tensors(copied_layer.double()(x.double())), flatten_tensors(theirs.double()(x.double())))
    copied_layer.flatten_parameters()
    weights = {name: torch.zeros_like(parameter) for name, parameter in copied_layer.named_parameters()}
    assert not torch.func.functional_call(copied_layer, weights, x.double())[0].any()


@each_layer
def test_autocast_gives_the_dtypes_of_torch(name):
    ours, theirs = build_pair(name, num_layers=2)
    x = torch.randn(T, B, D)
    with torch.autocast("cpu", torch.bfloat16):
        for actual, expected in zip(flatten_tensors(ours(x)), flatten_tensors(theirs(x)), strict=True):
            assert actual.dtype == expected.dtype
            torch.testing.assert_close(actual, expected, rtol=0.05, atol=0.05)


def test_dropout_acts_between_layers_in_training_only():
    ours, theirs = build_pair("gru", num_layers=2, dropout=0.5)
    x = torch.randn(T, B, D)
    assert not torch.equal(ours(x)[0], ours(x)[0])
    assert torch.equal(ours(x)[1][0], ours(x)[1][0])  # the first layer is as without dropout
    assert_equal(flatten_tensors(ours.eval()(x)), flatten_tensors(theirs.eval()(x)))
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        LSTM(D, H, dropout=0.5)


def test_lstm_with_projections_runs_in_torch():
    ours, theirs = build_pair("lstm", proj_size=2, bidirectional=True)
    x = torch.randn(T, B, D, requires_grad=True)
    assert_equal(run(ours, lambda layer: layer(x), x), run(theirs, lambda layer: layer(x), x))
    assert LSTM.from_torch(theirs).proj_size == ours.to_torch().proj_size == 2


@each_layer
def test_recording_gives_the_gates_and_does_not_change_the_result(name):
    ours, _ = build_pair(name, num_layers=2, bidirectional=True)
    x, cell = torch.randn(T, B, D), name.split()[0]
    expected = ours(x)[0]
    with record(ours) as recording:
        outputs = ours(x)[0]
    assert torch.equal(outputs, expected)
    hidden = recording[f"layer.1.forward_layer.{cell}.hidden"]
    torch.testing.assert_close(hidden.transpose(0, 1), outputs[..., :H])


@each_layer
def test_without_kernels_the_result_equals_that_of_torch_exactly(name, monkeypatch):
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    ours, theirs = build_pair(name, num_layers=2, bidirectional=True)
    x = torch.randn(T, B, D)
    assert all(
        torch.equal(actual, expected)
        for actual, expected in zip(flatten_tensors(ours(x)), flatten_tensors(theirs(x)), strict=True)
    )


def test_function_transforms_run_the_reference_implementation():
    ours, _ = build_pair("lstm", batch_first=True)
    x = torch.randn(B, T, D)
    torch.testing.assert_close(torch.func.vmap(lambda row: ours(row)[0])(x), ours(x)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(T, B, D + 1),), "Expected 5, got 6"),
        ((torch.zeros(T),), "2D or 3D"),
        ((torch.zeros(T, B, D), (torch.zeros(1, B + 1, H), torch.zeros(1, B, H))), "size"),
        ((torch.zeros(T, B, D, dtype=torch.float64),), "dtype"),
    ],
)
def test_wrong_shapes_are_rejected_as_by_torch(arguments, message):
    ours, theirs = build_pair("lstm")
    for layer in (ours, theirs):
        with pytest.raises((RuntimeError, ValueError), match=message):
            layer(*arguments)


def test_lengths_with_packed_or_unbatched_input_are_rejected():
    ours, _ = build_pair("lstm")
    with pytest.raises(UsageError, match="its own lengths"):
        ours(pack_padded_sequence(torch.zeros(T, B, D), LENGTHS, enforce_sorted=False), lengths=LENGTHS)
    with pytest.raises(UsageError, match="single sequence"):
        ours(torch.zeros(T, D), lengths=LENGTHS)
