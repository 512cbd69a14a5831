"""The errors of a tagger: confusions of tags, kinds of span errors, probabilities, the worst sentences, and slices.

Of tags that mark spans, the items are spans, each true or predicted or both, and the metric is F1. Of plain tags, the
items are words, and the metric is the share of right tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from seqwise.data.batch import iterate_by_length
from seqwise.errors import DataError
from seqwise.heads.tag import compute_marginals
from seqwise.tasks.error_report import (
    MAX_NAMES,
    NUM_WORST,
    UNKNOWN_COUNTS,
    Confidences,
    CountMatrix,
    ErrorReport,
    ErrorRequest,
    Listing,
    Metric,
    ScoredItems,
    SliceGroup,
    build_confusion_matrix,
)
from seqwise.tasks.tag.model import EncodedSentences, TagVocabulary, find_document_casings
from seqwise.tasks.tag.span_errors import KINDS, count_span_errors
from seqwise.tasks.tag.spans import (
    DEFINITIONS,
    OUTSIDE,
    Sentence,
    SpanCounts,
    extract_spans,
    split_long_sentences,
)
from seqwise.tasks.tag.task import EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS, Tag
from seqwise.tasks.task import ModelBundle
from seqwise.tasks.training_summary import TrainingSummary, hash_texts

MAX_SENTENCES = 10_000  # evaluated unless set
SPAN_F1 = Metric("F1", "span_f1", definition=DEFINITIONS["span_f1"])
TOKEN_ACCURACY = Metric("accuracy", "token_accuracy", definition=DEFINITIONS["token_accuracy"])


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with its true and predicted tags, as they are compared."""

    words: Sequence[str]
    true: Sequence[str]
    predicted: Sequence[str]
    probabilities: np.ndarray  # (T,) marginal probability of each predicted tag
    loss: float  # negative log likelihood of the true tags


