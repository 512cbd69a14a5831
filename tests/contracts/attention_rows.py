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
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, MixtureSoftmax, SampledSoftmax
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


def create_vectors() -> Tensor:
    return torch.randn(3, 5, D, generator=torch.Generator().manual_seed(5))


def create_wide_vectors() -> Tensor:
    return torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(5))


def create_ids() -> Tensor:
    return torch.randint(V, (3, 5), generator=torch.Generator().manual_seed(5))


def create_memory(x: Tensor) -> Tensor:
    """Returns the memory of a decoder: three vectors, the same for every sequence."""
    vectors_of_one_sequence = torch.linspace(-1.0, 1.0, 3 * D, dtype=x.dtype, device=x.device).sin().view(1, 3, D)
    return vectors_of_one_sequence.expand(x.shape[0], -1, -1)


def build_mask(x: Tensor, lengths: Tensor | None) -> Tensor | None:
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


def build_row(
    name: str,
    make: Build,
    run: Callable,
    compute_by_hand: Callable,
    reference: Callable | None = None,
    **fields: Any,
) -> Row:
    build, inputs = with_random_weights(make), fields.pop("inputs", create_vectors)
    return Row(
        name=name,
        build=build,
        inputs=inputs,
        run=run,
        compare_by_hand=build_hand_comparison(build, run, inputs, compute_by_hand),
        compare_with_torch=None if reference is None else build_torch_comparison(build, run, inputs, reference),
        **fields,
    )


# What the layers compute, with lists of floats.


def to_lists(parameter: Any) -> Any:
    """Returns a parameter as nested lists."""
    return parameter.tolist()


def build_score_function(score: nn.Module) -> Callable[[list[float], list[float]], float]:
    if isinstance(score, General):
        return lambda q, k: plain.dot(q, [plain.dot(r, k) for r in to_lists(score.weight)])
    if isinstance(score, Additive):
        W, U, v = to_lists(score.W), to_lists(score.U), to_lists(score.v)
        return lambda q, k: sum(v[i] * math.tanh(plain.dot(W[i], q) + plain.dot(U[i], k)) for i in range(len(v)))
    scale = 1 / math.sqrt(D) if isinstance(score, ScaledDot) else 1.0
    return lambda q, k: scale * plain.dot(q, k)


def compute_attention(layer: MultiHeadAttention, x: list, memory: list | None = None, causal: bool = False) -> list:
    weight, bias, size = to_lists(layer.in_proj.weight), to_lists(layer.in_proj.bias), layer.width // layer.heads
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
    return plain.linear(context, to_lists(layer.out_proj.weight), to_lists(layer.out_proj.bias))


def compute_feedforward(layer: FeedForward, x: list) -> list:
    activation = {"relu": plain.relu, "gelu": plain.gelu}[layer.activation]
    projected = plain.linear(x, to_lists(layer.in_proj.weight), to_lists(layer.in_proj.bias))
    hidden = [[activation(value) for value in vector] for vector in projected]
    return plain.linear(hidden, to_lists(layer.out_proj.weight), to_lists(layer.out_proj.bias))


def compute_layer(layer: Any, x: list, causal: bool, memory: list | None = None) -> list:
    parts = [(layer.attention_norm, lambda y: compute_attention(layer.attention, y, causal=causal))]
    if memory is not None:
        parts.append((layer.cross_attention_norm, lambda y: compute_attention(layer.cross_attention, y, memory)))
    parts.append((layer.feedforward_norm, lambda y: compute_feedforward(layer.feedforward, y)))
    for norm, part in parts:
        weight, bias = to_lists(norm.weight), to_lists(norm.bias)
        if layer.pre_norm:
            x = plain.add(x, part(plain.norm(x, weight, bias)))
        else:
            x = plain.norm(plain.add(x, part(x)), weight, bias)
    return x


def compute_stack(stack: Any, x: list, causal: bool = True, memory: list | None = None) -> list:
    for layer in stack.layer:
        x = compute_layer(layer, x, causal, memory)
    if isinstance(stack.norm, nn.Identity):
        return x
    return plain.norm(x, to_lists(stack.norm.weight), to_lists(stack.norm.bias))


def create_memory_lists() -> list:
    """Returns the vectors of `create_memory` for one sequence."""
    return [[math.sin(-1 + 2 * (D * s + i) / (3 * D - 1)) for i in range(D)] for s in range(3)]


# PyTorch's own layers on our weights.


def run_torch_attention(
    layer: MultiHeadAttention, x: Tensor, memory: Tensor | None = None, causal: bool = False
) -> Tensor:
    reference = nn.MultiheadAttention(layer.width, layer.heads, batch_first=True)
    share_attention_weights(reference, layer)
    source = x if memory is None else memory
    return reference(x, source, source, attn_mask=~causal_mask(x.shape[1]) if causal else None)[0]


