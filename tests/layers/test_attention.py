"""Attention: scores, masks, heads, the fused kernel."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.attention import (
    Additive,
    Dot,
    General,
    MultiHeadAttention,
    ScaledDot,
    attend,
    attend_with_weights,
    causal_mask,
    padding_mask,
)
from seqwise.layers.record import record

SCORES = [Dot(), ScaledDot(), General(8, 8), Additive(8, 8, 5)]
SCORE_NAMES = [type(score).__name__ for score in SCORES]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def softmax(*scores):
    total = sum(math.exp(s) for s in scores)
    return [math.exp(s) / total for s in scores]


Q, K = torch.tensor([[1.0, 2.0, 0.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, -1.0]])
V = torch.tensor([[1.0], [3.0]])


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (Dot(), (2.0, 1.0)),
        (ScaledDot(), (1.0, 0.5)),
    ],
    ids=["dot", "scaled"],
)
def test_dot_scores_equal_hand_computed_values(score, expected):
    torch.testing.assert_close(score(Q, K), torch.tensor([expected]))
    first, second = softmax(*expected)
    context, weights = attend_with_weights(Q, K, V, score=score)
    torch.testing.assert_close(weights, torch.tensor([[first, second]]))
    assert context.item() == pytest.approx(first + 3 * second, abs=1e-6)
    assert attend(Q, K, V, score=score).item() == pytest.approx(first + 3 * second, abs=1e-6)


def test_general_score_with_different_widths_equals_a_hand_computed_value():
    score = General(2, 3)
    score.weight.data = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    q, k = torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]])
    assert score(q, k).tolist() == [[1.0 + 6.0 - 2.0, -1.0]]


def test_additive_score_with_different_widths_equals_a_hand_computed_value():
    score = Additive(1, 2, 2)
    score.W.data, score.U.data = torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    score.v.data = torch.tensor([2.0, 1.0])
    q, k = torch.tensor([[0.5]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    expected = [2 * math.tanh(1.5) + math.tanh(0.0), 2 * math.tanh(0.5) + math.tanh(-2.0)]
    torch.testing.assert_close(score(q, k), torch.tensor([expected]))


@pytest.mark.parametrize("score", SCORES, ids=SCORE_NAMES)
@pytest.mark.parametrize("leading_shape", [(3,), (3, 2)], ids=["rows", "heads"])
def test_one_query_can_be_scored(score, leading_shape):
    q, k = torch.randn(*leading_shape, 1, 8), torch.randn(*leading_shape, 5, 8)
    context, weights = attend_with_weights(q, k, k, score=score)
    assert context.shape == (*leading_shape, 1, 8)
    torch.testing.assert_close(weights.sum(-1), torch.ones(*leading_shape, 1))
    torch.testing.assert_close(attend(q, k, k, score=score), context)


@pytest.mark.parametrize("score", SCORES, ids=SCORE_NAMES)
@pytest.mark.parametrize("variant", ["fused", "explicit"])
def test_a_fully_masked_query_gives_zeros_and_finite_gradients(score, variant):
    x = torch.randn(2, 4, 8, requires_grad=True)
    mask = padding_mask(torch.tensor([0, 3]), 4)
    context = attend(x, x, x, mask, score) if variant == "fused" else attend_with_weights(x, x, x, mask, score)[0]
    assert torch.equal(context[0], torch.zeros(4, 8))
    assert (context[1] != 0).all()
    context.sum().backward()
    assert x.grad.isfinite().all()
    assert torch.equal(x.grad[0], torch.zeros(4, 8))


@pytest.mark.parametrize("score", SCORES, ids=SCORE_NAMES)
@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_equals_explicit_attention_with_gradients(score, causal):
    q, k, v = torch.randn(3, 2, 4, 6, 8, dtype=torch.float64, requires_grad=True).unbind(0)
    mask = padding_mask(torch.tensor([6, 4]), 6).unsqueeze(1)
    score = score.to(torch.float64)
    for m in (None, mask):
        fused = attend(q, k, v, m, score, causal=causal)
        explicit = attend_with_weights(q, k, v, m, score, causal=causal)[0]
        torch.testing.assert_close(fused, explicit)
        for a, b in zip(
            torch.autograd.grad(fused.sin().sum(), (q, k, v)), torch.autograd.grad(explicit.sin().sum(), (q, k, v))
        ):
            torch.testing.assert_close(a, b)
    score.to(torch.float32)


def test_masks_equal_hand_written_ones():
    assert causal_mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(2, 3, offset=0).int().tolist() == [[1, 0, 0], [1, 1, 0]]
    assert padding_mask(torch.tensor([2, 0, 3]), 3).int().tolist() == [[[1, 1, 0]], [[0, 0, 0]], [[1, 1, 1]]]


def build_pair(heads: int = 2, width: int = 8) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    ours, torch_layer = MultiHeadAttention(width, heads), nn.MultiheadAttention(width, heads, batch_first=True)
    nn.init.normal_(ours.in_proj.bias)
    nn.init.normal_(ours.out_proj.bias)
    torch_layer.in_proj_weight, torch_layer.in_proj_bias = ours.in_proj.weight, ours.in_proj.bias
    torch_layer.out_proj.weight, torch_layer.out_proj.bias = ours.out_proj.weight, ours.out_proj.bias
    return ours, torch_layer


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_pytorch(causal):
    ours, torch_layer = build_pair()
    x, lengths = torch.randn(3, 5, 8), torch.tensor([5, 2, 4])
    mask = padding_mask(lengths, 5)
    masked = ~causal_mask(5) if causal else None
    with record(ours) as recording:
        y, _ = ours(x, mask=mask, causal=causal)
    expected, weights = torch_layer(x, x, x, key_padding_mask=~mask[:, 0], attn_mask=masked, average_attn_weights=False)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(recording["weights"], weights)


def test_cross_attention_equals_pytorch_and_its_cache_needs_no_second_projection():
    layer, torch_layer = build_pair()
    x, memory, lengths = torch.randn(3, 4, 8), torch.randn(3, 6, 8), torch.tensor([6, 1, 3])
    mask = padding_mask(lengths, 6)
    y, cache = layer(x, memory, mask)
    expected, _ = torch_layer(x, memory, memory, key_padding_mask=~mask[:, 0])
    torch.testing.assert_close(y, expected)
    from_cache, _ = layer(x, torch.full_like(memory, math.nan), mask, cache=cache)
    assert torch.equal(from_cache, y)


def test_dropout_removes_attention_weights_and_scales_the_others():
    torch.manual_seed(0)
    zeros, values = torch.zeros(1, 4, 2), torch.eye(4)[None]  # the context is the row of weights, ¼ each
    context = attend(zeros, zeros, values, dropout=0.5)
    assert set(context.flatten().tolist()) == {0.0, 0.5}


def test_recording_does_not_change_the_fused_result_even_with_dropout():
    layer, x = MultiHeadAttention(8, 2, dropout=0.3), torch.randn(2, 5, 8)
    torch.manual_seed(1)
    expected, _ = layer(x, causal=True)
    torch.manual_seed(1)
    with record(layer) as recording:
        recorded, _ = layer(x, causal=True)
    assert torch.equal(expected, recorded)
    torch.testing.assert_close(recording["weights"].sum(-1), torch.ones(2, 2, 5))
    assert torch.equal(recording["weights"], recording["weights"].tril())


def test_a_live_recording_computes_the_result_from_the_recorded_weights():
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    with record(layer, live=True) as recording:
        y, _ = layer(x, causal=True)
    torch.testing.assert_close(y, layer(x, causal=True)[0])
    (gradient,) = torch.autograd.grad(y.square().sum(), recording["weights"])
    assert gradient.tril().abs().sum() > 0


@pytest.mark.parametrize("rotary", [False, True])
def test_one_step_at_a_time_equals_the_whole_sequence(rotary):
    layer, x = MultiHeadAttention(8, 2, rotary=rotary).double(), torch.randn(2, 7, 8, dtype=torch.float64)
    expected, _ = layer(x, causal=True)
    steps, cache = [], None
    for segment in x.split((3, 1, 2, 1), dim=1):
        y, cache = layer(segment, causal=True, cache=cache)
        steps.append(y)
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    assert cache[0].shape == (2, 2, 7, 4)


def test_rotary_attention_depends_on_relative_and_not_on_absolute_positions():
    layer = MultiHeadAttention(8, 2, rotary=True).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    swapped = x[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(layer(x)[0][:, 5], layer(swapped)[0][:, 5])
    _, cache = layer(x[:, :5], causal=True)
    shorter_cache = tuple(entry[:, :, 2:] for entry in cache)  # without the oldest two
    from_shorter_cache, _ = layer(x[:, 5:], causal=True, cache=shorter_cache)
    torch.testing.assert_close(from_shorter_cache, layer(x[:, 2:], causal=True)[0][:, -1:])


def test_heads_that_do_not_divide_the_width_are_rejected():
    with pytest.raises(UsageError, match="received width 10 and 4 heads"):
        MultiHeadAttention(10, 4)
