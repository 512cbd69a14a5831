"""What the parts of models cost: backbones, decoders and heads. It registers functions for them with `cost_counts`.

In a decoder the length read is N, and M is that of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from seqwise.backbones.decoder import BahdanauDecoder, Bridge, InitialStateDecoder, InputFeedingDecoder, LuongDecoder
from seqwise.backbones.encoder import CentredFeedForward, FeedForwardBackbone, SeparateDirections, SeriesEncoder
from seqwise.backbones.image import ConvolutionalEncoder, FeatureEncoder, PatchEncoder
from seqwise.backbones.transformer import TransformerDecoder
from seqwise.heads.label import AttentionPooling, LabelHead
from seqwise.heads.tag import IndependentTagHead, LinearChainCRF
from seqwise.layers.attention import Additive, General
from seqwise.lens.cost_counts import (
    ATTENTION,
    CONVOLUTION,
    FEEDFORWARD,
    LOSS,
    OTHER,
    OUTPUT,
    PROJECTIONS,
    RECURRENT,
    Component,
    Scope,
    count_module,
    count_product,
    get_chain_length,
    join_parallel,
    register_counter,
)
from seqwise.lens.cost_polynomials import ZERO, build_term

STEPWISE_SAVED = {"rnn": 2, "gru": 7, "lstm": 8}  # values of a unit and step where a decoder runs step by step

# Backbones


@register_counter(FeedForwardBackbone)
def count_window(module: FeedForwardBackbone, scope: Scope) -> Iterable[Component]:
    """Counts the fixed-window network; a centred window also computes the positions of its padding."""
    if isinstance(module, CentredFeedForward):
        scope = replace(scope, length=scope.length + module.window // 2)
    yield count_product(scope, FEEDFORWARD, module.first.in_features, module.first.out_features)
    if isinstance(module, CentredFeedForward):
        yield Component(
            scope.label, FEEDFORWARD, activations=scope.length * build_term(module.width, 1)
        )  # before slicing
    for linear in module.layer:
        each = count_product(scope, FEEDFORWARD, linear.in_features, linear.out_features)  # type: ignore[arg-type]
        yield replace(each, activations=2 * each.activations)  # its input, and the output of the ReLU


@register_counter(SeparateDirections)
def count_directions(module: SeparateDirections, scope: Scope) -> Iterable[Component]:
    return join_parallel(
        count_module(module.forward_layer, scope.name("forward")),
        count_module(module.backward_layer, scope.name("backward")),
    )


@register_counter(SeriesEncoder)
def count_series(module: SeriesEncoder, scope: Scope) -> Iterable[Component]:
    if isinstance(module.input_projection, nn.Linear):
        yield count_product(
            scope, OTHER, module.input_projection.in_features, module.input_projection.out_features, power=1
        )
    yield from count_module(module.backbone, scope)


@register_counter(PatchEncoder)
def count_patches(module: PatchEncoder, scope: Scope) -> Iterable[Component]:
    yield count_product(
        scope, OTHER, module.input_projection.in_features, module.input_projection.out_features, power=1
    )
    yield from count_module(module.encoder, scope)


@register_counter(FeatureEncoder)
def count_features(module: FeatureEncoder, scope: Scope) -> Iterable[Component]:
    yield count_product(
        scope, OTHER, module.input_projection.in_features, module.input_projection.out_features, power=1
    )


@register_counter(ConvolutionalEncoder)
def count_convolutions(module: ConvolutionalEncoder, scope: Scope) -> Iterable[Component]:
    """Counts the convolutions of one image. They do not depend on M: the size of the image determines the regions."""
    side = module.image_size
    for index, stage in enumerate([*module.stage, module.mix]):
        side = side if stage is module.mix else -(-side // 2)
        for part in stage.modules():
            if isinstance(part, nn.Conv2d):
                operations = 2 * part.weight.numel() * side**2
                power = 1 if part.in_channels == 3 else 2
                inputs = part.in_channels * (side * part.stride[0]) ** 2
                outputs = (2 if part.stride[0] > 1 else 1) * part.out_channels * side**2  # norm or ReLU
                label = scope.name(f"stage {index + 1}").label
                saved = build_term(inputs + outputs, 1)
                yield Component(label, CONVOLUTION, build_term(operations, power), build_term(1, 0), saved)
    yield from count_module(module.norm, replace(scope, length=build_term(side**2, 0)))


# Decoders


@register_counter(Bridge)
def count_bridge(module: Bridge, scope: Scope) -> Iterable[Component]:
    yield count_product(
        replace(scope, length=build_term(1, 0)), OTHER, module.linear.in_features, module.linear.out_features
    )


@register_counter(TransformerDecoder)
def count_transformer_decoder(module: TransformerDecoder, scope: Scope) -> Iterable[Component]:
    yield from (replace(each, is_parallel_to_encoder=True) for each in count_module(module.input_projection, scope))
    yield from count_module(module.remember, replace(scope, length=scope.memory))
    yield from count_module(module.decoder, scope)


@register_counter(InitialStateDecoder)
def count_initial_state_decoder(module: InitialStateDecoder, scope: Scope) -> Iterable[Component]:
    backbone = count_module(module.backbone, scope)
    if module.bridge is None:  # nothing of the memory enters the backbone
        return [replace(each, is_parallel_to_encoder=True) for each in backbone]
    return [*count_module(module.bridge, scope), *backbone]


@register_counter(LuongDecoder)
def count_luong(module: LuongDecoder, scope: Scope) -> Iterable[Component]:
    yield from count_initial_state_decoder(module, scope)
    yield from count_scores(module, scope)


@register_counter(BahdanauDecoder)
def count_bahdanau(module: BahdanauDecoder, scope: Scope) -> Iterable[Component]:
    """Counts the decoder whose first layer attends before each step: scores, context, product with it, cell."""
    yield from count_module(module.bridge, scope)
    chain_length = get_score_chain_length(module.score) + get_chain_length(module.first.cell)
    cell = module.first.cell
    saved = scope.length * build_term(cell.inputs + STEPWISE_SAVED.get(cell.name, 7) * cell.units, 1)
    for each in count_module(module.first, scope.name("layer 1")):
        yield replace(each, steps=scope.length * chain_length, activations=saved)
    above: Any = module.above
    for index, layer in enumerate(above.layer if above else (), start=2):
        yield from count_module(layer, scope.name(f"layer {index}"))
    yield from count_module(module.state_attention, scope)
    for each in count_scores(module, scope):
        yield each if each.kind == RECURRENT else replace(each, steps=build_term(1, 0) if each.kind == OTHER else ZERO)


@register_counter(InputFeedingDecoder)
def count_input_feeding(module: InputFeedingDecoder, scope: Scope) -> Iterable[Component]:
    """Counts the decoder in which the attention of a step enters the next: all layers run step by step."""
    yield from count_module(module.bridge, scope)
    for index, layer in enumerate(module.layer, start=1):
        cell: Any = layer.cell
        saved = scope.length * build_term(cell.inputs + STEPWISE_SAVED.get(cell.name, 7) * cell.units, 1)
        yield from (replace(each, activations=saved) for each in count_module(layer, scope.name(f"layer {index}")))
    for each in count_scores(module, scope):
        yield replace(each, steps=each.steps * scope.length)


def count_scores(module: Any, scope: Scope) -> Iterable[Component]:
    """Counts the attention of a recurrent decoder after Bahdanau or Luong: scores, context and readout."""
    score, (width, joined) = module.score, module.readout.weight.shape
    memory_width = joined - width
    pairs, kind = scope.length * scope.memory, ATTENTION[(True, False)]
    context = 2 * pairs * build_term(memory_width, 1)
    if isinstance(score, Additive):
        units = score.v.shape[0]
        projections = 2 * scope.memory * build_term(score.U.numel(), 2) + 2 * scope.length * build_term(
            score.W.numel(), 2
        )
        yield Component(
            scope.label, PROJECTIONS, projections, build_term(1, 0), 2 * scope.memory * build_term(memory_width, 1)
        )
        saved = pairs * build_term(units, 1) + 2.5 * pairs  # tanh(W q + U k), the weights and their mask
        yield Component(scope.label, kind, 2 * pairs * build_term(units, 1) + context, build_term(2, 0), saved)
    else:
        if isinstance(score, General):
            # The keys are projected while a recurrent decoder runs; a decoder without a state waits for them.
            steps = build_term(1, 0) if module.bridge is None else ZERO
            yield Component(scope.label, PROJECTIONS, 2 * scope.memory * build_term(score.weight.numel(), 2), steps)
        saved = 2.5 * pairs + scope.memory * build_term(memory_width + width, 1) + scope.length * build_term(width, 1)
        yield Component(scope.label, kind, 2 * pairs * build_term(width, 1) + context, build_term(2, 0), saved)
    yield count_product(scope, OTHER, joined, width)


def get_score_chain_length(score: nn.Module) -> int:
    """Returns the products from a query to its context that need one another."""
    return 3 if isinstance(score, Additive) else 2


# Heads


@register_counter(LabelHead)
def count_labels(module: LabelHead, scope: Scope) -> Iterable[Component]:
    if isinstance(module.pooling, AttentionPooling):
        width = module.pooling.width
        pooling = 2 * scope.length * build_term(width**2, 2) + 4 * scope.length * build_term(width, 1)
        saved = scope.length * build_term(2 * width, 1) + 2.5 * scope.length  # states, u, weights and masks
        yield Component("pooling", OTHER, pooling, build_term(3, 0), saved)
    once = Scope(length=build_term(1, 0))
    yield count_product(once, OUTPUT, module.output.in_features, module.output.out_features, power=1)


@register_counter(IndependentTagHead)
def count_tags(module: IndependentTagHead, scope: Scope) -> Iterable[Component]:
    num_tags = module.output.out_features
    yield count_product(scope, OUTPUT, module.output.in_features, num_tags, power=1)
    saved = num_tags**2 + 2 * num_tags if isinstance(module, LinearChainCRF) else num_tags
    yield Component(scope.label, LOSS, activations=saved * scope.length)
