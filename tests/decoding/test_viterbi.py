"""Viterbi decoding: compared with exhaustive search, with unequal lengths and forbidden transitions."""

from __future__ import annotations

import itertools

import pytest
import torch

from seqwise.decoding.viterbi import forbid_transitions, viterbi
from seqwise.tasks.tag.spans import compute_allowed_transitions, find_violations, list_bioes_tags


def search_exhaustively(
    scores: torch.Tensor, link: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> tuple[float, tuple]:
    """Returns the best score and its sequence, by computing all of them."""
    steps, tags = scores.shape

    def score(y: tuple) -> float:
        total = begin[y[0]] + end[y[-1]] + sum(scores[t, tag] for t, tag in enumerate(y))
        return float(total + sum(link[a, b] for a, b in itertools.pairwise(y)))

    return max((score(y), y) for y in itertools.product(range(tags), repeat=steps))


@pytest.mark.parametrize("seed", range(5))
def test_viterbi_equals_exhaustive_search(seed: int):
    torch.manual_seed(seed)
    scores, lengths = torch.randn(4, 5, 3, dtype=torch.float64), torch.tensor([5, 3, 1, 4])
    transitions = (
        torch.randn(3, 3, dtype=torch.float64),
        torch.randn(3, dtype=torch.float64),
        torch.randn(3, dtype=torch.float64),
    )
    tags, totals = viterbi(scores, lengths, *transitions)
    for row, length in enumerate(lengths.tolist()):
        score, sequence = search_exhaustively(scores[row, :length], *transitions)
        assert tags[row, :length].tolist() == list(sequence)
        assert totals[row].item() == pytest.approx(score, abs=1e-12)
        assert tags[row, length:].tolist() == [0] * (5 - length)


def test_padding_changes_nothing():
    torch.manual_seed(0)
    scores, lengths = torch.randn(2, 6, 4), torch.tensor([3, 6])
    transitions = torch.randn(4, 4), torch.randn(4), torch.randn(4)
    before = viterbi(scores, lengths, *transitions)
    scores[0, 3:] = 1e9
    after = viterbi(scores, lengths, *transitions)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_without_transition_scores_each_tag_is_the_argmax():
    torch.manual_seed(0)
    scores, zero = torch.randn(3, 7, 5), torch.zeros(5)
    tags, _ = viterbi(scores, torch.full((3,), 7), torch.zeros(5, 5), zero, zero)
    assert torch.equal(tags, scores.argmax(dim=2))


def test_forbidden_transitions_do_not_occur():
    torch.manual_seed(0)
    names = list_bioes_tags(["PER", "ORG"])
    count = len(names)
    transitions = forbid_transitions(
        torch.randn(count, count), torch.randn(count), torch.randn(count), compute_allowed_transitions(names)
    )
    lengths = torch.randint(1, 9, (50,))
    tags, totals = viterbi(5 * torch.randn(50, 8, count), lengths, *transitions)
    assert totals.isfinite().all()
    for row, length in zip(tags.tolist(), lengths.tolist()):
        assert list(find_violations([names[tag] for tag in row[:length]], "bioes")) == []


def test_a_batch_equals_its_rows():
    torch.manual_seed(0)
    scores, lengths = torch.randn(3, 6, 4), torch.tensor([2, 6, 4])
    transitions = torch.randn(4, 4), torch.randn(4), torch.randn(4)
    batched, _ = viterbi(scores, lengths, *transitions)
    for row, length in enumerate(lengths.tolist()):
        tags_of_row, _ = viterbi(scores[row : row + 1, :length], lengths[row : row + 1], *transitions)
        assert torch.equal(tags_of_row[0], batched[row, :length])
