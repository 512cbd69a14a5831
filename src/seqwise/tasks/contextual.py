"""Contextual vectors: the states of a trained model at each token of a text, for any layer, and files of them.

Works with the neural models of the tasks in LINE_BREAKS. A text is encoded as in training: for the
task masked between two line breaks, for language after one, for tag word by word, for translate as a source. Files are
`.npy` with the tokens in a `.json` beside it, or `.jsonl`; writing is atomic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import compute_layer_states
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.batch import iterate_by_length, pad_sequences
from seqwise.errors import UsageError
from seqwise.files import check_output_path, replace_file, write_text
from seqwise.tasks.tag.model import EncodedSentences, TagBatch, TagVocabulary
from seqwise.tasks.tag.reader import find_token_offsets
from seqwise.tasks.tag.spans import Sentence
from seqwise.tasks.task import ModelBundle

TEXTS_PER_BLOCK = 512  # texts in memory at once
BATCH_SIZE, MAX_BATCH_TOKENS = 64, 8_192
SUFFIXES = (".npy", ".jsonl")
DIGITS = 6  # significant digits of a number in JSON, about as many as float32 has

# Task → numbers of line breaks before and after a text, as in training.
LINE_BREAKS = {"masked": (1, 1), "language": (1, 0), "classify": (0, 0), "tag": (0, 0), "translate": (0, 0)}


@dataclass(frozen=True)
class TextTokens:
    """The tokens of a text (for tag its words), with their offsets (start, stop) and ids."""

    text: str
    tokens: list[str]
    offsets: np.ndarray  # (n, 2)
    ids: np.ndarray  # (n,); empty for tag

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Segment:
    """The tokens `start` … `stop - 1` of a text, which a model reads at once."""

    text: TextTokens
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class ContextualEncoder:
    """Computes vectors with a trained model. Layer 0 is the input of the first layer, layer `depth` the last output."""

    def __init__(self, bundle: ModelBundle):
        model, settings = bundle.model, bundle.settings
        backbone = getattr(model, "encoder", None) or getattr(model, "backbone", None)
        if settings.task not in LINE_BREAKS or backbone is None:
            raise UsageError(
                f"a {settings.model} of the task {settings.task} has no contextual vectors.",
                fix="Name a run of masked, language, classify, tag or translate with a neural model.",
            )
        self.model, self.backbone, self.settings = model.eval(), backbone, settings
        self.preprocessor = bundle.preprocessor
        self.depth = settings.network.depth

    def get_width(self, layer: int) -> int:
        """Returns the width of the vectors of a layer."""
        if not 0 <= layer <= self.depth:
            raise UsageError(
                f"there is no layer {layer}: expected a number from 0 (token vectors) to {self.depth}.",
                fix="Leave out --layer for the last one.",
            )
        tag = self.settings.tag
        features = tag.characters + tag.features if self.settings.task == "tag" else 0
        return self.backbone.width if layer else self.model.embedding.width + features

    def tokenize(self, text: str) -> TextTokens:
        """Returns the tokens of a text."""
        if self.settings.task != "tag":
            encoding = self.preprocessor.tokenizer.encode(text)
            tokens = [text[start:stop] for start, stop in encoding.offsets]
            return TextTokens(text, tokens, encoding.offsets, encoding.ids)
        offsets = np.array(find_token_offsets(text, self.preprocessor), dtype=np.int64).reshape(-1, 2)
        return TextTokens(text, [text[start:stop] for start, stop in offsets], offsets, np.empty(0, dtype=np.int64))

    def compute_vectors(self, texts: Sequence[TextTokens], layer: int | None = None) -> Iterator[np.ndarray]:
        """Yields vectors (n, D) for each text, in order. A Transformer reads texts beyond its window in segments."""
        layer = self.depth if layer is None else layer
        width = self.get_width(layer)
        for block_start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = texts[block_start : block_start + TEXTS_PER_BLOCK]
            length = self.max_length or max(1, max(map(len, block)))
            segments = [Segment(text, start, min(start + length, len(text))) for text in block
                        for start in range(0, len(text), length)]  # fmt: skip
            vectors: dict[int, np.ndarray] = {}  # by the index of the segment
            for indices in iterate_by_length([len(segment) for segment in segments], BATCH_SIZE, MAX_BATCH_TOKENS):
                batch = [segments[index] for index in indices]
                vectors.update(zip(indices.tolist(), self._compute_segment_vectors(batch, layer)))
            remaining = iter([vectors[index] for index in range(len(segments))])
            for text in block:
                matrices = [next(remaining) for _ in range(0, len(text), length)]
                yield np.concatenate(matrices) if matrices else np.zeros((0, width), np.float32)

    @property
    def max_length(self) -> int | None:
        """The number of tokens that the model can read at once; None if it is not limited."""
        if not isinstance(self.backbone, TransformerBackbone):
            return None
        return max(1, self.backbone.window - sum(LINE_BREAKS[str(self.settings.task)]))

    @torch.no_grad()
    def _compute_segment_vectors(self, segments: list[Segment], layer: int) -> Iterator[np.ndarray]:
        num_before, num_after = LINE_BREAKS[str(self.settings.task)]
        inputs, lengths = (
            self._embed_words(segments)
            if self.settings.task == "tag"
            else self._embed_ids(segments, num_before, num_after)
        )
        states = compute_layer_states(self.backbone, inputs, lengths)[layer].float().cpu().numpy()
        for state, segment in zip(states, segments):
            yield state[num_before : num_before + len(segment)]

    def _embed_ids(self, segments: list[Segment], num_before: int, num_after: int) -> tuple[Tensor, Tensor]:
        """Returns token vectors and lengths of segments, with the line breaks before and after them."""
        line_break = self.preprocessor.tokenizer.encode("\n").ids[:1]
        ids = [np.concatenate([line_break[:num_before], s.text.ids[s.start : s.stop], line_break[:num_after]])
               for s in segments]  # fmt: skip
        device = self.model.embedding.weight.device
        lengths = torch.tensor([len(segment_ids) for segment_ids in ids], device=device)
        return self.model.embedding(torch.from_numpy(pad_sequences(ids)).to(device)), lengths

    def _embed_words(self, segments: list[Segment]) -> tuple[Tensor, Tensor]:
        """Returns the inputs of a tagger's encoder, which are vectors of words and of their characters, and lengths."""
        sentences = [Sentence(tuple(s.text.tokens[s.start : s.stop]), ("O",) * len(s)) for s in segments]
        vocabulary = TagVocabulary.from_preprocessor(self.preprocessor)
        batch: TagBatch = EncodedSentences(sentences, vocabulary).collate(np.arange(len(segments)))
        batch = batch.to(self.model.embedding.weight.device)
        encoder_inputs: list[Tensor] = []

        def record_inputs(module: nn.Module, inputs: tuple[Tensor, ...], keywords: dict[str, Any]) -> None:
            encoder_inputs.append(inputs[0])

        hook = self.backbone.register_forward_pre_hook(record_inputs, with_kwargs=True)
        try:
            self.model.states(batch)
        finally:
            hook.remove()
        return encoder_inputs[0], batch.lengths


