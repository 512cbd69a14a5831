"""Recording of activations: names, patterns, nesting, threads, and warnings if nothing is recorded."""

from __future__ import annotations

import threading
import warnings
from fnmatch import fnmatchcase

import pytest
import torch
from torch import Tensor, nn

from seqwise.layers.record import can_match_below, is_recorded, is_recorded_live, record, record_value

# Some tests record nothing.
pytestmark = pytest.mark.filterwarnings("ignore:nothing was recorded")


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = 2 * x
        record_value(self, "doubled", y)
        return y


class DoubleTwice(nn.Module):
    """2 · 2 · x, by two layers with names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList([Double(), Double()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x)
        return x


def test_values_have_dotted_names() -> None:
    model = DoubleTwice()
    with record(model) as recording:
        model(torch.tensor(3.0))
    assert {name: value.item() for name, value in recording.items()} == {"layer.0.doubled": 6, "layer.1.doubled": 12}
    assert len(recording) == 2


def test_a_value_of_the_root_module_has_no_dot_in_its_name() -> None:
    model = Double()
    with record(model) as recording:
        model(torch.tensor(1.0))
    assert list(recording) == ["doubled"]


def test_a_pattern_selects_recorded_values() -> None:
    model = DoubleTwice()
    with record(model, "layer.1.*") as recording:
        model(torch.tensor(1.0))
    assert list(recording) == ["layer.1.doubled"]


def test_a_layer_that_ran_twice_has_both_values_and_returns_the_last() -> None:
    model = Double()
    with record(model) as recording:
        model(torch.tensor(1.0))
        model(torch.tensor(5.0))
    assert recording["doubled"].item() == 10
    assert [value.item() for value in recording.every("doubled")] == [2, 10]


def test_nothing_is_recorded_outside_the_block() -> None:
    model = Double()
    model(torch.tensor(1.0))
    with record(model) as recording:
        pass
    model(torch.tensor(1.0))
    assert dict(recording) == {}
    assert not is_recorded(model)


def test_a_recording_ends_when_the_block_raises() -> None:
    model = Double()
    with pytest.raises(ZeroDivisionError), record(model):
        _ = 1 / 0
    assert not is_recorded(model)


def test_only_modules_of_the_recorded_model_are_recorded() -> None:
    model, other_model = DoubleTwice(), Double()
    with record(model) as recording:
        other_model(torch.tensor(1.0))
        assert is_recorded(model.layer[0])
        assert not is_recorded(other_model)
    assert len(recording) == 0


def test_recorded_values_are_detached_unless_live() -> None:
    model, x = Double(), torch.tensor(3.0, requires_grad=True)
    with record(model) as recording:
        model(x)
        assert not is_recorded_live(model)
    assert not recording["doubled"].requires_grad
    with record(model, live=True) as live:
        y = model(x) ** 2
        assert is_recorded_live(model)
    (gradient,) = torch.autograd.grad(y, live["doubled"])
    assert gradient.item() == 12  # d y² / d y at y = 6


def test_two_recordings_can_be_nested() -> None:
    model = DoubleTwice()
    with record(model) as outer:
        with record(model.layer[1]) as inner:
            model(torch.tensor(1.0))
        model(torch.tensor(2.0))
    assert [value.item() for value in outer.every("layer.1.doubled")] == [4, 8]
    assert [value.item() for value in inner.every("doubled")] == [4]


def test_a_recording_is_local_to_its_thread() -> None:
    model = Double()
    recorded_in_thread = []
    with record(model):
        thread = threading.Thread(target=lambda: recorded_in_thread.append(is_recorded(model)))
        thread.start()
        thread.join()
    assert recorded_in_thread == [False]


def test_layers_whose_names_cannot_match_are_not_recorded() -> None:
    model = DoubleTwice()
    with record(model, "layer.1.*"), record(model, "encoder*", live=True):
        assert [is_recorded(layer) for layer in model.layer] == [False, True]
        assert not is_recorded_live(model.layer[1])


@pytest.mark.parametrize(
    "pattern", ["*", "stack.*", "*.forget", "stack.layer.?.lstm.forget", "s*r.[01].*t", "*.0.lstm.[!g]*"]
)
def test_a_module_with_a_matching_name_below_it_is_never_skipped(pattern: str) -> None:
    assert fnmatchcase("stack.layer.0.lstm.forget", pattern)
    for path in ("", "stack", "stack.layer", "stack.layer.0", "stack.layer.0.lstm"):
        assert can_match_below(path, pattern)


def test_a_module_is_skipped_if_no_prefix_of_the_pattern_matches() -> None:
    assert not can_match_below("stack", "encoder*")
    assert not can_match_below("stack.layer.1.lstm", "stack.layer.0.*")
    assert not can_match_below("head", "stack")


def test_a_recording_lists_its_names_and_shapes() -> None:
    model = DoubleTwice()
    with record(model) as recording:
        model(torch.ones(2, 3))
    assert repr(recording) == "<Recording of 2 values: layer.0.doubled (2, 3), layer.1.doubled (2, 3)>"


def test_a_pattern_that_matches_nothing_is_answered_with_the_names() -> None:
    model = DoubleTwice()
    with pytest.warns(UserWarning, match=r"no name matches 'layer.0.doubld'\. Perhaps you meant 'layer.0.doubled'\."):
        with record(model, "layer.0.doubld"):
            model(torch.ones(1))


def test_a_foreign_module_is_answered_with_a_warning() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with pytest.warns(UserWarning, match=r"Layers of torch.nn record nothing: use seqwise.layers.* Its modules: 0, 1"):
        with record(model):
            model(torch.ones(1, 2))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_module_is_answered_with_a_warning(in_place: bool) -> None:
    model = DoubleTwice()
    if in_place:
        model.compile(backend="eager")
    compiled = model if in_place else torch.compile(model, backend="eager")
    with pytest.warns(UserWarning, match="the model is compiled, and compiled layers record nothing"):
        with record(compiled) as recording:
            compiled(torch.tensor(3.0))
    assert len(recording) == 0


def test_a_compiled_part_is_answered_with_a_warning() -> None:
    model = DoubleTwice()
    model.layer[1].compile(backend="eager")
    with pytest.warns(UserWarning, match="'layer.1' is compiled"):
        with record(model) as recording:
            model(torch.tensor(3.0))
    assert list(recording) == ["layer.0.doubled"]
    with warnings.catch_warnings(action="error"), record(model, "layer.0.*"):  # asks for nothing that is compiled
        model(torch.tensor(3.0))


def test_a_block_that_raises_gives_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(ZeroDivisionError), record(Double()):
        _ = 1 / 0
    assert not recwarn.list
