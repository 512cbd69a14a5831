"""The compiled skip-gram loop against the plain NumPy implementation, with the same random draws."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.data.corpus.sources import open_unsplit
from seqwise.vectors.corpus import EncodedCorpus, encode_corpus
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec import reference
from seqwise.vectors.word2vec.trainer import Word2VecTrainer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> EncodedCorpus:
    """Two blocks of text, with words that occur twice in a window."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    ranks = (60 * random.random(12_000) ** 2).astype(int)
    lines = np.split(ranks, np.cumsum(random.integers(1, 25, 1_200))[:-1].clip(max=len(ranks)))
    path.write_text("\n".join(" ".join(f"w{rank}" for rank in line) for line in lines) + "\n")
    return encode_corpus(open_unsplit(path), min_count=1)


@pytest.mark.parametrize(
    "changes", [{}, {"dim": 33, "window": 2, "negative": 20}, {"subsample": 0, "learning_rate": 0.1, "seed": 5}]
)
def test_the_compiled_loop_computes_what_the_reference_computes(corpus, changes):
    settings = VectorSettings(**{"dim": 20, "epochs": 2, "subsample": 0.01, "threads": 1, **changes}).resolve()
    trainer = Word2VecTrainer(corpus, settings)
    for _ in trainer.steps():
        pass
    vectors, losses = reference.train_skipgram(corpus, settings)
    assert trainer.losses == pytest.approx(losses, rel=1e-5)
    assert np.abs(vectors).max() > 0.2  # they have left their initial values, at most 0.025
    assert np.abs(trainer.export_vectors() - vectors).max() < 1e-4
