"""Which tokens are hidden: shares, purity, and that an evaluation counts every token once."""

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
from seqwise.tasks.masked.masking import EvaluationMasks, MaskedBatch, MaskedWindows, MaskSampler, hash_to_uniform

MASKS = MaskSampler(rate=0.15, mask=1, first=2, vocabulary=50, unknown=3)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    draw = np.random.default_rng(0)
    return write_store(tmp_path / "text", draw.integers(2, 50, 4000), 50)


def stirred(place: int, *key: int) -> float:
    """The formula of `hash_to_uniform` in plain numbers."""
    whole = (1 << 64) - 1
    state = (place * 0x9E3779B97F4A7C15 & whole) ^ hash_integers(*key)
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & whole
    state = (state ^ state >> 27) * 0x94D049BB133111EB & whole
    state ^= state >> 31
    return (state >> 11) / 2**53


def test_chance_is_the_stated_arithmetic():
    places = np.array([0, 1, 2, 10**12])
    assert hash_to_uniform(places, 7, 3).tolist() == [stirred(int(place), 7, 3) for place in places]


def test_chance_is_even():
    draw = hash_to_uniform(np.arange(100_000), 1, 2, 0)
    assert np.histogram(draw, bins=10, range=(0, 1))[0] == pytest.approx(10_000, rel=0.04)
    assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(draw, hash_to_uniform(np.arange(100_000), 1, 2, 1))[0, 1]) < 0.01


def test_fifteen_of_a_hundred_are_chosen_and_eight_of_ten_of_them_masked():
    ids = np.random.default_rng(1).integers(4, 50, (500, 200))
    seen, chosen = MASKS.sample(ids, np.arange(500) * 200, 0, 0)
    assert chosen.mean() == pytest.approx(0.15, abs=0.003)
    hidden, changed = seen[chosen] == 1, (seen != ids)[chosen]
    assert hidden.mean() == pytest.approx(0.8, abs=0.01)
    assert (changed & ~hidden).mean() == pytest.approx(0.1 * 47 / 48, abs=0.01)  # a random token may be the same
    assert (seen == ids)[~chosen].all()
    assert seen[chosen & (seen != ids) & (seen != 1)].min() >= 2  # no special by chance


def test_specials_and_unknown_words_are_never_chosen():
    ids = np.random.default_rng(2).integers(0, 6, (50, 40))
    _, chosen = MASKS.sample(ids, np.arange(50) * 40, 0, 0)
    assert chosen.any(axis=1).all()
    assert set(ids[chosen]) <= {2, 4, 5}


def test_a_row_has_a_hidden_token_even_where_chance_gives_none():
    ids = np.full((200, 3), 9)
    _, chosen = MASKS.sample(ids, np.arange(200) * 3, 0, 0)
    assert set(chosen.sum(axis=1)) <= {1, 2, 3}
    _, chosen = MASKS.sample(ids, np.arange(200) * 3, 0, 0, at_least_one=False)
    assert (chosen.sum(axis=1) == 0).any()


def test_a_row_of_unknown_words_hides_nothing():
    seen, chosen = MASKS.sample(np.array([[3, 3, 3], [3, 9, 3], [0, 3, 1]]), np.arange(3) * 3, 0, 0)
    assert chosen.tolist() == [[False] * 3, [False, True, False], [False] * 3]
    assert seen[0].tolist() == [3, 3, 3]


def windows(
    store: TokenStore, rows: int = 8, rank: int = 0, world_size: int = 1, bidirectional: bool = False
) -> MaskedWindows:
    return MaskedWindows(WindowLoader(store, rows, 20, 5, rank, world_size), MASKS, bidirectional)


def test_masks_are_a_function_of_seed_epoch_and_place(store: TokenStore):
    first, again = list(windows(store).epoch(0)), list(windows(store).epoch(0))
    assert all(torch.equal(a.ids, b.ids) and torch.equal(a.target_mask, b.target_mask) for a, b in zip(first, again))
    later = next(windows(store).epoch(0, start=4))
    assert torch.equal(later.ids, first[4].ids)
    ids, starts = store.read(0, 2000).reshape(20, 100), np.arange(20) * 100
    _, chosen = MASKS.sample(ids, starts, 5, 0)
    for other in (
        MASKS.sample(ids, starts, 5, 1),
        MASKS.sample(ids, starts, 6, 0),
        MASKS.sample(ids, starts + 1, 5, 0),
    ):
        assert (other[1] != chosen).mean() == pytest.approx(2 * 0.15 * 0.85, abs=0.05)  # as of independent draws


def test_two_processes_hide_what_one_hides(store: TokenStore):
    whole = next(windows(store).epoch(0))
    halves = [next(windows(store, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    assert torch.equal(torch.cat([half.ids for half in halves]), whole.ids)
    assert torch.equal(torch.cat([half.target_mask for half in halves]), whole.target_mask)


def test_a_batch_counts_what_its_model_predicts(store: TokenStore):
    batch = next(windows(store).epoch(0))
    assert isinstance(batch, MaskedBatch)
    assert (batch.num_targets, batch.num_tokens, batch.length) == (int(batch.target_mask.sum()), 160, 20)
    assert next(windows(store, bidirectional=True).epoch(0)).num_targets == 2 * 8 * 19
    assert sum(batch.slice(row, row + 1).num_targets for row in range(8)) == batch.num_targets


@pytest.mark.parametrize("window", [3, 4, 7, 20, 64, 5000])
def test_every_token_is_counted_once_with_context_on_both_sides(store: TokenStore, window: int):
    batches = EvaluationMasks(store, MASKS, 16, window, bidirectional=False)
    counted, chosen = np.zeros(len(store), dtype=int), np.zeros(len(store), dtype=int)
    for batch in batches.epoch():
        assert batch.scored_mask is not None
        for start, counts, picks in zip(batch.positions.numpy(), batch.scored_mask.numpy(), batch.target_mask.numpy()):
            counted[start : start + len(counts)] += counts
            chosen[start : start + len(picks)] += picks
            quarter, at = len(counts) // 4, np.flatnonzero(counts)
            assert start == 0 or at[0] >= quarter
            assert start + len(counts) == len(store) or at[-1] < len(counts) - quarter
    assert (counted == 1).all()
    assert chosen.max() == 1
    wanted = (hash_to_uniform(np.arange(len(store)), 0, 0, 0) < 0.15) & (store.read(0, len(store)) != 3)
    wanted[[0, -1]] = False
    assert (chosen == wanted).all()  # the same tokens whatever the window


def test_a_text_of_two_tokens_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="has 2 tokens"):
        EvaluationMasks(write_store(tmp_path / "two", np.array([4, 5]), 50), MASKS, 1, 8, bidirectional=False)
