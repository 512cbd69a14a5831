"""Rows of the contract table: embeddings, positions, attention, Transformer and output layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import plain_floats as plain
import torch
from row import Row
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers.attention import (
    Additive,
    Dot,
    General,
    MultiHeadAttention,
    ScaledDot,
    attend,
    causal_mask,
    padding_mask,
)
from seqwise.layers.embedding import Embedding, OneHot
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, SampledSoftmax
from seqwise.layers.positions import LearnedPositions, Rotary, SinusoidalPositions
from seqwise.layers.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
)

Build = Callable[[], nn.Module]
D, V = 4, 7


def with_random_weights(make: Build) -> Build:
    """Returns a builder of layers with the same random weights at every call; no bias is 0 and no norm is 1."""

    def build() -> nn.Module:
        torch.manual_seed(3)
        layer = make()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return layer

    return build


def vectors() -> Tensor:
    return torch.randn(3, 5, D, generator=torch.Generator().manual_seed(5))


def wide_vectors() -> Tensor:
    return torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(5))


def ids() -> Tensor:
    return torch.randint(V, (3, 5), generator=torch.Generator().manual_seed(5))


def memory_for(x: Tensor) -> Tensor:
    """The memory of a decoder: three vectors, the same for every row."""
    one = torch.linspace(-1.0, 1.0, 3 * D, dtype=x.dtype, device=x.device).sin().view(1, 3, D)
    return one.expand(x.shape[0], -1, -1)


def mask_for(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else padding_mask(lengths, x.shape[1])


def build_hand_comparison(
    build: Build, run: Callable, inputs: Callable, compute: Callable
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Returns a comparison of our layer in float64 with `compute(layer, x)` in plain floats, on the first row."""

    def compare() -> tuple[Tensor, Tensor]:
        layer, x = build().double(), inputs()[:1]
        x = x.double() if x.is_floating_point() else x
        expected = torch.tensor(compute(layer, x[0].tolist()), dtype=torch.float64)
        return run(layer, x, None)[0].detach(), expected

    return compare


def build_torch_comparison(
    build: Build, run: Callable, inputs: Callable, reference: Callable
) -> Callable[[], tuple[Tensor, Tensor]]:
    def compare() -> tuple[Tensor, Tensor]:
        layer, x = build(), inputs()
        return run(layer, x, None).detach(), reference(layer, x).detach()

    return compare


def row(
    name: str,
    make: Build,
    run: Callable,
    compute_by_hand: Callable,
    reference: Callable | None = None,
    **fields: Any,
) -> Row:
    build, inputs = with_random_weights(make), fields.pop("inputs", vectors)
    return Row(
        name=name,
        build=build,
        inputs=inputs,
        run=run,
        compare_by_hand=build_hand_comparison(build, run, inputs, compute_by_hand),
        compare_with_torch=None if reference is None else build_torch_comparison(build, run, inputs, reference),
        **fields,
    )


# What the layers compute, in plain floats. `w(p)` is the parameter `p` as nested lists.


def w(parameter: Any) -> Any:
    return parameter.tolist()


def plain_scores(score: nn.Module) -> Callable[[list[float], list[float]], float]:
    if isinstance(score, General):
        return lambda q, k: plain.dot(q, [plain.dot(r, k) for r in w(score.weight)])
    if isinstance(score, Additive):
        W, U, v = w(score.W), w(score.U), w(score.v)
        return lambda q, k: sum(v[i] * math.tanh(plain.dot(W[i], q) + plain.dot(U[i], k)) for i in range(len(v)))
    scale = 1 / math.sqrt(D) if isinstance(score, ScaledDot) else 1.0
    return lambda q, k: scale * plain.dot(q, k)


def plain_attention(layer: MultiHeadAttention, x: list, memory: list | None = None, causal: bool = False) -> list:
    weight, bias, size = w(layer.inward.weight), w(layer.inward.bias), layer.width // layer.heads
    source, context = x if memory is None else memory, [[] for _ in x]
    for head in range(layer.heads):
        q, k, v = (
            plain.linear(source_vectors, weight[start : start + size], bias[start : start + size])
            for source_vectors, start in zip(
                (x, source, source), range(head * size, 3 * layer.width, layer.width), strict=True
            )
        )
        if layer.rotary:
            q, k = plain.rotate(q), plain.rotate(k)
        attended = plain.attend(q, k, v, lambda a, b: plain.dot(a, b) / math.sqrt(size), causal)
        context = [previous + part for previous, part in zip(context, attended, strict=True)]
    return plain.linear(context, w(layer.outward.weight), w(layer.outward.bias))


