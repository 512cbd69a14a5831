"""Batches of a corpus: streams and windows in training and evaluation, the same in any number of processes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.batching import (
    BlockEvaluationLoader,
    RotatedStreamLoader,
    StreamEvaluationLoader,
    StreamLoader,
    WindowEvaluationLoader,
    WindowLoader,
)
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import DataError, UsageError

BuildStore = Callable[[int], TokenStore]
quick_settings = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_equal(a: TokenBatch, b: TokenBatch) -> bool:
    equal_masks = a.mask is b.mask if a.mask is None or b.mask is None else torch.equal(a.mask, b.mask)
    return (
        torch.equal(a.ids, b.ids)
        and torch.equal(a.targets, b.targets)
        and a.resets_state == b.resets_state
        and equal_masks
    )


def list_target_positions(batches: list[TokenBatch]) -> list[int]:
    """Returns the targets that count; in a counting store they are positions."""
    return [
        int(target)
        for batch in batches
        for target in (batch.targets if batch.mask is None else batch.targets[batch.mask]).flatten()
    ]


# ---- training


def test_streams_equal_hand_written_batches(counting_store: BuildStore) -> None:
    """21 tokens, 2 rows, windows of 4, epoch with offset 0: two streams of 9, the last window is one token long."""
    streams = StreamLoader(counting_store(21), batch_size=2, window=4, seed=0)
    epoch = next(number for number in range(20) if next(streams.epoch(number)).ids[0, 0] == 0)
    batches = list(streams.epoch(epoch))
    assert [batch.ids.tolist() for batch in batches] == [
        [[0, 1, 2, 3], [9, 10, 11, 12]],
        [[4, 5, 6, 7], [13, 14, 15, 16]],
        [[8], [17]],
    ]
    assert [batch.resets_state for batch in batches] == [True, False, False]
    assert batches[1].positions is not None
    assert batches[1].positions.tolist() == [4, 13]
    assert (streams.steps, streams.batch_size * streams.length) == (3, 18)


@quick_settings
@given(count=st.integers(2, 300), rows=st.integers(1, 8), window=st.integers(1, 40), epoch=st.integers(0, 5))
def test_each_row_is_one_contiguous_stream(
    counting_store: BuildStore, count: int, rows: int, window: int, epoch: int
) -> None:
    store = counting_store(count)
    if count - 1 < max(rows, window):
        with pytest.raises(DataError):
            StreamLoader(store, rows, window, seed=1)
        return
    streams = StreamLoader(store, rows, window, seed=1)
    batches = list(streams.epoch(epoch))
    assert len(batches) == streams.steps
    inputs, targets = torch.cat([b.ids for b in batches], 1), torch.cat([b.targets for b in batches], 1)
    assert torch.equal(targets, inputs + 1)
    flat = inputs.flatten()
    assert torch.equal(flat, torch.arange(len(flat)) + flat[0])  # rows follow each other without gap or overlap
    assert len(flat) == streams.batch_size * streams.length
    assert count - 1 - len(flat) < window + rows
    assert all(batch.ids.shape[1] == streams.window for batch in batches[:-1])


def test_rotated_streams_equal_hand_written_batches(
    counting_store: BuildStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 tokens, 2 streams of 9 targets, windows of 4; the first stream is rotated by 6, the second by 1."""
    monkeypatch.setattr("seqwise.data.corpus.batching.hash_integers", lambda seed, epoch, stream: 9 + (6, 1)[stream])
    streams = RotatedStreamLoader(counting_store(20), batch_size=2, window=4, seed=0)
    batches = list(streams.epoch(3))
    assert [batch.ids.tolist() for batch in batches] == [
        [[6, 7, 8, 0], [10, 11, 12, 13]],
        [[1, 2, 3, 4], [14, 15, 16, 17]],
        [[5], [9]],
    ]
    assert [batch.targets.tolist() for batch in batches] == [
        [[7, 8, 9, 1], [11, 12, 13, 14]],
        [[2, 3, 4, 5], [15, 16, 17, 18]],
        [[6], [10]],
    ]
    assert [batch.positions.tolist() for batch in batches] == [[6, 10], [1, 14], [5, 9]]  # type: ignore[union-attr]
    assert [batch.resets_state for batch in batches] == [True, False, False]


