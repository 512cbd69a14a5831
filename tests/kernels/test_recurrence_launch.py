"""How scans are cut among programs: all of them resident, all rows taken, all within the memory on chip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, MOST, OWN, cut, resources
from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.steps import Steps

DEVICE = torch.device("cpu")  # stands for an H200


@given(
    units=st.integers(1, 2112),
    batch=st.integers(1, 5000),
    scans=st.integers(1, 2),
    size=st.sampled_from([2, 4]),
    own=st.sampled_from([OWN, 4 * OWN]),
)
def test_programs_are_never_more_than_multiprocessors_and_fit_on_chip(units, batch, scans, size, own):
    multiprocessors, memory = resources(DEVICE)
    shape = cut(units, own, batch, scans, size, DEVICE)
    if shape is None:
        assert scans * units > own * multiprocessors / 2, "refused though there is room"
        return
    assert shape.blocks * shape.groups * scans <= multiprocessors
    assert shape.blocks * own >= units
    assert shape.rows <= MOST
    assert shape.rows & (shape.rows - 1) == 0
    chunk, tile = HELD_ROWS * shape.columns * size, shape.rows * shape.columns * size
    streamed = 0 if shape.whole else chunk
    assert shape.held * chunk + streamed + tile <= memory


def test_2048_units_fit_in_one_direction():
    assert cut(2048, OWN, 64, 1, 2, DEVICE) is not None
    assert cut(2048, OWN, 64, 2, 2, DEVICE) is None, "two directions at once do not"


def test_a_batch_too_large_for_one_launch_takes_several():
    values, rows = torch.empty(15000, 1, 4 * 512), RowLayout(5000, 3, 15000)
    firsts = [first for first, _, _ in launch.launches(values, rows, 512, OWN)]
    taken = next(launch.launches(values, rows, 512, OWN))[1].taken
    assert firsts == list(range(0, 5000, taken))
    assert len(firsts) > 1


def test_more_programs_than_fit_are_refused_before_any_launch():
    with pytest.raises(RuntimeError, match="more than fit"):
        next(launch.launches(torch.empty(12, 2, 4 * 2048), RowLayout(4, 3, 12, (False, True)), 2048, OWN))


def test_a_larger_batch_needs_few_different_programs():
    """Kernels are compiled for a cut, not for a batch size."""
    cuts = {cut(512, OWN, batch, 1, 2, DEVICE) for batch in range(1, 400)}
    assert len({(one.rows, one.columns, one.held) for one in cuts if one}) <= 4


def test_slots_follow_each_other_without_padding():
    rows = RowLayout.of(Steps(4, 5, torch.tensor([2, 5, 0, 3])), (False, True))
    assert rows.lengths.tolist() == [5, 3, 2, 0]
    assert rows.begins.tolist() == [0, 3, 6, 8, 9, 10]
    assert rows.numbers == (5, 4, 10, 2)
    assert not RowLayout.of(Steps(2, 3, torch.tensor([3, 3]))).variable


@pytest.mark.parametrize("lengths", [None, [2, 5, 0, 3]])
def test_states_before_and_after_a_step_are_those_of_the_same_row(lengths):
    """Each slot's state is named by row and step; the one before it must have the neighbouring step, or be a start."""
    steps = Steps(4, 5, None if lengths is None else torch.tensor(lengths))
    rows, ends = RowLayout.of(steps, (False, True)), lengths or [5] * 4
    memory = torch.zeros(rows.room(2), dtype=torch.long)
    assert len(memory) == 4 + rows.slots + 4
    memory[:4] = memory[4 + rows.slots :] = torch.tensor([[[100 + row] * 2] for row in steps.order])
    names = [(int(t), int(steps.order[r])) for t in range(5) for r in range(4) if t < ends[steps.order[r]]]
    for slot, (time, row) in enumerate(names):
        memory[4 + slot] = 10 * row + time
    assert rows.after(memory).flatten(0, -3)[:, 0, 0].tolist() == [10 * row + time for time, row in names]
    ahead, back = rows.before(memory)
    assert ahead[:, 0].tolist() == [100 + row if time == 0 else 10 * row + time - 1 for time, row in names]
    assert back[:, 1].tolist() == [100 + row if time + 1 == ends[row] else 10 * row + time + 1 for time, row in names]


def test_gradients_of_outputs_are_read_where_they_lie():
    rows, given = RowLayout(2, 3, 6), torch.randn(2, 3, 1, 4).transpose(0, 1)
    states = torch.zeros(rows.room(4))
    found, apart = rows.apart(given, states)
    assert found is given
    assert apart == (4, 12, 4)
    expanded, apart = rows.apart(torch.ones(()).expand(3, 2, 1, 4), states)
    assert expanded.stride(-1) == 1
    assert not rows.apart(None, states)[0].any()
    _, apart = RowLayout.of(Steps(2, 3, torch.tensor([3, 1]))).apart(torch.randn(4, 1, 4), states)
    assert apart == (4, 4, 4)
