"""The vectors that a model reads, and how to compute an answer with other vectors in their place.

Of a task they are the output of the module `InspectedInput.features`, such as the embedding, or a tensor of numbers in
its batch, such as the past of a series. Of a plain module they are its first argument. Where a model also reads n-grams
of the ids, each vector has one more component, the presence of its token in them: 1, and 0 in every replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.data.batch import Batch
from seqwise.errors import UsageError, suggest
from seqwise.heads.ngrams import NGramHead
from seqwise.layers.embedding import Embedding
from seqwise.lens.subject import Subject

SERIES = "past"  # the tensor of a batch with the values of a series: a forecaster also reads it beside its encoder


@dataclass(frozen=True)
class InputVectors:
    """The vectors (T, D) of one input. `replace(values)` computes with others inside its block."""

    values: Tensor
    mean: Tensor  # (D,): a vector without information
    mean_name: str
    replace: Callable[[Tensor], AbstractContextManager[None]]
    unknown: Tensor | None = None  # (D,): the vector of <unk>, if the model has one
    module: nn.Module | None = None  # of a plain module: what `call` calls
    arguments: tuple[Any, ...] = ()
    has_ngrams: bool = False  # whether the last component is the presence of the token in n-grams

    def call(self, values: Tensor) -> Tensor:
        """Returns the output (D,) of a plain module at the last position."""
        assert self.module is not None
        outputs: Any = self.module(values[None], *self.arguments)
        outputs = outputs[0] if isinstance(outputs, tuple) else getattr(outputs, "vectors", outputs)
        return outputs.reshape(-1, outputs.shape[-1])[-1]

    def name_positions(self, subject: Subject) -> list[str]:
        """Returns the tokens of the input; of the steps of a series whose tokens are patches, how far back they are."""
        tokens, length = list(subject.tokens), len(self.values)
        return tokens if len(tokens) == length else [f"t−{length - position}" for position in range(length)]


def find_vectors(subject: Subject, inputs: Any) -> InputVectors:
    """Returns the input vectors of a model in evaluation mode."""
    if subject.inspected is None:
        return _read_argument(subject, inputs)
    batch = subject.inspected.batch
    features = SERIES if SERIES in batch.tensors() else subject.inspected.features
    if features in batch.tensors():
        return _read_field(batch, features)
    return _read_module(subject, features)


def _read_argument(subject: Subject, inputs: Any) -> InputVectors:
    first, *others = inputs if isinstance(inputs, tuple) else (inputs,)
    if not isinstance(first, Tensor) or not first.is_floating_point() or first.dim() != 3 or len(first) != 1:
        received = f"{tuple(first.shape)} of {first.dtype}" if isinstance(first, Tensor) else type(first).__name__
        raise UsageError(f"expected the vectors (1, T, D) of one sequence, received {received}.")
    values = first.detach()[0]
    return InputVectors(
        values, values.mean(0), "the mean of the input", _forbid_replacing, None, subject.module, tuple(others)
    )


def _forbid_replacing(values: Tensor) -> AbstractContextManager[None]:
    raise AssertionError("a plain module is called with its vectors")


def _read_field(batch: Batch, name: str) -> InputVectors:
    """Returns numbers of a batch as vectors. Answers read them from this batch, where they are replaced for a while."""
    tensor: Tensor = getattr(batch, name)
    if not tensor.is_floating_point() or tensor.dim() not in (2, 3):
        raise UsageError(f"expected numbers (1, T) or (1, T, D) in {name!r}, received {tuple(tensor.shape)}.")
    values = tensor.detach()[0] if tensor.dim() == 3 else tensor.detach()[0, :, None]

    @contextmanager
    def replace_values(values: Tensor) -> Iterator[None]:
        object.__setattr__(batch, name, values.reshape(tensor.shape))  # batches are frozen
        try:
            yield
        finally:
            object.__setattr__(batch, name, tensor)

    return InputVectors(values, values.mean(0), "the mean of the series", replace_values)


def _read_module(subject: Subject, path: str) -> InputVectors:
    """Returns the output of a module as vectors; a hook replaces it."""
    modules = dict(subject.module.named_modules())
    if path not in modules:
        raise UsageError(f"the model has no module {path!r}.", fix=suggest(path, modules))
    module = modules[path]
    outputs: list[Tensor] = []
    with torch.no_grad(), _hook(module, lambda vectors: outputs.append(vectors)):
        subject.call()
    if not outputs:
        raise UsageError(f"{subject.name} does not call its module {path!r} for this input.")
    values = outputs[0].detach()[0]
    mean, name = values.mean(0), "the mean of all positions"
    unknown = None
    if isinstance(module, Embedding):
        mean, name = module.weight.detach().mean(0), "the mean vector of the vocabulary"
        number = getattr(subject.module, "unknown", None)
        unknown = module.weight.detach()[number] if isinstance(number, int) else None

    def replace_values(values: Tensor) -> AbstractContextManager[None]:
        # An answer in the middle of a text may be computed from the tokens before it alone.
        return _hook(module, lambda vectors: values[None, : vectors.shape[1]])

    vectors = InputVectors(values, mean, name, replace_values, unknown)
    ngrams = getattr(subject.module, "ngrams", None)
    return _add_presence(vectors, ngrams) if isinstance(ngrams, NGramHead) else vectors


def _add_presence(vectors: InputVectors, ngrams: NGramHead) -> InputVectors:
    """Returns the vectors with a further component: how far the n-grams with this token count."""

    def extend(values: Tensor, presence: float) -> Tensor:
        return torch.cat([values, values.new_full((*values.shape[:-1], 1), presence)], dim=-1)

    @contextmanager
    def replace_values(values: Tensor) -> Iterator[None]:
        def add_presence(module: nn.Module, arguments: Any, keywords: dict[str, Any]) -> Any:
            return arguments, {**keywords, "presence": values[None, :, -1]}

        handle = ngrams.register_forward_pre_hook(add_presence, with_kwargs=True)
        try:
            with vectors.replace(values[:, :-1]):
                yield
        finally:
            handle.remove()

    return replace(
        vectors,
        values=extend(vectors.values, 1.0),
        mean=extend(vectors.mean, 0.0),
        unknown=None if vectors.unknown is None else extend(vectors.unknown, 0.0),
        replace=replace_values,
        has_ngrams=True,
    )


@contextmanager
def _hook(module: nn.Module, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Changes the vectors that the module returns when it is first called inside the block.

    Later calls are left alone: a decoder may share the embedding of its encoder.
    """
    num_calls = 0

    def change_first(module: nn.Module, arguments: Any, output: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls > 1:
            return None
        if isinstance(output, Tensor):
            return change(output)
        vectors = change(output.vectors)
        return None if vectors is None else replace(output, vectors=vectors)

    handle = module.register_forward_hook(change_first)
    try:
        yield
    finally:
        handle.remove()
