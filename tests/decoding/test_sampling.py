"""Choosing the next token, on distributions small enough to check by hand."""

from __future__ import annotations

import pytest
import torch

from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.sampling import apply_repetition_penalty, apply_top_k, apply_top_p, choose_token
from seqwise.errors import UsageError

LOG_PROBS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def list_allowed_tokens(log_probs: torch.Tensor) -> list[int]:
    """Returns the tokens of the first sequence that are not excluded."""
    return torch.isfinite(log_probs[0]).nonzero().flatten().tolist()


def sample_frequencies(sampling: SamplingOptions, count: int = 20_000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    ids = choose_token(sampling, LOG_PROBS.expand(count, -1), None, generator)
    return torch.bincount(ids, minlength=4) / count


def test_greedy_returns_the_most_likely_token():
    assert choose_token(SamplingOptions(greedy=True), LOG_PROBS, None).tolist() == [0]


def test_sampling_follows_the_distribution():
    torch.testing.assert_close(sample_frequencies(SamplingOptions()), LOG_PROBS.exp()[0], atol=0.01, rtol=0)


def test_temperature_raises_probabilities_to_its_inverse():
    expected = LOG_PROBS.exp()[0] ** 2 / (LOG_PROBS.exp()[0] ** 2).sum()
    torch.testing.assert_close(sample_frequencies(SamplingOptions(temperature=0.5)), expected, atol=0.01, rtol=0)


ALL_TOKENS = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [0]), (2, [0, 1]), (4, ALL_TOKENS), (9, ALL_TOKENS), (None, ALL_TOKENS)]
)
def test_top_k_keeps_the_k_best(k, expected):
    assert list_allowed_tokens(apply_top_k(LOG_PROBS, k)) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.1, [0]), (0.5, [0]), (0.51, [0, 1]), (0.8, [0, 1]), (0.96, [0, 1, 2, 3]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_fewest_tokens_that_reach_p(p, expected):
    assert list_allowed_tokens(apply_top_p(LOG_PROBS, p)) == expected


def test_top_p_does_not_depend_on_the_order_of_tokens():
    permuted = LOG_PROBS[:, [2, 0, 3, 1]]
    assert list_allowed_tokens(apply_top_p(permuted, 0.6)) == [1, 3]


def test_a_repetition_penalty_of_two_squares_the_probability_of_earlier_tokens():
    has_occurred = torch.tensor([[True, False, False, False]])
    penalised = apply_repetition_penalty(LOG_PROBS, has_occurred, 2.0)
    assert penalised[0].exp().tolist() == pytest.approx([0.25, 0.3, 0.15, 0.05])
    assert choose_token(SamplingOptions(greedy=True, repetition_penalty=2.0), LOG_PROBS, has_occurred).tolist() == [1]


@pytest.mark.parametrize(
    "options", [{"temperature": 0}, {"top_k": 0}, {"top_p": 0}, {"top_p": 1.5}, {"repetition_penalty": 0}]
)
def test_invalid_options_are_rejected(options):
    with pytest.raises(UsageError):
        SamplingOptions(**options)


class CountingModel:
    """Predicts the next number modulo four, and records how many tokens each call reads."""

    def __init__(self):
        self.input_lengths = []

    def next(self, ids, state):
        self.input_lengths.append(ids.shape[1])
        return torch.nn.functional.one_hot((ids[:, -1] + 1) % 4, 4).float().log(), state


def test_generation_reads_the_prompt_once_then_each_new_token():
    model = CountingModel()
    stream = generate(model, torch.tensor([[0, 1], [2, 3]]), SamplingOptions(greedy=True))
    tokens = torch.stack([next(stream) for _ in range(5)], dim=1)
    assert tokens.tolist() == [[2, 3, 0, 1, 2], [0, 1, 2, 3, 0]]
    assert model.input_lengths == [2, 1, 1, 1, 1]


def test_every_token_of_prompt_and_continuation_is_penalised_in_its_own_sequence():
    class ConstantModel:
        def next(self, ids, state):
            return LOG_PROBS.expand(2, -1), state

    stream = generate(ConstantModel(), torch.tensor([[0], [3]]), SamplingOptions(greedy=True, repetition_penalty=9.0))
    tokens = torch.stack([next(stream) for _ in range(4)], dim=1)
    # The prompts are 0 and 3. The best token that has not occurred comes next. When all have occurred, all are
    # penalised alike, so the best one comes again.
    assert tokens.tolist() == [[1, 2, 3, 0], [0, 1, 2, 0]]


def test_the_same_seed_samples_the_same_tokens():
    class UniformModel:
        def next(self, ids, state):
            return torch.zeros(1, 100), state

    def sample(seed):
        stream = generate(UniformModel(), torch.tensor([[0]]), SamplingOptions(), seed)
        return [int(next(stream)) for _ in range(20)]

    assert sample(1) == sample(1) != sample(2)