@quick_settings
@given(
    count=st.integers(2, 300),
    rows=st.integers(1, 8),
    window=st.integers(1, 40) | st.just("full"),
    epoch=st.integers(0, 5),
)
def test_rotated_streams_have_each_target_once_but_for_the_last_few(
    counting_store: BuildStore, count: int, rows: int, window: int, epoch: int
) -> None:
    store = counting_store(count)
    if count - 1 < max(rows, 1 if window == "full" else window):
        with pytest.raises(DataError):
            RotatedStreamLoader(store, rows, window, seed=1)
        return
    batches = list(RotatedStreamLoader(store, rows, window, seed=1).epoch(epoch))
    assert all(torch.equal(batch.targets, batch.ids + 1) for batch in batches)
    positions = list_target_positions(batches)
    assert sorted(positions) == list(range(1, len(positions) + 1))
    assert count - 1 - len(positions) < rows


def test_each_stream_is_rotated_by_its_own_offset_in_each_epoch(counting_store: BuildStore) -> None:
    streams = RotatedStreamLoader(counting_store(4001), 4, 50, seed=0)
    offsets = torch.stack([next(streams.epoch(epoch)).ids[:, 0] - 1000 * torch.arange(4) for epoch in range(50)])
    assert len(offsets.unique()) > 150
    assert abs(float(offsets.double().mean()) - 500) < 80  # 500 ± 20 if they are uniform


@pytest.mark.parametrize("world_size", [2, 3])
def test_rotation_does_not_depend_on_the_number_of_processes(counting_store: BuildStore, world_size: int) -> None:
    store = counting_store(700)
    of_one_process = list(RotatedStreamLoader(store, 7, 20, seed=5).epoch(2))
    parts = [list(RotatedStreamLoader(store, 7, 20, 5, rank, world_size).epoch(2)) for rank in range(world_size)]
    for batch, *shares in zip(of_one_process, *parts, strict=True):
        assert torch.equal(torch.cat([share.ids for share in shares]), batch.ids)
        assert torch.equal(torch.cat([share.targets for share in shares]), batch.targets)


def test_window_full_reads_the_whole_stream(counting_store: BuildStore) -> None:
    batches = list(StreamLoader(counting_store(31), batch_size=3, window="full", seed=0).epoch(4))
    assert [tuple(batch.ids.shape) for batch in batches] == [(3, 10)]


@pytest.mark.parametrize("loader_class", [StreamLoader, RotatedStreamLoader, WindowLoader])
def test_epochs_differ_and_are_reproducible(loader_class: type, counting_store: BuildStore) -> None:
    batches = loader_class(counting_store(1000), 4, 16, seed=3)
    same_seed = loader_class(counting_store(1000), 4, 16, seed=3)
    other_seed = loader_class(counting_store(1000), 4, 16, seed=4)
    for epoch in range(3):
        assert all(is_equal(*pair) for pair in zip(batches.epoch(epoch), same_seed.epoch(epoch), strict=True))
    first_tokens = {
        tuple(next(loader.epoch(epoch)).ids[:, 0].tolist()) for loader in (batches, other_seed) for epoch in range(5)
    }
    assert len(first_tokens) > 7


