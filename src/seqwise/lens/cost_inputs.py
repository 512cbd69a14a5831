"""Random inputs of a length for any model, as its task builds them. The cost of a model depends on their sizes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.image import FeatureEncoder
from seqwise.backbones.memory import Memory
from seqwise.data.batch import TokenBatch
from seqwise.layers.transformer import EncoderDecoder
from seqwise.lens.cost_models import CLIP_FRAMES, CountedModel
from seqwise.tasks.caption.model import CaptionBatch
from seqwise.tasks.classify.model import TextBatch
from seqwise.tasks.forecast.windows import WindowBatch
from seqwise.tasks.inspection import get_device
from seqwise.tasks.masked.masking import MaskedBatch
from seqwise.tasks.tag.model import TagBatch
from seqwise.tasks.translate.model import PairBatch

WORD_CHARACTERS = 8  # of the words that a tagger reads


def build_call(counted: CountedModel, length: int, batch_size: int = 1) -> Callable[[], Any]:
    """Returns a function that calls the model on random sequences of a length."""
    source, target = counted.get_lengths(length)
    module: Any = counted.module
    if counted.trained is not None:
        batch = build_batch(counted, batch_size, source, target)
        return lambda: module(batch)
    device, dtype = get_device(module), next(module.parameters()).dtype
    sequences = [torch.zeros(batch_size, size, counted.width, device=device, dtype=dtype) for size in (source, target)]
    if isinstance(module, EncoderDecoder):
        return lambda: module(*sequences)
    x = sequences[0] if getattr(module, "batch_first", True) else sequences[0].transpose(0, 1)
    arguments = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    return lambda: module(*arguments)


def build_batch(counted: CountedModel, batch_size: int, source: int, target: int) -> Any:
    """Returns a batch of the run's task, of these lengths, on the device of the model."""
    trained, module = counted.trained, counted.module
    assert trained is not None
    task, device = trained.settings.task, get_device(module)
    generator = torch.Generator().manual_seed(0)

    def draw(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=generator)

    ids = draw(2, batch_size, source)
    full = torch.full((batch_size,), source)
    inputs = draw(2, batch_size, target)
    if task == "language":  # all tokens equally often, because the cost of an adaptive softmax depends on them
        ids = (torch.arange(batch_size * source) % len(trained.run.preprocessor.tokenizer)).view(batch_size, source)
        batch: Any = TokenBatch(ids, ids)
    elif task == "masked":
        num_masked = max(1, round(trained.settings.masked.rate * source))
        batch = MaskedBatch(ids, ids, (torch.arange(source) < num_masked).expand(batch_size, -1))
    elif task == "classify":
        batch = TextBatch(ids, full, torch.zeros(batch_size, dtype=torch.int64))
    elif task == "tag":
        characters, features = draw(2, 2, WORD_CHARACTERS) + 1, torch.ones(2, 1, dtype=torch.int64)
        batch = TagBatch(ids, ids, torch.zeros_like(ids), full, characters, features, torch.zeros_like(ids))
    elif task == "translate":
        pair = inputs[:, None]
        batch = PairBatch(ids, full, pair, pair, torch.ones_like(pair, dtype=torch.bool))
    elif task == "caption":
        images, lengths = build_images(trained, module, batch_size, source)
        batch = CaptionBatch(inputs, inputs, torch.ones_like(inputs, dtype=torch.bool), images, lengths)
    else:
        batch = build_windows(trained, module, batch_size, source, target, generator)
    return batch.to(device)


def build_images(trained: Any, module: Any, batch_size: int, regions: int) -> tuple[Tensor, Tensor | None]:
    """Returns images, clips or features, and their lengths."""
    size, encoder = trained.settings.caption.image_size, module.encoder
    if isinstance(encoder, FeatureEncoder):
        return torch.zeros(batch_size, regions, encoder.input_projection.in_features), torch.full(
            (batch_size,), regions
        )
    if trained.settings.caption.frames:
        return torch.zeros(batch_size, CLIP_FRAMES, size, size, 3), torch.full((batch_size,), CLIP_FRAMES)
    return torch.zeros(batch_size, size, size, 3), None


def build_windows(
    trained: Any, module: Any, batch_size: int, patches: int, horizon: int, generator: torch.Generator
) -> WindowBatch:
    encoder = module.encoder
    lookback = min(patches * encoder.patch_size, trained.settings.forecast.lookback)
    inputs = (
        encoder.input_projection.in_features
        if isinstance(encoder.input_projection, nn.Linear)
        else encoder.backbone.inputs
    )
    num_known = inputs // encoder.patch_size - 1
    past = torch.randn(batch_size, lookback, generator=generator)
    future = torch.zeros(batch_size, horizon)
    known = torch.zeros(batch_size, lookback + horizon, num_known)
    return WindowBatch(past, future, torch.ones_like(future, dtype=torch.bool), known)


def build_shared_call(counted: CountedModel, length: int, num_targets: int) -> Callable[[], Any]:
    """Returns a function that encodes one source and decodes several targets over its memory."""
    source, target = counted.get_lengths(length)
    module: Any = counted.module
    if counted.trained is None:
        shapes = (1, source, counted.width), (num_targets, target, counted.width)
        x, y = (torch.zeros(shape, device=get_device(module)) for shape in shapes)
        return lambda: module.decode(y, module.encode(x).expand(num_targets, -1, -1))
    one = build_batch(counted, 1, source, target)
    several = build_batch(counted, num_targets, source, target)
    is_caption = isinstance(one, CaptionBatch)
    decoder = module.decoder if is_caption else module.get_decoder(0)
    fields = (several.ids, several.targets, several.mask) if is_caption else (
        several.inputs[:, 0], several.targets[:, 0], several.mask[:, 0]
    )  # fmt: skip

    def run() -> Any:
        memory = module.encode(one.images if is_caption else one.source, one.lengths)
        lengths = None if memory.lengths is None else memory.lengths.expand(num_targets)
        return decoder.loss(Memory(memory.vectors.expand(num_targets, -1, -1), lengths), *fields)

    return run
