"""Captioning: a sentence for a picture, a clip or ready features, one-to-many.

    picture → image encoder → regions ─┐
    caption → tokens → embedding → decoder over the regions → next token → negative log likelihood
                                                                      └→ search → caption

The page wires pieces; each piece is explained where it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch

from seqwise.config import Settings
from seqwise.data.buckets import BucketLoader, iterate_by_length
from seqwise.data.examples import Splits, select_evaluation_examples
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError
from seqwise.files import check_output_path
from seqwise.layers.embedding import Embedding
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.translation import bleu, exact_match
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.caption.describing import (
    BEGIN,
    LONGEST,
    ROWS,
    SPECIALS,
    how,
    inputs_at,
    measured,
    one_by_one,
    pictures_of,
    references_of,
    require_alike,
    texts,
    write,
    write_captions,
)
from seqwise.tasks.caption.images import KINDS
from seqwise.tasks.caption.model import CaptionBatch, Captioner, marked
from seqwise.tasks.caption.reader import Captioned, Gallery, open_captions
from seqwise.tasks.checks import check_memory, check_model, check_precision
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
from seqwise.text.patterns import END
from seqwise.text.tokenizer import Tokenizer

MANY, SEEN = 5_000, 3  # from so many captions on, words seen more rarely are left out of the vocabulary
GRAIN = 16  # tokens; sorted more finely by length, a batch would hold one kind of sentence, and so one kind of picture
INTERIM = 200  # pictures that are captioned at each validation


SHORT = 4  # words of a mean caption below which BLEU says nothing


class Caption(Task):
    """The task on some pictures with captions: a vocabulary is known, a model can be built, trained and scored."""

    primary_metric = ("bleu", "BLEU")
    beam_search = BeamSearchOptions(beam=5)
    example = "picture.png"

    def __init__(self, gallery: Gallery, preprocessor: Preprocessor, longest: int):
        self.gallery, self.splits, self.preprocessor, self.longest = gallery, gallery.splits, preprocessor, longest
        self.fingerprint, self.split_rule = self.splits.fingerprint, self.splits.split_rule
        self.pairs = {split: Pairs(examples, preprocessor.tokenizer) for split, examples in self.splits.parts.items()}
        captions = [text for example in self.splits.parts["train"] for text in example.captions]
        if sum(len(text.split()) for text in captions) < SHORT * len(captions):
            self.primary_metric = ("exact_match", "exact")  # BLEU counts runs of four words

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Read and check pictures and captions; learn the vocabulary from the training split unless it is there."""
        gallery = open_captions(data, settings.data, settings.caption.image_size, settings.columns, progress=progress)
        pictures = gallery.pictures
        fill_in(settings, pictures.kind, gallery.size)
        if preprocessor is None:
            facts = {"kind": pictures.kind, "width": pictures.width, "regions": pictures.longest}
            if data.startswith("builtin:"):
                facts["example"] = f"{data}/0"
            preprocessor = Preprocessor({"text": learn_tokenizer(gallery.splits.parts["train"], settings, log)}, facts)
        require_alike(pictures, preprocessor.facts)
        task = cls(gallery, preprocessor, settings.data.max_length or LONGEST)
        if settings.data.max_length is None:
            settings.data.max_length = min(LONGEST, max(len(row) for row in task.pairs["train"].rows) + 1)
        task.longest = settings.data.max_length
        task.count_long()
        task.introduce(log)
        return task

    def count_long(self) -> None:
        """A remark for every caption that will be cut."""
        what = f"captions of {self.longest:,} tokens or more, which are cut there (--data.max-length)"
        for pairs in self.pairs.values():
            for row, owner in zip(pairs.rows, pairs.owners):
                if len(row) >= self.longest:
                    example = pairs.examples[int(owner)]
                    self.splits.findings.warn(what, example.file or example.image, example.line or None)

    def introduce(self, log: LogFunction) -> None:
        sizes = ", ".join(f"{split} {len(pairs.examples):,}" for split, pairs in self.pairs.items())
        captions = sum(len(pairs.rows) for pairs in self.pairs.values())
        rule = f"{self.split_rule[0].upper()}{self.split_rule[1:]}"
        log(
            f"{self.described()}: {sizes}; {captions:,} captions; "
            f"vocabulary {len(self.preprocessor.tokenizer):,}. {rule}"
        )
        for sentence in self.splits.findings.warning_messages():
            log(f"note: {sentence}")

    def described(self) -> str:
        """What is looked at, with its size."""
        facts, size = self.preprocessor.facts, self.gallery.size
        if facts["kind"] == "features":
            return f"pictures as up to {facts['regions']:,} vectors of width {facts['width']:,}"
        return f"{'clips' if facts['kind'] == 'frames' else 'pictures'} of {size} × {size} pixels"

    def size(self) -> Size:
        train = self.pairs["train"]
        lengths = [len(row) + 1 for row in train.rows]
        regions = self.gallery.size**2 if self.gallery.size else self.preprocessor.facts["regions"]
        return Size(sum(lengths), len(self.preprocessor.tokenizer), len(train.examples), max(lengths), regions)

    def check(self, settings: ResolvedSettings) -> None:
        """Refuse settings that cannot work with this data or this machine."""
        check_model(settings, "predicts the next token; it cannot look at a picture")
        self.batches(settings)
        check_precision(settings)
        model = check_memory(lambda: self.build(settings), settings)
        # Some layers complain only when they first run.
        batch = self.collate("train", np.arange(1)).to("meta")
        model.eval().writer.read(batch.ids, None, model.look(batch.pictures, batch.lengths))

    def build(self, settings: ResolvedSettings) -> Captioner:
        """An untrained model that already predicts each token by its frequency."""
        vocabulary, facts = len(self.preprocessor.tokenizer), self.preprocessor.facts
        return Captioner(settings, vocabulary, facts["width"], facts["regions"], self.token_counts()["text"])

    def token_counts(self) -> dict[str, torch.Tensor]:
        rows = [*self.pairs["train"].rows, np.full(len(self.pairs["train"].rows), self.preprocessor.tokenizer.id(END))]
        return {"text": torch.from_numpy(np.bincount(np.concatenate(rows), minlength=len(self.preprocessor.tokenizer)))}

    def embeddings(self, model: Captioner) -> dict[str, Embedding]:
        return {"text": model.writer.embedding}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> BucketLoader[CaptionBatch]:
        """Training batches of captions of roughly alike length, each beside its picture."""
        lengths = [-(-min(len(row) + 1, self.longest) // GRAIN) * GRAIN for row in self.pairs["train"].rows]

        def batch(numbers: np.ndarray) -> CaptionBatch:
            return self.collate("train", numbers)

        return BucketLoader(
            lengths, batch, settings.training.batch_size, settings.data.max_tokens, settings.seed, rank, world
        )

    def collate(self, split: str, numbers: np.ndarray) -> CaptionBatch:
        """The pairs of these numbers as a batch."""
        pairs, tokenizer = self.pairs[split], self.preprocessor.tokenizer
        pictures, lengths = self.gallery.pictures.take(pairs.pictures[pairs.owners[numbers]])
        rows = [pairs.rows[number] for number in numbers]
        return CaptionBatch(
            *marked(rows, tokenizer.id(BEGIN), tokenizer.id(END), self.longest),
            torch.from_numpy(pictures),
            None if lengths is None else torch.from_numpy(lengths),
            positions=torch.from_numpy(np.asarray(numbers, dtype=np.int64)),
        )

    @torch.no_grad()
    def validate(self, model: Captioner, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Loss of all captions, shared among the processes; BLEU and exact match of some pictures, greedily."""
        pairs, device = self.pairs["valid"], next(model.parameters()).device
        model.eval()
        nats, tokens = 0.0, 0.0
        for numbers in iterate_by_length([len(row) + 1 for row in pairs.rows], ROWS, None, world.rank, world.size):
            loss, _ = model(self.collate("valid", numbers).to(device))
            nats, tokens = nats + float(loss.total), tokens + loss.count
        scores = (0.0, 0.0)
        if world.rank == 0:  # few enough for one process
            some = pairs.examples[:INTERIM]
            numbers = np.array([example.number for example in some])
            written = texts(
                write(model, settings, self.preprocessor, self.gallery.pictures, numbers), self.preprocessor
            )
            outputs, references = [best[0] for best in written], references_of(some)
            scores = (bleu(outputs, references).value, exact_match(outputs, references))
        nats, tokens, score, exact = world.sum(nats, tokens, *scores)
        return {"loss": nats / max(1, tokens), "bleu": score, "exact_match": exact}

    def report(self) -> Report:
        unknown, tokenizer = self.preprocessor.tokenizer.unknown, self.preprocessor.tokenizer
        rows: dict[str, tuple[int, ...]] = {
            split: (
                len(pairs.examples),
                len(pairs.rows),
                sum(map(len, pairs.rows)),
                sum(int((row == unknown).sum()) for row in pairs.rows),
            )
            for split, pairs in self.pairs.items()
        }
        sentences = (
            f"{self.described()}",
            f"tokeniser: {tokenizer.kind}, vocabulary {len(tokenizer):,} (from the training split)",
            f"split: {self.split_rule}",
        )
        columns = ("pictures", "captions", "tokens", "unknown")
        return Report(columns, rows, sentences, tuple(self.splits.findings.warning_messages()))

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Captioner:
        return Captioner(
            settings, len(preprocessor.tokenizer), preprocessor.facts["width"], preprocessor.facts["regions"]
        )

    @classmethod
    def evaluate(
        cls,
        model: Captioner,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(beam_search),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """BLEU, chrF and exact match against all captions of each picture, and how far captions differ."""
        check_output_path(options.out)
        gallery, examples, part = _to_score(data, settings, split, trained_on)
        require_alike(gallery.pictures, preprocessor.facts)
        numbers = np.array([example.number for example in examples])
        began = perf_counter()
        written = write(model, settings, preprocessor, gallery.pictures, numbers, options, progress)
        seconds = perf_counter() - began
        outputs, references = [best[0] for best in texts(written, preprocessor)], references_of(examples)
        if options.out is not None:
            write_captions(options.out, examples, outputs)
        metrics, definitions = measured(outputs, references)
        remarks = tuple(gallery.splits.findings.warning_messages())
        metric = options.primary_metric or cls.primary_metric[0]
        each = one_by_one(metric, examples, outputs, references) if options.examples else None
        on, made = f"{data}, {part}", how(settings, options)
        return Evaluation(metrics, definitions, on, made, warnings=remarks, seconds=seconds, examples=each)

    @classmethod
    def latency_inputs(
        cls,
        model: Captioner,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        gallery, examples, _ = _to_score(data, settings, split, trained_on)
        pictures, options = gallery.pictures, InferenceOptions(cls.beam_search)

        def caption(number: int) -> list[list[str]]:
            return texts(write(model, settings, preprocessor, pictures, np.array([number]), options), preprocessor)

        return [example.number for example in examples], caption

    @classmethod
    def predict(
        cls,
        model: Captioner,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(beam_search),
    ) -> Iterator[Prediction]:
        """A caption for each picture, clip or array, given by its path."""
        for begin in range(0, len(inputs), ROWS):
            names = inputs[begin : begin + ROWS]
            pictures = pictures_of(names, settings, preprocessor.facts)
            found = write(model, settings, preprocessor, pictures, np.arange(len(names)), options)
            for name, hypotheses, best in zip(names, found, texts(found, preprocessor)):
                values: dict[str, Any] = {"image": name, "caption": best[0]}
                values |= {"log_probability": hypotheses[0].log_probability}
                if len(best) > 1:
                    values["captions"] = [
                        {"caption": text, "log_probability": h.log_probability, "score": h.score, "ended": h.ended}
                        for text, h in zip(best, hypotheses)
                    ]
                shown = [f"{h.score:9.3f}  {text}" for text, h in zip(best, hypotheses)] if len(best) > 1 else best
                lines = [f"{name}\t{line}" for line in shown] if len(inputs) > 1 else shown
                yield Prediction("\n".join(lines), values)

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """A picture, an array or a folder of these; for clips a folder of frames, or a folder of such folders."""
        return inputs_at(Path(text), settings.caption)


def _to_score(
    data: str, settings: ResolvedSettings, split: str | None, trained_on: str
) -> tuple[Gallery, Sequence[Captioned], str]:
    """The pictures of the data, the examples of the part to score, and which part that is, in words."""
    galleries: list[Gallery] = []

    def open_with(valid: float, test: float) -> Splits[Captioned]:
        fractions = {"valid": valid, "test": test}
        galleries.append(open_captions(data, settings.data, settings.caption.image_size, settings.columns, fractions))
        return galleries[-1].splits

    fractions = (settings.data.valid_fraction, settings.data.test_fraction)
    examples, part = select_evaluation_examples(open_with, fractions, split, trained_on)
    return galleries[-1], examples, part


class Pairs:
    """The captions of a split as ids, and to which picture each belongs."""

    def __init__(self, examples: Sequence[Captioned], tokenizer: Tokenizer):
        self.examples = examples
        self.rows = tokenizer.encode_many([text for example in examples for text in example.captions])
        self.owners = np.repeat(np.arange(len(examples)), [len(example.captions) for example in examples])
        self.pictures = np.array([example.number for example in examples], dtype=np.int64)


def fill_in(settings: Settings, kind: str, size: int) -> None:
    """What the data tells of the settings; refuses those that contradict it."""
    caption = settings.caption
    if caption.encoder is not None and (caption.encoder == "features") != (kind == "features"):
        raise UsageError(
            f"the {caption.encoder} encoder does not read this data: it holds {KINDS[kind]} per row.",
            repair="Leave out --caption.encoder.",
        )
    if caption.frames is not None and caption.frames != (kind == "frames"):
        raise UsageError(f"the data holds {KINDS[kind]} per row.", repair="Leave out --caption.frames.")
    caption.encoder = caption.encoder or ("features" if kind == "features" else "convolutional")
    caption.frames, caption.image_size = kind == "frames", size or caption.image_size


def learn_tokenizer(examples: Sequence[Captioned], settings: Settings, log: LogFunction) -> Tokenizer:
    """Fill in kind and size by rule, then learn the vocabulary from the training split alone."""
    text, captions = settings.text, [caption for example in examples for caption in example.captions]
    if text.tokenizer is None:
        text.tokenizer = "words"
        many = text.vocabulary is None and text.min_count == 1 and len(captions) >= MANY
        text.min_count = SEEN if many else text.min_count
        log(f"tokeniser: words{f', those seen at least {SEEN} times; others are <unk>' if many else ''}.")
    tokenizer = Tokenizer.train(
        str(text.tokenizer), captions, text.vocabulary, text.min_count, text.lowercase, SPECIALS
    )
    text.vocabulary = len(tokenizer)
    return tokenizer