@pytest.mark.parametrize("loader_class", [StreamLoader, RotatedStreamLoader, WindowLoader])
@pytest.mark.parametrize("start", [0, 1, 5, 70, 1000])
def test_resuming_at_a_batch_equals_skipping_the_earlier_ones(
    loader_class: type, start: int, counting_store: BuildStore
) -> None:
    batches = loader_class(counting_store(3000), 4, 8, seed=3)
    skipped = list(islice(batches.epoch(2), start, None))
    resumed = list(batches.epoch(2, start=start))
    assert len(skipped) == len(resumed) == max(0, batches.steps - start)
    assert all(is_equal(*pair) for pair in zip(skipped, resumed))


@pytest.mark.parametrize("loader_class", [StreamLoader, WindowLoader])
def test_skipped_batches_are_not_read(
    loader_class: type, counting_store: BuildStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = counting_store(3000)
    reads: list[int] = []
    real = TokenStore.read_sequences
    monkeypatch.setattr(
        TokenStore, "read_sequences", lambda self, starts, n: (reads.append(n), real(self, starts, n))[1]
    )
    next(loader_class(store, 4, 8, seed=3).epoch(0, start=60))
    assert len(reads) == 1


@pytest.mark.parametrize("loader_class", [StreamLoader, WindowLoader])
@pytest.mark.parametrize("world_size", [2, 4])
def test_all_ranks_together_have_the_rows_of_one_process(
    loader_class: type, world_size: int, counting_store: BuildStore
) -> None:
    store = counting_store(8 * 20 * 6 + 1)
    of_one_process = list(loader_class(store, 8, 20, seed=0).epoch(1))
    batches_by_rank = [
        list(loader_class(store, 8, 20, seed=0, rank=rank, world_size=world_size).epoch(1))
        for rank in range(world_size)
    ]
    assert {len(batches) for batches in batches_by_rank} == {len(of_one_process)}
    for batch, *parts in zip(of_one_process, *batches_by_rank):
        together = torch.cat([part.ids for part in parts])
        assert torch.equal(together, batch.ids[: len(together)])
        assert batch.num_sequences - len(together) < world_size


@quick_settings
@given(count=st.integers(2, 400), rows=st.integers(1, 8), window=st.integers(1, 40), epoch=st.integers(0, 5))
def test_windows_use_each_position_at_most_once(
    counting_store: BuildStore, count: int, rows: int, window: int, epoch: int
) -> None:
    store = counting_store(count)
    if count - 1 < window:
        with pytest.raises(DataError):
            WindowLoader(store, rows, window, seed=1)
        return
    windows = WindowLoader(store, rows, window, seed=1)
    batches = list(windows.epoch(epoch))
    assert len(batches) == windows.steps
    assert all(torch.equal(batch.targets, batch.ids + 1) and batch.resets_state for batch in batches)
    positions = list_target_positions(batches)
    assert len(set(positions)) == len(positions) == windows.num_windows * windows.window
    assert count - 1 - len(positions) < 2 * window


def test_windows_are_shuffled(counting_store: BuildStore) -> None:
    starts = torch.cat(
        [batch.ids[:, 0] for batch in WindowLoader(counting_store(10_001), 10, 10, seed=0).epoch(0)]
    ).float()
    assert abs(np.corrcoef(np.arange(len(starts)), starts)[0, 1]) < 0.1


@pytest.mark.parametrize("loader_class", [StreamLoader, RotatedStreamLoader, WindowLoader])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_any_number_of_processes_shares_the_batches_of_one(
    counting_store: BuildStore, loader_class: type, world_size: int
) -> None:
    """The last of the windows is a batch of its own, so that all processes but one have no share of it."""
    store = counting_store(95)  # 9 windows in batches of 4
    loaders = [loader_class(store, 4, 10, 0, rank, world_size) for rank in range(world_size)]
    of_one_process = list(loader_class(store, 4, 10, 0).epoch(1))
    assert [each.steps for each in loaders] == [len(of_one_process)] * world_size
    num_fillers = 0
    for batch, *parts in zip(of_one_process, *(each.epoch(1) for each in loaders), strict=True):
        num_fillers += sum(part.is_filler for part in parts)
        own_parts = [part for part in parts if not part.is_filler]
        assert torch.equal(torch.cat([part.ids for part in own_parts]), batch.ids)
        assert {part.resets_state for part in parts} == {batch.resets_state}
    assert num_fillers == (world_size - 1 if loader_class is WindowLoader else 0)


@pytest.mark.parametrize("world_size", [2, 3])
def test_any_number_of_processes_scores_each_target_once(counting_store: BuildStore, world_size: int) -> None:
    store = counting_store(300)
    loaders = [WindowEvaluationLoader(store, 4, 10, 5, rank, world_size) for rank in range(world_size)]
    positions = [position for each in loaders for position in list_target_positions(list(each.epoch()))]
    assert sorted(positions) == list(range(1, 300))


@pytest.mark.parametrize("loader_class", [StreamLoader, WindowLoader, StreamEvaluationLoader, WindowEvaluationLoader])
def test_rows_that_cannot_be_divided_among_ranks_are_rejected(loader_class: type, counting_store: BuildStore) -> None:
    options = {"seed": 0} if loader_class in (StreamLoader, WindowLoader) else {}
    with pytest.raises(UsageError, match="a batch of 2 cannot be divided among 3 processes"):
        loader_class(counting_store(100), 2, 10, rank=0, world_size=3, **options)


@pytest.mark.parametrize("loader_class", [StreamLoader, WindowLoader])
def test_a_text_shorter_than_a_window_is_rejected_with_numbers(loader_class: type, counting_store: BuildStore) -> None:
    with pytest.raises(DataError, match=r"the train text has 50 tokens; .* windows of 64 need at least 65") as excinfo:
        loader_class(counting_store(50), 1, 64, seed=0)
    assert "--data.window" in excinfo.value.fix


def test_fewer_tokens_than_rows_are_rejected(counting_store: BuildStore) -> None:
    with pytest.raises(DataError, match=r"50 tokens; batches of 64 windows of 8 need at least 65"):
        StreamLoader(counting_store(50), 64, 8, seed=0)


# ---- evaluation


@quick_settings
@given(count=st.integers(2, 200), rows=st.integers(1, 9), window=st.one_of(st.integers(1, 30), st.just("full")))
def test_evaluation_streams_predict_every_token_but_the_first_once(
    counting_store: BuildStore, count: int, rows: int, window: int
) -> None:
    streams = StreamEvaluationLoader(counting_store(count), rows, window)
    batches = list(streams.epoch())
    assert sorted(list_target_positions(batches)) == list(range(1, count))
    assert len(batches) == streams.steps
    assert all(torch.equal(b.targets[m], b.ids[m] + 1) for b in batches if (m := b.mask) is not None)
    assert [batch.resets_state for batch in batches] == [True] + [False] * (len(batches) - 1)
    if rows == 1:
        assert list_target_positions(batches) == list(range(1, count))
        assert all(batch.mask is None for batch in batches)


@quick_settings
@given(
    count=st.integers(2, 200),
    rows=st.integers(1, 5),
    window=st.integers(1, 30),
    context=st.integers(0, 29),
    world_size=st.integers(1, 3),
)
def test_evaluation_windows_predict_every_token_but_the_first_once_with_enough_history(
    counting_store: BuildStore, count: int, rows: int, window: int, context: int, world_size: int
) -> None:
    context = min(context, window)
    all_batches: list[TokenBatch] = []
    steps = set()
    for rank in range(world_size):
        source = WindowEvaluationLoader(counting_store(count), rows * world_size, window, context, rank, world_size)
        batches = list(source.epoch())
        steps |= {len(batches), source.steps}
        all_batches += batches
    assert len(steps) == 1
    assert sorted(list_target_positions(all_batches)) == list(range(1, count))
    for batch in all_batches:
        assert torch.equal(batch.targets, batch.ids + 1)
        assert batch.mask is not None
        history = batch.targets - batch.ids[:, :1]
        assert (history >= batch.targets.clamp(max=context))[batch.mask].all()


def test_evaluation_windows_equal_hand_written_ones(counting_store: BuildStore) -> None:
    """Targets 1…9, windows of 4 that overlap by 2; the last one is moved back to end with the text."""
    batches = list(WindowEvaluationLoader(counting_store(10), 3, 4, 3).epoch())
    assert [batch.ids[:, 0].tolist() for batch in batches] == [[0, 2, 4], [5]]
    assert [batch.mask.int().tolist() for batch in batches if batch.mask is not None] == [
        [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]],
        [[0, 0, 0, 1]],
    ]


