"""What was tagged: shown, written to a file, or counted sentence by sentence. It knows nothing of models or of words'
ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.files import write_text
from seqwise.metrics.example_scores import ExampleScores, ExampleText
from seqwise.tasks.tag.batches import unbroken
from seqwise.tasks.tag.metrics import SpanCounts
from seqwise.tasks.tag.reader import Sentence
from seqwise.tasks.tag.schemes import OUTSIDE, Span, as_bio, spans_of
from seqwise.tasks.task import Prediction

Tags = tuple[Sequence[str], Sequence[str]]  # true and predicted tags of a sentence, as they were compared


def write_columns(path: Path, sentences: Sequence[Sentence], answers: Sequence[Tags]) -> None:
    """Word, true tag and predicted tag per line, a blank line behind each sentence: what conlleval reads."""
    blocks = (
        "".join(f"{unbroken(word)} {a} {b}\n" for word, a, b in zip(sentence.words, true, found))
        for sentence, (true, found) in zip(sentences, answers)
    )
    write_text(path, "".join(f"{block}\n" for block in blocks), concurrent=True)


def one_by_one(sentences: Sequence[Sentence], answers: Sequence[Tags], spans: bool) -> ExampleScores:
    """The counts of each sentence: spans correct, predicted and true; of plain tags those right, and all."""
    sums = []
    for true, found in answers:
        counts = SpanCounts()
        if spans:
            counts.add_spans(spans_of(true), spans_of(found))
        counts.add_tags(true, found)
        sums.append(counts.totals()[:3] if spans else counts.totals()[3:])
    shown = tuple(
        ExampleText.single_line(" ".join(sentence.words), *(_with_tags(sentence.words, tags, spans) for tags in both))
        for sentence, both in zip(sentences, answers)
    )
    return ExampleScores("span_f1" if spans else "token_accuracy", "sentences", np.array(sums, dtype=np.float64), shown)


def usual_tags(sentences: Sequence[Sentence], spans: bool) -> tuple[dict[str, str], str]:
    """Word → its most frequent tag, the first of several; and that of other words: O, or the commonest plain tag."""
    counts: dict[str, Counter[str]] = {}
    for sentence in sentences:
        for word, tag in zip(sentence.words, sentence.tags):
            counts.setdefault(word, Counter())[tag] += 1
    usual = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    tags = Counter(tag for sentence in sentences for tag in sentence.tags)
    return usual, OUTSIDE if spans else tags.most_common(1)[0][0]


def _with_tags(words: Sequence[str], tags: Sequence[str], spans: bool) -> str:
    """The words with their tags, as an answer to a text has them."""
    if not spans:
        return beside(words, tags)
    text, places = "", []
    for word in words:
        text += " " if text else ""
        places.append((len(text), len(text) + len(word)))
        text += word
    return marked(text, places, spans_of(tags))


def prediction(text: str, places: list[tuple[int, int]], tags: list[str], spans: bool) -> Prediction:
    """The answer to a text whose words stand at these places."""
    words = [text[begin:end] for begin, end in places]
    values: dict[str, Any] = {"text": text, "tokens": words, "offsets": [list(place) for place in places]}
    if not spans:
        return Prediction(beside(words, tags), {**values, "tags": tags})
    found = spans_of(tags)
    values["tags"] = as_bio(found, len(words))
    values["spans"] = [
        {"type": kind, "start": places[a][0], "end": places[b - 1][1], "text": text[places[a][0] : places[b - 1][1]]}
        for kind, a, b in found
    ]
    return Prediction(marked(text, places, found), values)


def beside(words: Sequence[str], tags: Sequence[str]) -> str:
    """Each word with its tag behind it: EU/NNP rejects/VBZ."""
    return " ".join(f"{word}/{tag}" for word, tag in zip(words, tags))


def marked(text: str, places: list[tuple[int, int]], spans: list[Span]) -> str:
    """The text with brackets around its spans: [ORG EU] rejects [MISC German] call."""
    shown, done = "", 0
    for kind, first, last in spans:
        begin, end = places[first][0], places[last - 1][1]
        shown += f"{text[done:begin]}[{kind} {text[begin:end]}]"
        done = end
    return shown + text[done:]