def share_attention_weights(reference: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    reference.in_proj_weight, reference.in_proj_bias = ours.in_proj.weight, ours.in_proj.bias
    share_weights(reference.out_proj, ours.out_proj)


def share_weights(reference: Any, ours: Any) -> None:
    reference.weight, reference.bias = ours.weight, ours.bias


def build_torch_layer(ours: Any) -> nn.Module:
    layer_class = nn.TransformerDecoderLayer if hasattr(ours, "cross_attention") else nn.TransformerEncoderLayer
    hidden, activation = ours.feedforward.in_proj.out_features, ours.feedforward.activation
    reference = layer_class(
        D, ours.attention.heads, hidden, 0.0, activation, batch_first=True, norm_first=ours.pre_norm
    )
    share_attention_weights(reference.self_attn, ours.attention)
    share_weights(reference.linear1, ours.feedforward.in_proj)
    share_weights(reference.linear2, ours.feedforward.out_proj)
    norms = [ours.attention_norm, ours.feedforward_norm]
    if hasattr(ours, "cross_attention"):
        share_attention_weights(reference.multihead_attn, ours.cross_attention)
        norms.insert(1, ours.cross_attention_norm)
    for number, norm in enumerate(norms, start=1):
        share_weights(getattr(reference, f"norm{number}"), norm)
    return reference


def run_torch_stack(stack: Any, x: Tensor, causal: bool = True, memory: Tensor | None = None) -> Tensor:
    mask = ~causal_mask(x.shape[1]) if causal else None
    for layer in stack.layer:
        reference = build_torch_layer(layer)
        x = reference(x, mask) if memory is None else reference(x, memory, mask)
    if isinstance(stack.norm, nn.Identity):
        return x
    return F.layer_norm(x, (D,), stack.norm.weight, stack.norm.bias)


# The table.


def build_score_row(name: str, make: Build, causal: bool = False) -> Row:
    def run(score: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
        return attend(x, x, x, build_mask(x, lengths), score, causal=causal)

    def reference(score: Any, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=causal, scale=score.scale(D))

    fused = with_random_weights(make)().scale(D) is not None
    return build_row(
        name,
        make,
        run,
        lambda s, x: plain.attend(x, x, x, build_score_function(s), causal),
        reference if fused else None,
        causal=causal,
    )


def build_attention_row(name: str, causal: bool, rotary: bool = False) -> Row:
    def run(layer: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
        return layer(x, mask=build_mask(x, lengths), causal=causal)[0]

    def run_with_state(layer: Any, x: Tensor, state: Any) -> Any:
        return layer(x, causal=True, cache=state)

    return build_row(
        name,
        lambda: MultiHeadAttention(D, 2, rotary=rotary),
        run,
        lambda layer, x: compute_attention(layer, x, causal=causal),
        None if rotary else lambda layer, x: run_torch_attention(layer, x, causal=causal),
        causal=causal,
        run_with_state=run_with_state if causal else None,
        records=("weights",),
    )


CROSS_ATTENTION = build_row(
    "attention-cross",
    lambda: MultiHeadAttention(D, 2),
    lambda layer, x, lengths: layer(x, create_memory(x))[0],
    lambda layer, x: compute_attention(layer, x, create_memory_lists()),
    lambda layer, x: run_torch_attention(layer, x, create_memory(x)),
    causal=True,
    records=("weights",),
)


def build_encoder_row(
    name: str, layer_class: type[EncoderLayer], activation: str, causal: bool, rotary: bool = False
) -> Row:
    parts = ("attention.weights", "attention_norm.norm", "feedforward.hidden", "feedforward_norm.norm")
    records = tuple(f"layer.{number}.{part}" for number in (0, 1) for part in parts)
    return build_row(
        name,
        lambda: Encoder([layer_class(D, 2, 6, activation, rotary=rotary) for _ in range(2)]),
        lambda stack, x, lengths: stack(x, lengths, causal)[0],
        lambda stack, x: compute_stack(stack, x, causal),
        None if rotary else lambda stack, x: run_torch_stack(stack, x, causal),
        causal=causal,
        run_with_state=(lambda stack, x, state: stack(x, cache=state)) if causal else None,
        records=(*records, "norm.norm") if layer_class.pre_norm else records,
    )


def build_decoder_row(name: str, layer_class: type[DecoderLayer]) -> Row:
    parts = (
        "attention.weights",
        "attention_norm.norm",
        "cross_attention.weights",
        "cross_attention_norm.norm",
        "feedforward.hidden",
    )
    return build_row(
        name,
        lambda: Decoder([layer_class(D, 2, 6, "relu") for _ in range(2)]),
        lambda stack, x, lengths: stack(x, create_memory(x))[0],
        lambda stack, x: compute_stack(stack, x, memory=create_memory_lists()),
        lambda stack, x: run_torch_stack(stack, x, memory=create_memory(x)),
        causal=True,
        run_with_state=lambda stack, x, state: stack(x, create_memory(x), cache=state),
        records=tuple(f"layer.{number}.{part}" for number in (0, 1) for part in parts),
    )


def run_torch_encoder_decoder(stack: Any, x: Tensor) -> Tensor:
    """Returns the outputs of PyTorch's decoder over PyTorch's encoder."""
    return run_torch_stack(stack.decoder, x, memory=run_torch_stack(stack.encoder, create_memory(x), causal=False))


ENCODER_DECODER = build_row(
    "encoder-decoder",
    lambda: EncoderDecoder(
        Encoder([PreNormEncoderLayer(D, 2, 6, "relu")]), Decoder([PreNormDecoderLayer(D, 2, 6, "relu")])
    ),
    lambda stack, x, lengths: stack(create_memory(x), x),
    lambda stack, x: compute_stack(
        stack.decoder, x, memory=compute_stack(stack.encoder, create_memory_lists(), causal=False)
    ),
    run_torch_encoder_decoder,
    causal=True,
    run_with_state=lambda stack, x, state: stack.decode(x, stack.encode(create_memory(x)), cache=state),
    records=("encoder.layer.0.attention.weights", "decoder.layer.0.cross_attention.weights", "decoder.norm.norm"),
)


def compute_full_softmax(layer: Any, x: list) -> list:
    if not isinstance(layer.project, nn.Identity):
        x = plain.linear(x, to_lists(layer.project.weight))
    return [plain.log_softmax(r) for r in plain.linear(x, to_lists(layer.weight), to_lists(layer.bias))]


def compute_mixture_softmax(layer: Any, x: list) -> list:
    rows = []
    for vector in x:
        hidden = plain.linear([vector], to_lists(layer.context.weight), to_lists(layer.context.bias))[0]
        priors = plain.softmax(plain.linear([vector], to_lists(layer.prior.weight))[0])
        total, width = [0.0] * V, len(hidden) // len(priors)
        for number, prior in enumerate(priors):
            context = [math.tanh(value) for value in hidden[number * width : (number + 1) * width]]
            scores = plain.linear([context], to_lists(layer.weight), to_lists(layer.bias))[0]
            total = [old + prior * new for old, new in zip(total, plain.softmax(scores))]
        rows.append([math.log(value) for value in total])
    return rows


def compute_adaptive_softmax(layer: Any, x: list) -> list:
    """Returns log-probabilities: two words in the head, then clusters of two and three words."""
    rows = []
    for vector in x:
        head = plain.log_softmax(plain.linear([vector], to_lists(layer.softmax.head.weight))[0])
        log_probabilities = head[:2]
        for number, (down, up) in enumerate(layer.softmax.tail):
            scores = plain.linear(plain.linear([vector], to_lists(down.weight)), to_lists(up.weight))[0]
            log_probabilities += [head[2 + number] + value for value in plain.log_softmax(scores)]
        rows.append(log_probabilities)
    return rows


def build_output_row(
    name: str, make: Build, compute_by_hand: Callable, reference: Callable, inputs: Callable = create_vectors
) -> Row:
    return build_row(
        name,
        make,
        lambda layer, x, _: layer.log_probabilities(x),
        compute_by_hand,
        reference,
        inputs=inputs,
        causal=True,
    )


def run_torch_full_softmax(layer: Any, x: Tensor) -> Tensor:
    return F.log_softmax(F.linear(layer.project(x), layer.weight, layer.bias), -1)


def run_torch_mixture_softmax(layer: Any, x: Tensor) -> Tensor:
    contexts = torch.tanh(F.linear(x, layer.context.weight, layer.context.bias)).unflatten(-1, (2, -1))
    probabilities = F.softmax(F.linear(contexts, layer.weight, layer.bias), -1)
    return (F.softmax(layer.prior(x), -1)[..., None] * probabilities).sum(-2).log()


def run_torch_adaptive_softmax(layer: Any, x: Tensor) -> Tensor:
    reference = nn.AdaptiveLogSoftmaxWithLoss(16, V, [2, 4])
    reference.load_state_dict(layer.softmax.state_dict())
    return reference.log_prob(x.flatten(0, 1)).view(*x.shape[:2], V)


def add_positions(position_vector: Callable[[int], list[float]]) -> Callable:
    return lambda layer, x: plain.add(x, [position_vector(t) for t in range(len(x))])


def compute_sinusoid(t: int) -> list[float]:
    return [f(t / 10000 ** (2 * i / D)) for i in range(D // 2) for f in (math.sin, math.cos)]


def run_from_position(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Runs a position layer, whose state is its next position, as a tensor whose first dimension is the batch."""
    start = 0 if state is None else int(state[0][0])
    return layer(x, start), (torch.full((x.shape[0],), start + x.shape[1]),)


ROWS = [
    build_row(
        "embedding",
        lambda: Embedding(V, D),
        lambda layer, x, _: layer(x),
        lambda layer, x: [to_lists(layer.weight)[i] for i in x],
        lambda layer, x: F.embedding(x, layer.weight),
        inputs=create_ids,
        causal=True,
        records=("vectors",),
    ),
    build_row(
        "one-hot",
        lambda: OneHot(V),
        lambda layer, x, _: layer(x),
        lambda layer, x: [[float(i == j) for j in range(V)] for i in x],
        lambda layer, x: F.one_hot(x, V).float(),
        inputs=create_ids,
        causal=True,
    ),
    build_row(
        "positions-sinusoidal",
        lambda: SinusoidalPositions(D),
        lambda layer, x, _: layer(x),
        add_positions(compute_sinusoid),
        causal=True,
        run_with_state=run_from_position,
        records=("positions",),
    ),
    build_row(
        "positions-learned",
        lambda: LearnedPositions(D, 10),
        lambda layer, x, _: layer(x),
        lambda layer, x: plain.add(x, to_lists(layer.weight)[: len(x)]),
        lambda layer, x: x + F.embedding(torch.arange(x.shape[1]), layer.weight),
        causal=True,
        run_with_state=run_from_position,
        records=("positions",),
    ),
    build_row(
        "positions-rotary",
        lambda: Rotary(),
        lambda layer, x, _: layer(x),
        lambda layer, x: plain.rotate(x),
        causal=True,
        run_with_state=run_from_position,
        records=("rotated",),
    ),
    build_score_row("attend-dot", Dot),
    build_score_row("attend-scaled-dot", ScaledDot),
    build_score_row("attend-general", lambda: General(D, D)),
    build_score_row("attend-additive", lambda: Additive(D, D, 3)),
    build_score_row("attend-scaled-dot-causal", ScaledDot, causal=True),
    build_score_row("attend-additive-causal", lambda: Additive(D, D, 3), causal=True),
    build_attention_row("attention-self", causal=False),
    build_attention_row("attention-causal", causal=True),
    build_attention_row("attention-rotary", causal=False, rotary=True),
    build_attention_row("attention-rotary-causal", causal=True, rotary=True),
    CROSS_ATTENTION,
    build_row(
        "feedforward-relu",
        lambda: FeedForward(D, 6, "relu"),
        lambda layer, x, _: layer(x),
        compute_feedforward,
        lambda layer, x: layer.out_proj(F.relu(layer.in_proj(x))),
        causal=True,
        records=("hidden",),
    ),
    build_row(
        "feedforward-gelu",
        lambda: FeedForward(D, 6, "gelu"),
        lambda layer, x, _: layer(x),
        compute_feedforward,
        lambda layer, x: layer.out_proj(F.gelu(layer.in_proj(x))),
        causal=True,
        records=("hidden",),
    ),
    build_encoder_row("encoder-post-norm", EncoderLayer, "relu", causal=False),
    build_encoder_row("encoder-pre-norm", PreNormEncoderLayer, "gelu", causal=False),
    build_encoder_row("decoder-only-post-norm", EncoderLayer, "relu", causal=True),
    build_encoder_row("decoder-only-pre-norm", PreNormEncoderLayer, "gelu", causal=True),
    build_encoder_row("decoder-only-rotary", PreNormEncoderLayer, "gelu", causal=True, rotary=True),
    build_decoder_row("decoder-post-norm", DecoderLayer),
    build_decoder_row("decoder-pre-norm", PreNormDecoderLayer),
    ENCODER_DECODER,
    build_output_row("softmax-full", lambda: FullSoftmax(D, V), compute_full_softmax, run_torch_full_softmax),
    build_output_row(
        "softmax-tied", lambda: FullSoftmax(D, V, Embedding(V, 3).weight), compute_full_softmax, run_torch_full_softmax
    ),
    build_output_row("softmax-sampled", lambda: SampledSoftmax(D, V, 3), compute_full_softmax, run_torch_full_softmax),
    build_output_row(
        "softmax-mixture", lambda: MixtureSoftmax(D, V, 2), compute_mixture_softmax, run_torch_mixture_softmax
    ),
    build_output_row(
        "softmax-adaptive",
        lambda: AdaptiveSoftmax(16, V, [2, 4]),
        compute_adaptive_softmax,
        run_torch_adaptive_softmax,
        create_wide_vectors,
    ),
]
