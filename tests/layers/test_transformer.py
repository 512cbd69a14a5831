"""Transformer layers, their feed-forward part, stacks and caches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.attention import causal_mask, padding_mask
from seqwise.layers.record import record
from seqwise.layers.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
    get_cached_length,
)

ATTENTION_NAMES = {"attention": "self_attn", "cross_attention": "multihead_attn"}
NORMS = {
    "EncoderLayer": ("attention_norm", "feedforward_norm"),
    "DecoderLayer": ("attention_norm", "cross_attention_norm", "feedforward_norm"),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def add_noise(layer: nn.Module) -> nn.Module:
    """Moves biases and norms away from their initial 0 and 1, so that a comparison covers them too."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return layer


def load_into(torch_layer: nn.Module, ours: EncoderLayer | DecoderLayer) -> None:
    """Gives PyTorch's layer our weights."""
    for name, torch_name in ATTENTION_NAMES.items():
        if hasattr(ours, name):
            our_layer, target = getattr(ours, name), getattr(torch_layer, torch_name)
            target.in_proj_weight, target.in_proj_bias = our_layer.in_proj.weight, our_layer.in_proj.bias
            target.out_proj.weight, target.out_proj.bias = our_layer.out_proj.weight, our_layer.out_proj.bias
    layer_name = "DecoderLayer" if isinstance(ours, DecoderLayer) else "EncoderLayer"
    for number, name in enumerate(NORMS[layer_name], start=1):
        norm, target = getattr(ours, name), getattr(torch_layer, f"norm{number}")
        target.weight, target.bias = norm.weight, norm.bias
    for torch_name, our_layer in (("linear1", ours.feedforward.in_proj), ("linear2", ours.feedforward.out_proj)):
        target = getattr(torch_layer, torch_name)
        target.weight, target.bias = our_layer.weight, our_layer.bias


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("layer_class", [EncoderLayer, PreNormEncoderLayer])
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_layer_equals_pytorch(layer_class, activation, causal):
    ours = add_noise(layer_class(8, 2, 16, activation))
    torch_layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=True, norm_first=ours.pre_norm)
    load_into(torch_layer, ours)
    x, mask = torch.randn(3, 5, 8), padding_mask(torch.tensor([5, 2, 4]), 5)
    y, _ = ours(x, mask, causal)
    masked = ~causal_mask(5) if causal else None
    torch.testing.assert_close(y, torch_layer(x, src_mask=masked, src_key_padding_mask=~mask[:, 0]))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("layer_class", [DecoderLayer, PreNormDecoderLayer])
def test_decoder_layer_equals_pytorch(layer_class, activation):
    ours = add_noise(layer_class(8, 2, 16, activation))
    torch_layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, activation, batch_first=True, norm_first=ours.pre_norm)
    load_into(torch_layer, ours)
    x, memory, mask = torch.randn(3, 5, 8), torch.randn(3, 6, 8), padding_mask(torch.tensor([6, 1, 4]), 6)
    y, _ = ours(x, memory, mask)
    expected = torch_layer(x, memory, tgt_mask=~causal_mask(5), memory_key_padding_mask=~mask[:, 0])
    torch.testing.assert_close(y, expected)


def build_encoder(layer_class=PreNormEncoderLayer, depth=2, rotary=False) -> Encoder:
    stack = Encoder([layer_class(8, 2, 16, "gelu", rotary=rotary) for _ in range(depth)])
    return add_noise(stack).double()


def build_decoder(layer_class=PreNormDecoderLayer) -> Decoder:
    return add_noise(Decoder([layer_class(8, 2, 16, "gelu") for _ in range(2)])).double()


def random_doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_stacks_with_final_norm_equal_pytorch():
    ours = build_encoder()
    torch_layer = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True).double(),
        num_layers=2,
        norm=nn.LayerNorm(8).double(),
        enable_nested_tensor=False,
    )
    for our_layer, theirs in zip(ours.layer, torch_layer.layers):
        load_into(theirs, our_layer)
    torch_layer.norm.weight, torch_layer.norm.bias = ours.norm.weight, ours.norm.bias
    x = random_doubles(2, 5, 8)
    torch.testing.assert_close(ours(x, causal=False)[0], torch_layer(x))
    torch.testing.assert_close(ours(x)[0], torch_layer(x, mask=~causal_mask(5), is_causal=True))


