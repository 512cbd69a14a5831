"""How scans are cut among programs: all of them resident, all rows taken, all within the memory on chip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, MOST, OWN, Rows, cut, resources

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
    values = torch.empty(1, 3, 5000, 4 * 512)
    firsts = [first for first, _, _ in launch.launches(values, 512, OWN)]
    taken = next(launch.launches(values, 512, OWN))[1].taken
    assert firsts == list(range(0, 5000, taken))
    assert len(firsts) > 1


def test_more_programs_than_fit_are_refused_before_any_launch():
    with pytest.raises(RuntimeError, match="more than fit"):
        next(launch.launches(torch.empty(2, 3, 4, 4 * 2048), 2048, OWN))


def test_a_larger_batch_needs_few_different_programs():
    """Kernels are compiled for a cut, not for a batch size."""
    cuts = {cut(512, OWN, batch, 1, 2, DEVICE) for batch in range(1, 400)}
    assert len({(one.rows, one.columns, one.held) for one in cuts if one}) <= 4


def test_rows_are_listed_longest_first():
    rows = Rows.of(torch.tensor([2, 5, 0, 3]), DEVICE)
    assert rows.order is not None
    assert rows.order.tolist() == [1, 3, 0, 2]
    assert Rows.of(None, DEVICE) == Rows()