def collect_errors(task: type[Tag], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Tags sentences and returns what went wrong."""
    _, examples, description = request.open(lambda split: task.select_examples(bundle, data, split))
    chosen = [examples[index] for index in request.choose(len(examples), MAX_SENTENCES)]
    vocabulary = TagVocabulary.from_preprocessor(bundle.preprocessor)
    check_tags(vocabulary, chosen, data)
    sentences = tag_sentences(bundle, vocabulary, chosen, examples, request)
    build = build_span_items if vocabulary.has_spans else build_word_items
    items, groups = build(sentences, vocabulary, bundle.training)
    words = list(chain.from_iterable(zip(s.words, s.true, s.predicted, s.probabilities) for s in sentences))
    is_correct = np.array([a == b for _, a, b, _ in words])
    probabilities = np.array([each for *_, each in words], dtype=np.float64)
    confidences = [Confidences("predicted tag", probabilities, is_correct)]
    is_inside = np.array([tag != OUTSIDE for _, _, tag, _ in words])
    if vocabulary.has_spans and is_inside.any():
        confidences.append(Confidences("predicted tag inside a span", probabilities[is_inside], is_correct[is_inside]))
    counts = SpanCounts()
    for sentence in sentences:
        counts.add_sentence(sentence.true, sentence.predicted, vocabulary.has_spans)
    return ErrorReport(
        description,
        items,
        groups,
        len(chosen),
        len(examples),
        "sentences",
        confusions=build_confusions(sentences, vocabulary.has_spans),
        confidences=confidences,
        listings=[list_worst(sentences, vocabulary.has_spans)],
        metrics=counts.compute_metrics(vocabulary.has_spans),
    )


def check_tags(vocabulary: TagVocabulary, sentences: Sequence[Sentence], data: str) -> None:
    """Raises an error for plain tags where the run was trained on spans."""
    tags = {tag for sentence in sentences for tag in sentence.tags}
    if vocabulary.has_spans and tags != {OUTSIDE} and not any(extract_spans([tag]) for tag in tags):
        problem = "the run was trained on tags that mark spans, but this data has plain tags."
        raise DataError(problem, fix="Give data of the same kind.", file=data)


@torch.no_grad()
def tag_sentences(
    bundle: ModelBundle,
    vocabulary: TagVocabulary,
    sentences: Sequence[Sentence],
    documents: Sequence[Sentence],
    request: ErrorRequest,
) -> list[TaggedSentence]:
    """Returns each sentence with the model's tags; long ones are read in pieces, as in an evaluation.

    `documents` are all sentences of their split.
    """
    model, max_length = bundle.model.eval(), bundle.settings.data.max_length
    pieces = split_long_sentences(sentences, max_length)
    casings = find_document_casings(vocabulary, pieces, documents, max_length)
    encoded = EncodedSentences(pieces, vocabulary, casings)
    device, num_done = model.embedding.weight.device, 0
    is_equivalent = build_tag_equivalence(vocabulary).to(device)
    results: list[tuple[list[str], np.ndarray, float]] = [([], np.zeros(0), 0.0)] * len(pieces)
    for indices in iterate_by_length(encoded.lengths, EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS):
        batch = encoded.collate(indices).to(device)
        states = model.states(batch)
        scores = model.head.scores(states)
        losses = model.head.losses(states, batch.tag_ids, batch.lengths).tolist()
        predicted = model.decode_scores(scores, batch.lengths)
        marginals = compute_marginals(scores, batch.lengths, model.head.transitions()) @ is_equivalent
        probabilities = marginals.gather(2, predicted[..., None]).squeeze(2).double().cpu().numpy()
        for row, index in enumerate(indices):
            length = len(pieces[index].words)
            tags = [vocabulary.tags[tag] for tag in predicted[row, :length].tolist()]
            results[index] = tags, probabilities[row, :length], losses[row]
        num_done += len(indices)
        request.progress(num_done, len(pieces))
    remaining, tagged = iter(results), []
    for sentence in sentences:
        parts = [next(remaining) for _ in range(0, len(sentence.words), max_length)]
        joined = list(chain(*(part[0] for part in parts)))
        true, predicted_tags = SpanCounts().add_sentence(sentence.tags, joined, vocabulary.has_spans)
        probability = np.concatenate([part[1] for part in parts]) if parts else np.zeros(0)
        tagged.append(TaggedSentence(sentence.words, true, predicted_tags, probability, sum(part[2] for part in parts)))
    return tagged


def build_tag_equivalence(vocabulary: TagVocabulary) -> Tensor:
    """Returns (K, K), 1 for tags that count as the same. S- counts as B-, and E- as I-, as in BIO."""
    names = [
        tag.replace("S-", "B-", 1).replace("E-", "I-", 1) if vocabulary.has_spans and tag[:2] in ("S-", "E-") else tag
        for tag in vocabulary.tags
    ]
    return torch.tensor([[float(a == b) for a in names] for b in names])


def find_seen(words: Sequence[str], training: TrainingSummary | None) -> np.ndarray | None:
    """Returns for each word whether it occurs in the training split, spelled like this; None if that is not known."""
    if training is None or "words" not in training.arrays:
        return None
    known, hashes = training.arrays["words"], hash_texts(words)
    indices = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return known[indices] == hashes


def build_span_items(
    sentences: Sequence[TaggedSentence], vocabulary: TagVocabulary, training: TrainingSummary | None
) -> tuple[ScoredItems, list[SliceGroup]]:
    """Returns the spans, true or predicted, with slices by type, words and sentence."""
    rows, units, types, lengths, words = [], [], [], [], []
    for index, sentence in enumerate(sentences):
        true, predicted = {*extract_spans(sentence.true)}, {*extract_spans(sentence.predicted)}
        for span in sorted(true | predicted):
            rows.append((span in true and span in predicted, span in predicted, span in true))
            units.append(index)
            types.append(span[0])
            lengths.append(span[2] - span[1])
            words.append(sentence.words[span[1] : span[2]])
    sentence_indices, sums = np.array(units, dtype=np.int64), np.array(rows, dtype=np.float64).reshape(-1, 3)
    items = ScoredItems(SPAN_F1, "spans", sums, sentence_indices, len(sentences), "sentences")
    names = sorted({*types})
    groups = []
    if len(names) <= MAX_NAMES:
        positions = np.array([names.index(each) for each in types], dtype=np.int64)
        groups.append(items.group("type", [f"spans of type {name}" for name in names], positions))
    seen = find_seen([word for each in words for word in each], training)
    if seen is not None:
        ends = np.cumsum([len(each) for each in words], dtype=np.int64)
        num_unseen = np.diff(np.concatenate([[0], np.cumsum(~seen)])[np.concatenate([[0], ends])])
        seen_names = ["spans without unseen words", "spans with unseen words"]
        groups.append(items.group("words unseen in training", seen_names, np.minimum(num_unseen, 1)))
    unknown = vocabulary.tokenizer.unknown
    num_unknown = np.array([sum(vocabulary.get_word_id(word) == unknown for word in s.words) for s in sentences])
    if num_unknown.any():
        sentence_names = [f"spans in sentences with {text}" for text in UNKNOWN_COUNTS]
        groups.append(items.group("unknown words", sentence_names, np.minimum(num_unknown[sentence_indices], 2)))
    length_names = ["spans of 1 word", "spans of 2 words", "spans of 3 or more words"]
    groups.append(items.group("span length in words", length_names, np.minimum(np.array(lengths), 3) - 1))
    sizes = np.array([len(sentence.words) for sentence in sentences])
    groups.append(
        items.group_bands("sentence length in words", "spans in sentences of {} words", sizes[sentence_indices])
    )
    return items, groups


def build_word_items(
    sentences: Sequence[TaggedSentence], vocabulary: TagVocabulary, training: TrainingSummary | None
) -> tuple[ScoredItems, list[SliceGroup]]:
    """Returns the words with slices by tag, word and sentence."""
    sizes = np.array([len(sentence.words) for sentence in sentences])
    sentence_indices = np.repeat(np.arange(len(sentences)), sizes)
    true = list(chain.from_iterable(sentence.true for sentence in sentences))
    predicted = chain.from_iterable(sentence.predicted for sentence in sentences)
    words = list(chain.from_iterable(sentence.words for sentence in sentences))
    is_correct = np.array([a == b for a, b in zip(true, predicted)])
    sums = np.stack([is_correct, np.ones(len(is_correct))], axis=1)
    items = ScoredItems(TOKEN_ACCURACY, "words", sums, sentence_indices, len(sentences), "sentences")
    groups = []
    names = sorted({*true})
    if len(names) <= MAX_NAMES:
        positions = np.array([names.index(tag) for tag in true])
        groups.append(items.group("tag", [f"words tagged {name}" for name in names], positions))
    seen = find_seen(words, training)
    if seen is not None:
        seen_names = ["words seen in training", "words unseen in training"]
        groups.append(items.group("words unseen in training", seen_names, (~seen).astype(np.int64)))
    is_unknown = np.array([vocabulary.get_word_id(word) == vocabulary.tokenizer.unknown for word in words])
    if is_unknown.any():
        groups.append(items.group("unknown words", ["known words", "unknown words"], is_unknown.astype(np.int64)))
    groups.append(
        items.group_bands("sentence length in words", "words in sentences of {} words", sizes[sentence_indices])
    )
    return items, groups


def build_confusions(sentences: Sequence[TaggedSentence], has_spans: bool) -> list[CountMatrix]:
    """Returns the confusions of each word's tag or span type, and of spans how many errors of each kind there are."""

    def simplify(tag: str) -> str:
        return tag.partition("-")[2] or tag if has_spans else tag

    pairs = [(simplify(a), simplify(b)) for sentence in sentences for a, b in zip(sentence.true, sentence.predicted)]
    names = sorted({name for pair in pairs for name in pair}, key=lambda name: (name != OUTSIDE, name))
    rows = {name: index for index, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, tuple(np.array([[rows[a], rows[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2).T), 1)
    what = "type of each word's span" if has_spans else "tag of each word"
    matrices = [build_confusion_matrix(f"Confusion matrix: {what}", names, counts, "tags")]
    if has_spans:
        types = [name for name in names if name != OUTSIDE]
        spans = [(extract_spans(sentence.true), extract_spans(sentence.predicted)) for sentence in sentences]
        explanation = (
            "Of the true spans, and of spans predicted where there is none (spurious, by their predicted type). "
            "Wrong boundary: another span of the same type overlaps. Both wrong: one of another type does."
        )
        span_counts = count_span_errors(spans, types)
        matrices.append(CountMatrix("Spans by kind of error", types, KINDS, span_counts, "type", "kind", explanation))
    return matrices


def list_worst(sentences: Sequence[TaggedSentence], has_spans: bool) -> Listing:
    """Returns the sentences with the highest loss among those with an error."""
    wrong = [sentence for sentence in sentences if list(sentence.true) != list(sentence.predicted)]
    rows = []
    for sentence in sorted(wrong, key=lambda each: -each.loss)[:NUM_WORST]:
        parts = [list_parts(sentence.words, tags, has_spans) for tags in (sentence.true, sentence.predicted)]
        expected, predicted = (
            " ".join(text for text in own if text not in other) or "–" for own, other in (parts, parts[::-1])
        )
        rows.append((sentence.loss, expected, predicted, " ".join(sentence.words)))
    note = "The highest loss, −log P of all true tags together, among sentences with an error; only what differs."
    return Listing("Worst examples", ("loss (nats)", "expected", "predicted", "sentence"), rows, note)


def list_parts(words: Sequence[str], tags: Sequence[str], has_spans: bool) -> list[str]:
    """Returns the spans of a sentence as text, "[ORG Bank of Oslo]", or each word with its plain tag."""
    if not has_spans:
        return [f"{word}/{tag}" for word, tag in zip(words, tags)]
    return [f"[{span_type} {' '.join(words[start:end])}]" for span_type, start, end in extract_spans(tags)]
