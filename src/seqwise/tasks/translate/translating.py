"""Using a trained translator: ids of sources → hypotheses in each language asked for, in batches of alike length.

Each source is encoded once, whatever the number of languages. It knows nothing of files or metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqwise.backbones.memory import Memory, join_memories
from seqwise.data.buckets import iterate_by_length, pad_sequences
from seqwise.data.shuffle import hash_integers
from seqwise.data.tables import parse_columns
from seqwise.decoding.beam import beam_search
from seqwise.decoding.sequence_sampling import sample_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import UsageError, nearest
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions, Preprocessor
from seqwise.tasks.translate.model import Translator
from seqwise.tasks.translate.reader import one_line
from seqwise.tasks.translate.vocabularies import decode, encode, marks_of

ROWS, TOKENS = {"cpu": 64, "cuda": 512}, {"cpu": 4_096, "cuda": 65_536}  # of one search: sources, and their tokens
ENCODED = {"cpu": 16, "cuda": 512}  # sources that are encoded at a time: fewer have less padding
SPARE = 10  # tokens that a translation may have beyond what its source lets expect


@dataclass(frozen=True)
class Target:
    """One language that is asked for: its name, and its number among those of the run."""

    name: str
    number: int


def targets_of(preprocessor: Preprocessor, wish: str | None) -> list[Target]:
    """The languages that are asked for: those of `--target`, or all that the run knows."""
    known: list[str] = preprocessor.facts["targets"]
    names = parse_columns(wish) or known
    for name in names:
        if name not in known:
            raise UsageError(
                f"the run does not write {name!r}; it writes {', '.join(known)}.", repair=nearest(name, known)
            )
    return [Target(name, known.index(name)) for name in names]


class Translation:
    """A trained translator with its vocabularies, ready to be asked."""

    def __init__(
        self, model: Translator, settings: ResolvedSettings, preprocessor: Preprocessor, options: InferenceOptions
    ):
        self.model, self.settings, self.preprocessor, self.options = model.eval(), settings, preprocessor, options
        self.targets = targets_of(preprocessor, options.target)
        names: list[str] = preprocessor.facts["targets"]
        self.marks = marks_of(preprocessor.tokenizers, names, settings)
        self.longest = settings.data.max_length
        self.device = model.embedding.weight.device
        written = [preprocessor.tokenizers[each.name] for each in self.targets]
        self.starts = [encode(tokenizer, [options.beam_search.start])[0].tolist() for tokenizer in written]
        # Special tokens, but for the end, are not to be written, nor is the one for what is unknown.
        ends = [self.marks.ends[each.number] for each in self.targets]
        self.never = [
            [number for number in (*range(len(tokenizer.specials)), tokenizer.unknown) if number not in (end, None)]
            for tokenizer, end in zip(written, ends)
        ]

    def of_ids(
        self, rows: Sequence[np.ndarray], rank: int = 0, world: int = 1, first: int = 0
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """(number of a row, the n best for each target), long rows first; over all ranks each row once.

        A source that is empty has an empty translation: there is nothing to read. `first` rows were given before these:
        what is drawn for them does not come again.
        """
        lengths = [min(len(row), self.longest) for row in rows]
        kind = self.device.type
        for numbers in iterate_by_length(lengths, ROWS.get(kind, 64), TOKENS.get(kind, 4_096), rank, world):
            full = [int(number) for number in numbers if lengths[number]]
            empty = [int(number) for number in numbers if not lengths[number]]
            yield from ((number, [[Hypothesis([], 0.0, 0.0)] for _ in self.targets]) for number in empty)
            if full:
                found = self._search([rows[number][: self.longest] for number in full], first + full[0])
                yield from ((number, [each[at] for each in found]) for at, number in enumerate(full))

    @torch.inference_mode()
    def _search(self, rows: list[np.ndarray], first: int) -> list[list[list[Hypothesis]]]:
        """For each target, for each row, the n best; `first` is the number of the first row."""
        size = ENCODED.get(self.device.type, 16)
        memory = join_memories([self._encode(rows[begin : begin + size]) for begin in range(0, len(rows), size)])
        lengths = [len(row) for row in rows]
        return [self._write(memory, lengths, at, first) for at in range(len(self.targets))]

    def _encode(self, rows: list[np.ndarray]) -> Memory:
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        return self.model.encode(torch.from_numpy(pad_sequences(rows)).to(self.device), lengths)

    def _write(self, memory: Memory, lengths: list[int], at: int, first: int) -> list[list[Hypothesis]]:
        number, options = self.targets[at].number, self.options
        writer, begin, end = self.model.writer(number), self.marks.begins[number], self.marks.ends[number]
        longest = torch.tensor([self._limit(length, number) for length in lengths], device=self.device)
        arguments: dict[str, Any] = {"begin": begin, "end": end, "options": options.beam_search, "max_length": longest}
        arguments |= {"prefix": self.starts[at], "banned": self.never[at]}
        if options.sampling is None:
            return beam_search(writer, memory, **arguments)
        seed = hash_integers(options.seed, first, number) % 2**63  # each batch and target has draws of its own
        return sample_sequences(writer, memory, sampling=options.sampling, seed=seed, **arguments)

    def _limit(self, length: int, number: int) -> int:
        """Most tokens of a translation: twice what the training pairs let expect, and some to spare."""
        if self.options.max_length is not None:
            return self.options.max_length
        expected = 2 * self.preprocessor.facts["ratios"][number] * length
        return min(self.longest, math.ceil(expected) + SPARE) + 1  # a text of that length must have time to end

    def read(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of sources as they were typed."""
        return encode(self.preprocessor.tokenizer, [one_line(text) for text in texts])

    def unread(self, row: np.ndarray) -> dict[str, int]:
        """How many tokens of a source are cut off, and how many of the others are unknown; without zeros."""
        unknown = int((row[: self.longest] == self.preprocessor.tokenizer.unknown).sum())
        found = {"cut": max(0, len(row) - self.longest), "unknown": unknown}
        return {name: count for name, count in found.items() if count}

    def texts(self, rows: Sequence[np.ndarray], first: int = 0) -> list[list[list[tuple[str, Hypothesis]]]]:
        """For each row, for each target, the n best as texts with their scores; `first` rows were given before."""
        found: list[list[list[tuple[str, Hypothesis]]]] = [[] for _ in rows]
        for number, targets in self.of_ids(rows, first=first):
            found[number] = [
                [(self.text(target, each), each) for each in best] for target, best in zip(self.targets, targets)
            ]
        return found

    def text(self, target: Target, hypothesis: Hypothesis) -> str:
        return decode(self.preprocessor.tokenizers[target.name], hypothesis.ids)