# Files


def save_vectors(
    out: Path,
    encoder: ContextualEncoder,
    texts: Sequence[str],
    layer: int,
    mean: bool,
    progress: ProgressCallback = no_progress,
) -> dict[str, Any]:
    """Writes the vectors of all texts, one per token or with `mean` one per text; returns a summary."""
    check_output_path(out, SUFFIXES)
    tokens = [encoder.tokenize(text) for text in texts]
    summary = {
        "texts": len(tokens), "tokens": sum(map(len, tokens)), "width": encoder.get_width(layer), "layer": layer,
        "pool": "mean" if mean else "none",
    }  # fmt: skip
    vectors = _pool(encoder.compute_vectors(tokens, layer), mean, len(tokens), progress)
    (_save_array if out.suffix.lower() == ".npy" else _save_lines)(out, tokens, vectors, summary)
    return {"out": str(out), **summary}


def _save_array(out: Path, texts: list[TextTokens], vectors: Iterator[np.ndarray], summary: dict[str, Any]) -> None:
    """Writes all vectors as one matrix to `out`, and the rows of each text to a `.json` beside it."""
    mean = summary["pool"] == "mean"
    num_rows, row, descriptions = summary["texts" if mean else "tokens"], 0, []
    with replace_file(out, concurrent=True) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.float32, (num_rows, summary["width"]))
        for text, matrix in zip(texts, vectors):
            array[row : row + len(matrix)] = matrix
            descriptions.append({**_describe(text), "rows": [row, row + len(matrix)]})
            row += len(matrix)
        array.flush()
        del array
    content = json.dumps({**summary, "texts": descriptions}, ensure_ascii=False)
    write_text(out.with_suffix(".json"), content + "\n", concurrent=True)


def _save_lines(out: Path, texts: list[TextTokens], vectors: Iterator[np.ndarray], summary: dict[str, Any]) -> None:
    """Writes one JSON object per text."""
    mean = summary["pool"] == "mean"
    with replace_file(out, concurrent=True) as temporary, temporary.open("w", encoding="utf-8") as file:
        for text, matrix in zip(texts, vectors):
            numbers = [[float(f"{value:.{DIGITS}g}") for value in row] for row in matrix.tolist()]
            line = {**_describe(text), **({"vector": numbers[0]} if mean else {"vectors": numbers})}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _describe(text: TextTokens) -> dict[str, Any]:
    return {"text": text.text, "tokens": text.tokens, "offsets": text.offsets.tolist()}


def _pool(vectors: Iterator[np.ndarray], mean: bool, total: int, progress: ProgressCallback) -> Iterator[np.ndarray]:
    """Yields the matrix of each text; with `mean` only the mean of its rows, zeros for a text without tokens."""
    for num_done, matrix in enumerate(vectors, start=1):
        progress(num_done, total)
        yield matrix.sum(axis=0, keepdims=True) / max(1, len(matrix)) if mean else matrix
