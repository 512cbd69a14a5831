"""Checks of the data: warnings from reading it, duplicates in the training split, and labels that look wrong."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqwise.errors import pluralize
from seqwise.lens.health_checks.evidence import CheckResult, RunEvidence
from seqwise.lens.subject import evaluation_mode
from seqwise.page.figures import Finding
from seqwise.tasks.classify.model import predict_log_probabilities
from seqwise.tasks.classify.task import encode, get_label_ids
from seqwise.tasks.corpus_task import CHARACTER_NGRAM_LENGTH, NGRAM_LENGTH, CorpusTask, hash_ngrams
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.inspection import choose_evenly
from seqwise.tasks.tag.model import EncodedSentences, TagVocabulary, find_document_casings
from seqwise.tasks.training_summary import hash_texts

DUPLICATES, MANY_DUPLICATES = 0.05, 0.2  # share of the training split that repeats another part of it
CONFIDENT, VERY_UNLIKELY = 0.95, 0.02  # probability of the predicted answer, and of the given label
MIN_ACCURACY = 0.7
MAX_CONFIDENT_ERRORS = 0.1  # share of the confident answers that contradict the label; above, confidence means little
MAX_EXAMPLES = 2_000  # of each split
NUM_SHOWN = 8
MAX_TEXT = 200  # characters of a text in a command
MAX_WARNINGS = 5


def check_warnings(evidence: RunEvidence) -> CheckResult:
    """Repeats the warnings from reading the data: examples in several splits, contradictory labels, and others."""
    if evidence.task is None:
        return evidence.explain_missing_data()
    warnings = evidence.task.warnings()
    if not warnings:
        return []
    more = f"; and {len(warnings) - MAX_WARNINGS} more" if len(warnings) > MAX_WARNINGS else ""
    text = f"Reading the data gave {pluralize(len(warnings), 'warnings')}."
    shown = "; ".join(warning.rstrip(".") for warning in warnings[:MAX_WARNINGS]) + more
    return [Finding(text=text, severity="note", evidence=shown, command=suggest_check(evidence))]


def suggest_check(evidence: RunEvidence) -> str:
    """Returns the command that reports on the data."""
    return shlex.join(["seqwise", "check", evidence.trained.run.metadata.data])


def check_duplicates(evidence: RunEvidence) -> CheckResult:
    """Reports a training split of which 5 % repeats another part of it: a warning from 20 % on.

    Examples are compared as a whole; of a running text, sequences of 32 tokens (128 characters).
    """
    task = evidence.task
    if task is None:
        return evidence.explain_missing_data()
    if isinstance(task, ExampleTask):
        hashes, unit = hash_texts(map(task.identify, task.splits.parts["train"])), task.example_unit
    elif isinstance(task, CorpusTask):
        length = CHARACTER_NGRAM_LENGTH if task.tokenizer.kind == "characters" else NGRAM_LENGTH
        chunk = next(hash_ngrams(task.stores["train"], length), None)
        hashes, unit = (np.zeros(0) if chunk is None else chunk[1]), f"sequences of {length} tokens"
    else:
        return "windows of a series overlap"
    share = 1 - len(np.unique(hashes)) / max(1, len(hashes))
    if share < DUPLICATES:
        return []
    return [
        Finding(
            text=f"{share:.0%} of the training {unit} are duplicates: they count several times.",
            severity="warning" if share >= MANY_DUPLICATES else "note",
            evidence=f"{len(np.unique(hashes)):,} of {len(hashes):,} {unit} are different",
            command=suggest_check(evidence),
        )
    ]


@dataclass(frozen=True)
class ScoredLabel:
    """An example with its given label, and the probabilities of both the given and the predicted one."""

    text: str
    label: str
    predicted: str
    probability: float  # of the predicted label
    label_probability: float  # of the given label
    location: str  # split, file and line

    @property
    def is_suspicious(self) -> bool:
        return self.probability >= CONFIDENT and self.label_probability <= VERY_UNLIKELY


def check_labels(evidence: RunEvidence) -> CheckResult:
    """Reports examples that look mislabelled.

    The given label has a probability of at most 2 % where the predicted one has at least 95 %. It is checked only if
    the model is right for 70 % of the split, and for 90 % of the examples of which it is confident.
    """
    suspicious = find_suspicious_labels(evidence)
    if isinstance(suspicious, str):
        return suspicious
    total = sum(count for _, count in suspicious)
    examples = [example for found, _ in suspicious for example in found]
    if not examples:
        return []
    examples.sort(key=lambda each: each.label_probability)
    shown = "; ".join(
        f"{each.text[:60]!r} is labelled {each.label!r}, predicted {each.predicted!r} ({each.probability:.0%}; "
        f"{each.location})"
        for each in examples[:3]
    )
    words = ["seqwise", "inspect", str(evidence.trained.run.folder), examples[0].text, "--view", "attribution"]
    return [
        Finding(
            text=f"{len(examples)} of {total:,} examples look{'s' * (len(examples) == 1)} mislabelled: the model is "
            "confident of another label.",
            severity="warning" if len(examples) >= 0.01 * total else "note",
            evidence=shown,
            command=shlex.join(words) if len(examples[0].text) <= MAX_TEXT else "",
        )
    ]


def find_suspicious_labels(evidence: RunEvidence) -> list[tuple[list[ScoredLabel], int]] | str:
    """Returns (suspicious examples, number of examples) of each split; or why they cannot be found. It scores once."""
    if evidence.suspicious_labels is None:
        evidence.suspicious_labels = _find_suspicious_labels(evidence)
    return evidence.suspicious_labels


def _find_suspicious_labels(evidence: RunEvidence) -> list[tuple[list[ScoredLabel], int]] | str:
    if evidence.trained.settings.task not in ("classify", "tag"):
        return "the task has no labels"
    if evidence.task is None:
        return evidence.explain_missing_data()
    if not evidence.has_weights:
        return evidence.explain_missing_examples()
    results, reason = [], ""
    for split in ("valid", "train"):
        scored = score_labels(evidence, split)
        if not scored:  # of sentences that are too long
            reason = reason or f"no example of the {split} split can be scored"
            continue
        accuracy = float(np.mean([each.label == each.predicted for each in scored]))
        confident = [each for each in scored if each.probability >= CONFIDENT]
        errors = float(np.mean([each.label != each.predicted for each in confident])) if confident else 1.0
        if accuracy < MIN_ACCURACY:
            reason = f"the model is right for only {accuracy:.0%} of the {split} split"
        elif errors > MAX_CONFIDENT_ERRORS:
            reason = f"{errors:.0%} of the confident answers on the {split} split contradict the labels"
        else:
            results.append(([each for each in scored if each.is_suspicious], len(scored)))
    return results or reason


def score_labels(evidence: RunEvidence, split: str) -> list[ScoredLabel]:
    """Returns at most MAX_EXAMPLES examples of a split with the probabilities of their labels."""
    assert isinstance(evidence.task, ExampleTask)
    examples = evidence.task.splits.parts[split]
    chosen = [examples[index] for index in choose_evenly(len(examples), MAX_EXAMPLES)]
    with evaluation_mode(evidence.trained.model), torch.no_grad():
        if evidence.trained.settings.task == "classify":
            return score_texts(evidence, split, chosen)
        return score_sentences(evidence, split, chosen, examples)


def score_texts(evidence: RunEvidence, split: str, examples: Sequence[Any]) -> list[ScoredLabel]:
    """Scores the labels of texts."""
    bundle = evidence.trained.bundle
    labels = bundle.preprocessor.attributes["labels"]
    token_ids, label_ids = encode(bundle.preprocessor.tokenizer, examples), get_label_ids(examples, labels)
    scored: dict[int, ScoredLabel] = {}
    for indices, scores in predict_log_probabilities(bundle.model, token_ids, bundle.settings.data.max_length):
        for index, values in zip(indices.tolist(), np.exp(scores)):
            example, best = examples[index], int(values.argmax())
            location = f"{split}, {example.file} line {example.line}"
            probability, label_probability = float(values[best]), float(values[label_ids[index]])
            scored[index] = ScoredLabel(
                example.text, example.label, labels[best], probability, label_probability, location
            )
    return [scored[index] for index in sorted(scored)]


def score_sentences(
    evidence: RunEvidence, split: str, examples: Sequence[Any], documents: Sequence[Any]
) -> list[ScoredLabel]:
    """Scores the tags of whole sentences: the probability of the sequence given, and of the predicted one.

    `documents` are all sentences of the split.
    """
    bundle = evidence.trained.bundle
    vocabulary, model = TagVocabulary.from_preprocessor(bundle.preprocessor), bundle.model
    limit = bundle.settings.data.max_length
    examples = [each for each in examples if len(each.words) <= limit]
    encoded = EncodedSentences(examples, vocabulary, find_document_casings(vocabulary, examples, documents, limit))
    device, scored = model.embedding.weight.device, []
    for start in range(0, len(examples), 64):
        batch = encoded.collate(np.arange(start, min(start + 64, len(examples)))).to(device)
        states, predicted = model.states(batch), model.decode(batch)
        mask = torch.arange(batch.tag_ids.shape[1], device=device) < batch.lengths[:, None]
        predicted = torch.where(mask, predicted, 0)
        label_probabilities = (-model.head.losses(states, batch.tag_ids, batch.lengths)).exp().tolist()
        best_probabilities = (-model.head.losses(states, predicted, batch.lengths)).exp().tolist()
        for index, example in enumerate(examples[start : start + 64]):
            length = len(example.words)
            names = [
                " ".join(vocabulary.tags[i] for i in ids[index, :length].tolist()) for ids in (batch.tag_ids, predicted)
            ]
            text = " ".join(example.words)
            probabilities = best_probabilities[index], label_probabilities[index]
            scored.append(ScoredLabel(text, names[0], names[1], *probabilities, f"the {split} split"))
    return scored
