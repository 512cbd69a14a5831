"""Tags and spans: the schemes BIO, IOB1 and BIOES, metrics of spans, and the output of tagged sentences.

A span is (type, start, end): the index of its first token and the index after its last. Tags are read as the program
conlleval of the CoNLL shared tasks reads them, also where a tag violates its scheme, so that every tag sequence has
exactly one reading:

    a span starts at B- and S-, at I- and E- after O, S- or E-, and where the type changes;
    it ends after E- and S-, before B-, S- and O, and where the type changes.

The module knows nothing of models or ids.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.files import write_text
from seqwise.metrics.evaluation import ExampleScores, ExampleText, Table
from seqwise.metrics.predictions import TABLE_SUFFIXES, write_predictions
from seqwise.tasks.task import Prediction

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}  # BILOU is BIOES with other letters
SCHEME_NAMES = {"bio": "BIO", "iob1": "IOB1", "bioes": "BIOES", "plain": "plain"}
DEFINITIONS = {
    "span_f1": "2 · precision · recall / (precision + recall), over spans of all types (micro-averaged), as conlleval",
    "span_precision": "share of the predicted spans whose type, first and last token are right",
    "span_recall": "share of the true spans that were predicted with the right type, first and last token",
    "token_accuracy": "share of the tokens with the right tag",
    "spans": "true spans",
    "tokens": "tokens tagged",
}

Span = tuple[str, int, int]  # type, index of the first token, index after the last
Offset = tuple[int, int]  # of a word in its text: text[start:end]
TagPair = tuple[Sequence[str], Sequence[str]]  # true and predicted tags of a sentence, in BIO if they mark spans


@dataclass(frozen=True)
class Sentence:
    """Words and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str = field(default="", repr=False)
    line: int = field(default=1, repr=False)  # line of the first word
    line_step: int = field(default=0, repr=False)  # 1 if each word has its own line, else 0
    document: int = field(default=-1, repr=False)  # number of its document in the file; -1: not known

    def get_location(self, index: int) -> tuple[str, int]:
        """Returns file and line of a word."""
        return self.file, self.line + index * self.line_step


def split_long_sentences(sentences: Sequence[Sentence], max_length: int) -> list[Sentence]:
    """Returns the sentences with those of more than `max_length` words split into several; no word is lost."""
    pieces: list[Sentence] = []
    for sentence in sentences:
        for start in range(0, len(sentence.words), max_length):
            words, tags = sentence.words[start : start + max_length], sentence.tags[start : start + max_length]
            pieces.append(replace(sentence, words=words, tags=tags, line=sentence.get_location(start)[1]))
    return pieces


# Schemes