@pytest.mark.parametrize("layer_class", [EncoderLayer, PreNormEncoderLayer])
@pytest.mark.parametrize("rotary", [False, True])
def test_a_sequence_read_in_segments_with_a_cache_equals_the_whole_sequence(layer_class, rotary):
    stack, x = build_encoder(layer_class, rotary=rotary), random_doubles(3, 9, 8)
    expected, full_cache = stack(x)
    outputs, cache = [], None
    for segment in x.split((4, 1, 1, 3), dim=1):
        y, cache = stack(segment, cache=cache)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), expected)
    torch.testing.assert_close(cache, full_cache)
    assert get_cached_length(cache) == 9
    assert get_cached_length(None) == 0


@pytest.mark.parametrize("layer_class", [DecoderLayer, PreNormDecoderLayer])
def test_a_decoder_with_a_cache_equals_the_whole_sequence(layer_class):
    stack, x, memory, lengths = (
        build_decoder(layer_class),
        random_doubles(3, 6, 8),
        random_doubles(3, 4, 8),
        torch.tensor([4, 1, 3]),
    )
    expected, _ = stack(x, memory, lengths)
    outputs, cache = [], None
    for segment in x.split((1, 1, 3, 1), dim=1):
        y, cache = stack(segment, memory, lengths, cache)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), expected)


def test_a_cache_is_a_nested_tuple_whose_rows_can_be_selected():
    stack, x = build_encoder(rotary=True), random_doubles(3, 5, 8)
    _, cache = stack(x[:, :4])
    rows = torch.tensor([2, 0])
    selected = tuple(tuple(entry[rows] for entry in layer) for layer in cache)
    expected, _ = stack(x)
    torch.testing.assert_close(stack(x[rows, 4:], cache=selected)[0], expected[rows, 4:])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_encoder_decoder_equals_pytorch():
    ours = EncoderDecoder(build_encoder(), build_decoder())
    torch_layer = nn.Transformer(8, 2, 2, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True).double()
    for our_stack, torch_stack in ((ours.encoder, torch_layer.encoder), (ours.decoder, torch_layer.decoder)):
        for layer, their_layer in zip(our_stack.layer, torch_stack.layers):
            load_into(their_layer, layer)
        torch_stack.norm.weight, torch_stack.norm.bias = our_stack.norm.weight, our_stack.norm.bias
    source, target, lengths = random_doubles(3, 6, 8), random_doubles(3, 4, 8), torch.tensor([6, 1, 4])
    masked = ~padding_mask(lengths, 6)[:, 0]
    expected = torch_layer(
        source,
        target,
        tgt_mask=~causal_mask(4),
        src_key_padding_mask=masked,
        memory_key_padding_mask=masked,
    )
    torch.testing.assert_close(ours(source, target, lengths), expected)


def test_decoding_token_by_token_equals_the_whole_target_and_ignores_source_padding():
    stack, source, target = (
        EncoderDecoder(build_encoder(), build_decoder()),
        random_doubles(2, 6, 8),
        random_doubles(2, 5, 8),
    )
    lengths = torch.tensor([6, 3])
    expected, memory = stack(source, target, lengths), stack.encode(source, lengths)
    steps, cache = [], None
    for segment in target.split(1, dim=1):
        y, cache = stack.decode(segment, memory, lengths, cache)
        steps.append(y)
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    torch.testing.assert_close(stack(source[1:, :3], target[1:]), expected[1:])


@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing(causal):
    stack, x = build_encoder(), random_doubles(2, 6, 8)
    without_padding, _ = stack(x[1:, :3], causal=causal)
    padded, cache = stack(x, torch.tensor([6, 3]), causal)
    torch.testing.assert_close(padded[1:, :3], without_padding)
    assert cache is None


def test_padding_of_the_memory_changes_nothing():
    stack, x, memory = build_decoder(), random_doubles(2, 5, 8), random_doubles(2, 6, 8)
    without_padding, _ = stack(x[1:], memory[1:, :2])
    torch.testing.assert_close(stack(x, memory, torch.tensor([6, 2]))[0][1:], without_padding)


def test_a_cache_with_rows_of_different_length_is_rejected():
    stack, x = build_encoder(), random_doubles(2, 3, 8)
    _, cache = stack(x)
    with pytest.raises(UsageError, match="sequences of equal length; received lengths"):
        stack(x, torch.tensor([3, 1]), cache=cache)
    with pytest.raises(UsageError, match="received causal=False"):
        stack(x, causal=False, cache=cache)


