"""Formats predicted tags: for the terminal, for files, and sentence by sentence. It knows nothing of models or ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.files import write_text
from seqwise.metrics.evaluation import ExampleScores, ExampleText
from seqwise.tasks.tag.batches import replace_whitespace
from seqwise.tasks.tag.metrics import SpanCounts
from seqwise.tasks.tag.reader import Sentence
from seqwise.tasks.tag.schemes import extract_spans, to_bio
from seqwise.tasks.task import Prediction

Offset = tuple[int, int]  # of a word in its text: text[start:end]
TagPair = tuple[Sequence[str], Sequence[str]]  # true and predicted tags of a sentence, as they were compared


def write_conll(path: Path, sentences: Sequence[Sentence], tags: Sequence[TagPair]) -> None:
    """Writes word, true tag and predicted tag per line and a blank line after each sentence, as conlleval reads."""
    blocks = (
        "".join(f"{replace_whitespace(word)} {a} {b}\n" for word, a, b in zip(sentence.words, true, predicted))
        for sentence, (true, predicted) in zip(sentences, tags)
    )
    write_text(path, "".join(f"{block}\n" for block in blocks), concurrent=True)


def score_examples(sentences: Sequence[Sentence], tags: Sequence[TagPair], has_spans: bool) -> ExampleScores:
    """Returns the counts of each sentence: correct, predicted and true spans, or correct tags and tokens."""
    sums, texts = [], []
    for sentence, (true, predicted) in zip(sentences, tags):
        counts = SpanCounts()
        counts.add_sentence(true, predicted, has_spans)
        sums.append(counts.totals()[:3] if has_spans else counts.totals()[3:])
        text = " ".join(sentence.words)
        ends = np.cumsum([len(word) + 1 for word in sentence.words]) - 1
        offsets = [(int(end) - len(word), int(end)) for word, end in zip(sentence.words, ends)]
        expected, answer = (format_tags(text, offsets, each, has_spans) for each in (true, predicted))
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
        values["tags"] = to_bio(spans, len(words))
        values["spans"] = []
        for span_type, first, end in spans:
            start, stop = _get_span_offset(first, end, offsets)
            values["spans"].append({"type": span_type, "start": start, "end": stop, "text": text[start:stop]})
    return Prediction(format_tags(text, offsets, tags, has_spans), values)


def format_tags(text: str, offsets: Sequence[Offset], tags: Sequence[str], has_spans: bool) -> str:
    """Returns the text with brackets around its spans, or each word followed by its plain tag.

    [ORG EU] rejects [MISC German] call          EU/NNP rejects/VBZ German/JJ call/NN
    """
    if not has_spans:
        return " ".join(f"{text[start:end]}/{tag}" for (start, end), tag in zip(offsets, tags))
    formatted, written = "", 0
    for span_type, first, last in extract_spans(tags):
        start, end = _get_span_offset(first, last, offsets)
        formatted += f"{text[written:start]}[{span_type} {text[start:end]}]"
        written = end
    return formatted + text[written:]


def _get_span_offset(first: int, end: int, offsets: Sequence[Offset]) -> Offset:
    """Returns where the words first … end-1 begin and end in the text."""
    return offsets[first][0], offsets[end - 1][1]
