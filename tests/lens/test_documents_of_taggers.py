"""Views of a tagger that reads the casing of words in the whole document: they see what an evaluation sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import seqwise
from seqwise.lens.errors import errors
from seqwise.lens.health_checks.data import score_labels
from seqwise.lens.health_checks.evidence import RunEvidence
from seqwise.lens.horizon import horizon
from seqwise.tasks.tag.features import CAPITALIZED, LOWER_CASE
from seqwise.tasks.tag.inspection import score_tag
from seqwise.tasks.tag.model import EncodedSentences, TagBatch, TagVocabulary
from seqwise.tasks.tag.spans import split_long_sentences
from seqwise.training.api import TrainedModel

DOCUMENT = """-DOCSTART- O

Reading B-LOC
won O

he O
likes O
reading O
in O
Reading B-LOC

Ann B-PER
met O
Bob B-PER

"""
LIMIT = 4  # words that are read at once: a sentence has more


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("documents")
    for name, count in (("train", 10), ("valid", 8), ("test", 2)):
        (folder / f"{name}.conll").write_text(DOCUMENT * count)
    settings = {"task": "tag", "model": "lstm", "budget": "300-tokens", "device": "cpu",
                "network": {"width": 8, "embedding": 4}, "tag": {"features": 4, "characters": 4},
                "data": {"max_length": LIMIT}}  # fmt: skip
    return seqwise.train(str(folder), settings=settings, out=folder / "run")


def read_pieces(trained: TrainedModel) -> list:
    _, sentences, _ = trained.task.select_examples(trained.bundle, trained.run.metadata.data, "valid")
    return split_long_sentences(sentences, LIMIT)


def compute_losses(trained: TrainedModel, pieces: list) -> list[np.ndarray]:
    """Returns -log p of the true tag of each word, as in an evaluation of all pieces."""
    encoded = EncodedSentences(pieces, TagVocabulary.from_preprocessor(trained.run.preprocessor))
    losses = []
    with torch.no_grad():
        for index, piece in enumerate(pieces):
            batch = encoded.collate(np.array([index]))
            tags = batch.tag_ids[0].tolist()
            model = trained.model.eval()
            scores = [score_tag(model, batch, position, tags[position]) for position in range(len(piece.words))]
            losses.append(-torch.stack(scores).numpy())
    return losses


def test_an_inspected_example_has_the_casings_of_its_document(trained: TrainedModel):
    examples = trained.task.inspect_split(trained.bundle, trained.run.metadata.data, "valid", 2)
    assert [each.tokens[0] for each in examples] == ["Reading"] * 2
    assert [each.batch.casings.tolist() for each in examples] == [[[LOWER_CASE, 0]]] * 2, "of a later sentence"
    given = trained.task.inspect_text(trained.bundle, "he reads Reading")
    assert given.batch.casings.tolist() == [[0, 0, 0]], "a text is a document of its own"
    given = trained.task.inspect_text(trained.bundle, "a A b B")
    assert given.batch.casings.tolist() == [[CAPITALIZED, LOWER_CASE] * 2]


def test_the_whole_visible_context_has_the_losses_of_an_evaluation(trained: TrainedModel):
    pieces = read_pieces(trained)
    expected = np.concatenate([
        loss for piece, loss in zip(pieces, compute_losses(trained, pieces)) if piece.words != ("Reading",)
    ])  # fmt: skip
    (values,) = horizon(trained, num_targets=10_000).data.values()
    assert values["losses"][-1] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_errors_and_health_of_some_sentences_read_whole_documents(trained: TrainedModel, monkeypatch):
    read: list[list[int]] = []

    class RecordedSentences(EncodedSentences):
        def collate(self, indices: np.ndarray) -> TagBatch:
            read.extend(each.tolist() for each in self.casings or [])
            return super().collate(indices)

    monkeypatch.setattr("seqwise.tasks.tag.errors.EncodedSentences", RecordedSentences)
    errors(trained, max_examples=2)
    assert read == [[LOWER_CASE, 0]] * 2, "of the first sentences of two documents"
    read.clear()
    monkeypatch.setattr("seqwise.lens.health_checks.data.EncodedSentences", RecordedSentences)
    monkeypatch.setattr("seqwise.lens.health_checks.data.MAX_EXAMPLES", 2)
    score_labels(RunEvidence(trained), "valid")
    assert read == [[LOWER_CASE, 0]] * 2