def test_interior_values_have_stable_names():
    stack, x = build_encoder(rotary=True), random_doubles(2, 5, 8)
    expected, _ = stack(x)
    with record(stack) as recording:
        recorded, _ = stack(x)
    assert torch.equal(expected, recorded)
    assert set(recording) == {
        *(f"layer.{n}.attention.{value}" for n in (0, 1) for value in ("queries", "keys", "weights")),
        *(f"layer.{n}.attention_norm.norm" for n in (0, 1)),
        *(f"layer.{n}.{part}" for n in (0, 1) for part in ("feedforward.hidden", "feedforward_norm.norm")),
        "norm.norm",
    }
    assert recording["layer.1.attention.weights"].shape == (2, 2, 5, 5)


def test_a_decoder_records_its_cross_attention_weights():
    stack = build_decoder(DecoderLayer)
    with record(stack, "*.cross_attention.weights") as recording:
        stack(random_doubles(2, 5, 8), random_doubles(2, 3, 8), torch.tensor([3, 2]))
    weights = recording["layer.0.cross_attention.weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))
    assert weights[1, :, :, 2].abs().max() == 0


@pytest.mark.parametrize("depth", [1, 16])
def test_the_residual_sum_of_a_new_pre_norm_stack_keeps_its_variance_at_any_depth(depth):
    stack = Encoder([PreNormEncoderLayer(64, 4, 256, "gelu") for _ in range(depth)])
    x = torch.randn(2, 64, 64)
    for layer in stack.layer:
        x, _ = layer(x, None, True)
    assert 1.0 < x.var().item() < 2.0


def test_post_norm_layers_have_xavier_weights():
    layer = EncoderLayer(64, 4, 256, "relu")
    assert layer.attention.in_proj.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.03)
    assert layer.feedforward.in_proj.weight.std().item() == pytest.approx((2 / 320) ** 0.5, rel=0.03)


def test_post_norm_has_no_final_norm():
    assert isinstance(build_encoder(EncoderLayer).norm, nn.Identity)


@pytest.mark.parametrize("rotary", [False, True])
def test_later_inputs_do_not_change_earlier_outputs_of_the_blocked_kernel(rotary):
    stack, x = build_encoder(rotary=rotary).float(), torch.randn(2, 600, 8)
    expected, _ = stack(x)
    for step in (1, 31, 32, 257, 512, 599):
        changed_x = torch.cat((x[:, :step], torch.randn(2, 600 - step, 8)), dim=1)
        assert torch.equal(stack(changed_x)[0][:, :step], expected[:, :step])


def build_small_feedforward(activation: str) -> FeedForward:
    layer = FeedForward(1, 2, activation)
    with torch.no_grad():
        layer.in_proj.weight.copy_(torch.tensor([[1.0], [-2.0]]))
        layer.in_proj.bias.copy_(torch.tensor([0.5, 0.0]))
        layer.out_proj.weight.copy_(torch.tensor([[3.0, 1.0]]))
        layer.out_proj.bias.fill_(0.25)
    return layer


def test_feedforward_with_relu_equals_a_hand_computed_result():
    assert build_small_feedforward("relu")(torch.tensor([[1.0]])).item() == pytest.approx(3 * 1.5 + 0.25)


def test_gelu_is_x_times_the_normal_distribution_function():
    def gelu(x):
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))

    expected = 3 * gelu(1.5) + gelu(-2.0) + 0.25
    assert build_small_feedforward("gelu")(torch.tensor([[1.0]])).item() == pytest.approx(expected, abs=1e-6)


def test_feedforward_equals_two_linear_layers():
    layer = FeedForward(4, 8, "gelu")
    torch_layer = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    torch_layer.load_state_dict(
        {f"{i}.{n}": v for i, p in ((0, layer.in_proj), (2, layer.out_proj)) for n, v in p.named_parameters()}
    )
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(layer(x), torch_layer(x))


def test_recording_the_hidden_layer_changes_nothing():
    torch.manual_seed(0)
    layer, x = FeedForward(4, 8, "relu", dropout=0.5), torch.randn(2, 3, 4)
    torch.manual_seed(1)
    expected = layer(x)
    torch.manual_seed(1)
    with record(layer) as recording:
        assert torch.equal(layer(x), expected)
    assert torch.equal(recording["hidden"], layer.in_proj(x).relu())


def test_an_unknown_activation_is_rejected_with_the_nearest_name():
    with pytest.raises(UsageError, match="Perhaps you meant 'gelu'"):
        FeedForward(4, 8, "glu")
