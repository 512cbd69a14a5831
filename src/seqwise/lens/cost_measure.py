"""What a model costs on this machine: time, saved activations, and operations as PyTorch's profiler counts them.

Inputs are random: the cost depends on their sizes only. Nothing of the model changes, nor does the random state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqwise.backbones.image import FeatureEncoder
from seqwise.data.batch import TokenBatch
from seqwise.layers.record import record
from seqwise.layers.transformer import EncoderDecoder
from seqwise.lens.cost_models import CLIP_FRAMES, CountedModel
from seqwise.lens.subject import evaluation_mode
from seqwise.tasks.caption.model import CaptionBatch
from seqwise.tasks.classify.model import TextBatch
from seqwise.tasks.forecast.windows import WindowBatch
from seqwise.tasks.inspection import get_device
from seqwise.tasks.masked.masking import MaskedBatch
from seqwise.tasks.tag.model import TagBatch
from seqwise.tasks.translate.model import PairBatch

REPEATS, MIN_SECONDS, MAX_SECONDS = 5, 0.05, 1.0  # timed calls of one size, and the time for them
WORD_CHARACTERS = 8  # of the words that a tagger reads


# Inputs


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
        batch = TagBatch(ids, ids, torch.zeros_like(ids), full, draw(2, 2, WORD_CHARACTERS) + 1)
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
        return torch.zeros(batch_size, regions, encoder.enter.in_features), torch.full((batch_size,), regions)
    if trained.settings.caption.frames:
        return torch.zeros(batch_size, CLIP_FRAMES, size, size, 3), torch.full((batch_size,), CLIP_FRAMES)
    return torch.zeros(batch_size, size, size, 3), None


def build_windows(
    trained: Any, module: Any, batch_size: int, patches: int, horizon: int, generator: torch.Generator
) -> WindowBatch:
    encoder = module.encoder
    lookback = min(patches * encoder.patch_size, trained.settings.forecast.lookback)
    inputs = encoder.enter.in_features if isinstance(encoder.enter, nn.Linear) else encoder.backbone.inputs
    num_known = inputs // encoder.patch_size - 1
    past = torch.randn(batch_size, lookback, generator=generator)
    future = torch.zeros(batch_size, horizon)
    known = torch.zeros(batch_size, lookback + horizon, num_known)
    return WindowBatch(past, future, torch.ones_like(future, dtype=torch.bool), known)


# Operations


def profile_operations(counted: CountedModel, length: int, batch_size: int = 1) -> int:
    """Returns the operations of one call as PyTorch's profiler counts them.

    A live recording runs the reference implementations, because the profiler does not see inside fused kernels.
    """
    call = build_call(counted, length, batch_size)
    mapping: dict[Any, Any] = {torch.ops.aten.mv: lambda matrix, vector, **_: 2 * matrix[0] * matrix[1]}
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    module = counted.module
    with evaluation_mode(module), record(module, live=True, transform=lambda name, value: None), counter:
        call()
    return int(counter.get_total_flops())


# Memory


def measure_activations(counted: CountedModel, length: int, batch_size: int = 1) -> int:
    """Returns the bytes that a call keeps for the gradient; each storage counts once.

    Of two calls in a row, the second keeps what the first keeps as well, such as weights and inputs, and its own.
    """
    call = build_call(counted, length, batch_size)
    with evaluation_mode(counted.module), torch.enable_grad():
        first, first_result = list_kept(call)
        second, second_result = list_kept(call)
    total = sum(storage.nbytes() for address, storage in second.items() if address not in first)
    del first_result, second_result  # alive until here, so that no address is used twice
    return total


def list_kept(call: Callable[[], Any]) -> tuple[dict[int, Any], Any]:
    """Returns the storages that a call keeps for the gradient by their address, and its result."""
    kept: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.numel():
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = call()
    for node in list_nodes(result):
        for value in getattr(node, "__dict__", {}).values():  # of functions that keep tensors by themselves
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor):
                    keep(tensor)
    return kept, result


def list_nodes(result: Any) -> list[Any]:
    """Returns the nodes of the graph of a result."""
    tensors = [each for each in list_tensors(result) if each.grad_fn is not None]
    waiting, found = [tensor.grad_fn for tensor in tensors], {}
    while waiting:
        node = waiting.pop()
        if node is not None and id(node) not in found:
            found[id(node)] = node
            waiting += [each for each, _ in node.next_functions]
    return list(found.values())


def list_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from list_tensors(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from list_tensors(getattr(value, each.name))
