"""Viterbi: against the best of all sequences, with unequal lengths and forbidden links."""

from __future__ import annotations

import itertools

import pytest
import torch

from seqwise.decoding.viterbi import forbid, viterbi
from seqwise.tasks.tag.spans import allowed_transitions, bioes_tags, find_violations


def best_of_all(
    scores: torch.Tensor, link: torch.Tensor, begin: torch.Tensor, end: torch.Tensor
) -> tuple[float, tuple]:
    """The best score and its sequence, by trying all of them in plain numbers."""
    steps, tags = scores.shape

    def value(y: tuple) -> float:
        total = begin[y[0]] + end[y[-1]] + sum(scores[t, tag] for t, tag in enumerate(y))
        return float(total + sum(link[a, b] for a, b in itertools.pairwise(y)))

    return max((value(y), y) for y in itertools.product(range(tags), repeat=steps))


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_all_sequences_is_found(seed: int):
    torch.manual_seed(seed)
    scores, lengths = torch.randn(4, 5, 3, dtype=torch.float64), torch.tensor([5, 3, 1, 4])
    links = (
        torch.randn(3, 3, dtype=torch.float64),
        torch.randn(3, dtype=torch.float64),
        torch.randn(3, dtype=torch.float64),
    )
    tags, totals = viterbi(scores, lengths, *links)
    for row, length in enumerate(lengths.tolist()):
        value, sequence = best_of_all(scores[row, :length], *links)
        assert tags[row, :length].tolist() == list(sequence)
        assert totals[row].item() == pytest.approx(value, abs=1e-12)
        assert tags[row, length:].tolist() == [0] * (5 - length)


def test_what_stands_in_the_padding_changes_nothing():
    torch.manual_seed(0)
    scores, lengths, links = (
        torch.randn(2, 6, 4),
        torch.tensor([3, 6]),
        (torch.randn(4, 4), torch.randn(4), torch.randn(4)),
    )
    before = viterbi(scores, lengths, *links)
    scores[0, 3:] = 1e9
    after = viterbi(scores, lengths, *links)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_without_links_each_tag_is_the_best_for_itself():
    torch.manual_seed(0)
    scores, zero = torch.randn(3, 7, 5), torch.zeros(5)
    tags, _ = viterbi(scores, torch.full((3,), 7), torch.zeros(5, 5), zero, zero)
    assert torch.equal(tags, scores.argmax(dim=2))


def test_forbidden_links_are_never_taken():
    torch.manual_seed(0)
    names = bioes_tags(["PER", "ORG"])
    count = len(names)
    links = forbid(torch.randn(count, count), torch.randn(count), torch.randn(count), allowed_transitions(names))
    lengths = torch.randint(1, 9, (50,))
    tags, totals = viterbi(5 * torch.randn(50, 8, count), lengths, *links)
    assert totals.isfinite().all()
    for row, length in zip(tags.tolist(), lengths.tolist()):
        assert list(find_violations([names[tag] for tag in row[:length]], "bioes")) == []


def test_a_row_alone_and_in_a_batch_is_the_same():
    torch.manual_seed(0)
    scores, lengths, links = (
        torch.randn(3, 6, 4),
        torch.tensor([2, 6, 4]),
        (torch.randn(4, 4), torch.randn(4), torch.randn(4)),
    )
    together, _ = viterbi(scores, lengths, *links)
    for row, length in enumerate(lengths.tolist()):
        alone, _ = viterbi(scores[row : row + 1, :length], lengths[row : row + 1], *links)
        assert torch.equal(alone[0], together[row, :length])
