"""How scans are divided among programs: all resident at once, all sequences covered, within the memory on chip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.launch import (
    MAX_BATCH_TILE,
    UNITS_PER_PROGRAM,
    WEIGHT_ROWS,
    choose_tiling,
    get_device_limits,
)
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.packing import SequencePacking

DEVICE = torch.device("cpu")  # stands for an H200


@given(
    units=st.integers(1, 2112),
    batch=st.integers(1, 5000),
    directions=st.integers(1, 2),
    number=st.sampled_from([(2, "tf32", 2), (4, "tf32", 4), (4, "tf32x3", 8)]),
    own_units=st.sampled_from([UNITS_PER_PROGRAM, 4 * UNITS_PER_PROGRAM]),
)
def test_programs_are_never_more_than_multiprocessors_and_fit_on_chip(units, batch, directions, number, own_units):
    multiprocessors, memory = get_device_limits(DEVICE)
    size, precision, bytes_on_chip = number  # tf32x3 splits a number in two
    tiling = choose_tiling(units, own_units, batch, directions, size, DEVICE, precision)
    if tiling is None:
        assert directions * units > own_units * multiprocessors / 2, "refused though there is room"
        return
    assert tiling.unit_blocks * tiling.batch_groups * directions <= multiprocessors
    assert tiling.unit_blocks * own_units >= units
    assert tiling.batch_tile <= MAX_BATCH_TILE
    assert tiling.batch_tile & (tiling.batch_tile - 1) == 0
    chunk, tile = (rows * tiling.k_tile * bytes_on_chip for rows in (WEIGHT_ROWS, tiling.batch_tile))
    streamed_bytes = 0 if tiling.is_weight_resident else chunk
    assert tiling.resident_chunks * chunk + streamed_bytes + tile <= memory


def test_without_tf32_fewer_units_stay_on_chip():
    """A kernel that did not account for it would not launch: with tf32x3, 768 units need twice 230 kB."""
    resident = {
        (units, precision)
        for units in (256, 768)
        for precision in ("tf32", "tf32x3")
        if choose_tiling(units, UNITS_PER_PROGRAM, 64, 1, 4, DEVICE, precision).is_weight_resident
    }
    assert resident == {(256, "tf32"), (256, "tf32x3"), (768, "tf32")}


def test_2048_units_fit_in_one_direction():
    assert choose_tiling(2048, UNITS_PER_PROGRAM, 64, 1, 2, DEVICE) is not None
    assert choose_tiling(2048, UNITS_PER_PROGRAM, 64, 2, 2, DEVICE) is None, "two directions at once do not"


def test_a_batch_too_large_for_one_launch_takes_several():
    values, layout = torch.empty(15000, 1, 4 * 512), PackedLayout(5000, 3, 15000)
    launches = list(launch.iterate_launches(values, layout, 512, UNITS_PER_PROGRAM))
    assert [first for first, _, _ in launches] == list(range(0, 5000, launches[0][1].batch_capacity))
    assert len(launches) > 1


def test_more_programs_than_fit_are_rejected_before_any_launch():
    values, layout = torch.empty(12, 2, 4 * 2048), PackedLayout(4, 3, 12, (False, True))
    with pytest.raises(RuntimeError, match="more than fit"):
        next(launch.iterate_launches(values, layout, 2048, UNITS_PER_PROGRAM))


def test_batch_sizes_share_few_compiled_kernels():
    """Kernels are compiled for a tiling, not for a batch size."""
    tilings = {choose_tiling(512, UNITS_PER_PROGRAM, batch, 1, 2, DEVICE) for batch in range(1, 400)}
    assert len({(tiling.batch_tile, tiling.k_tile, tiling.resident_chunks) for tiling in tilings if tiling}) <= 4


def test_packed_rows_follow_each_other_without_padding():
    layout = PackedLayout.from_packing(SequencePacking(4, 5, torch.tensor([2, 5, 0, 3])), (False, True))
    assert layout.lengths.tolist() == [5, 3, 2, 0]
    assert layout.step_offsets.tolist() == [0, 3, 6, 8, 9, 10]
    assert layout.kernel_scalars == (5, 4, 10, 2)
    assert not PackedLayout.from_packing(SequencePacking(2, 3, torch.tensor([3, 3]))).has_lengths


@pytest.mark.parametrize("lengths", [None, [2, 5, 0, 3]])
def test_states_before_and_after_a_step_are_those_of_the_same_sequence(lengths):
    """Each state is named by sequence and step; the one before it must have the neighbouring step, or be initial."""
    packing = SequencePacking(4, 5, None if lengths is None else torch.tensor(lengths))
    layout, ends = PackedLayout.from_packing(packing, (False, True)), lengths or [5] * 4
    memory = torch.zeros(layout.get_state_shape(2), dtype=torch.long)
    assert len(memory) == 4 + layout.num_rows + 4
    order = packing.sorted_indices.tolist()
    memory[:4] = memory[4 + layout.num_rows :] = torch.tensor([[[100 + n] * 2] for n in order])
    names = [(t, n) for t in range(5) for n in order if t < ends[n]]
    for row, (time, sequence) in enumerate(names):
        memory[4 + row] = 10 * sequence + time
    outputs = layout.select_outputs(memory).flatten(0, -3)[:, 0, 0].tolist()
    assert outputs == [10 * sequence + time for time, sequence in names]
    forward, backward = layout.select_previous_states(memory)
    assert forward[:, 0].tolist() == [100 + n if time == 0 else 10 * n + time - 1 for time, n in names]
    assert backward[:, 1].tolist() == [100 + n if time + 1 == ends[n] else 10 * n + time + 1 for time, n in names]


def test_gradients_of_outputs_are_read_with_any_strides():
    layout, grad_outputs = PackedLayout(2, 3, 6), torch.randn(2, 3, 1, 4).transpose(0, 1)
    states = torch.zeros(layout.get_state_shape(4))
    prepared, strides = layout.prepare_grad_outputs(grad_outputs, states)
    assert prepared is grad_outputs
    assert strides == (4, 12, 4)
    expanded, _ = layout.prepare_grad_outputs(torch.ones(()).expand(3, 2, 1, 4), states)
    assert expanded.stride(-1) == 1
    assert not layout.prepare_grad_outputs(None, states)[0].any()
    padded = PackedLayout.from_packing(SequencePacking(2, 3, torch.tensor([3, 1])))
    assert padded.prepare_grad_outputs(torch.randn(4, 1, 4), states)[1] == (4, 4, 4)