def parse_tag(tag: str) -> tuple[str, str] | None:
    """Returns (prefix, type) of a span tag, ("O", "") for O, and None for any other tag."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, span_type = tag.partition("-")
    return (PREFIXES[prefix], span_type) if dash and span_type and prefix in PREFIXES else None


def extract_spans(tags: Iterable[str]) -> list[Span]:
    """Returns the spans of one sentence, as conlleval reads its tags."""
    spans: list[Span] = []
    start: int | None = None
    previous_prefix, previous_type = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, span_type = parse_tag(tag) or (OUTSIDE, "")
        type_changes = span_type != previous_type
        ends = previous_prefix in "ES" or (previous_prefix in "BI" and (type_changes or prefix in "BSO"))
        starts = prefix in "BS" or (prefix in "IE" and (type_changes or previous_prefix in "OES"))
        if start is not None and ends:
            spans.append((previous_type, start, index))
            start = None
        if starts:
            start = index
        previous_prefix, previous_type = prefix, span_type
    return spans


def convert_to_bio(spans: Iterable[Span], length: int) -> list[str]:
    """Returns the BIO tags of a sentence with these spans: every span starts with B-."""
    tags = [OUTSIDE] * length
    for span_type, start, end in spans:
        tags[start] = f"B-{span_type}"
        tags[start + 1 : end] = [f"I-{span_type}"] * (end - start - 1)
    return tags


def convert_to_bioes(spans: Sequence[Span], length: int) -> list[str]:
    """Returns the BIOES tags: as BIO, with E- on the last token of a span and S- on a span of one token."""
    tags = convert_to_bio(spans, length)
    for span_type, start, end in spans:
        tags[end - 1] = f"S-{span_type}" if end - start == 1 else f"E-{span_type}"
    return tags


def list_bioes_tags(span_types: Iterable[str]) -> list[str]:
    """Returns all BIOES tags of these span types, O first."""
    return [OUTSIDE, *(f"{prefix}-{span_type}" for span_type in span_types for prefix in "BIES")]


def compute_allowed_transitions(tags: Sequence[str]) -> tuple[list[list[bool]], list[bool], list[bool]]:
    """Returns what BIOES allows: [i][j] for tag j after tag i, [i] for i as first tag, [i] for i as last tag."""
    opens, continues = [tag[0] in "BI" for tag in tags], [tag[0] in "IE" for tag in tags]
    pairs = [
        [
            previous[2:] == tag[2:] and is_continuation if is_open else not is_continuation
            for tag, is_continuation in zip(tags, continues)
        ]
        for previous, is_open in zip(tags, opens)
    ]
    return pairs, [not each for each in continues], [not each for each in opens]


def guess_scheme(sentences: Iterable[Sequence[str]]) -> tuple[str, str]:
    """Returns the scheme that the tags of these sentences follow, and the reason."""
    tag_names: set[str] = set()
    first_prefixes: Counter[str] = Counter()  # of spans that do not directly follow a span of the same type
    for tags in sentences:
        tag_names.update(tags)
        previous_type = ""
        for tag in tags:
            prefix, span_type = parse_tag(tag) or (OUTSIDE, "")
            if span_type and span_type != previous_type:
                first_prefixes[prefix] += 1
            previous_type = span_type
    tag_names.discard(OUTSIDE)
    prefixes = [parsed[0] for parsed in map(parse_tag, tag_names) if parsed]
    if 2 * len(prefixes) <= len(tag_names):
        return "plain", "the tags have no prefixes such as B- and I-"
    if any(prefix in "ES" for prefix in prefixes):
        return "bioes", "there are tags that end a span"
    counts = f"{first_prefixes['B']:,} spans begin with B-, {first_prefixes['I']:,} with I-"
    return "iob1" if first_prefixes["I"] > first_prefixes["B"] else "bio", counts


def find_violations(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Yields (index, description) of each tag that the scheme does not allow at its position."""
    previous_prefix, previous_type = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, span_type = parse_tag(tag) or (OUTSIDE, "")
        follows_same_type = previous_prefix in "BI" and span_type == previous_type
        if scheme == "bio" and prefix == "I" and not follows_same_type:
            yield index, f"I-{span_type} without a B-{span_type} before it"
        elif scheme == "iob1" and prefix == "B" and not follows_same_type:
            yield index, f"B-{span_type} where no span of type {span_type} ends"
        elif scheme == "bioes":
            if previous_prefix in "BI" and not (follows_same_type and prefix in "IE"):
                yield index - 1, f"{previous_prefix}-{previous_type} whose span has no end"
            if prefix in "IE" and not follows_same_type:
                yield index, f"{prefix}-{span_type} without a B-{span_type} before it"
        previous_prefix, previous_type = prefix, span_type


# Metrics


@dataclass
class SpanCounts:
    """Counts of spans by type, and of tags; the totals of several processes can be summed."""

    true: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    correct_tokens: int = 0

    def add_sentence(self, true: Sequence[str], predicted: Sequence[str], has_spans: bool) -> TagPair:
        """Counts one sentence; returns both tag sequences as they are compared: in BIO if they mark spans."""
        if has_spans:
            true_spans, predicted_spans = extract_spans(true), extract_spans(predicted)
            self.true.update(span_type for span_type, _, _ in true_spans)
            self.predicted.update(span_type for span_type, _, _ in predicted_spans)
            self.correct.update(span_type for span_type, _, _ in {*true_spans} & {*predicted_spans})
            true, predicted = convert_to_bio(true_spans, len(true)), convert_to_bio(predicted_spans, len(true))
        self.tokens += len(true)
        self.correct_tokens += sum(a == b for a, b in zip(true, predicted, strict=True))
        return true, predicted

    def get_totals(self) -> tuple[int, int, int, int, int]:
        """Returns the numbers of correct, predicted and true spans, of correct tags and of tokens."""
        return self.correct.total(), self.predicted.total(), self.true.total(), self.correct_tokens, self.tokens

    def compute_metrics(self, has_spans: bool) -> dict[str, float]:
        """Returns the metrics by name; without spans only the metrics of tags."""
        return compute_metrics(*self.get_totals(), has_spans=has_spans)

    def build_table(self) -> Table:
        """Returns precision, recall, F1 and the number of true spans for each type."""
        rows: dict[str, tuple[float, ...]] = {}
        for span_type in sorted({*self.true, *self.predicted}):
            true = self.true[span_type]
            scores = compute_f1(self.correct[span_type], self.predicted[span_type], true)
            rows[span_type] = (*scores, float(true))
        return Table("spans by type", ("precision", "recall", "f1", "spans"), rows)


