"""Translation, and whatever else writes one text for another: from pairs of texts to translated text.

    source → tokens → encoder → memory → writer → tokens of each target → loss
                                              └→ beam search → text → BLEU, chrF, exact match, ROUGE

The page wires pieces: reading pairs is in `tasks/translate/reader.py`, vocabularies in `vocabularies.py`, the model in
`model.py`, its use in `translating.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqwise.backbones.decoder import can_be_fed
from seqwise.config import Settings
from seqwise.data.buckets import BucketLoader, iterate_by_length
from seqwise.data.examples import Splits, select_evaluation_examples
from seqwise.data.findings import Findings
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import SUFFIXES, parse_columns, read_input_column
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError
from seqwise.files import check_output_path
from seqwise.layers.embedding import Embedding
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.translation import BleuCounts
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import (
    InferenceOptions,
    LogFunction,
    Prediction,
    Preprocessor,
    ProgressCallback,
    Report,
    Size,
    Summing,
    Task,
    no_log,
)
from seqwise.tasks.translate.defaults import fill_translate
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import PairBatch, Translator, collate
from seqwise.tasks.translate.output import how, measured, one_by_one, prediction, translate_all, write_lines
from seqwise.tasks.translate.reader import Pair, look_at, open_pairs
from seqwise.tasks.translate.translating import Translation, targets_of
from seqwise.tasks.translate.vocabularies import encode, learn_vocabularies, marks_of
from seqwise.text.tokenizer import Tokenizer

MOST_TOKENS = 512  # of one text, unless the user says otherwise
INTERIM = {"cpu": 200, "cuda": 1_000}  # validation pairs that are translated during training
ROWS, TOKENS = 64, 8_192  # of a batch that is only scored
AT_ONCE = 1_024  # inputs that are sorted by length together
MANY_UNKNOWN = 0.05  # share of held-out tokens from which on the user is told
SPELLED = 4  # words: below, an n-gram of four words says little, and the share of exact answers is shown


class Translate(Task):
    """The task on some pairs: vocabularies are known, a model can be built, trained and scored."""

    fill_defaults = staticmethod(fill_translate)
    primary_metric = ("bleu", "BLEU")
    beam_search = BeamSearchOptions(beam=5)
    example = "a text"

    def __init__(self, splits: Splits[Pair], preprocessor: Preprocessor, settings: Settings):
        self.splits, self.preprocessor = splits, preprocessor
        self.fingerprint, self.split_rule = splits.fingerprint, splits.split_rule
        self.names: list[str] = preprocessor.facts["targets"]
        self.marks = marks_of(preprocessor.tokenizers, self.names, settings)
        self.longest = settings.data.max_length or MOST_TOKENS
        parts = splits.parts.items()
        self.sources = {
            split: encode(preprocessor.tokenizer, [pair.source for pair in pairs]) for split, pairs in parts
        }
        self.written = {split: _columns(pairs, preprocessor.tokenizers, self.names) for split, pairs in parts}
        if _mean_words(splits.parts["valid"]) < SPELLED:
            self.primary_metric = ("exact_match", "exact")

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Read and check the pairs; learn the vocabularies from the training split unless they are given."""
        splits, languages = open_pairs(data, settings)
        look_at(splits)
        if preprocessor is None:
            tokenizers = learn_vocabularies(splits.parts["train"], languages, settings, log)
            preprocessor = Preprocessor(tokenizers, {"source": languages.source, "targets": list(languages.targets)})
        if languages != Languages():
            settings.target, settings.columns = ",".join(languages.targets), settings.columns or languages.columns
        task = cls(splits, preprocessor, settings)
        preprocessor.facts.setdefault("ratios", task.ratios())
        if data.startswith("builtin:"):
            preprocessor.facts["example"] = splits.parts["valid"][0].source
        if settings.data.max_length is None:
            settings.data.max_length = min(MOST_TOKENS, task.size().longest)
        task.longest = settings.data.max_length
        task.count_long()
        task.introduce(languages, log)
        return task

    def ratios(self) -> list[float]:
        """Tokens of each target per token of the source, in training."""
        read = max(1, sum(map(len, self.sources["train"])))
        return [sum(len(row[n]) for row in self.written["train"]) / read for n in range(len(self.names))]

    def count_long(self) -> None:
        """A remark for every text that will be cut."""
        what = f"texts of more than {self.longest:,} tokens, which are cut there (--data.max-length)"
        for split, pairs in self.splits.parts.items():
            for pair, source, targets in zip(pairs, self.sources[split], self.written[split]):
                for ids in (source, *targets):
                    if len(ids) > self.longest:
                        self.splits.findings.warn(what, pair.file, pair.line)

    def introduce(self, languages: Languages, log: LogFunction) -> None:
        sizes = ", ".join(f"{split} {len(pairs):,}" for split, pairs in self.splits.parts.items())
        log(f"pairs, {languages}: {sizes}; {self._vocabulary()}. {self.split_rule[0].upper()}{self.split_rule[1:]}")
        for sentence in self.remarks():
            log(f"note: {sentence}")

    def _vocabulary(self) -> str:
        sizes = {name: len(tokenizer) for name, tokenizer in self.preprocessor.tokenizers.items()}
        shared = len({tokenizer.fingerprint for tokenizer in self.preprocessor.tokenizers.values()}) == 1
        if shared:
            return f"one vocabulary of {sizes['text']:,}"
        source = self.preprocessor.facts["source"]
        return "vocabulary " + ", ".join(f"{source if name == 'text' else name} {n:,}" for name, n in sizes.items())

    def remarks(self) -> list[str]:
        """What was let pass, with its number and the policy."""
        found = self.splits.findings.warning_messages()
        for split in ("valid", "test"):
            share = self._unknown(split) / max(1, self._tokens(split))
            if share > MANY_UNKNOWN:
                found.append(f"{share:.1%} of the {split} tokens are <unk>: the vocabulary does not have them.")
        return found

    def _tokens(self, split: str) -> int:
        return sum(len(ids) for rows in self._all(split) for ids in rows)

    def _unknown(self, split: str) -> int:
        tokenizers = [self.preprocessor.tokenizer, *(self.preprocessor.tokenizers[name] for name in self.names)]
        sides = zip(tokenizers, self._all(split))
        return sum(int((ids == tokenizer.unknown).sum()) for tokenizer, rows in sides for ids in rows)

    def _all(self, split: str) -> list[list[np.ndarray]]:
        """The ids of the source and of each target of a split."""
        written = self.written.get(split, [])
        return [self.sources.get(split, []), *([row[n] for row in written] for n in range(len(self.names)))]

    # Training

    def size(self) -> Size:
        longest = max(len(ids) for split in self.splits.parts for rows in self._all(split) for ids in rows)
        tokens = sum(len(ids) + 1 for row in self.written["train"] for ids in row)
        vocabulary = max(len(self.preprocessor.tokenizers[name]) for name in self.names)
        return Size(tokens, vocabulary, len(self.sources["train"]), max(1, longest), len(self.names))

    def check_settings(self, settings: ResolvedSettings) -> None:
        model, attention = settings.model, settings.translate.attention
        if settings.translate.input_feeding and not can_be_fed(model, attention):
            raise UsageError(
                "input feeding goes with dot or general attention of an rnn, gru or lstm; "
                f"received {model} with {attention} attention.",
                repair="Pass --translate.attention general with such a model, or leave out --translate.input-feeding.",
            )

    def run_layers(self, model: Translator) -> None:
        one = torch.zeros(1, 1, dtype=torch.int64, device="meta")
        model.writer(0).losses(model.encode(one), one, one)

    def build(self, settings: ResolvedSettings) -> Translator:
        """An untrained model that already predicts each token by its frequency."""
        return build_model(settings, self.preprocessor, self.counts)

    @cached_property
    def counts(self) -> list[Tensor]:
        """How often each token is to be written in the training split, (V,) for each target."""
        found = []
        for number, name in enumerate(self.names):
            ids = np.concatenate([row[number] for row in self.written["train"]])
            counts = np.bincount(ids, minlength=len(self.preprocessor.tokenizers[name]))
            counts[self.marks.ends[number]] += len(self.written["train"])
            found.append(torch.from_numpy(counts))
        return found

    def embeddings(self, model: Translator) -> dict[str, Embedding]:
        """One of the source and one for each writer; a vocabulary that several share has one layer."""
        writers: dict[str, Embedding] = {name: writer.embedding for name, writer in zip(self.names, model.writers)}  # type: ignore[misc]
        return {"text": model.embedding, **writers}

    def token_counts(self) -> dict[str, Tensor]:
        ids = np.concatenate(self.sources["train"])
        read = torch.from_numpy(np.bincount(ids, minlength=len(self.preprocessor.tokenizer)))
        return {"text": read, **dict(zip(self.names, self.counts))}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> BucketLoader[PairBatch]:
        """Training batches of pairs of alike length."""
        rows, tokens = settings.training.batch_size, settings.data.max_tokens
        return BucketLoader(self._lengths("train"), self._collate, rows, tokens, settings.seed, rank, world)

    def validate(self, model: Translator, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Loss on the validation split; BLEU and exact match of greedy translations of a part of it."""
        model.eval()
        device = model.embedding.weight.device
        nats, count = 0.0, 0
        with torch.no_grad():
            for numbers in iterate_by_length(self._lengths("valid"), ROWS, TOKENS, world.rank, world.size):
                loss, _ = model(self._collate(numbers, "valid").to(device))
                nats, count = nats + float(loss.total), count + loss.count
        some = _spread(len(self.sources["valid"]), INTERIM.get(device.type, 200))
        asked = Translation(model, settings, self.preprocessor, InferenceOptions(BeamSearchOptions()))
        outputs, references = [], []
        for at, found in asked.of_ids([self.sources["valid"][number] for number in some], world.rank, world.size):
            for target, best in zip(asked.targets, found):
                outputs.append(asked.text(target, best[0]))
                references.append(self.splits.parts["valid"][some[at]].targets[target.number])
        exact = sum(output == reference.strip() for output, reference in zip(outputs, references))
        counts = BleuCounts.from_texts(outputs, references).as_tuple()
        nats, all_count, right, tried, *sums = world.sum(nats, count, exact, len(outputs), *counts)
        return {
            "loss": nats / max(1, all_count),
            "bleu": BleuCounts.from_tuple(sums).bleu,
            "exact_match": right / max(1, tried),
        }

    def _lengths(self, split: str) -> list[int]:
        """Steps of each pair: of its longest side, with the token that begins or ends it."""
        pairs = zip(self.sources[split], self.written[split])
        return [min(self.longest, max(len(ids) for ids in (source, *targets))) + 1 for source, targets in pairs]

    def _of(self, split: str, numbers: np.ndarray) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
        return [self.sources[split][number] for number in numbers], [self.written[split][number] for number in numbers]

    def _collate(self, numbers: np.ndarray, split: str = "train") -> PairBatch:
        batch = collate(*self._of(split, numbers), self.marks, self.longest)
        return PairBatch(
            batch.source, batch.lengths, batch.inputs, batch.targets, batch.real, positions=torch.from_numpy(numbers)
        )

    def report(self) -> Report:
        names = [self.preprocessor.facts["source"], *self.names]
        rows = {}
        for split, pairs in self.splits.parts.items():
            sides = self._all(split)
            longest = max(len(ids) for side in sides for ids in side)
            rows[split] = (len(pairs), *(sum(map(len, side)) for side in sides), longest, self._unknown(split))
        kind = self.preprocessor.tokenizer.kind
        sentences = (f"tokeniser: {kind}, {self._vocabulary()} (from the training split)", f"split: {self.split_rule}")
        columns = ("pairs", *(f"{name} tokens" for name in names), "longest", "unknown")
        return Report(columns, rows, sentences, tuple(self.remarks()))

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Translator:
        return build_model(settings, preprocessor)

    @classmethod
    def evaluate(
        cls,
        model: Translator,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(beam_search),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """BLEU, chrF, exact match and ROUGE of the translations of the test split, or of a whole file."""
        check_output_path(options.out)
        asked, findings = _asked(settings, preprocessor, options), Findings()

        def read(valid: float, test: float) -> Splits[Pair]:
            nonlocal findings
            splits = open_pairs(data, asked, valid, test)[0]
            findings = splits.findings
            return splits

        fractions = (settings.data.valid_fraction, settings.data.test_fraction)
        pairs, which = select_evaluation_examples(read, fractions, split, trained_on)
        began = perf_counter()
        outputs = translate_all(Translation(model, settings, preprocessor, options), pairs, findings, progress)
        seconds = perf_counter() - began
        if options.out is not None:
            write_lines(options.out, outputs)
        found = measured(outputs, pairs, f"{data}, {which}", how(settings, options), findings.warning_messages())
        each = one_by_one(options.primary_metric or cls.primary_metric[0], outputs, pairs) if options.examples else None
        return replace(found, seconds=seconds, examples=each)

    @classmethod
    def latency_inputs(
        cls,
        model: Translator,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        options = InferenceOptions(cls.beam_search)
        asked = _asked(settings, preprocessor, options)

        def read(valid: float, test: float) -> Splits[Pair]:
            return open_pairs(data, asked, valid, test)[0]

        fractions = (settings.data.valid_fraction, settings.data.test_fraction)
        texts = [pair.source for pair in select_evaluation_examples(read, fractions, split, trained_on)[0]]
        return texts, lambda text: list(cls.predict(model, settings, preprocessor, [text], options))

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """The source column of a table; anything else is read line by line."""
        path = Path(text)
        if text == "-" or get_format_suffix(path) not in SUFFIXES or not path.is_file():
            return None
        return read_input_column(path, ("source", "target"), settings.columns)

    @classmethod
    def predict(
        cls,
        model: Translator,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(beam_search),
    ) -> Iterator[Prediction]:
        """One translation per input and language; with `n_best` several, best first."""
        translation = Translation(model, settings, preprocessor, options)
        for begin in range(0, len(inputs), AT_ONCE):
            some = inputs[begin : begin + AT_ONCE]
            rows = translation.read(some)
            for text, row, found in zip(some, rows, translation.texts(rows, first=begin)):
                answers = {target.name: best for target, best in zip(translation.targets, found)}
                yield prediction(text, answers, translation.unread(row))


def _asked(settings: ResolvedSettings, preprocessor: Preprocessor, options: InferenceOptions) -> Settings:
    """The settings that read the targets asked for, from the columns that held them in training."""
    targets, asked = targets_of(preprocessor, options.target), settings.model_copy(deep=True)
    if not settings.target:
        return asked
    asked.target = ",".join(target.name for target in targets)
    columns = parse_columns(settings.columns)
    if columns is not None:
        # Files need no column for each target, since they are found by their endings.
        each = len(columns) == 1 + len(preprocessor.facts["targets"])
        chosen = [columns[1 + target.number] if each else target.name for target in targets]
        asked.columns = ",".join([columns[0], *chosen])
    return asked


def build_model(
    settings: ResolvedSettings, preprocessor: Preprocessor, counts: Sequence[Tensor] | None = None
) -> Translator:
    """The model of a resolved run."""
    names = (
        preprocessor.facts["targets"][:1] if settings.translate.targets == "token" else preprocessor.facts["targets"]
    )
    sizes = [len(preprocessor.tokenizers[name]) for name in names]
    if counts is not None and len(sizes) < len(counts):
        counts = [torch.stack(list(counts)).sum(0)]
    return Translator(settings, (len(preprocessor.tokenizer), sizes), counts)


def _columns(pairs: Sequence[Pair], tokenizers: dict[str, Tokenizer], names: Sequence[str]) -> list[list[np.ndarray]]:
    """For each pair the ids of its targets."""
    columns = [encode(tokenizers[name], [pair.targets[n] for pair in pairs]) for n, name in enumerate(names)]
    return [list(row) for row in zip(*columns)]


def _mean_words(pairs: Sequence[Pair]) -> float:
    return sum(len(text.split()) for pair in pairs for text in pair.targets) / sum(len(pair.targets) for pair in pairs)


def _spread(count: int, most: int) -> list[int]:
    """At most `most` numbers below `count`, at even distances."""
    return sorted({number * count // min(most, count) for number in range(min(most, count))})
