"""Contextual vectors: what a trained model makes of each token of a text, layer by layer.

Works with every model that has an `embedding` and an `encoder` or `backbone`. A text is read as its task reads it:
masked between two line breaks, language behind one, tag word by word. It knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.layerwise import compute_layer_states
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.data.buckets import iterate_by_length, pad_sequences
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.tag.batches import EncodedSentences, TagBatch, TagVocabulary
from seqwise.tasks.tag.reader import Sentence
from seqwise.tasks.tag.task import find_token_offsets
from seqwise.tasks.task import Preprocessor

AT_ONCE = 512  # texts in memory
ROWS, TOKENS = 64, 8_192  # of a batch


@dataclass(frozen=True)
class TextTokens:
    """A text as the model sees it: ids (words for tag), and where each token stands, `text[start:stop]`."""

    text: str
    tokens: list[str]
    offsets: np.ndarray  # (n, 2)
    ids: np.ndarray  # (n,); empty for tag

    def __len__(self) -> int:
        return len(self.tokens)


class Contextual:
    """A trained model that gives vectors. Layer 0 is what the first layer reads, layer `depth` what the last gives."""

    def __init__(self, model: Any, settings: ResolvedSettings, preprocessor: Preprocessor):
        backbone = getattr(model, "encoder", None) or getattr(model, "backbone", None)
        if settings.task not in BORDERS or backbone is None:
            raise UsageError(
                f"a {settings.model} of the task {settings.task} gives no vectors of tokens.",
                repair="Name a run of masked, language, classify or tag with a neural model.",
            )
        self.model, self.backbone, self.settings, self.preprocessor = model.eval(), backbone, settings, preprocessor
        self.depth = settings.network.depth

    def width(self, layer: int) -> int:
        """Numbers per vector."""
        if not 0 <= layer <= self.depth:
            raise UsageError(
                f"there is no layer {layer}: expected a number from 0 (token vectors) to {self.depth}.",
                repair="Leave out --layer for the last one.",
            )
        characters = self.settings.tag.characters if self.settings.task == "tag" else 0
        return self.backbone.width if layer else self.model.embedding.width + characters

    def read(self, text: str) -> TextTokens:
        """The tokens of a text."""
        if self.settings.task != "tag":
            encoding = self.preprocessor.tokenizer.encode(text)
            tokens = [text[start:stop] for start, stop in encoding.offsets]
            return TextTokens(text, tokens, encoding.offsets, encoding.ids)
        places = find_token_offsets(text, self.preprocessor)
        offsets = np.array(places, dtype=np.int64).reshape(-1, 2)
        return TextTokens(text, [text[start:stop] for start, stop in places], offsets, np.empty(0, dtype=np.int64))

    def vectors(self, texts: Sequence[TextTokens], layer: int | None = None) -> Iterator[np.ndarray]:
        """(n, D) for each text, in their order. A Transformer reads longer texts than it was trained on in pieces."""
        layer = self.depth if layer is None else layer
        width, most = self.width(layer), self.longest
        for begin in range(0, len(texts), AT_ONCE):
            some = texts[begin : begin + AT_ONCE]
            step = most or max(1, max(map(len, some)))
            pieces = [(at, start, min(start + step, len(text))) for at, text in enumerate(some)
                      for start in range(0, len(text), step)]  # fmt: skip
            found: list[list[np.ndarray]] = [[] for _ in some]
            made: dict[int, np.ndarray] = {}
            for numbers in iterate_by_length([stop - start for _, start, stop in pieces], ROWS, TOKENS):
                rows = [(some[pieces[number][0]], *pieces[number][1:]) for number in numbers]
                made.update(zip(numbers.tolist(), self._vectors(rows, layer)))
            for number, (at, _, _) in enumerate(pieces):
                found[at].append(made[number])
            yield from (np.concatenate(parts) if parts else np.zeros((0, width), np.float32) for parts in found)

    @property
    def longest(self) -> int | None:
        """Tokens that are read at once; None: any number."""
        if not isinstance(self.backbone, TransformerBackbone):
            return None
        return max(1, self.backbone.window - sum(BORDERS[str(self.settings.task)]))

    @torch.no_grad()
    def _vectors(self, rows: list[tuple[TextTokens, int, int]], layer: int) -> Iterator[np.ndarray]:
        before, behind = BORDERS[str(self.settings.task)]
        inputs, lengths = self._words(rows) if self.settings.task == "tag" else self._ids(rows, before, behind)
        states = compute_layer_states(self.backbone, inputs, lengths)[layer].float().cpu().numpy()
        for state, (_, start, stop) in zip(states, rows):
            yield state[before : before + stop - start]

    def _ids(self, rows: list[tuple[TextTokens, int, int]], before: int, behind: int) -> tuple[Tensor, Tensor]:
        """Vectors of the tokens of some pieces, between line breaks where the task has them."""
        line = self.preprocessor.tokenizer.encode("\n").ids[:1]
        ids = [np.concatenate([line[:before], text.ids[a:b], line[:behind]]) for text, a, b in rows]
        device = self.model.embedding.weight.device
        lengths = torch.tensor([len(row) for row in ids], device=device)
        return self.model.embedding(torch.from_numpy(pad_sequences(ids)).to(device)), lengths

    def _words(self, rows: list[tuple[TextTokens, int, int]]) -> tuple[Tensor, Tensor]:
        """What the encoder of a tagger reads: vectors of the words and of their characters."""
        sentences = [Sentence(tuple(text.tokens[a:b]), ("O",) * (b - a)) for text, a, b in rows]
        vocabulary = TagVocabulary.from_preprocessor(self.preprocessor)
        batch: TagBatch = EncodedSentences(sentences, vocabulary).collate(np.arange(len(rows)))
        batch = batch.to(self.model.embedding.weight.device)
        seen: list[Tensor] = []

        def keep(module: nn.Module, inputs: tuple[Tensor, ...], words: dict[str, Any]) -> None:
            seen.append(inputs[0])

        hook = self.backbone.register_forward_pre_hook(keep, with_kwargs=True)
        try:
            self.model.states(batch)
        finally:
            hook.remove()
        return seen[0], batch.lengths


# Task → line breaks before and behind a text, as it stood in the text of training.
BORDERS = {"masked": (1, 1), "language": (1, 0), "classify": (0, 0), "tag": (0, 0)}