def plain_feedforward(layer: FeedForward, x: list) -> list:
    activation = {"relu": plain.relu, "gelu": plain.gelu}[layer.activation]
    hidden = [[activation(v) for v in r] for r in plain.linear(x, w(layer.inward.weight), w(layer.inward.bias))]
    return plain.linear(hidden, w(layer.outward.weight), w(layer.outward.bias))


def plain_layer(layer: Any, x: list, causal: bool, memory: list | None = None) -> list:
    parts = [(layer.attention_norm, lambda y: plain_attention(layer.attention, y, causal=causal))]
    if memory is not None:
        parts.append((layer.cross_norm, lambda y: plain_attention(layer.cross, y, memory)))
    parts.append((layer.feedforward_norm, lambda y: plain_feedforward(layer.feedforward, y)))
    for norm, part in parts:
        weight, bias = w(norm.weight), w(norm.bias)
        if layer.pre_norm:
            x = plain.add(x, part(plain.norm(x, weight, bias)))
        else:
            x = plain.norm(plain.add(x, part(x)), weight, bias)
    return x


def plain_stack(stack: Any, x: list, causal: bool = True, memory: list | None = None) -> list:
    for layer in stack.layer:
        x = plain_layer(layer, x, causal, memory)
    return x if isinstance(stack.norm, nn.Identity) else plain.norm(x, w(stack.norm.weight), w(stack.norm.bias))


def plain_memory() -> list:
    return [[math.sin(-1 + 2 * (D * s + i) / (3 * D - 1)) for i in range(D)] for s in range(3)]


# PyTorch's own layers on our weights.


def torch_attention(layer: MultiHeadAttention, x: Tensor, memory: Tensor | None = None, causal: bool = False) -> Tensor:
    reference = nn.MultiheadAttention(layer.width, layer.heads, batch_first=True)
    share_attention_weights(reference, layer)
    source = x if memory is None else memory
    return reference(x, source, source, attn_mask=~causal_mask(x.shape[1]) if causal else None)[0]


