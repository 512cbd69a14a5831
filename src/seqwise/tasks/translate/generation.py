"""`TranslationGenerator`: sources → hypotheses in each requested language, in batches of similar length.

Each source is encoded once, whatever the number of languages. The module knows nothing of files or metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from seqwise.backbones.memory import Memory, concat_memories
from seqwise.data.batch import iterate_by_length, pad_sequences
from seqwise.data.shuffle import hash_integers
from seqwise.data.tables import parse_columns
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import UsageError, suggest
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Preprocessor
from seqwise.tasks.translate.model import Translator
from seqwise.tasks.translate.reader import join_lines
from seqwise.tasks.translate.vocabularies import decode, encode, get_boundaries

SEARCH_ROWS, SEARCH_TOKENS = {"cpu": 64, "cuda": 512}, {"cpu": 4_096, "cuda": 65_536}  # sources of one search
ENCODER_ROWS = {"cpu": 16, "cuda": 512}  # sources encoded at once: fewer have less padding
EXTRA_TOKENS = 10  # that a translation may have beyond twice the expected length
CHUNK = 1_024  # inputs that are sorted by length together


def parse_targets(preprocessor: Preprocessor, requested: str | None) -> dict[str, int]:
    """Return the languages of `--target`, or all languages of the run, with their numbers in the run."""
    run_targets: list[str] = preprocessor.facts["targets"]
    names = parse_columns(requested) or run_targets
    for name in names:
        if name not in run_targets:
            problem = f"the run does not translate into {name!r}; its targets are {', '.join(run_targets)}."
            raise UsageError(problem, repair=suggest(name, run_targets))
    return {name: run_targets.index(name) for name in names}


class TranslationGenerator:
    """A trained translator with its vocabularies and decoding options."""

    def __init__(self, bundle: ModelBundle, options: InferenceOptions):
        self.model: Translator = bundle.model.eval()
        self.preprocessor, self.options = bundle.preprocessor, options
        self.targets = parse_targets(self.preprocessor, options.target)
        names = self.preprocessor.facts["targets"]
        self.boundaries = get_boundaries(self.preprocessor.tokenizers, names, bundle.settings)
        self.max_length = bundle.settings.data.max_length
        self.device = self.model.embedding.weight.device

    def translate_ids(
        self, rows: Sequence[np.ndarray], rank: int = 0, world_size: int = 1, first: int = 0
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """Yield (row number, the n best for each target), long rows first; each row once over all ranks.

        The translation of an empty source is empty. `first` is the number of rows translated before these, so that
        random samples differ.
        """
        lengths = [min(len(row), self.max_length) for row in rows]
        max_rows, max_tokens = SEARCH_ROWS.get(self.device.type, 64), SEARCH_TOKENS.get(self.device.type, 4_096)
        for indices in iterate_by_length(lengths, max_rows, max_tokens, rank, world_size):
            non_empty = [int(number) for number in indices if lengths[number]]
            empty = [int(number) for number in indices if not lengths[number]]
            yield from ((number, [[Hypothesis([], 0.0, 0.0)] for _ in self.targets]) for number in empty)
            if non_empty:
                sources = [rows[number][: self.max_length] for number in non_empty]
                by_target = self._search(sources, first + non_empty[0])
                yield from ((number, [each[i] for each in by_target]) for i, number in enumerate(non_empty))

    @torch.inference_mode()
    def _search(self, rows: list[np.ndarray], first: int) -> list[list[list[Hypothesis]]]:
        """Return for each target, for each row, the n best; `first` is the number of the first row."""
        size, memories = ENCODER_ROWS.get(self.device.type, 16), []
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        for start in range(0, len(rows), size):
            ids = torch.from_numpy(pad_sequences(rows[start : start + size])).to(self.device)
            memories.append(self.model.encode(ids, lengths[start : start + size]))
        memory = concat_memories(memories)
        return [self._decode_target(memory, rows, name, number, first) for name, number in self.targets.items()]

    def _decode_target(
        self, memory: Memory, rows: list[np.ndarray], name: str, number: int, first: int
    ) -> list[list[Hypothesis]]:
        options, tokenizer, (begin, end) = self.options, self.preprocessor.tokenizers[name], self.boundaries[number]
        # A translation has at most twice the expected length, and some more, and the end token.
        ratio = self.preprocessor.facts["ratios"][number]
        limits = [min(self.max_length, math.ceil(2 * (ratio * len(row))) + EXTRA_TOKENS) + 1 for row in rows]
        # The output contains no special token but the end, and no unknown token.
        special_ids = (*range(len(tokenizer.specials)), tokenizer.unknown)
        return decode_sequences(
            self.model.get_decoder(number),
            memory,
            options.sampling,
            seed=hash_integers(options.seed, first, number) % 2**63,  # each batch and target has its own samples
            begin=begin,
            end=end,
            options=options.beam_search,
            max_length=torch.tensor(limits, device=self.device) if options.max_length is None else options.max_length,
            prefix=encode(tokenizer, [options.beam_search.start])[0].tolist(),
            banned=[token for token in special_ids if token not in (end, None)],
        )

    def encode_sources(self, texts: Sequence[str]) -> list[np.ndarray]:
        return encode(self.preprocessor.tokenizer, [join_lines(text) for text in texts])

    def decode(self, target: str, hypothesis: Hypothesis) -> str:
        return decode(self.preprocessor.tokenizers[target], hypothesis.ids)

    def predict(self, texts: Sequence[str]) -> Iterator[Prediction]:
        """Yield the translations of each text, in order."""
        for start in range(0, len(texts), CHUNK):
            rows = self.encode_sources(texts[start : start + CHUNK])
            by_row = dict(self.translate_ids(rows, first=start))
            for number, ids in enumerate(rows):
                yield self._format_prediction(texts[start + number], ids, by_row[number])

    def _format_prediction(self, source: str, ids: np.ndarray, by_target: list[list[Hypothesis]]) -> Prediction:
        """Return the best translation alone, or a line for each target and hypothesis.

        The values say how many tokens of the source were cut off, and how many others are unknown, if any.
        """
        unknown = int((ids[: self.max_length] == self.preprocessor.tokenizer.unknown).sum())
        counts = {"cut": max(0, len(ids) - self.max_length), "unknown": unknown}
        values: dict[str, object] = {"source": source, **{name: count for name, count in counts.items() if count}}
        lines, has_several = [], len(by_target) > 1
        for name, best in zip(self.targets, by_target):
            texts = [self.decode(name, hypothesis) for hypothesis in best]
            label = f"{name}: " if has_several else ""
            scores = [f"{hypothesis.score:8.3f}  " if len(best) > 1 else "" for hypothesis in best]
            lines += [f"{label}{score}{text}" for score, text in zip(scores, texts)]
            hypotheses = [{"text": text, **hypothesis.as_dict()} for text, hypothesis in zip(texts, best)]
            answer = {"translation": texts[0], "hypotheses": hypotheses}
            values |= {name: answer} if has_several else answer
        return Prediction("\n".join(lines), values)