def test_evaluation_streams_are_shared_among_ranks(counting_store: BuildStore) -> None:
    parts = [list(StreamEvaluationLoader(counting_store(30), 4, 5, rank, 2).epoch()) for rank in range(2)]
    assert len(parts[0]) == len(parts[1])
    assert sorted(list_target_positions(parts[0] + parts[1])) == list(range(1, 30))


def test_blocks_equal_hand_written_ones(counting_store: BuildStore) -> None:
    """A quarter of 40 targets in 4 parts of 10: the last three of each count, after a window of two that does not."""
    first, *others = BlockEvaluationLoader(counting_store(41), 4, 2, 0.25).epoch()
    assert first.resets_state
    assert not first.mask.any()
    assert first.ids.tolist() == [[5, 6], [15, 16], [25, 26], [35, 36]]
    assert [batch.resets_state for batch in others] == [False, False]
    assert [batch.ids.tolist() for batch in others] == [
        [[7, 8], [17, 18], [27, 28], [37, 38]],
        [[9], [19], [29], [39]],
    ]
    assert others[-1].targets.tolist() == [[10], [20], [30], [40]]


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize(("count", "share"), [(5, 0.9), (30, 0.01), (500, 0.5), (3000, 0.2), (3000, 0.8)])
def test_blocks_have_a_share_of_the_text_at_equal_distances(
    counting_store: BuildStore, count: int, share: float, world_size: int
) -> None:
    batches = [
        batch
        for rank in range(world_size)
        for batch in BlockEvaluationLoader(counting_store(count), 4, 6, share, rank, world_size).epoch()
    ]
    positions = sorted(list_target_positions([batch for batch in batches if batch.mask is None]))
    assert len(positions) == len({*positions})
    wanted = share * (count - 1)
    assert wanted <= len(positions) + 4
    assert len(positions) <= wanted + 4 * 6 * 8
    halves = [sum(position < count / 2 for position in positions), sum(position >= count / 2 for position in positions)]
    assert abs(halves[0] - halves[1]) <= max(2, 0.3 * len(positions))


def test_a_context_longer_than_the_window_is_rejected(counting_store: BuildStore) -> None:
    with pytest.raises(UsageError, match="context of 9 does not fit into windows of 8"):
        WindowEvaluationLoader(counting_store(100), 1, 8, 9)


@pytest.mark.parametrize("loader_class", [StreamEvaluationLoader, WindowEvaluationLoader])
def test_one_token_cannot_be_evaluated(loader_class: type, counting_store: BuildStore) -> None:
    with pytest.raises(DataError, match="1 tokens"):
        loader_class(counting_store(1), 1, 8)


# ---- the batch


def test_a_batch_can_be_sliced_by_rows_and_counts_its_targets() -> None:
    ids = torch.arange(12).view(3, 4)
    batch = TokenBatch(ids, ids + 1, mask=ids % 2 == 0, positions=torch.tensor([0, 4, 8]))
    part = batch.slice(1, 3)
    assert (part.num_sequences, part.num_targets, batch.num_targets) == (2, 4, 6)
    assert part.positions is not None
    assert part.positions.tolist() == [4, 8]
    assert torch.equal(part.to("cpu").ids, ids[1:])
