"""Pooling and label scores: values by hand, padding, gradients, and losses equal to those of PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.heads.label import (
    POOLINGS,
    AttentionPooling,
    LabelHead,
    LastPooling,
    build_pooling,
    compute_balanced_weights,
)
from seqwise.layers.record import record

STATES = torch.tensor([[[1.0, -2.0], [3.0, 4.0], [9.0, 9.0]], [[5.0, 6.0], [7.0, 7.0], [8.0, 8.0]]])
LENGTHS = torch.tensor([2, 1])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("last", [[3, 4], [5, 6]]),
        ("mean", [[2, 1], [5, 6]]),
        ("max", [[3, 4], [5, 6]]),
        ("attention", [[2, 1], [5, 6]]),  # untrained, it is the mean
    ],
)
def test_pooling_equals_hand_computed_values(kind: str, expected: list[list[float]]):
    assert build_pooling(kind, 2)(STATES, LENGTHS).tolist() == expected


def test_the_last_state_of_the_backward_direction_is_that_of_the_first_step():
    assert LastPooling(2, backward_width=1)(STATES, LENGTHS).tolist() == [[3, -2], [5, 6]]


def test_attention_pooling_equals_its_equation():
    pooling = AttentionPooling(2)
    with torch.no_grad():
        pooling.W.copy_(torch.tensor([[0.5, -0.3], [0.2, 0.1]]))
        pooling.b.copy_(torch.tensor([0.1, -0.2]))
        pooling.c.copy_(torch.tensor([1.5, -0.7]))
    scores = []
    for h in STATES[0, :2].tolist():
        u = [math.tanh(0.5 * h[0] - 0.3 * h[1] + 0.1), math.tanh(0.2 * h[0] + 0.1 * h[1] - 0.2)]
        scores.append(1.5 * u[0] - 0.7 * u[1])
    a = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
    expected = [a[0] * 1 + a[1] * 3, a[0] * -2 + a[1] * 4]
    with record(pooling) as activations:
        pooled = pooling(STATES, LENGTHS)
    assert pooled[0].tolist() == pytest.approx(expected)
    assert activations["weights"][0].tolist() == pytest.approx([*a, 0.0])


def build_random_head(kind: str) -> LabelHead:
    torch.manual_seed(0)
    head = LabelHead(build_pooling(kind, 4, 2), 3).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head.eval()


@pytest.mark.parametrize("kind", POOLINGS)
def test_padding_changes_nothing(kind: str):
    head = build_random_head(kind)
    states, lengths = torch.randn(3, 5, 4, dtype=torch.float64), torch.tensor([5, 2, 3])
    expected = torch.cat([head(states[i : i + 1, :n], torch.tensor([n])) for i, n in enumerate(lengths.tolist())])
    changed = states.clone()
    for row, length in enumerate(lengths.tolist()):
        changed[row, length:] = 1e30
    assert torch.allclose(head(changed, lengths), expected)


@pytest.mark.parametrize("kind", POOLINGS)
def test_an_empty_sequence_gets_the_biases(kind: str):
    head = build_random_head(kind)
    scores = head(torch.zeros(2, 3, 4, dtype=torch.float64), torch.tensor([0, 3]))
    assert torch.equal(scores[0], head.output.bias)
    states = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    head(states, torch.tensor([0])).sum().backward()
    assert states.grad is not None
    assert not states.grad.any()


@pytest.mark.parametrize("kind", POOLINGS)
def test_gradients_equal_finite_differences(kind: str):
    head, lengths, targets = build_random_head(kind), torch.tensor([4, 2]), torch.tensor([0, 2])
    parameters = dict(head.named_parameters())

    def compute_losses(states: Tensor, *values: Tensor) -> Tensor:
        scores = torch.func.functional_call(head, dict(zip(parameters, values)), (states, lengths))
        return head.losses(scores, targets, 0.1)

    states = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(compute_losses, (states, *parameters.values()))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_equal_those_of_pytorch(smoothing: float):
    scores, targets = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 3, 0])
    weights = torch.tensor([0.5, 2.0, 1.0, 0.7])
    unweighted, weighted = (
        LabelHead(build_pooling("mean", 2), 4),
        LabelHead(build_pooling("mean", 2), 4, weights=weights),
    )
    expected = F.cross_entropy(scores, targets, reduction="none", label_smoothing=smoothing)
    assert torch.allclose(unweighted.losses(scores, targets, smoothing), expected)
    assert torch.allclose(weighted.losses(scores, targets, smoothing), expected * weights[targets])


def test_balanced_weights_give_every_label_the_same_sum_and_the_examples_a_mean_of_one():
    counts = torch.tensor([90, 9, 1])
    weights = compute_balanced_weights(counts)
    assert (weights * counts).tolist() == pytest.approx([100 / 3] * 3)
    assert float((weights * counts).sum() / counts.sum()) == pytest.approx(1)


def test_an_unknown_pooling_is_rejected():
    with pytest.raises(UsageError, match="no pooling 'maximum'"):
        build_pooling("maximum", 2)
