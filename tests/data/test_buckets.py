"""Batches of whole examples: each once, within the token limit, the same in any number of processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqwise.data.batch import BUCKET_GROWTH, Batch, BucketLoader, iterate_by_length, pad_sequences
from seqwise.errors import UsageError

LENGTHS = np.random.default_rng(0).integers(1, 80, 203)


@dataclass(frozen=True)
class IndexBatch(Batch):
    """A batch of the indices of its examples."""

    indices: Tensor


def build_loader(lengths=LENGTHS, rows=16, tokens=400, seed=0, rank=0, world_size=1) -> BucketLoader[IndexBatch]:
    return BucketLoader(
        lengths, lambda indices: IndexBatch(torch.from_numpy(indices)), rows, tokens, seed, rank, world_size
    )


def list_epoch(source: BucketLoader[IndexBatch], epoch: int = 0, start: int = 0) -> list[list[int]]:
    """Returns the examples of each batch that count."""
    return [[] if batch.is_filler else batch.indices.tolist() for batch in source.epoch(epoch, start)]


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=60),
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(1, 500)),
    st.integers(0, 3),
)
def test_every_example_occurs_once_within_the_token_limit(
    lengths: list[int], rows: int, tokens: int | None, epoch: int
):
    source = build_loader(lengths, rows, tokens)
    batches = list_epoch(source, epoch)
    assert len(batches) == source.steps
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) <= rows
        assert len(batch) == 1 or tokens is None or len(batch) * longest <= tokens


def test_one_long_example_does_not_make_other_batches_smaller():
    assert sorted(map(len, list_epoch(build_loader([10] * 64 + [100_000], rows=16, tokens=160)))) == [1, 16, 16, 16, 16]


def test_little_of_a_batch_is_padding():
    lengths = np.random.default_rng(1).integers(5, 60, 5_000)
    padded = sum(len(batch) * lengths[batch].max() for batch in list_epoch(build_loader(lengths, 64, None)))
    assert lengths.sum() > 0.88 * padded
    assert BUCKET_GROWTH == 1.2


def test_the_order_is_a_function_of_seed_and_epoch():
    assert list_epoch(build_loader(), 3) == list_epoch(build_loader(), 3)
    assert list_epoch(build_loader(), 3) != list_epoch(build_loader(), 4)
    assert list_epoch(build_loader(), 3) != list_epoch(build_loader(seed=1), 3)


def test_batches_are_not_sorted_by_length():
    means = [LENGTHS[batch].mean() for batch in list_epoch(build_loader())]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.5


def test_batches_have_other_examples_in_each_epoch():
    lengths = [50, *np.random.default_rng(2).integers(1, 80, 2_000)]
    partners = [
        set(next(batch for batch in list_epoch(build_loader(lengths), epoch) if 0 in batch)) for epoch in (0, 1)
    ]
    assert len(partners[0] & partners[1]) < len(partners[0]) / 2


def test_an_epoch_can_begin_at_any_batch():
    epoch = list_epoch(build_loader(), 2)
    assert [list_epoch(build_loader(), 2, start) for start in (0, 5, len(epoch))] == [epoch, epoch[5:], []]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_several_processes_share_the_batches_of_one(world_size: int):
    rows, tokens = 12, 200  # two rows of 80 tokens, so that some batches have fewer rows than processes
    of_one_process = list_epoch(build_loader(rows=rows, tokens=tokens), 1)
    batches_by_rank = [
        list_epoch(build_loader(rows=rows, tokens=tokens, rank=rank, world_size=world_size), 1)
        for rank in range(world_size)
    ]
    for batch, *parts in zip(of_one_process, *batches_by_rank, strict=True):
        together = [index for part in parts for index in part]
        assert sorted(together) == sorted(batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_process_without_a_share_gets_an_example_that_does_not_count():
    loaders = [build_loader([50] * 3, rows=4, tokens=60, rank=rank, world_size=2) for rank in (0, 1)]
    own, other = ([(len(batch.indices), batch.is_filler) for batch in loader.epoch(0)] for loader in loaders)
    assert own == [(1, False)] * 3
    assert other == [(1, True)] * 3


def test_batches_with_fewer_rows_than_processes_are_rejected_with_advice_for_a_run_that_is_resumed():
    with pytest.raises(UsageError, match="a batch of 2 cannot be divided among 3 processes") as excinfo:
        build_loader(rows=2, world_size=3)
    assert excinfo.value.fix.startswith("Use --nproc 2 or fewer.")


@pytest.mark.parametrize("world_size", [1, 3])
def test_evaluation_reads_each_example_once_with_the_long_ones_first(world_size: int):
    batches_by_rank = [
        [indices.tolist() for indices in iterate_by_length(LENGTHS, 16, 400, rank, world_size)]
        for rank in range(world_size)
    ]
    assert sorted(index for batches in batches_by_rank for batch in batches for index in batch) == list(
        range(len(LENGTHS))
    )
    for batches in batches_by_rank:
        longest = [LENGTHS[batch].max() for batch in batches]
        assert longest == sorted(longest, reverse=True)
        assert all(len(batch) * length <= 400 or len(batch) == 1 for batch, length in zip(batches, longest))


def test_no_examples_give_no_batches():
    assert list(iterate_by_length([], 16)) == []


def test_rows_are_padded_to_the_longest():
    assert pad_sequences([np.array([3, 4]), np.array([5])], value=9).tolist() == [[3, 4], [5, 9]]
    assert pad_sequences([np.array([], dtype=np.int64)]).tolist() == [[0]]
