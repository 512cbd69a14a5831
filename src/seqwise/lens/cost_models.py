"""What whole models cost: backbones, decoders and heads, and the model of each task.

It registers functions for these modules with `cost_counts`. `count_model` returns the components of a trained run or of a
module as a `CountedModel`. It knows nothing of views or measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from torch import nn

from seqwise.backbones.decoder import BahdanauDecoder, Bridge, InitialStateDecoder, InputFeedingDecoder, LuongDecoder
from seqwise.backbones.encoder import CentredFeedForward, FeedForwardBackbone, SeparateDirections, SeriesEncoder
from seqwise.backbones.image import ConvolutionalEncoder, FeatureEncoder, PatchEncoder
from seqwise.backbones.transformer import TransformerDecoder
from seqwise.errors import UsageError
from seqwise.heads.label import AttentionPooling, LabelHead
from seqwise.heads.tag import IndependentTagHead
from seqwise.layers.attention import Additive, General
from seqwise.layers.transformer import EncoderDecoder
from seqwise.lens.cost_counts import (
    ATTENTION,
    CONVOLUTION,
    FEEDFORWARD,
    OTHER,
    OUTPUT,
    PROJECTIONS,
    RECURRENT,
    SELF_ATTENTION,
    Component,
    Scope,
    count_module,
    counts,
    get_chain,
    list_uncounted,
    product,
    run_parallel,
)
from seqwise.lens.cost_polynomials import ZERO, M, N, Polynomial, weights
from seqwise.tasks.caption.model import CaptionModel
from seqwise.tasks.classify.model import Classifier
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.language.model import LanguageModel
from seqwise.tasks.masked.model import BidirectionalLanguageModel, MaskedModel
from seqwise.tasks.tag.model import TagModel
from seqwise.tasks.translate.model import Translator
from seqwise.training.api import TrainedModel

CLIP_FRAMES = 8  # frames of a clip, where images are clips
SOURCE, TARGET = Scope(), Scope(length=N, is_target=True)


@dataclass(frozen=True)
class CountedModel:
    """A model with the cost of its components for one sequence.

    If a length is fixed by the model, such as the regions of an image, `fixed_source` or `fixed_target` is that length.
    Otherwise source and target have the same length.
    """

    name: str
    module: nn.Module
    width: int
    encoder: Sequence[Component]  # of a model without a decoder, all components
    decoder: Sequence[Component] = ()
    fixed_source: int | None = None
    fixed_target: int | None = None
    unit: str = "tokens"
    uncounted: Sequence[str] = ()  # classes of modules whose products are not known
    trained: TrainedModel | None = None

    @property
    def components(self) -> list[Component]:
        return [*self.encoder, *self.decoder]

    def get_lengths(self, length: int) -> tuple[int, int]:
        """Returns M and N."""
        return self.fixed_source or length, self.fixed_target or length

    def count_operations(self, length: int, batch_size: int = 1, scale: float = 1.0) -> float:
        return sum(each.count(*self.get_lengths(length), batch_size, scale) for each in self.components)

    def count_steps(self, length: int) -> int:
        """Returns the sequential steps of reading whole sequences, as in training."""

        def add(components: Iterable[Component]) -> float:
            return sum(each.steps.evaluate(*self.get_lengths(length)) for each in components)

        beside_encoder = [each for each in self.decoder if each.is_beside_encoder]
        rest = [each for each in self.decoder if not each.is_beside_encoder]
        return round(max(add(self.encoder), add(beside_encoder)) + add(rest))

    def sum_by_kind(self) -> dict[str, Polynomial]:
        """Returns the operations of each kind of component."""
        totals: dict[str, Polynomial] = {}
        for each in self.components:
            totals[each.kind] = totals.get(each.kind, ZERO) + each.operations
        return totals


# Backbones


@counts(FeedForwardBackbone)
def count_window(module: FeedForwardBackbone, scope: Scope) -> Iterable[Component]:
    """Counts the fixed-window network; a centred window also computes the positions of its padding."""
    if isinstance(module, CentredFeedForward):
        scope = replace(scope, length=scope.length + module.window // 2)
    for linear in chain([module.first], module.layer):
        yield product(scope, FEEDFORWARD, linear.in_features, linear.out_features)  # type: ignore[arg-type]


@counts(SeparateDirections)
def count_directions(module: SeparateDirections, scope: Scope) -> Iterable[Component]:
    return run_parallel(
        count_module(module.forwards, scope.name("forward")), count_module(module.backwards, scope.name("backward"))
    )


@counts(SeriesEncoder)
def count_series(module: SeriesEncoder, scope: Scope) -> Iterable[Component]:
    if isinstance(module.enter, nn.Linear):
        yield product(scope, OTHER, module.enter.in_features, module.enter.out_features, power=1)
    yield from count_module(module.backbone, scope)


@counts(PatchEncoder)
def count_patches(module: PatchEncoder, scope: Scope) -> Iterable[Component]:
    yield product(scope, OTHER, module.enter.in_features, module.enter.out_features, power=1)
    yield from count_module(module.encoder, scope)


@counts(FeatureEncoder)
def count_features(module: FeatureEncoder, scope: Scope) -> Iterable[Component]:
    yield product(scope, OTHER, module.enter.in_features, module.enter.out_features, power=1)


@counts(ConvolutionalEncoder)
def count_convolutions(module: ConvolutionalEncoder, scope: Scope) -> Iterable[Component]:
    """Counts the convolutions of one image. They do not depend on M: the size of the image determines the regions."""
    side = module.image_size
    for index, stage in enumerate([*module.stage, module.mix]):
        side = side if stage is module.mix else -(-side // 2)
        for part in stage.modules():
            if isinstance(part, nn.Conv2d):
                operations = 2 * part.weight.numel() * side**2
                power = 1 if part.in_channels == 3 else 2
                yield Component(scope.name(f"stage {index + 1}").label, CONVOLUTION, weights(operations, power), weights(1, 0))


# Decoders. `label` is "decoder", the length read is N, and M is that of the memory.


@counts(Bridge)
def count_bridge(module: Bridge, scope: Scope) -> Iterable[Component]:
    yield product(replace(scope, length=weights(1, 0)), OTHER, module.linear.in_features, module.linear.out_features)


@counts(TransformerDecoder)
def count_transformer_decoder(module: TransformerDecoder, scope: Scope) -> Iterable[Component]:
    yield from (replace(each, is_beside_encoder=True) for each in count_module(module.enter, scope))
    yield from count_module(module.remember, replace(scope, length=scope.memory))
    yield from count_module(module.decoder, scope)


@counts(InitialStateDecoder)
def count_initial_state_decoder(module: InitialStateDecoder, scope: Scope) -> Iterable[Component]:
    backbone = count_module(module.backbone, scope)
    if module.bridge is None:  # nothing of the memory enters the backbone
        return [replace(each, is_beside_encoder=True) for each in backbone]
    return [*count_module(module.bridge, scope), *backbone]


@counts(LuongDecoder)
def count_luong(module: LuongDecoder, scope: Scope) -> Iterable[Component]:
    yield from count_initial_state_decoder(module, scope)
    yield from count_scores(module, scope)


@counts(BahdanauDecoder)
def count_bahdanau(module: BahdanauDecoder, scope: Scope) -> Iterable[Component]:
    """Counts the decoder whose first layer attends before each step: scores, context, product with it, cell."""
    yield from count_module(module.bridge, scope)
    chain_length = count_score_chain(module.score) + get_chain(module.first.cell)
    for each in count_module(module.first, scope.name("layer 1")):
        yield replace(each, steps=scope.length * chain_length)
    above: Any = module.above
    for index, layer in enumerate(above.layer if above else (), start=2):
        yield from count_module(layer, scope.name(f"layer {index}"))
    yield from count_module(module.look_back, scope)
    for each in count_scores(module, scope):
        yield each if each.kind == RECURRENT else replace(each, steps=weights(1, 0) if each.kind == OTHER else ZERO)


@counts(InputFeedingDecoder)
def count_input_feeding(module: InputFeedingDecoder, scope: Scope) -> Iterable[Component]:
    """Counts the decoder in which the attention of a step enters the next: all layers run step by step."""
    yield from count_module(module.bridge, scope)
    for index, layer in enumerate(module.layer, start=1):
        yield from count_module(layer, scope.name(f"layer {index}"))
    for each in count_scores(module, scope):
        yield replace(each, steps=each.steps * scope.length)


def count_scores(module: Any, scope: Scope) -> Iterable[Component]:
    """Counts the attention of a recurrent decoder after Bahdanau or Luong: scores, context and readout."""
    score, (width, joined) = module.score, module.readout.weight.shape
    memory_width = joined - width
    pairs, kind = scope.length * scope.memory, ATTENTION[(True, False)]
    context = 2 * pairs * weights(memory_width, 1)
    if isinstance(score, Additive):
        units = score.v.shape[0]
        projections = 2 * scope.memory * weights(score.U.numel(), 2) + 2 * scope.length * weights(score.W.numel(), 2)
        yield Component(scope.label, PROJECTIONS, projections, weights(1, 0))
        yield Component(scope.label, kind, 2 * pairs * weights(units, 1) + context, weights(2, 0))
    else:
        if isinstance(score, General):
            # The keys are projected while a recurrent decoder runs; a decoder without a state waits for them.
            steps = weights(1, 0) if module.bridge is None else ZERO
            yield Component(scope.label, PROJECTIONS, 2 * scope.memory * weights(score.weight.numel(), 2), steps)
        yield Component(scope.label, kind, 2 * pairs * weights(width, 1) + context, weights(2, 0))
    yield product(scope, OTHER, joined, width)


def count_score_chain(score: nn.Module) -> int:
    """Returns the products from a query to its context that need one another."""
    return 3 if isinstance(score, Additive) else 2


# Heads


@counts(LabelHead)
def count_labels(module: LabelHead, scope: Scope) -> Iterable[Component]:
    if isinstance(module.pooling, AttentionPooling):
        width = module.pooling.width
        pooling = 2 * scope.length * weights(width**2, 2) + 4 * scope.length * weights(width, 1)
        yield Component("pooling", OTHER, pooling, weights(3, 0))
    once = Scope(length=weights(1, 0))
    yield product(once, OUTPUT, module.output.in_features, module.output.out_features, power=1)


@counts(IndependentTagHead)
def count_tags(module: IndependentTagHead, scope: Scope) -> Iterable[Component]:
    yield product(scope, OUTPUT, module.output.in_features, module.output.out_features, power=1)


# Models


def count_model(model: TrainedModel | nn.Module) -> CountedModel:
    """Returns the components of a trained run, or of a module of `seqwise.layers`."""
    if not isinstance(model, TrainedModel):
        return count_plain_module(model)
    module, settings = model.model, model.settings
    build = partial(
        CountedModel,
        name=f"{settings.model} in {model.run.folder}",
        module=module,
        width=settings.network.width,
        uncounted=list_uncounted(module),
        trained=model,
    )
    parts: Any = module
    if isinstance(module, LanguageModel):
        return build(encoder=to_single([*count_module(parts.backbone), *count_module(parts.head.output)]))
    if isinstance(module, MaskedModel):
        scope = Scope(length=settings.masked.rate * M)  # the softmax is computed for masked tokens only
        return build(encoder=to_single([*count_module(parts.encoder), *count_module(parts.output, scope)]))
    if isinstance(module, BidirectionalLanguageModel):
        scope = Scope(length=2 * M + -2)  # each direction predicts all tokens but one
        return build(encoder=to_single([*count_module(parts.encoder), *count_module(parts.output, scope)]))
    if isinstance(module, Classifier):
        return build(encoder=to_single([*count_module(parts.encoder), *count_module(parts.head)]))
    if isinstance(module, TagModel):
        children = (parts.characters, parts.encoder, parts.head)
        return build(encoder=to_single([each for child in children for each in count_module(child)]))
    if isinstance(module, Translator):
        decoder = count_token_decoder(parts.writers[0])
        return build(encoder=count_module(parts.encoder, SOURCE.name("encoder")), decoder=decoder)
    if isinstance(module, CaptionModel):
        encoder, regions = count_image_encoder(model)
        return build(encoder=encoder, decoder=count_token_decoder(parts.writer), fixed_source=regions)
    if isinstance(module, ForecastModel):
        return count_forecast_model(module, settings, build)
    raise UsageError(
        f"the operations of a {type(module).__name__} are not known: it is no model of seqwise.",
        fix="Pass a run of a built-in task, or a module of seqwise.layers.",
    )


def to_single(components: Iterable[Component]) -> list[Component]:
    """Returns the components of a model that reads one sequence: its attention is M × M."""
    source = ATTENTION[(False, False)]
    return [replace(each, kind=SELF_ATTENTION) if each.kind == source else each for each in components]


def count_token_decoder(module: Any) -> list[Component]:
    scope = TARGET.name("decoder")
    return [*count_module(module.decoder, scope), *count_module(module.output, scope)]


def count_image_encoder(model: TrainedModel) -> tuple[list[Component], int]:
    """Returns the components of an image encoder, and the number of regions."""
    whole: Any = model.model
    caption, encoder = model.settings.caption, whole.encoder
    if isinstance(encoder, FeatureEncoder):
        return count_module(encoder, SOURCE.name("encoder")), encoder.positions.max_length
    images, inner = CLIP_FRAMES if caption.frames else 1, encoder.encoder
    scope = Scope(length=weights(inner.side**2, 0), label="encoder")
    components = [replace(each, operations=images * each.operations) for each in count_module(inner, scope)]
    regions = images * encoder.grid**2 if caption.frames else inner.side**2
    return components, regions


def count_forecast_model(module: ForecastModel, settings: Any, build: Any) -> CountedModel:
    """Counts a forecast from M patches to N steps. The linear map and known values are computed beside the network."""
    encoder, horizon, lookback = module.encoder, settings.horizon, settings.forecast.lookback
    patches = -(-lookback // encoder.patch_size)
    flattened = M if encoder.is_transformer else weights(1, 0)  # a Transformer's head reads all its outputs
    head = 2 * flattened * N * weights(encoder.width / (patches if encoder.is_transformer else 1), 1)
    components = [*to_single(count_module(encoder)), Component("head", OUTPUT, head, weights(1, 0))]
    if module.spread is not None:
        components.append(Component("quantiles", OUTPUT, len(module.quantiles) * head))
    if module.straight is not None:
        components.append(Component("linear map", OTHER, 2 * M * N * weights(lookback / patches, 0)))
    if module.effect is not None:
        linears: Any = module.effect
        size = sum(linear.in_features * linear.out_features for linear in (linears[0], linears[2]))
        components.append(Component("known values", OTHER, 2 * N * weights(size, 0)))
    unit = "steps" if encoder.patch_size == 1 else f"patches of {encoder.patch_size} steps"
    return build(encoder=components, fixed_source=None, fixed_target=horizon, unit=unit)


def count_plain_module(module: nn.Module) -> CountedModel:
    """Returns the components of a module that reads vectors."""
    name, uncounted = type(module).__name__, list_uncounted(module)
    if isinstance(module, EncoderDecoder):
        encoder, decoder = count_module(module.encoder), count_module(module.decoder, TARGET.name("decoder"))
        return CountedModel(name, module, find_width(module), encoder, decoder, uncounted=uncounted)
    components = to_single(count_module(module))
    if not components:
        problem = f"a {name} has no layer whose operations are known."
        raise UsageError(problem, fix="Pass a run, or a module built from seqwise.layers.")
    return CountedModel(name, module, find_width(module), components, uncounted=uncounted)


def find_width(module: nn.Module) -> int:
    """Returns the width of the vectors that a module reads."""
    for part in module.modules():
        for name in ("inputs", "width", "embed_dim", "input_size", "in_features"):
            if isinstance(value := getattr(part, name, None), int):
                return value
    return 1
