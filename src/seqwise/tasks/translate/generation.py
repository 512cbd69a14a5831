"""`TranslationGenerator`: source ids → hypotheses in each requested language, in batches of similar length.

Each source is encoded once, whatever the number of languages. The module knows nothing of files or metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqwise.backbones.memory import Memory, concat_memories
from seqwise.data.buckets import iterate_by_length, pad_sequences
from seqwise.data.shuffle import hash_integers
from seqwise.data.tables import parse_columns
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import UsageError, suggest
from seqwise.tasks.task import InferenceOptions, ModelBundle, Preprocessor
from seqwise.tasks.translate.model import Translator
from seqwise.tasks.translate.reader import join_lines
from seqwise.tasks.translate.vocabularies import decode, encode, get_boundary_tokens

SEARCH_ROWS, SEARCH_TOKENS = {"cpu": 64, "cuda": 512}, {"cpu": 4_096, "cuda": 65_536}  # sources of one search
ENCODER_ROWS = {"cpu": 16, "cuda": 512}  # sources encoded at once: fewer have less padding
EXTRA_TOKENS = 10  # that a translation may have beyond twice the expected length

Translations = list[tuple[str, Hypothesis]]  # of one source in one language, best first


@dataclass(frozen=True)
class Target:
    """A requested language: its name, and its number among those of the run."""

    name: str
    number: int


def parse_targets(preprocessor: Preprocessor, requested: str | None) -> list[Target]:
    """Return the languages of `--target`, or all languages of the run."""
    known: list[str] = preprocessor.facts["targets"]
    names = parse_columns(requested) or known
    for name in names:
        if name not in known:
            raise UsageError(
                f"the run does not write {name!r}; it writes {', '.join(known)}.", repair=suggest(name, known)
            )
    return [Target(name, known.index(name)) for name in names]


class TranslationGenerator:
    """A trained translator with its vocabularies and decoding options."""

    def __init__(self, bundle: ModelBundle, options: InferenceOptions):
        self.model: Translator = bundle.model.eval()
        self.preprocessor, self.options = bundle.preprocessor, options
        self.targets = parse_targets(self.preprocessor, options.target)
        names = self.preprocessor.facts["targets"]
        self.boundaries = get_boundary_tokens(self.preprocessor.tokenizers, names, bundle.settings)
        self.max_length = bundle.settings.data.max_length
        self.device = self.model.embedding.weight.device

    def translate_ids(
        self, rows: Sequence[np.ndarray], rank: int = 0, world: int = 1, first: int = 0
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """Yield (row number, the n best for each target), long rows first; each row once over all ranks.

        The translation of an empty source is empty. `first` is the number of rows translated before these, so that
        random samples differ.
        """
        lengths = [min(len(row), self.max_length) for row in rows]
        max_rows, max_tokens = SEARCH_ROWS.get(self.device.type, 64), SEARCH_TOKENS.get(self.device.type, 4_096)
        for numbers in iterate_by_length(lengths, max_rows, max_tokens, rank, world):
            filled = [int(number) for number in numbers if lengths[number]]
            empty = [int(number) for number in numbers if not lengths[number]]
            yield from ((number, [[Hypothesis([], 0.0, 0.0)] for _ in self.targets]) for number in empty)
            if filled:
                by_target = self._search([rows[number][: self.max_length] for number in filled], first + filled[0])
                yield from ((number, [each[at] for each in by_target]) for at, number in enumerate(filled))

    @torch.inference_mode()
    def _search(self, rows: list[np.ndarray], first: int) -> list[list[list[Hypothesis]]]:
        """Return for each target, for each row, the n best; `first` is the number of the first row."""
        size = ENCODER_ROWS.get(self.device.type, 16)
        memory = concat_memories([self._encode(rows[start : start + size]) for start in range(0, len(rows), size)])
        lengths = [len(row) for row in rows]
        return [self._decode_target(memory, lengths, target, first) for target in self.targets]

    def _encode(self, rows: list[np.ndarray]) -> Memory:
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        return self.model.encode(torch.from_numpy(pad_sequences(rows)).to(self.device), lengths)

    def _decode_target(self, memory: Memory, lengths: list[int], target: Target, first: int) -> list[list[Hypothesis]]:
        number, options = target.number, self.options
        tokenizer, end = self.preprocessor.tokenizers[target.name], self.boundaries.ends[number]
        max_lengths = [self._max_target_length(length, number) for length in lengths]
        # The output contains no special token but the end, and no unknown token.
        special = (*range(len(tokenizer.specials)), tokenizer.unknown)
        return decode_sequences(
            self.model.writer(number),
            memory,
            options.sampling,
            seed=hash_integers(options.seed, first, number) % 2**63,  # each batch and target has its own samples
            begin=self.boundaries.begins[number],
            end=end,
            options=options.beam_search,
            max_length=torch.tensor(max_lengths, device=self.device),
            prefix=encode(tokenizer, [options.beam_search.start])[0].tolist(),
            banned=[token for token in special if token not in (end, None)],
        )

    def _max_target_length(self, length: int, number: int) -> int:
        """Return the maximum length of a translation: twice the expected one, and some more."""
        if self.options.max_length is not None:
            return self.options.max_length
        expected = self.preprocessor.facts["ratios"][number] * length
        return min(self.max_length, math.ceil(2 * expected) + EXTRA_TOKENS) + 1  # and the end token

    def encode_sources(self, texts: Sequence[str]) -> list[np.ndarray]:
        return encode(self.preprocessor.tokenizer, [join_lines(text) for text in texts])

    def count_unread(self, ids: np.ndarray) -> dict[str, int]:
        """Return how many tokens of a source are cut off, and how many others are unknown; without zeros."""
        unknown = int((ids[: self.max_length] == self.preprocessor.tokenizer.unknown).sum())
        counts = {"cut": max(0, len(ids) - self.max_length), "unknown": unknown}
        return {name: count for name, count in counts.items() if count}

    def translate_texts(self, rows: Sequence[np.ndarray], first: int = 0) -> list[list[Translations]]:
        """Return for each row, for each target, the n best as texts with their scores; `first` as above."""
        translations: list[list[Translations]] = [[] for _ in rows]
        for number, by_target in self.translate_ids(rows, first=first):
            translations[number] = [
                [(self.decode(target, hypothesis), hypothesis) for hypothesis in best]
                for target, best in zip(self.targets, by_target)
            ]
        return translations

    def decode(self, target: Target, hypothesis: Hypothesis) -> str:
        return decode(self.preprocessor.tokenizers[target.name], hypothesis.ids)
