"""Choosing tokens, on distributions small enough to check by eye."""

from __future__ import annotations

import pytest
import torch

from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.sampling import keep_best, keep_nucleus, penalise, pick
from seqwise.errors import UsageError

LOG = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def kept(scores: torch.Tensor) -> list[int]:
    return torch.isfinite(scores[0]).nonzero().flatten().tolist()


def shares(sampling: SamplingOptions, count: int = 20_000) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    picks = pick(sampling, LOG.expand(count, -1), None, draw)
    return torch.bincount(picks, minlength=4) / count


def test_greedy_takes_the_most_likely():
    assert pick(SamplingOptions(greedy=True), LOG, None).tolist() == [0]


def test_sampling_follows_the_distribution():
    torch.testing.assert_close(shares(SamplingOptions()), LOG.exp()[0], atol=0.01, rtol=0)


def test_temperature_raises_probabilities_to_its_inverse():
    expected = LOG.exp()[0] ** 2 / (LOG.exp()[0] ** 2).sum()
    torch.testing.assert_close(shares(SamplingOptions(temperature=0.5)), expected, atol=0.01, rtol=0)


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(("k", "expected"), [(1, [0]), (2, [0, 1]), (4, ALL), (9, ALL), (None, ALL)])
def test_top_k_keeps_the_k_best(k, expected):
    assert kept(keep_best(LOG, k)) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.1, [0]), (0.5, [0]), (0.51, [0, 1]), (0.8, [0, 1]), (0.96, [0, 1, 2, 3]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_fewest_that_reach_p(p, expected):
    assert kept(keep_nucleus(LOG, p)) == expected


def test_top_p_works_in_any_order():
    mixed = LOG[:, [2, 0, 3, 1]]
    assert kept(keep_nucleus(mixed, 0.6)) == [1, 3]


def test_the_repetition_penalty_squares_the_probability_of_what_was_seen():
    seen = torch.tensor([[True, False, False, False]])
    after = penalise(LOG, seen, 2.0)
    assert after[0].exp().tolist() == pytest.approx([0.25, 0.3, 0.15, 0.05])
    assert pick(SamplingOptions(greedy=True, repetition_penalty=2.0), LOG, seen).tolist() == [1]


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0}, {"top_k": 0}, {"top_p": 0}, {"top_p": 1.5}, {"repetition_penalty": 0}]
)
def test_impossible_choices_are_refused(wrong):
    with pytest.raises(UsageError):
        SamplingOptions(**wrong)


class Counter:
    """Predicts the next number modulo four, and checks that it is fed one new token at a time."""

    def __init__(self):
        self.fed = []

    def next(self, ids, carry):
        self.fed.append(ids.shape[1])
        return torch.nn.functional.one_hot((ids[:, -1] + 1) % 4, 4).float().log(), carry


def test_generation_feeds_its_own_choices_back_one_at_a_time():
    model = Counter()
    stream = generate(model, torch.tensor([[0, 1], [2, 3]]), SamplingOptions(greedy=True))
    rows = torch.stack([next(stream) for _ in range(5)], dim=1)
    assert rows.tolist() == [[2, 3, 0, 1, 2], [0, 1, 2, 3, 0]]
    assert model.fed == [2, 1, 1, 1, 1]


def test_every_token_of_prompt_and_continuation_is_penalised_in_its_own_row():
    class Fixed:
        def next(self, ids, carry):
            return LOG.expand(2, -1), carry

    stream = generate(Fixed(), torch.tensor([[0], [3]]), SamplingOptions(greedy=True, repetition_penalty=9.0))
    rows = torch.stack([next(stream) for _ in range(4)], dim=1)
    # Row 0 has seen 0, row 1 has seen 3: the best that is new comes next, and again the best once all were seen.
    assert rows.tolist() == [[1, 2, 3, 0], [0, 1, 2, 0]]


def test_the_same_seed_draws_the_same_tokens():
    class Uniform:
        def next(self, ids, carry):
            return torch.zeros(1, 100), carry

    def draw(seed):
        stream = generate(Uniform(), torch.tensor([[0]]), SamplingOptions(), seed)
        return [int(next(stream)) for _ in range(20)]

    assert draw(1) == draw(1) != draw(2)