def compute_metrics(
    correct: float, predicted: float, true: float, correct_tokens: float, tokens: float, *, has_spans: bool
) -> dict[str, float]:
    """Returns the metrics of the summed counts of `SpanCounts.get_totals`."""
    tag_metrics = {"token_accuracy": correct_tokens / tokens if tokens else 0.0}
    if not has_spans:
        return {**tag_metrics, "tokens": int(tokens)}
    precision, recall, f1 = compute_f1(correct, predicted, true)
    span_metrics = {"span_f1": f1, "span_precision": precision, "span_recall": recall}
    return {**span_metrics, **tag_metrics, "spans": int(true), "tokens": int(tokens)}


def compute_f1(correct: float, predicted: float, true: float) -> tuple[float, float, float]:
    """Returns (precision, recall, F1); 0 where a denominator is 0."""
    precision = correct / predicted if predicted else 0.0
    recall = correct / true if true else 0.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


# Output


def replace_whitespace(word: str) -> str:
    """Returns the word with "_" for whitespace, for formats in which whitespace ends a word."""
    return re.sub(r"\s", "_", word)


def write_tags(path: Path, sentences: Sequence[Sentence], tags: Sequence[TagPair]) -> None:
    """Writes words, true tags and predicted tags: a table with a row per sentence, if the file has such a suffix.

    Any other file gets a word per line and a blank line after each sentence, the format of conlleval.
    """
    words = [[replace_whitespace(word) for word in sentence.words] for sentence in sentences]
    if path.suffix.lower() in TABLE_SUFFIXES:
        rows = zip(words, tags)
        write_predictions(path, ({"input": w, "expected": list(a), "predicted": list(b)} for w, (a, b) in rows))
        return
    blocks = ("".join(f"{word} {a} {b}\n" for word, a, b in zip(w, *pair)) for w, pair in zip(words, tags))
    write_text(path, "".join(f"{block}\n" for block in blocks), concurrent=True)


def score_examples(sentences: Sequence[Sentence], tags: Sequence[TagPair], has_spans: bool) -> ExampleScores:
    """Returns the counts of each sentence: correct, predicted and true spans, or correct tags and tokens."""
    sums, texts = [], []
    for sentence, (true, predicted) in zip(sentences, tags):
        counts = SpanCounts()
        counts.add_sentence(true, predicted, has_spans)
        sums.append(counts.get_totals()[:3] if has_spans else counts.get_totals()[3:])
        text = " ".join(sentence.words)
        ends = np.cumsum([len(word) + 1 for word in sentence.words]) - 1
        offsets = [(int(end) - len(word), int(end)) for word, end in zip(sentence.words, ends)]
        expected, answer = (format_tags(text, offsets, sequence, has_spans) for sequence in (true, predicted))
        texts.append(ExampleText.single_line(text, expected, answer))
    metric = "span_f1" if has_spans else "token_accuracy"
    return ExampleScores(metric, "sentences", np.array(sums, dtype=np.float64), tuple(texts))


def format_prediction(text: str, offsets: list[Offset], tags: list[str], has_spans: bool) -> Prediction:
    """Returns the prediction for a text whose words have these offsets."""
    words = [text[start:end] for start, end in offsets]
    values: dict[str, Any] = {"text": text, "tokens": words, "offsets": [list(offset) for offset in offsets]}
    values["tags"] = tags
    if has_spans:
        spans = extract_spans(tags)
        values["tags"] = convert_to_bio(spans, len(words))
        values["spans"] = []
        for span_type, first_word, end_word in spans:
            start, end = offsets[first_word][0], offsets[end_word - 1][1]
            values["spans"].append({"type": span_type, "start": start, "end": end, "text": text[start:end]})
    return Prediction(format_tags(text, offsets, tags, has_spans), values)


def format_tags(text: str, offsets: Sequence[Offset], tags: Sequence[str], has_spans: bool) -> str:
    """Returns the text with brackets around its spans, or each word followed by its plain tag.

    [ORG EU] rejects [MISC German] call          EU/NNP rejects/VBZ German/JJ call/NN
    """
    if not has_spans:
        return " ".join(f"{text[start:end]}/{tag}" for (start, end), tag in zip(offsets, tags))
    formatted, position = "", 0
    for span_type, first_word, end_word in extract_spans(tags):
        start, end = offsets[first_word][0], offsets[end_word - 1][1]
        formatted += f"{text[position:start]}[{span_type} {text[start:end]}]"
        position = end
    return formatted + text[position:]