def share_attention_weights(reference: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    reference.in_proj_weight, reference.in_proj_bias = ours.inward.weight, ours.inward.bias
    share_weights(reference.out_proj, ours.outward)


def share_weights(reference: Any, ours: Any) -> None:
    reference.weight, reference.bias = ours.weight, ours.bias


def torch_layer(ours: Any) -> nn.Module:
    layer_class = nn.TransformerDecoderLayer if hasattr(ours, "cross") else nn.TransformerEncoderLayer
    hidden, activation = ours.feedforward.inward.out_features, ours.feedforward.activation
    reference = layer_class(
        D, ours.attention.heads, hidden, 0.0, activation, batch_first=True, norm_first=ours.pre_norm
    )
    share_attention_weights(reference.self_attn, ours.attention)
    share_weights(reference.linear1, ours.feedforward.inward)
    share_weights(reference.linear2, ours.feedforward.outward)
    norms = [ours.attention_norm, ours.feedforward_norm]
    if hasattr(ours, "cross"):
        share_attention_weights(reference.multihead_attn, ours.cross)
        norms.insert(1, ours.cross_norm)
    for number, norm in enumerate(norms, start=1):
        share_weights(getattr(reference, f"norm{number}"), norm)
    return reference


def torch_stack(stack: Any, x: Tensor, causal: bool = True, memory: Tensor | None = None) -> Tensor:
    mask = ~causal_mask(x.shape[1]) if causal else None
    for layer in stack.layer:
        reference = torch_layer(layer)
        x = reference(x, mask) if memory is None else reference(x, memory, mask)
    if isinstance(stack.norm, nn.Identity):
        return x
    return F.layer_norm(x, (D,), stack.norm.weight, stack.norm.bias)


# The table.


def score_row(name: str, make: Build, causal: bool = False) -> Row:
    def run(score: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
        return attend(x, x, x, mask_for(x, lengths), score, causal=causal)

    def reference(score: Any, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=causal, scale=score.scale(D))

    fused = with_random_weights(make)().scale(D) is not None
    return row(
        name,
        make,
        run,
        lambda s, x: plain.attend(x, x, x, plain_scores(s), causal),
        reference if fused else None,
        causal=causal,
    )


def attention_row(name: str, causal: bool, rotary: bool = False) -> Row:
    def run(layer: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
        return layer(x, mask=mask_for(x, lengths), causal=causal)[0]

    def run_with_state(layer: Any, x: Tensor, state: Any) -> Any:
        return layer(x, causal=True, cache=state)

    return row(
        name,
        lambda: MultiHeadAttention(D, 2, rotary=rotary),
        run,
        lambda layer, x: plain_attention(layer, x, causal=causal),
        None if rotary else lambda layer, x: torch_attention(layer, x, causal=causal),
        causal=causal,
        run_with_state=run_with_state if causal else None,
        records=("weights",),
    )


CROSS_ATTENTION = row(
    "attention-cross",
    lambda: MultiHeadAttention(D, 2),
    lambda layer, x, lengths: layer(x, memory_for(x))[0],
    lambda layer, x: plain_attention(layer, x, plain_memory()),
    lambda layer, x: torch_attention(layer, x, memory_for(x)),
    causal=True,
    records=("weights",),
)


def encoder_row(name: str, layer_class: type[EncoderLayer], activation: str, causal: bool, rotary: bool = False) -> Row:
    parts = ("attention.weights", "attention_norm.norm", "feedforward.hidden", "feedforward_norm.norm")
    records = tuple(f"layer.{number}.{part}" for number in (0, 1) for part in parts)
    return row(
        name,
        lambda: Encoder([layer_class(D, 2, 6, activation, rotary=rotary) for _ in range(2)]),
        lambda stack, x, lengths: stack(x, lengths, causal)[0],
        lambda stack, x: plain_stack(stack, x, causal),
        None if rotary else lambda stack, x: torch_stack(stack, x, causal),
        causal=causal,
        run_with_state=(lambda stack, x, state: stack(x, cache=state)) if causal else None,
        records=(*records, "norm.norm") if layer_class.pre_norm else records,
    )


def decoder_row(name: str, layer_class: type[DecoderLayer]) -> Row:
    parts = ("attention.weights", "attention_norm.norm", "cross.weights", "cross_norm.norm", "feedforward.hidden")
    return row(
        name,
        lambda: Decoder([layer_class(D, 2, 6, "relu") for _ in range(2)]),
        lambda stack, x, lengths: stack(x, memory_for(x))[0],
        lambda stack, x: plain_stack(stack, x, memory=plain_memory()),
        lambda stack, x: torch_stack(stack, x, memory=memory_for(x)),
        causal=True,
        run_with_state=lambda stack, x, state: stack(x, memory_for(x), cache=state),
        records=tuple(f"layer.{number}.{part}" for number in (0, 1) for part in parts),
    )


def run_torch_encoder_decoder(stack: Any, x: Tensor) -> Tensor:
    """PyTorch's decoder over PyTorch's encoder."""
    return torch_stack(stack.decoder, x, memory=torch_stack(stack.encoder, memory_for(x), causal=False))


ENCODER_DECODER = row(
    "encoder-decoder",
    lambda: EncoderDecoder(
        Encoder([PreNormEncoderLayer(D, 2, 6, "relu")]), Decoder([PreNormDecoderLayer(D, 2, 6, "relu")])
    ),
    lambda stack, x, lengths: stack(memory_for(x), x),
    lambda stack, x: plain_stack(stack.decoder, x, memory=plain_stack(stack.encoder, plain_memory(), causal=False)),
    run_torch_encoder_decoder,
    causal=True,
    run_with_state=lambda stack, x, state: stack.decode(x, stack.encode(memory_for(x)), cache=state),
    records=("encoder.layer.0.attention.weights", "decoder.layer.0.cross.weights", "decoder.norm.norm"),
)


def plain_full_softmax(layer: Any, x: list) -> list:
    if not isinstance(layer.project, nn.Identity):
        x = plain.linear(x, w(layer.project.weight))
    return [plain.log_softmax(r) for r in plain.linear(x, w(layer.weight), w(layer.bias))]


def plain_adaptive_softmax(layer: Any, x: list) -> list:
    """Two words in the head, then clusters of two and three words."""
    rows = []
    for vector in x:
        head = plain.log_softmax(plain.linear([vector], w(layer.softmax.head.weight))[0])
        log_probabilities = head[:2]
        for number, (down, up) in enumerate(layer.softmax.tail):
            scores = plain.linear(plain.linear([vector], w(down.weight)), w(up.weight))[0]
            log_probabilities += [head[2 + number] + value for value in plain.log_softmax(scores)]
        rows.append(log_probabilities)
    return rows


def output_row(
    name: str, make: Build, compute_by_hand: Callable, reference: Callable, inputs: Callable = vectors
) -> Row:
    return row(
        name,
        make,
        lambda layer, x, _: layer.log_probabilities(x),
        compute_by_hand,
        reference,
        inputs=inputs,
        causal=True,
    )


def torch_full_softmax(layer: Any, x: Tensor) -> Tensor:
    return F.log_softmax(F.linear(layer.project(x), layer.weight, layer.bias), -1)


def torch_adaptive_softmax(layer: Any, x: Tensor) -> Tensor:
    reference = nn.AdaptiveLogSoftmaxWithLoss(16, V, [2, 4])
    reference.load_state_dict(layer.softmax.state_dict())
    return reference.log_prob(x.flatten(0, 1)).view(*x.shape[:2], V)


def add_positions(position_vector: Callable[[int], list[float]]) -> Callable:
    return lambda layer, x: plain.add(x, [position_vector(t) for t in range(len(x))])


def sinusoid(t: int) -> list[float]:
    return [f(t / 10000 ** (2 * i / D)) for i in range(D // 2) for f in (math.sin, math.cos)]


def run_from_position(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The state of a position layer is its next position, as a tensor whose first dimension is the batch."""
    start = 0 if state is None else int(state[0][0])
    return layer(x, start), (torch.full((x.shape[0],), start + x.shape[1]),)


ROWS = [
    row(
        "embedding",
        lambda: Embedding(V, D),
        lambda layer, x, _: layer(x),
        lambda layer, x: [w(layer.weight)[i] for i in x],
        lambda layer, x: F.embedding(x, layer.weight),
        inputs=ids,
        causal=True,
        records=("vectors",),
    ),
    row(
        "one-hot",
        lambda: OneHot(V),
        lambda layer, x, _: layer(x),
        lambda layer, x: [[float(i == j) for j in range(V)] for i in x],
        lambda layer, x: F.one_hot(x, V).float(),
        inputs=ids,
        causal=True,
    ),
    row(
        "positions-sinusoidal",
        lambda: SinusoidalPositions(D),
        lambda layer, x, _: layer(x),
        add_positions(sinusoid),
        causal=True,
        run_with_state=run_from_position,
        records=("positions",),
    ),
    row(
        "positions-learned",
        lambda: LearnedPositions(D, 10),
        lambda layer, x, _: layer(x),
        lambda layer, x: plain.add(x, w(layer.weight)[: len(x)]),
        lambda layer, x: x + F.embedding(torch.arange(x.shape[1]), layer.weight),
        causal=True,
        run_with_state=run_from_position,
        records=("positions",),
    ),
    row(
        "positions-rotary",
        lambda: Rotary(),
        lambda layer, x, _: layer(x),
        lambda layer, x: plain.rotate(x),
        causal=True,
        run_with_state=run_from_position,
        records=("rotated",),
    ),
    score_row("attend-dot", Dot),
    score_row("attend-scaled-dot", ScaledDot),
    score_row("attend-general", lambda: General(D, D)),
    score_row("attend-additive", lambda: Additive(D, D, 3)),
    score_row("attend-scaled-dot-causal", ScaledDot, causal=True),
    score_row("attend-additive-causal", lambda: Additive(D, D, 3), causal=True),
    attention_row("attention-self", causal=False),
    attention_row("attention-causal", causal=True),
    attention_row("attention-rotary", causal=False, rotary=True),
    attention_row("attention-rotary-causal", causal=True, rotary=True),
    CROSS_ATTENTION,
    row(
        "feedforward-relu",
        lambda: FeedForward(D, 6, "relu"),
        lambda layer, x, _: layer(x),
        plain_feedforward,
        lambda layer, x: layer.outward(F.relu(layer.inward(x))),
        causal=True,
        records=("hidden",),
    ),
    row(
        "feedforward-gelu",
        lambda: FeedForward(D, 6, "gelu"),
        lambda layer, x, _: layer(x),
        plain_feedforward,
        lambda layer, x: layer.outward(F.gelu(layer.inward(x))),
        causal=True,
        records=("hidden",),
    ),
    encoder_row("encoder-post-norm", EncoderLayer, "relu", causal=False),
    encoder_row("encoder-pre-norm", PreNormEncoderLayer, "gelu", causal=False),
    encoder_row("decoder-only-post-norm", EncoderLayer, "relu", causal=True),
    encoder_row("decoder-only-pre-norm", PreNormEncoderLayer, "gelu", causal=True),
    encoder_row("decoder-only-rotary", PreNormEncoderLayer, "gelu", causal=True, rotary=True),
    decoder_row("decoder-post-norm", DecoderLayer),
    decoder_row("decoder-pre-norm", PreNormDecoderLayer),
    ENCODER_DECODER,
    output_row("softmax-full", lambda: FullSoftmax(D, V), plain_full_softmax, torch_full_softmax),
    output_row(
        "softmax-tied", lambda: FullSoftmax(D, V, Embedding(V, 3).weight), plain_full_softmax, torch_full_softmax
    ),
    output_row("softmax-sampled", lambda: SampledSoftmax(D, V, 3), plain_full_softmax, torch_full_softmax),
    output_row(
        "softmax-adaptive",
        lambda: AdaptiveSoftmax(16, V, [2, 4]),
        plain_adaptive_softmax,
        torch_adaptive_softmax,
        wide_vectors,
    ),
]
