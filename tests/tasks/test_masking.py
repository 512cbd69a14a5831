"""Which tokens are masked: their fractions, reproducibility, and that an evaluation scores every token once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from stores import write_store

from seqwise.data.corpus.batching import WindowLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.data.shuffle import hash_integers
from seqwise.errors import DataError
from seqwise.tasks.masked.masking import (
    MaskedBatch,
    MaskedEvaluationLoader,
    MaskedWindowLoader,
    MaskSampler,
    hash_to_uniform,
)

SAMPLER = MaskSampler(rate=0.15, mask_id=1, num_specials=2, vocabulary_size=50, unknown=3)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    rng = np.random.default_rng(0)
    return write_store(tmp_path / "text", rng.integers(2, 50, 4000), 50)


def hash_position(position: int, *key: int) -> float:
    """Returns `hash_to_uniform` of one position, in Python integers."""
    all_bits = (1 << 64) - 1
    state = (position * 0x9E3779B97F4A7C15 & all_bits) ^ hash_integers(*key)
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & all_bits
    state = (state ^ state >> 27) * 0x94D049BB133111EB & all_bits
    state ^= state >> 31
    return (state >> 11) / 2**53


def test_hash_to_uniform_equals_its_formula_in_python_integers():
    positions = np.array([0, 1, 2, 10**12])
    assert hash_to_uniform(positions, 7, 3).tolist() == [hash_position(int(position), 7, 3) for position in positions]


def test_hash_to_uniform_is_uniform_and_uncorrelated():
    values = hash_to_uniform(np.arange(100_000), 1, 2, 0)
    assert np.histogram(values, bins=10, range=(0, 1))[0] == pytest.approx(10_000, rel=0.04)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(values, hash_to_uniform(np.arange(100_000), 1, 2, 1))[0, 1]) < 0.01


def test_15_percent_are_targets_and_80_percent_of_them_are_masked():
    ids = np.random.default_rng(1).integers(4, 50, (500, 200))
    inputs, is_target = SAMPLER.sample(ids, np.arange(500) * 200, 0, 0)
    assert is_target.mean() == pytest.approx(0.15, abs=0.003)
    is_masked, is_changed = inputs[is_target] == 1, (inputs != ids)[is_target]
    assert is_masked.mean() == pytest.approx(0.8, abs=0.01)
    assert (is_changed & ~is_masked).mean() == pytest.approx(0.1 * 47 / 48, abs=0.01)  # a random token may be the same
    assert (inputs == ids)[~is_target].all()
    assert inputs[is_target & (inputs != ids) & (inputs != 1)].min() >= 2  # a random token is never a special one


def test_special_and_unknown_tokens_are_never_targets():
    ids = np.random.default_rng(2).integers(0, 6, (50, 40))
    _, is_target = SAMPLER.sample(ids, np.arange(50) * 40, 0, 0)
    assert is_target.any(axis=1).all()
    assert set(ids[is_target]) <= {2, 4, 5}


def test_every_row_has_at_least_one_target_on_request():
    ids = np.full((200, 3), 9)
    _, is_target = SAMPLER.sample(ids, np.arange(200) * 3, 0, 0)
    assert set(is_target.sum(axis=1)) <= {1, 2, 3}
    _, is_target = SAMPLER.sample(ids, np.arange(200) * 3, 0, 0, at_least_one=False)
    assert (is_target.sum(axis=1) == 0).any()


def test_a_row_of_unknown_words_has_no_target():
    inputs, is_target = SAMPLER.sample(np.array([[3, 3, 3], [3, 9, 3], [0, 3, 1]]), np.arange(3) * 3, 0, 0)
    assert is_target.tolist() == [[False] * 3, [False, True, False], [False] * 3]
    assert inputs[0].tolist() == [3, 3, 3]


def create_windows(
    store: TokenStore, rows: int = 8, rank: int = 0, world_size: int = 1, bidirectional: bool = False
) -> MaskedWindowLoader:
    return MaskedWindowLoader(WindowLoader(store, rows, 20, 5, rank, world_size), SAMPLER, bidirectional)


def test_masks_depend_on_seed_epoch_and_position_only(store: TokenStore):
    first, second = list(create_windows(store).epoch(0)), list(create_windows(store).epoch(0))
    assert all(torch.equal(a.ids, b.ids) and torch.equal(a.target_mask, b.target_mask) for a, b in zip(first, second))
    later = next(create_windows(store).epoch(0, start=4))
    assert torch.equal(later.ids, first[4].ids)
    ids, starts = store.read(0, 2000).reshape(20, 100), np.arange(20) * 100
    _, is_target = SAMPLER.sample(ids, starts, 5, 0)
    for changed_sample in (
        SAMPLER.sample(ids, starts, 5, 1),
        SAMPLER.sample(ids, starts, 6, 0),
        SAMPLER.sample(ids, starts + 1, 5, 0),
    ):
        different = (changed_sample[1] != is_target).mean()
        assert different == pytest.approx(2 * 0.15 * 0.85, abs=0.05)  # as for independent samples


def test_two_processes_mask_the_same_tokens_as_one(store: TokenStore):
    of_one_process = next(create_windows(store).epoch(0))
    of_two_processes = [next(create_windows(store, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    assert torch.equal(torch.cat([batch.ids for batch in of_two_processes]), of_one_process.ids)
    assert torch.equal(torch.cat([batch.target_mask for batch in of_two_processes]), of_one_process.target_mask)


def test_a_batch_counts_its_targets(store: TokenStore):
    batch = next(create_windows(store).epoch(0))
    assert isinstance(batch, MaskedBatch)
    assert (batch.num_targets, batch.num_tokens, batch.length) == (int(batch.target_mask.sum()), 160, 20)
    assert next(create_windows(store, bidirectional=True).epoch(0)).num_targets == 2 * 8 * 19
    assert sum(batch.slice(row, row + 1).num_targets for row in range(8)) == batch.num_targets


@pytest.mark.parametrize("window", [3, 4, 7, 20, 64, 5000])
def test_every_token_is_scored_once_with_context_on_both_sides(store: TokenStore, window: int):
    batches = MaskedEvaluationLoader(store, SAMPLER, 16, window, bidirectional=False)
    num_scored, num_targets = np.zeros(len(store), dtype=int), np.zeros(len(store), dtype=int)
    for batch in batches.epoch():
        assert batch.scored_mask is not None
        for start, scored, targets in zip(
            batch.positions.numpy(), batch.scored_mask.numpy(), batch.target_mask.numpy()
        ):
            num_scored[start : start + len(scored)] += scored
            num_targets[start : start + len(targets)] += targets
            quarter, columns = len(scored) // 4, np.flatnonzero(scored)
            assert start == 0 or columns[0] >= quarter
            assert start + len(scored) == len(store) or columns[-1] < len(scored) - quarter
    assert (num_scored == 1).all()
    assert num_targets.max() == 1
    expected = (hash_to_uniform(np.arange(len(store)), 0, 0, 0) < 0.15) & (store.read(0, len(store)) != 3)
    expected[[0, -1]] = False
    assert (num_targets == expected).all()  # the same tokens for every window


def test_a_text_of_two_tokens_is_rejected(tmp_path: Path):
    with pytest.raises(DataError, match="has 2 tokens"):
        MaskedEvaluationLoader(write_store(tmp_path / "two", np.array([4, 5]), 50), SAMPLER, 1, 8, bidirectional=False)
