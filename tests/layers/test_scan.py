"""Which backend computes which cell, and what happens where a kernel cannot be launched."""

from __future__ import annotations

import pytest
import torch

from seqwise.config import RecurrentSettings
from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.layers import cells, scan
from seqwise.layers.cells import GRU_CELLS, make_cell
from seqwise.layers.scan import build_direction, choose_backend, get_cell_spec, scan_fused


@pytest.mark.parametrize(("reset", "update", "layer_norm"), GRU_CELLS)
def test_the_cell_specification_of_a_gru_follows_its_settings(reset, update, layer_norm):
    settings = RecurrentSettings(reset=reset, update=update, layer_norm=layer_norm)
    assert get_cell_spec(make_cell("gru", 3, 4, settings)) == CellSpec(
        "gru", reset=reset, update=update, layer_norm=layer_norm
    )


def test_every_cell_of_the_settings_has_a_cell_specification():
    for name in ("rnn", "lstm", "gru"):
        for layer_norm in (False, True):
            cell = make_cell(name, 3, 4, RecurrentSettings(layer_norm=layer_norm, activation="relu"))
            spec = get_cell_spec(cell)
            assert (spec.name, spec.layer_norm) == (name, layer_norm)
    assert get_cell_spec(cells.RNNCell(3, 4, "sigmoid")) == CellSpec("rnn", activation="sigmoid")


def test_a_subclass_has_no_cell_specification():
    class Subclass(cells.LSTMCell):
        pass

    assert get_cell_spec(Subclass(3, 4)) is None


def test_vectors_have_the_order_of_the_kernel_arguments():
    def vector_names(cell):
        direction = build_direction(cell, cell.weight_hidden, cell.start(1, cell.weight_hidden))
        names_by_id = {id(parameter): name for name, parameter in cell.named_parameters()}
        return [names_by_id[id(vector)] for vector in direction.vector_parameters]

    assert vector_names(cells.GRUCell(3, 4)) == ["bias_hidden"]
    assert vector_names(cells.LSTMCell(3, 4)) == []
    assert vector_names(cells.LayerNormRNNCell(3, 4)) == ["norm.weight", "norm.bias"]
    assert vector_names(cells.LayerNormLSTMCell(3, 4)) == [
        "hidden_norm.weight", "hidden_norm.bias", "cell_norm.weight", "cell_norm.bias",
    ]  # fmt: skip
    assert vector_names(cells.LayerNormGRUCell(3, 4)) == [
        "gates_norm.weight", "gates_norm.bias", "candidate_norm.weight", "candidate_norm.bias",
    ]  # fmt: skip


def test_the_backend_chosen_on_a_cpu():
    x, single_step = torch.randn(8, 20, 3), torch.randn(8, 1, 3)
    gru, lstm, early_reset_gru = cells.GRUCell(3, 4), cells.LSTMCell(3, 176), cells.EarlyResetGRUCell(3, 4)
    assert [choose_backend(cell, x) for cell in (gru, lstm, early_reset_gru)] == ["compiled"] * 3
    assert [choose_backend(cell, single_step) for cell in (gru, lstm, early_reset_gru)] == ["aten", "aten", "reference"]
    with torch.no_grad():
        assert choose_backend(lstm, x) == "aten"
        assert choose_backend(lstm, x[:2, :8], torch.tensor([8, 3])) == "compiled"  # where rows differ, ATen is slow
        assert choose_backend(lstm, x[:2, :8], torch.tensor([8, 8])) == "aten"
    assert choose_backend(gru, x.bfloat16()) == "aten"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert choose_backend(early_reset_gru, x) == "reference"

    class Subclass(cells.LSTMCell):
        pass

    assert choose_backend(Subclass(3, 4), x) == "reference"


def test_a_kernel_that_cannot_be_launched_warns_once_and_is_not_tried_again(monkeypatch):
    persistent = pytest.importorskip("seqwise.kernels.recurrence.gpu.persistent")

    def fail(*_):
        raise RuntimeError("first line\nTriton Error [CUDA]: simulated")

    monkeypatch.setattr(persistent, "run_scan", fail)
    monkeypatch.setattr(persistent, "verify_backward_launch", lambda *_: None)
    monkeypatch.setattr(scan, "_failed_kernels", set())
    cell, x = cells.LSTMCell(3, 4), torch.randn(2, 5, 3)
    with pytest.warns(UserWarning, match="lstm with 4 units cannot run here.*simulated"):
        assert (
            scan_fused("triton", cell, x, [build_direction(cell, cell.weight_hidden, cell.start(2, x))], None, False)
            is None
        )
    assert len(scan._failed_kernels) == 1


def test_out_of_memory_and_usage_errors_are_not_launch_failures(monkeypatch):
    persistent = pytest.importorskip("seqwise.kernels.recurrence.gpu.persistent")

    def fail(*_):
        raise torch.OutOfMemoryError("simulated")

    monkeypatch.setattr(persistent, "verify_backward_launch", fail)
    monkeypatch.setattr(scan, "_failed_kernels", set())
    cell, x = cells.LSTMCell(3, 4), torch.randn(2, 5, 3)
    with pytest.raises(torch.OutOfMemoryError):
        scan_fused("triton", cell, x, [build_direction(cell, cell.weight_hidden, cell.start(2, x))], None, False)
    monkeypatch.setattr(persistent, "verify_backward_launch", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scan_fused("triton", cell, x, [build_direction(cell, cell.weight_hidden, cell.start(2, x))], None, False)
    assert not scan._failed_kernels
