"""`Sample`: many texts of a model, their features, and the activations of its units on them, one text at a time.

Of a trained run the texts are evenly spread over the validation split. Of a plain module they are the sequences of the
tensor it is called with. The module knows nothing of figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import DataError, UsageError
from seqwise.lens.activations import ActivationLayer, read_activations
from seqwise.lens.subject import Subject, build_subject, inspect_split
from seqwise.lens.token_features import Features, compute_input_features, compute_text_features, get_label
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.inspection import InspectedInput
from seqwise.training.api import TrainedModel

NUM_TEXTS, MAX_TOKENS = 256, 20_000  # of a sample
MAX_DECODED = 128  # texts of a sample whose output a search must find first
NUM_PROBES = 8  # texts on which layers are checked
READING_SHARE = 0.5  # of a view's time, about: reading its sample
DECODED_TASKS = ("translate", "caption")
UNSPACED = ("characters", "bpe")  # tokenisers whose tokens contain the spaces between words
OUTPUT = "output: "  # prefix of the features of what a decoder reads


@dataclass(frozen=True)
class SampleText:
    """One text; `outputs` are the tokens that a decoder reads."""

    description: str
    tokens: Sequence[str]
    outputs: Sequence[str]
    features: Features  # of each token
    output_features: Features
    label: str | None = None
    inspected: InspectedInput | None = None

    def get_tokens(self, is_decoder: bool) -> Sequence[str]:
        return self.outputs if is_decoder else self.tokens

    def get_features(self, is_decoder: bool) -> Features:
        return self.output_features if is_decoder else self.features


@dataclass(frozen=True)
class Sample:
    """Texts of a model in the order of the data."""

    subject: Subject
    texts: Sequence[SampleText]
    is_independent: bool  # neighbouring texts do not overlap

    @property
    def num_tokens(self) -> int:
        return sum(len(text.tokens) for text in self.texts)

    def split(self) -> tuple[list[int], list[int]]:
        """Returns two halves of the texts: every other one; if neighbours may overlap, before and after the middle."""
        indices, middle = list(range(len(self.texts))), (len(self.texts) + 1) // 2
        if self.is_independent:
            return indices[::2], indices[1::2]
        return indices[:middle], indices[middle:]

    def iterate(
        self,
        layers: Sequence[ActivationLayer],
        progress: ProgressCallback = no_progress,
        order: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yields (index of the text, label of the layer → activations (T, U)), in the given order."""
        indices = range(len(self.texts)) if order is None else order
        whole = None
        if self.subject.trained is None:
            whole = read_activations(self.subject.module, self.subject.call, layers)
        for number, index in enumerate(indices, start=1):
            if whole is None:
                yield index, read_text(self.subject, self.texts[index], layers)
            else:
                yield index, {label: array[index] for label, array in whole.items()}
            progress(number, len(indices))

    def keep_matching(self, layers: Sequence[ActivationLayer]) -> list[ActivationLayer]:
        """Returns the layers that have one vector per token; one that reads the characters of each word has not."""
        chosen = list(layers)
        for index, arrays in self.iterate(layers):
            text = self.texts[index]
            lengths = {layer.label: len(text.get_tokens(self.subject.is_in_decoder(layer.path))) for layer in chosen}
            chosen = [one for one in chosen if one.label in arrays and len(arrays[one.label]) == lengths[one.label]]
            if index + 1 >= NUM_PROBES:
                break
        return chosen


def read_text(subject: Subject, text: SampleText, layers: Sequence[ActivationLayer]) -> dict[str, np.ndarray]:
    """Returns label of the layer → activations (T, U) of one text of a trained run."""
    assert text.inspected is not None
    batch = text.inspected.batch
    arrays = read_activations(subject.module, lambda: subject.module(batch), layers)
    return {label: array[0] for label, array in arrays.items() if len(array) == 1}


def build_text(trained: TrainedModel, inspected: InspectedInput) -> SampleText:
    """Returns an input of a trained run with its features."""
    task = trained.settings.task
    is_spaced = task == "tag" or get_tokenizer_kind(trained) not in UNSPACED
    label = get_label(inspected) if task == "classify" else None
    features = compute_input_features(inspected, task, is_spaced)
    return SampleText(
        inspected.description,
        inspected.tokens,
        inspected.outputs,
        features,
        compute_text_features(inspected.outputs, is_spaced),
        label,
        inspected,
    )


def get_tokenizer_kind(trained: TrainedModel) -> str | None:
    """Returns the kind of a run's tokeniser; None if it has none."""
    return next((tokenizer.kind for tokenizer in trained.bundle.preprocessor.tokenizers.values()), None)


def read_sample(
    trained: TrainedModel,
    data: str | None = None,
    num_texts: int | None = None,
    max_tokens: int = MAX_TOKENS,
    progress: ProgressCallback = no_progress,
) -> Sample:
    """Returns texts that are evenly spread over the validation split of the run's data, or of other data."""
    source = trained.run.metadata.data if data is None else data
    count = num_texts or (min(NUM_TEXTS, MAX_DECODED) if trained.settings.task in DECODED_TASKS else NUM_TEXTS)
    try:
        examples = inspect_split(trained, count, data, progress)
    except DataError as error:
        if data is not None:
            raise
        problem = f"the data of the run cannot be read. {error.problem}"
        raise DataError(problem, fix="Put the data back, or name it with --data.", file=error.file) from None
    distinct = {example.description: example for example in examples if len(example.tokens)}  # segments may coincide
    chosen = limit_tokens(list(distinct.values()), max_tokens)
    texts = [build_text(trained, example) for example in chosen]
    if not texts:
        raise DataError(f"the validation split of {source} has no texts.", fix="Name other data with --data.")
    return Sample(build_subject(trained, chosen[0]), texts, issubclass(trained.task, ExampleTask))


def limit_tokens(examples: Sequence[InspectedInput], max_tokens: int) -> list[InspectedInput]:
    """Returns examples, evenly spread, that have at most about `max_tokens` tokens together."""
    total = sum(len(example.tokens) for example in examples)
    count = max(2, int(len(examples) * min(1.0, max_tokens / max(1, total))))
    return [examples[index * len(examples) // count] for index in range(min(count, len(examples)))]


def build_tensor_sample(subject: Subject, arguments: Any, features: Mapping[str, Any] | None = None) -> Sample:
    """Returns the sequences of the tensor (B, T, …) that a plain module is called with; `features` are (B, T) each."""
    first = arguments[0] if isinstance(arguments, tuple) else arguments
    num_texts, length = len(first), len(subject.tokens)
    position = np.broadcast_to(np.arange(length, dtype=float), (num_texts, length))
    arrays = {"position in text": position} if features is None else {
        name: np.asarray(values, float) for name, values in features.items()
    }  # fmt: skip
    for name, values in arrays.items():
        if values.shape != (num_texts, length):
            problem = f"expected values ({num_texts}, {length}) of the feature {name!r}, received {values.shape}."
            raise UsageError(problem, fix="Pass one value for each sequence and position.")
    texts = [
        SampleText(f"sequence {index + 1}", subject.tokens, (), {n: a[index] for n, a in arrays.items()}, {})
        for index in range(num_texts)
    ]
    return Sample(subject, texts, is_independent=True)
