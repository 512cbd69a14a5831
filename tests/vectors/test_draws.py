"""Random choices (subsampled words, negatives, windows, sentences) against formulas and a reference in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from seqwise.vectors.word2vec.objective import (
    advance_state,
    draw_word,
    get_random_bits,
    read_sentence,
    read_window,
    scale_bits,
)
from seqwise.vectors.word2vec.sampling_tables import UINT32_MAX, build_alias_table, compute_keep_thresholds, seed_block

UINT64_MAX = 2**64 - 1


def advance_expected_state(state: int) -> int:
    state ^= state >> 12
    state ^= (state << 25) & UINT64_MAX
    return state ^ (state >> 27)


def get_expected_bits(state: int) -> int:
    return (state * 2685821657736338717 & UINT64_MAX) >> 32


@njit
def draw_arrays(state, count, alias_table):
    states, upper_bits, integers = np.empty(count, np.uint64), np.empty(count, np.uint32), np.empty(count, np.int64)
    words = np.empty(count, np.int64)
    for index in range(count):
        state = advance_state(state)
        states[index], upper_bits[index], integers[index] = (
            state,
            get_random_bits(state),
            scale_bits(get_random_bits(state), 7),
        )
        words[index] = draw_word(state, alias_table)
    return states, upper_bits, integers, words


@njit
def read_all(block, keep, state, max_length, window, width):
    """Returns every sentence of a block, and the neighbours (times width) of each of its words."""
    sentence, rows = np.empty(max_length, np.int32), np.empty(2 * window, np.int64)
    sentences, neighbours = [], []
    index = 0
    while index < len(block):
        index, length, state = read_sentence(block, index, keep, state, sentence)
        sentences.append(sentence[:length].copy())
        for centre in range(length):
            count, state = read_window(sentence, length, centre, window, state, width, rows)
            neighbours.append(rows[:count].copy())
    return sentences, neighbours


def read_block(block, keep=None, max_length=50, window=2, width=16, state=1):
    block = np.array(block, dtype=np.int32)
    keep = np.full(100, UINT32_MAX, dtype=np.uint32) if keep is None else keep
    sentences, neighbours = read_all(block, keep, np.uint64(state), max_length, window, width)
    return [list(map(int, s)) for s in sentences], [list(map(int, rows)) for rows in neighbours]


@pytest.fixture(scope="module")
def draws():
    return draw_arrays(np.uint64(12345), 40_000, build_alias_table(np.array([5.0, 1.0, 0.5, 3.5])))


def test_random_states_follow_xorshift64_star(draws):
    states, upper_bits, _, _ = draws
    state = 12345
    for index in range(50):
        state = advance_expected_state(state)
        assert int(states[index]) == state
        assert int(upper_bits[index]) == get_expected_bits(state)


def test_random_integers_are_uniform(draws):
    counts = np.bincount(draws[2], minlength=7)
    assert len(counts) == 7
    # 40,000 draws: a standard deviation is 70; five of them do not occur by chance.
    assert counts == pytest.approx(np.full(7, 40_000 / 7), abs=350)


def test_words_are_drawn_by_weight(draws):
    share = np.bincount(draws[3], minlength=4) / 40_000
    assert share == pytest.approx([0.5, 0.1, 0.05, 0.35], abs=0.0125)


@pytest.mark.parametrize(
    "weights", [[1.0], [1, 1, 1], [5, 1, 0.5, 3.5], [1e6, 1, 1, 1], list(1 / np.arange(1, 2000) ** 0.75)]
)
def test_the_slots_of_the_alias_table_sum_to_the_weights(weights):
    weights = np.array(weights, dtype=np.float64)
    original = weights.copy()
    threshold, alias = build_alias_table(weights)
    assert np.array_equal(weights, original)
    own_share = threshold / UINT32_MAX
    totals = own_share.copy()
    np.add.at(totals, alias, 1 - own_share)
    assert totals / len(weights) == pytest.approx(weights / weights.sum(), abs=2e-9)


def test_subsampling_keeps_words_with_the_published_probability():
    counts = np.array([60_000, 30_000, 9_900, 99, 1], dtype=np.int64)
    frequency = counts / counts.sum()
    share = np.minimum(1, np.sqrt(1e-3 / frequency) + 1e-3 / frequency)
    assert compute_keep_thresholds(counts, 1e-3) / UINT32_MAX == pytest.approx(share, abs=1e-9)
    assert share[0] == pytest.approx(0.0408 + 0.0017, abs=1e-3)
    assert (compute_keep_thresholds(counts, 0.0) == UINT32_MAX).all()


def test_every_block_has_its_own_random_state():
    states = {int(seed_block(seed, epoch, block)) for seed in range(3) for epoch in range(5) for block in range(50)}
    assert len(states) == 3 * 5 * 50
    assert 0 not in states
    assert seed_block(1, 2, 3) == seed_block(1, 2, 3)


def test_sentences_end_at_minus_one():
    sentences, _ = read_block([1, 2, 3, -1, -1, 4, -1, 5, 6])
    assert sentences == [[1, 2, 3], [], [4], [5, 6]]


def test_windows_hold_neighbours_and_never_cross_the_end_of_a_sentence():
    block = [*range(10), -1, *range(20, 23), -1, 30, -1]
    widths = set()
    for state in range(1, 30):
        sentences, neighbours = read_block(block, window=3, width=112, state=state)
        positions = [(s, centre) for s in sentences for centre in range(len(s))]
        for (sentence, centre), rows in zip(positions, neighbours, strict=True):
            options = [
                [w * 112 for w in sentence[max(0, centre - r) : centre] + sentence[centre + 1 : centre + r + 1]]
                for r in (1, 2, 3)
            ]
            assert rows in options
            if len(sentence) == 10 and centre == 5:
                widths.add(len(rows))
    assert widths == {2, 4, 6}


def test_a_sentence_longer_than_the_buffer_is_split_and_nothing_is_lost():
    sentences, neighbours = read_block([*range(25), -1, 40, 41, -1], max_length=10)
    assert sentences == [list(range(10)), list(range(10, 20)), list(range(20, 25)), [40, 41]]
    assert neighbours[10] in ([11 * 16], [11 * 16, 12 * 16])  # the first word of the second part has no left neighbour
    of_buffer_size, _ = read_block([*range(10), -1, 40, -1], max_length=10)
    assert [s for s in of_buffer_size if s] == [list(range(10)), [40]]


def test_subsampling_drops_words_before_windows_are_taken():
    keep = np.full(100, UINT32_MAX, dtype=np.uint32)
    keep[7] = 0
    sentences, neighbours = read_block([1, 7, 2, 7, 7, 3, -1], keep, window=1)
    assert sentences == [[1, 2, 3]]
    assert neighbours == [[2 * 16], [1 * 16, 3 * 16], [2 * 16]]


def test_occurrences_are_kept_with_their_probability():
    keep = np.full(100, UINT32_MAX, dtype=np.uint32)
    keep[7] = UINT32_MAX // 4
    sentences, _ = read_block([7] * 20_000, keep, max_length=30_000, window=1)
    assert len(sentences[0]) == pytest.approx(5_000, abs=310)  # five standard deviations
