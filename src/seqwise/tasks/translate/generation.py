"""`TranslationPipeline`: translates sources into each requested language, in batches of similar length.

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
from seqwise.data.tables import split_commas
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import UsageError, suggest
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Preprocessor
from seqwise.tasks.translate.model import Translator
from seqwise.tasks.translate.reader import join_lines
from seqwise.tasks.translate.vocabularies import decode, encode, get_bos_eos_ids

# By type of device: sources that are decoded together, their tokens, and sources that are encoded together.
DECODER_BATCH_SIZE, MAX_DECODER_TOKENS = {"cpu": 64, "cuda": 512}, {"cpu": 4_096, "cuda": 65_536}
ENCODER_BATCH_SIZE = {"cpu": 16, "cuda": 512}  # smaller batches have less padding
EXTRA_TOKENS = 10  # tokens that a translation may have beyond twice its expected length
CHUNK_SIZE = 1_024  # inputs that are sorted by length together


def parse_targets(preprocessor: Preprocessor, requested: str | None) -> dict[str, int]:
    """Returns the languages of `--target`, or all languages of the run, with their indices in the run."""
    run_targets: list[str] = preprocessor.attributes["targets"]
    names = split_commas(requested) or run_targets
    for name in names:
        if name not in run_targets:
            problem = f"the run does not translate into {name!r}; its targets are {', '.join(run_targets)}."
            raise UsageError(problem, fix=suggest(name, run_targets))
    return {name: run_targets.index(name) for name in names}


class TranslationPipeline:
    """A trained translator with its vocabularies and decoding options."""

    def __init__(self, bundle: ModelBundle, options: InferenceOptions):
        self.model: Translator = bundle.model.eval()
        self.preprocessor, self.options = bundle.preprocessor, options
        self.targets = parse_targets(self.preprocessor, options.target)
        names = self.preprocessor.attributes["targets"]
        self.bos_eos_ids = get_bos_eos_ids(self.preprocessor.tokenizers, names, bundle.settings)
        self.max_length = bundle.settings.data.max_length
        self.device = self.model.embedding.weight.device

    def translate_ids(
        self, source_ids: Sequence[np.ndarray], rank: int = 0, world_size: int = 1, seed_offset: int = 0
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """Yields (index of a source, its n best hypotheses for each target), long sources first; each on one rank.

        The translation of an empty source is empty. Different values of `seed_offset` give different random samples.
        """
        lengths = [min(len(ids), self.max_length) for ids in source_ids]
        batch_size = DECODER_BATCH_SIZE.get(self.device.type, 64)
        max_tokens = MAX_DECODER_TOKENS.get(self.device.type, 4_096)
        for batch_indices in iterate_by_length(lengths, batch_size, max_tokens, rank, world_size):
            indices = [int(index) for index in batch_indices if lengths[index]]
            for index in batch_indices:
                if not lengths[index]:
                    yield int(index), [[Hypothesis([], 0.0, 0.0)] for _ in self.targets]
            if indices:
                sources = [source_ids[index][: self.max_length] for index in indices]
                hypotheses_by_target = self._translate_batch(sources, seed_offset + indices[0])
                for index, *hypotheses in zip(indices, *hypotheses_by_target):
                    yield index, hypotheses

    @torch.inference_mode()
    def _translate_batch(self, sources: list[np.ndarray], seed_offset: int) -> list[list[list[Hypothesis]]]:
        """Returns for each target, for each source, the n best hypotheses."""
        batch_size, memories = ENCODER_BATCH_SIZE.get(self.device.type, 16), []
        lengths = torch.tensor([len(ids) for ids in sources], device=self.device)
        for start in range(0, len(sources), batch_size):
            ids = torch.from_numpy(pad_sequences(sources[start : start + batch_size])).to(self.device)
            memories.append(self.model.encode(ids, lengths[start : start + batch_size]))
        memory = concat_memories(memories)
        return [self._decode_target(memory, sources, target, seed_offset) for target in self.targets]

    def _decode_target(
        self, memory: Memory, sources: list[np.ndarray], target: str, seed_offset: int
    ) -> list[list[Hypothesis]]:
        """Returns for each source the n best hypotheses in one language."""
        options, tokenizer, index = self.options, self.preprocessor.tokenizers[target], self.targets[target]
        bos_id, eos_id = self.bos_eos_ids[index]
        # A translation has at most 2 × its expected length + EXTRA_TOKENS, and <eos>.
        length_ratio = self.preprocessor.attributes["ratios"][index]
        limits = [min(self.max_length, math.ceil(2 * (length_ratio * len(ids))) + EXTRA_TOKENS) + 1 for ids in sources]
        # Of the special tokens only <eos> may be generated, and never the unknown token.
        special_ids = (*range(len(tokenizer.specials)), tokenizer.unknown)
        return decode_sequences(
            self.model.get_decoder(index),
            memory,
            options.sampling,
            seed=hash_integers(options.seed, seed_offset, index) % 2**63,  # each batch and target has its own samples
            begin=bos_id,
            end=eos_id,
            options=options.beam_search,
            max_length=torch.tensor(limits, device=self.device) if options.max_length is None else options.max_length,
            prefix=encode(tokenizer, [options.beam_search.start])[0].tolist(),
            banned=[token for token in special_ids if token not in (eos_id, None)],
        )

    def encode_sources(self, texts: Sequence[str]) -> list[np.ndarray]:
        return encode(self.preprocessor.tokenizer, [join_lines(text) for text in texts])

    def decode(self, target: str, hypothesis: Hypothesis) -> str:
        return decode(self.preprocessor.tokenizers[target], hypothesis.ids)

    def predict(self, texts: Sequence[str]) -> Iterator[Prediction]:
        """Yields the translations of each text, in order."""
        for start in range(0, len(texts), CHUNK_SIZE):
            source_ids = self.encode_sources(texts[start : start + CHUNK_SIZE])
            hypotheses = dict(self.translate_ids(source_ids, seed_offset=start))
            for index, ids in enumerate(source_ids):
                yield self._format_prediction(texts[start + index], ids, hypotheses[index])

    def _format_prediction(self, source: str, ids: np.ndarray, by_target: list[list[Hypothesis]]) -> Prediction:
        """Returns the best translation alone, or a line for each target and hypothesis.

        The values include the numbers of truncated and of unknown tokens of the source, unless they are 0.
        """
        unknown = int((ids[: self.max_length] == self.preprocessor.tokenizer.unknown).sum())
        counts = {"cut": max(0, len(ids) - self.max_length), "unknown": unknown}
        values: dict[str, object] = {"source": source, **{name: count for name, count in counts.items() if count}}
        lines, has_several = [], len(by_target) > 1
        for target, hypotheses in zip(self.targets, by_target):
            texts = [self.decode(target, hypothesis) for hypothesis in hypotheses]
            label = f"{target}: " if has_several else ""
            scores = [f"{hypothesis.score:8.3f}  " if len(hypotheses) > 1 else "" for hypothesis in hypotheses]
            lines += [f"{label}{score}{text}" for score, text in zip(scores, texts)]
            details = [{"text": text, **hypothesis.as_dict()} for text, hypothesis in zip(texts, hypotheses)]
            target_values = {"translation": texts[0], "hypotheses": details}
            values |= {target: target_values} if has_several else target_values
        return Prediction("\n".join(lines), values)
