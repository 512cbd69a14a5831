"""Tag heads: the CRF against sums over all sequences and finite differences, and padding."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from seqwise.heads.tag import IndependentTagHead, LinearChainCRF, compute_log_partition, compute_path_score
from seqwise.layers.record import record

TAGS, WIDTH = 3, 4


def build_crf() -> LinearChainCRF:
    torch.manual_seed(1)
    head = LinearChainCRF(WIDTH, TAGS).double()
    for weight in (head.transition_scores, head.start_scores, head.end_scores):
        torch.nn.init.normal_(weight)
    return head


def compute_score(scores: list, tags: tuple, head: LinearChainCRF) -> float:
    """Returns s(x, y) in Python numbers, by the equation in the docstring of `LinearChainCRF`."""
    link, begin, end = head.transition_scores.tolist(), head.start_scores.tolist(), head.end_scores.tolist()
    total = begin[tags[0]] + end[tags[-1]] + sum(scores[t][tag] for t, tag in enumerate(tags))
    return total + sum(link[a][b] for a, b in itertools.pairwise(tags))


def test_the_partition_function_is_the_sum_over_all_sequences():
    head, lengths = build_crf(), torch.tensor([4, 1, 3])
    scores = head.scores(torch.randn(3, 4, WIDTH, dtype=torch.float64))
    log_partitions = compute_log_partition(scores, lengths, head.transitions())
    for row, length in enumerate(lengths.tolist()):
        sequences = itertools.product(range(TAGS), repeat=length)
        sequence_scores = [compute_score(scores[row].tolist(), tags, head) for tags in sequences]
        assert log_partitions[row].item() == pytest.approx(math.log(sum(map(math.exp, sequence_scores))), abs=1e-12)


def test_the_path_score_is_the_sum_of_its_terms():
    head, lengths = build_crf(), torch.tensor([4, 1, 3])
    scores, tags = torch.randn(3, 4, TAGS, dtype=torch.float64), torch.randint(TAGS, (3, 4))
    path_scores = compute_path_score(scores, tags, lengths, head.transitions())
    for row, length in enumerate(lengths.tolist()):
        path = tuple(tags[row, :length].tolist())
        assert path_scores[row].item() == pytest.approx(compute_score(scores[row].tolist(), path, head), abs=1e-12)


def test_the_probabilities_of_all_sequences_sum_to_one():
    head = build_crf()
    vectors = torch.randn(1, 3, WIDTH, dtype=torch.float64).expand(TAGS**3, -1, -1)
    tags = torch.tensor(list(itertools.product(range(TAGS), repeat=3)))
    losses = head.losses(vectors, tags, torch.full((TAGS**3,), 3))
    assert torch.exp(-losses).sum().item() == pytest.approx(1.0, abs=1e-12)


def test_scores_in_the_hundreds_neither_overflow_nor_underflow():
    head = LinearChainCRF(WIDTH, TAGS)
    scores = torch.tensor([[[500.0, -500.0, 0.0]] * 6])
    log_partitions = compute_log_partition(scores, torch.tensor([6]), head.transitions())
    assert log_partitions.item() == pytest.approx(3000.0)


def test_gradients_of_the_crf_match_finite_differences():
    head, tags, lengths = build_crf(), torch.randint(TAGS, (2, 4)), torch.tensor([4, 2])
    scores = torch.randn(2, 4, TAGS, dtype=torch.float64, requires_grad=True)
    transitions = tuple(part.detach().requires_grad_() for part in head.transitions())

    def compute_loss(scores, *transitions):
        return compute_log_partition(scores, lengths, transitions) - compute_path_score(
            scores, tags, lengths, transitions
        )

    assert torch.autograd.gradcheck(compute_loss, (scores, *transitions))


def test_gradients_of_the_scores_are_the_marginal_probabilities():
    head, lengths = build_crf(), torch.tensor([3])
    scores = torch.randn(1, 3, TAGS, dtype=torch.float64, requires_grad=True)
    compute_log_partition(scores, lengths, head.transitions()).sum().backward()
    weights = {
        y: math.exp(compute_score(scores[0].tolist(), y, head)) for y in itertools.product(range(TAGS), repeat=3)
    }
    total = sum(weights.values())
    for t, tag in itertools.product(range(3), range(TAGS)):
        share = sum(weight for y, weight in weights.items() if y[t] == tag) / total
        assert scores.grad[0, t, tag].item() == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("kind", [IndependentTagHead, LinearChainCRF])
def test_padding_and_its_values_change_nothing(kind):
    torch.manual_seed(0)
    head = kind(WIDTH, TAGS).double()
    vectors, tags, lengths = (
        torch.randn(2, 5, WIDTH, dtype=torch.float64),
        torch.randint(TAGS, (2, 5)),
        torch.tensor([3, 2]),
    )
    expected = [
        head.losses(vectors[i : i + 1, :n], tags[i : i + 1, :n], torch.tensor([n])) for i, n in enumerate((3, 2))
    ]
    torch.testing.assert_close(head.losses(vectors, tags, lengths), torch.cat(expected), rtol=0, atol=1e-12)
    vectors[0, 3:], tags[0, 3:] = 1e6, 0
    torch.testing.assert_close(head.losses(vectors, tags, lengths), torch.cat(expected), rtol=0, atol=1e-12)


def test_without_transitions_the_crf_equals_independent_tags():
    torch.manual_seed(0)
    independent, crf = IndependentTagHead(WIDTH, TAGS), LinearChainCRF(WIDTH, TAGS)
    crf.output.load_state_dict(independent.output.state_dict())
    vectors, tags, lengths = torch.randn(2, 5, WIDTH), torch.randint(TAGS, (2, 5)), torch.tensor([5, 2])
    torch.testing.assert_close(independent.losses(vectors, tags, lengths), crf.losses(vectors, tags, lengths))


def test_independent_losses_equal_a_hand_computed_value():
    head = IndependentTagHead(2, 2)
    with torch.no_grad():
        head.output.weight.copy_(torch.eye(2))
    loss = head.losses(
        torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]), torch.tensor([[0, 0, 0]]), torch.tensor([2])
    )
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-1)) + math.log(1 + math.exp(2)), abs=1e-6)


def test_scores_can_be_recorded_and_have_at_least_single_precision():
    head = LinearChainCRF(WIDTH, TAGS).bfloat16()
    with record(head) as activations:
        head.scores(torch.randn(1, 2, WIDTH, dtype=torch.bfloat16))
    assert activations["scores"].dtype == torch.float32
