"""The computed permutation: a bijection that depends on its key only, with uniformly distributed positions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqwise.data.shuffle import hash_integers, permute_indices


@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(0, 1000))
def test_shuffled_indices_are_a_permutation(count: int, seed: int, epoch: int) -> None:
    assert sorted(permute_indices(np.arange(count), count, seed, epoch)) == list(range(count))


def test_any_slice_of_a_permutation_can_be_computed_alone() -> None:
    permutation = permute_indices(np.arange(1000), 1000, 7, 3)
    assert permute_indices(np.array([3, 999, 500]), 1000, 7, 3).tolist() == permutation[[3, 999, 500]].tolist()


def test_a_permutation_depends_on_its_key_only() -> None:
    assert permute_indices(np.arange(10), 10, 0, 0).tolist() == [3, 6, 8, 5, 7, 2, 9, 0, 4, 1]
    assert hash_integers(1, 2) != hash_integers(2, 1)


def test_every_index_has_every_position_with_equal_probability() -> None:
    count, trials = 12, 6000
    table = np.zeros((count, count))
    for epoch in range(trials):
        table[np.arange(count), permute_indices(np.arange(count), count, 1, epoch)] += 1
    expected = trials / count
    chi_squared = ((table - expected) ** 2 / expected).sum()
    assert chi_squared < 175  # 121 degrees of freedom: the 99.9 % point


def test_neighbouring_indices_are_separated() -> None:
    positions = permute_indices(np.arange(10_000), 10_000, 5, 5)
    assert (np.abs(np.diff(positions)) == 1).sum() < 10
    assert abs(np.corrcoef(np.arange(10_000), positions)[0, 1]) < 0.04
