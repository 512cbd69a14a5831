"""What whole models cost: `count_model` returns the components of a trained run, or of a module, as a `CountedModel`.

It knows nothing of views or measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from seqwise.backbones.image import FeatureEncoder
from seqwise.errors import UsageError
from seqwise.heads.forecast import SegmentHead
from seqwise.layers.transformer import EncoderDecoder
from seqwise.lens import cost_parts  # noqa: F401 - registers what the parts of models cost
from seqwise.lens.cost_counts import (
    ATTENTION,
    LOSS,
    OTHER,
    OUTPUT,
    SELF_ATTENTION,
    Component,
    Scope,
    count_module,
    get_chain_length,
    list_uncounted,
)
from seqwise.lens.cost_polynomials import ZERO, M, N, Polynomial, build_term
from seqwise.lens.subject import name_run
from seqwise.tasks.caption.model import CaptionModel
from seqwise.tasks.classify.model import Classifier
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.language.model import LanguageModel
from seqwise.tasks.language.ngram import NGramModel
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

        parallel = [each for each in self.decoder if each.is_parallel_to_encoder]
        rest = [each for each in self.decoder if not each.is_parallel_to_encoder]
        return round(max(add(self.encoder), add(parallel)) + add(rest))

    def count_activations(self, length: int, batch_size: int = 1) -> float:
        """Returns the values that are kept for the gradient."""
        return sum(each.count_activations(*self.get_lengths(length), batch_size) for each in self.components)

    def sum_by_kind(self) -> dict[str, Polynomial]:
        """Returns the operations of each kind of component."""
        totals: dict[str, Polynomial] = {}
        for each in self.components:
            totals[each.kind] = totals.get(each.kind, ZERO) + each.operations
        return totals


def count_model(model: TrainedModel | nn.Module) -> CountedModel:
    """Returns the components of a trained run, or of a module of `seqwise.layers`."""
    if not isinstance(model, TrainedModel):
        return count_plain_module(model)
    module, settings = model.model, model.settings
    build = partial(
        CountedModel,
        name=name_run(model),
        module=module,
        width=settings.network.width,
        uncounted=list_uncounted(module),
        trained=model,
    )
    parts: Any = module
    if isinstance(module, LanguageModel):
        return build(encoder=name_self_attention([*count_module(parts.backbone), *count_module(parts.head.output)]))
    if isinstance(module, MaskedModel | BidirectionalLanguageModel):
        # The softmax is computed for masked tokens only; of a model of both directions, in each for all tokens but one.
        scope = Scope(length=settings.masked.rate * M if isinstance(module, MaskedModel) else 2 * M + -2)
        targets = Component("", LOSS, activations=2 * scope.length)
        components = [*count_module(parts.encoder), *count_module(parts.output, scope), targets]
        return build(encoder=name_self_attention(components))
    if isinstance(module, Classifier):
        children = (parts.encoder, parts.head, parts.ngrams)
        return build(encoder=name_self_attention([each for child in children for each in count_module(child)]))
    if isinstance(module, TagModel):
        children = (parts.characters, parts.encoder, parts.head)
        return build(encoder=name_self_attention([each for child in children for each in count_module(child)]))
    if isinstance(module, Translator):
        decoder = count_token_decoder(parts.decoders[0])
        return build(encoder=count_module(parts.encoder, SOURCE.name("encoder")), decoder=decoder)
    if isinstance(module, CaptionModel):
        encoder, regions = count_image_encoder(model)
        return build(encoder=encoder, decoder=count_token_decoder(parts.decoder), fixed_source=regions)
    if isinstance(module, ForecastModel):
        return count_forecast_model(module, settings, build)
    if isinstance(module, NGramModel):
        problem = "an n-gram model looks up counts: it has no matrix products whose operations could be counted."
        raise UsageError(problem, fix="Choose a run of a neural model.")
    raise UsageError(
        f"the operations of a {type(module).__name__} are not known: it is no model of seqwise.",
        fix="Pass a run of a built-in task, or a module of seqwise.layers.",
    )


def name_self_attention(components: Iterable[Component]) -> list[Component]:
    """Returns the components of a model that reads one sequence; its attention is named M × M."""
    source = ATTENTION[(False, False)]
    return [replace(each, kind=SELF_ATTENTION) if each.kind == source else each for each in components]


def count_token_decoder(module: Any) -> list[Component]:
    scope = TARGET.name("decoder")
    targets = Component(scope.label, LOSS, activations=2 * N)  # 64-bit integers
    return [*count_module(module.decoder, scope), *count_module(module.output, scope), targets]


def count_image_encoder(model: TrainedModel) -> tuple[list[Component], int]:
    """Returns the components of an image encoder, and the number of regions."""
    whole: Any = model.model
    caption, encoder = model.settings.caption, whole.encoder
    if isinstance(encoder, FeatureEncoder):
        return count_module(encoder, SOURCE.name("encoder")), encoder.positions.max_length
    images, inner = CLIP_FRAMES if caption.frames else 1, encoder.encoder
    scope = Scope(length=build_term(inner.side**2, 0), label="encoder")
    components = [replace(each, operations=images * each.operations) for each in count_module(inner, scope)]
    regions = images * encoder.grid**2 if caption.frames else inner.side**2
    return components, regions


def count_forecast_model(module: ForecastModel, settings: Any, build: Any) -> CountedModel:
    """Counts a forecast from M patches to N steps. The linear map and known values are computed beside the network."""
    encoder: Any = module.encoder
    horizon, lookback = settings.horizon, settings.forecast.lookback
    patches = -(-lookback // encoder.patch_size)
    flattened = M if encoder.is_transformer else build_term(1, 0)  # a Transformer's head reads all its outputs
    head = 2 * flattened * N * build_term(encoder.width / (patches if encoder.is_transformer else 1), 1)
    components = name_self_attention(count_module(encoder))
    if isinstance(module.head, SegmentHead):
        components += count_segments(module.head, encoder)
    else:
        components.append(Component("head", OUTPUT, head, build_term(1, 0)))
    if module.quantile_head is not None:
        saved = 4 * len(module.quantiles) * N  # distances, and the order of the quantiles as 64-bit integers
        components.append(Component("quantiles", OUTPUT, len(module.quantiles) * head, activations=saved))
    if module.linear_map is not None:
        past = M * (lookback / patches)
        components.append(Component("linear map", OTHER, 2 * past * N, activations=past))
    if module.known_effect is not None:
        linears: Any = module.known_effect
        size = sum(linear.in_features * linear.out_features for linear in (linears[0], linears[2]))
        components.append(Component("known values", OTHER, 2 * size * N, activations=linears[2].in_features * N))
    unit = "steps" if encoder.patch_size == 1 else f"patches of {encoder.patch_size} steps"
    return build(encoder=components, fixed_source=None, fixed_target=horizon, unit=unit)


def count_segments(head: SegmentHead, encoder: Any) -> list[Component]:
    """Counts one step of each recurrent layer for all segments of the horizon, in parallel, and the linear map.

    Lower layers take that step while the last layer still reads the past, so only its own step adds to the chain.
    """
    scope = Scope(length=build_term(len(head.positions), 0), label="decoder")
    components, layers = [], encoder.backbone.stack.layer
    for layer in layers:
        steps = build_term(get_chain_length(layer.cell), 0) if layer is layers[-1] else ZERO
        components += [replace(each, steps=steps) for each in count_module(layer, scope)]
    output = 2 * scope.length * build_term(head.output.in_features * head.output.out_features, 1)
    return [*components, Component("head", OUTPUT, output, build_term(1, 0))]


def count_plain_module(module: nn.Module) -> CountedModel:
    """Returns the components of a module that reads vectors."""
    name, uncounted = type(module).__name__, list_uncounted(module)
    if isinstance(module, EncoderDecoder):
        encoder, decoder = count_module(module.encoder), count_module(module.decoder, TARGET.name("decoder"))
        return CountedModel(name, module, find_width(module), encoder, decoder, uncounted=uncounted)
    components = name_self_attention(count_module(module))
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
