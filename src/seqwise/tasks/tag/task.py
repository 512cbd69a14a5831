"""Tagging: one tag per word, such as names in text, parts of speech, kinds of tokens.

    sentences → ids of words, characters, tags → word and character vectors → encoder → tag head → -log P(tags)
                                                                                           └→ Viterbi → tags → spans

The page wires pieces; each piece is explained where it lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import torch

from seqwise.config import Settings
from seqwise.data.buckets import BucketLoader, iterate_by_length
from seqwise.data.examples import select_evaluation_examples
from seqwise.data.tables import get_format_suffix
from seqwise.errors import DataError, UsageError
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import Baseline, Evaluation
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.checks import check_memory, check_model, check_precision
from seqwise.tasks.tag.batches import Encoded, Lexicon, TagBatch, learn_alphabet, learn_words, tags_of
from seqwise.tasks.tag.code import words_of
from seqwise.tasks.tag.metrics import DEFINITIONS, SpanCounts, metrics_of
from seqwise.tasks.tag.model import TagModel
from seqwise.tasks.tag.output import one_by_one, prediction, usual_tags, write_columns
from seqwise.tasks.tag.reader import Sentence, Tagged, counts_of, in_pieces, open_tagged
from seqwise.tasks.tag.schemes import OUTSIDE, TITLES, as_bio, bioes_tags, spans_of
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
from seqwise.text.words import find_word_offsets

LONGEST = 512  # words of a sentence that are read at once, unless set
ROWS, TOKENS = 64, 4096  # of a batch where nothing is learned
WORDWISE = ("words", "spaces")  # tokenisers in which a word is one token


class Tag(Task):
    """The task on some sentences: vocabulary, alphabet and tags are known, a model can be built, trained and scored."""

    primary_metric = ("span_f1", "F1")
    example = "Ada Lovelace lived in London."

    def __init__(self, tagged: Tagged, preprocessor: Preprocessor, longest: int = LONGEST):
        self.tagged, self.preprocessor, self.longest = tagged, preprocessor, longest
        self.splits = tagged.splits
        self.fingerprint, self.split_rule = self.splits.fingerprint, self.splits.split_rule
        self.lexicon = lexicon_of(preprocessor)
        if not self.lexicon.spans:
            self.primary_metric = ("token_accuracy", "accuracy")

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Read the sentences; learn words, characters and tags from the training split unless they are known."""
        tagged = _open(data, settings, settings.data.valid_fraction, settings.data.test_fraction)
        parts = tagged.splits.parts
        settings.data.max_length = settings.data.max_length or LONGEST
        task = cls(tagged, learn(tagged, settings, preprocessor), settings.data.max_length)
        long = [s for some in parts.values() for s in some if len(s.words) > task.longest]
        for sentence in long:
            what = f"sentences are longer than {task.longest} words; they are read in pieces"
            tagged.splits.findings.warn(what, sentence.file, sentence.line)
        sizes = ", ".join(f"{split} {len(some):,}" for split, some in parts.items())
        rule = f"{task.split_rule[0].upper()}{task.split_rule[1:]}"
        log(f"sentences: {sizes}; vocabulary {len(task.lexicon.tokenizer):,}. {rule}")
        for remark in [task.about_tags(), *tagged.splits.findings.warning_messages()]:
            log(remark)
        if settings.tag.crf is None:
            settings.tag.crf = tagged.marks_spans
            why = "spans" if tagged.marks_spans else "no spans"
            log(f"chosen by rule: tag.crf {tagged.marks_spans}, because the tags mark {why}")
        return task

    def about_tags(self) -> str:
        """What the tags are, as a sentence."""
        if not self.lexicon.spans:
            return f"tags: {len(self.lexicon.tags)}, marking no spans, because {self.tagged.why}."
        kinds = sorted({tag[2:] for tag in self.lexicon.tags if len(tag) > 2})
        inner = "" if self.tagged.scheme == "bioes" else "; the model learns BIOES and answers in BIO"
        return (
            f"tags: {TITLES[self.tagged.scheme]}, because {self.tagged.why}{inner}. "
            f"{len(kinds)} types: {', '.join(kinds)[:200]}."
        )

    def size(self) -> Size:
        train = self.splits.parts["train"]
        return Size(
            tokens=sum(len(sentence.words) for sentence in train),
            vocabulary=len(self.lexicon.tokenizer),
            examples=len(train),
            longest=max(len(sentence.words) for sentence in train),
            outputs=len(self.lexicon.tags),
        )

    def check(self, settings: ResolvedSettings) -> None:
        check_model(settings, "predicts the next word; it cannot tag")
        self.batches(settings)
        check_precision(settings)
        model = check_memory(lambda: TagModel(settings, self.lexicon), settings)
        # Some layers complain only when they first run.
        width = model.embedding.width + settings.tag.characters
        model.eval().encoder(torch.zeros(1, 1, width, device="meta"))

    def build(self, settings: ResolvedSettings) -> TagModel:
        return TagModel(settings, self.lexicon, self.counts)

    @cached_property
    def counts(self) -> torch.Tensor:
        """How often each word of the vocabulary occurs in training, (V,)."""
        counts = torch.zeros(len(self.lexicon.tokenizer))
        for word, count in counts_of(self.splits.parts["train"]).items():
            counts[self.lexicon.word(word)] += count
        return counts

    def token_counts(self) -> dict[str, torch.Tensor]:
        return {"text": self.counts}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> BucketLoader[TagBatch]:
        encoded = self._encoded("train", settings.data.max_length)
        rows, tokens = settings.training.batch_size, settings.data.max_tokens
        return BucketLoader(encoded.lengths, encoded.collate, rows, tokens, settings.seed, rank, world)

    def _encoded(self, split: str, longest: int) -> Encoded:
        known = self.__dict__.setdefault("_cache", {})
        if (split, longest) not in known:
            known[split, longest] = Encoded(in_pieces(self.splits.parts[split], longest), self.lexicon)
        return known[split, longest]

    def validate(self, model: TagModel, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Loss, F1 of the spans and accuracy of the tags; the goal is 1 - F1, or 1 - accuracy of plain tags."""
        longest = settings.data.max_length
        pieces, encoded = in_pieces(self.splits.parts["valid"], longest), self._encoded("valid", longest)
        counts, nats = SpanCounts(), 0.0
        model.eval()
        device = model.embedding.weight.device
        for numbers in iterate_by_length(encoded.lengths, ROWS, TOKENS, world.rank, world.size):
            batch = encoded.collate(numbers).to(device)
            with torch.no_grad():
                states = model.states(batch)
                nats += float(model.head.losses(states, batch.tags, batch.lengths).sum())
                best = model.best_of(model.head.scores(states), batch.lengths).tolist()
            for number, ids in zip(numbers, best):
                sentence = pieces[number]
                _count(counts, self.lexicon, sentence.tags, [self.lexicon.tags[i] for i in ids[: len(sentence.tags)]])
        nats, correct, predicted, true, right, tokens = world.sum(nats, *counts.totals())
        metrics = metrics_of(correct, predicted, true, right, tokens, spans=self.lexicon.spans)
        goal = 1 - metrics["span_f1" if self.lexicon.spans else "token_accuracy"]
        return {"loss": nats / tokens, **metrics, "goal": goal}

    def baselines(self, split: str) -> tuple[Baseline, ...]:
        """Each word's most frequent tag of the training split."""
        usual, unseen = usual_tags(self.splits.parts["train"], self.lexicon.spans)
        counts = SpanCounts()
        for sentence in self.splits.parts[split]:
            _count(counts, self.lexicon, sentence.tags, [usual.get(word, unseen) for word in sentence.words])
        about = f"Each word gets the tag that it has most often in the training split, an unseen one {unseen}."
        value = counts.metrics(self.lexicon.spans)[self.primary_metric[0]]
        return (Baseline("most frequent tag of each word", value, about),)

    def report(self) -> Report:
        rows = {}
        known = {self.lexicon.tokenizer.unknown}
        for split, sentences in self.splits.parts.items():
            words = [word for sentence in sentences for word in sentence.words]
            unknown = sum(count for word, count in Counter(words).items() if self.lexicon.word(word) in known)
            marked = sum(len(spans_of(s.tags)) for s in sentences) if self.lexicon.spans else 0
            rows[split] = (len(sentences), len(words), *((marked,) if self.lexicon.spans else ()), unknown)
        columns = ("sentences", "words", *(("spans",) if self.lexicon.spans else ()), "unknown")
        vocabulary = f"vocabulary: {len(self.lexicon.tokenizer):,} words, {self.lexicon.characters:,} characters"
        says = (f"{vocabulary} (from the training split)", self.about_tags(), f"split: {self.split_rule}")
        return Report(columns, rows, says, tuple(self.splits.findings.warning_messages()))

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> TagModel:
        return TagModel(settings, lexicon_of(preprocessor))

    @classmethod
    def evaluate(
        cls,
        model: TagModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        check_output_path(options.out)
        lexicon = lexicon_of(preprocessor)
        opened: list[Tagged] = []

        def open_with(valid: float, test: float) -> Any:
            opened.append(_open(data, settings, valid, test))
            return opened[-1].splits

        fractions = settings.data.valid_fraction, settings.data.test_fraction
        sentences, on = select_evaluation_examples(open_with, fractions, split, trained_on)
        tagged = opened[-1]
        bare = all(tag == OUTSIDE for sentence in sentences for tag in sentence.tags)
        if lexicon.spans and not tagged.marks_spans and bare:  # sentences without a span fit every scheme
            tagged = replace(tagged, scheme="bio", why="all tags are O")
        if tagged.marks_spans != lexicon.spans:
            kinds = {True: "tags that mark spans", False: "plain tags"}
            raise DataError(
                f"the run was trained on {kinds[lexicon.spans]}, but this data has {kinds[tagged.marks_spans]}.",
                repair="Give data of the same kind.",
                file=data,
            )
        counts = SpanCounts()
        began = perf_counter()
        predicted = best_tags(model, lexicon, sentences, settings.data.max_length, progress)
        seconds = perf_counter() - began
        answers = [_count(counts, lexicon, sentence.tags, tags) for sentence, tags in zip(sentences, predicted)]
        if options.out is not None:
            write_columns(options.out, sentences, answers)
        metrics = counts.metrics(lexicon.spans)
        return Evaluation(
            metrics,
            {name: DEFINITIONS[name] for name in metrics},
            f"{data}, {on}",
            _how(settings, tagged.scheme, lexicon.spans),
            (counts.table(),) if lexicon.spans else (),
            tuple(tagged.splits.findings.warning_messages()),
            seconds,
            one_by_one(sentences, answers, lexicon.spans) if options.examples else None,
        )

    @classmethod
    def latency_inputs(
        cls,
        model: TagModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        def open_with(valid: float, test: float) -> Any:
            return _open(data, settings, valid, test).splits

        fractions = settings.data.valid_fraction, settings.data.test_fraction
        sentences, _ = select_evaluation_examples(open_with, fractions, split, trained_on)
        lexicon, longest = lexicon_of(preprocessor), settings.data.max_length
        return sentences, lambda sentence: best_tags(model, lexicon, [sentence], longest)

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Lines of text; refuses files whose words have tags already."""
        path = Path(text)
        if text != "-" and get_format_suffix(path) in (".conll", ".jsonl", ".json", ".tsv", ".csv") and path.is_file():
            raise UsageError(
                "predict reads one sentence per line, not words with tags.",
                repair="Tag such a file with: seqwise evaluate RUN FILE --out TAGGED",
                file=text,
            )
        return None

    @classmethod
    def predict(
        cls,
        model: TagModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        lexicon = lexicon_of(preprocessor)
        places = [places_of(text, preprocessor) for text in inputs]
        sentences = [
            Sentence(words := tuple(text[begin:end] for begin, end in some), ("O",) * len(words))
            for text, some in zip(inputs, places)
        ]
        tags = best_tags(model, lexicon, sentences, settings.data.max_length)
        for text, some, each in zip(inputs, places, tags):
            yield prediction(text, some, each, lexicon.spans)


def learn(tagged: Tagged, settings: Settings, given: Preprocessor | None = None) -> Preprocessor:
    """What is not given already: words, characters and tags of the training split."""
    if given is not None and "tags" in given.facts:
        return given
    train = tagged.splits.parts["train"]
    tokenizers = dict(given.tokenizers) if given else {}
    folds = not tokenizers and settings.tag.characters != 0
    if not tokenizers:
        _check_text(settings, folds)
        tokenizers["text"] = learn_words(train, settings.text, folds, given.extra_words if given else ())
    elif tokenizers["text"].kind not in WORDWISE:
        raise UsageError(
            f"tagging needs one token per word; the vocabulary to begin with is {tokenizers['text'].kind}.",
            repair="Train the run to start from with --text.tokenizer words.",
        )
    settings.text.tokenizer, settings.text.vocabulary = tokenizers["text"].kind, len(tokenizers["text"])  # type: ignore[assignment]
    tags = tags_of(train)
    if tagged.marks_spans:
        tags = bioes_tags(sorted({kind for sentence in train for kind, _, _ in spans_of(sentence.tags)}))
    if len(tags) < 2:
        raise DataError(
            f"all words have the tag {tags[0]!r}: there is nothing to learn.",
            repair="Give data with at least two tags, or say which column holds them: --columns 1,4",
            file=tagged.splits.name,
        )
    return Preprocessor(tokenizers, {
        "tags": tags, "spans": tagged.marks_spans, "folds": folds, "alphabet": learn_alphabet(counts_of(train)),
        "code": tagged.splits.name == "builtin:code",
    })  # fmt: skip


def _check_text(settings: Settings, folds: bool) -> None:
    """Refuse what tagging cannot do, for its words come from the data."""
    text = settings.text
    if text.tokenizer not in (None, *WORDWISE):
        raise UsageError(
            f"tagging reads the words of the data, one token each; received --text.tokenizer {text.tokenizer}.",
            repair="Leave out --text.tokenizer.",
        )
    if text.lowercase and folds:
        raise UsageError(
            "--text.lowercase: words are looked up without case anyway, and their characters tell it.",
            repair="Leave it out, or read no characters: --tag.characters 0",
        )


def lexicon_of(preprocessor: Preprocessor) -> Lexicon:
    facts = preprocessor.facts
    return Lexicon(preprocessor.tokenizer, facts["alphabet"], facts["tags"], facts["spans"], facts["folds"])


def best_tags(
    model: TagModel,
    lexicon: Lexicon,
    sentences: Sequence[Sentence],
    longest: int,
    progress: ProgressCallback | None = None,
) -> list[list[str]]:
    """The model's tags of each sentence, in their order."""
    pieces = in_pieces(sentences, longest)
    encoded = Encoded(pieces, lexicon)
    found: list[list[str]] = [[] for _ in pieces]
    model.eval()
    device, done = model.embedding.weight.device, 0
    for numbers in iterate_by_length(encoded.lengths, ROWS, TOKENS):
        best = model.best(encoded.collate(numbers).to(device)).tolist()
        for number, ids in zip(numbers, best):
            found[number] = [lexicon.tags[i] for i in ids[: len(pieces[number].words)]]
        done += len(numbers)
        if progress:
            progress(done, len(pieces))
    rest = iter(found)
    return [list(chain(*(next(rest) for _ in range(0, len(s.words), longest)))) for s in sentences]


def _count(
    counts: SpanCounts, lexicon: Lexicon, true: Sequence[str], predicted: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Add one sentence; returns its true and predicted tags as they were compared: BIO, whatever the data has."""
    if lexicon.spans:
        wanted, found = spans_of(true), spans_of(predicted)
        counts.add_spans(wanted, found)
        true, predicted = as_bio(wanted, len(true)), as_bio(found, len(true))
    counts.add_tags(true, predicted)
    return true, predicted


def _open(data: str, settings: Settings, valid: float, test: float) -> Tagged:
    return open_tagged(data, settings.columns, settings.tag.scheme, settings.data.on_empty, valid, test)


def _how(settings: ResolvedSettings, scheme: str, spans: bool) -> str:
    best = "the best sequence of tags (linear-chain CRF, Viterbi)" if settings.tag.crf else "the best tag of each word"
    if not spans:
        return f"{best}; tags compared as they are written"
    return f"{best}, of those that BIOES allows; data read as {TITLES[scheme]}, tags compared in BIO"


def places_of(text: str, preprocessor: Preprocessor) -> list[tuple[int, int]]:
    """Where the words of a text stand: Python's own tokens for a run on code, else words and marks."""
    found = words_of(text) if preprocessor.facts.get("code") else None
    return find_word_offsets(text) if found is None else found
