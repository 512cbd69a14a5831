"""The GPU kernel, or Triton's interpreter of it where there is no GPU: its gradients are those of the equation."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
import torch

from seqwise.errors import NonFiniteError, UsageError
from seqwise.vectors.corpus import EncodedCorpus, Vocabulary
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.training import build_trainer

gpu = pytest.importorskip("seqwise.vectors.word2vec.gpu_trainer", reason="triton is not installed")

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"


def build_corpus(ids, vocabulary_size: int) -> EncodedCorpus:
    """Returns a corpus of ids, where -1 ends a sentence."""
    ids = np.asarray(ids, dtype=np.int32)
    file = tempfile.TemporaryFile()  # noqa: SIM115  `EncodedCorpus` closes it
    file.write(ids.tobytes())
    file.flush()
    counts = np.maximum(np.bincount(ids[ids >= 0], minlength=vocabulary_size), 1)
    names = [f"w{number}" for number in range(vocabulary_size)]
    return EncodedCorpus(file, Vocabulary(names, counts, vocabulary_size), int((ids >= 0).sum()), len(ids))


def limit_launch(monkeypatch, programs: int = 1, groups: int = 1) -> None:
    monkeypatch.setattr(gpu, "MAX_PROGRAMS", programs)
    monkeypatch.setattr(gpu, "NUM_GROUPS", groups)


def softplus(x: float) -> float:
    return float(np.logaddexp(0, x))


def compute_loss(u, v, ids, method: str, negative: int) -> tuple[float, int]:
    """Returns the loss of all pairs of adjacent words, where every negative is word 0; and the number of pairs."""
    total, pairs = 0.0, 0
    for position, word in enumerate(ids):
        if word < 0:
            continue
        neighbours = [p for p in (position - 1, position + 1) if 0 <= p < len(ids) and ids[p] >= 0]
        if not neighbours:
            continue
        hidden = (
            [u[ids[p]] for p in neighbours]
            if method == "skipgram"
            else [np.mean([u[ids[p]] for p in neighbours], axis=0)]
        )
        for h in hidden:
            total += softplus(-h @ v[word]) + (negative * softplus(h @ v[0]) if word != 0 else 0.0)
            pairs += 1
    return total, pairs


def differentiate(u, v, ids, method: str, negative: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the gradient of that loss by finite differences."""
    gradients = []
    for matrix in (u, v):
        gradient = np.zeros_like(matrix)
        for index in np.ndindex(matrix.shape):
            original = matrix[index]
            matrix[index] = original + 1e-5
            above = compute_loss(u, v, ids, method, negative)[0]
            matrix[index] = original - 1e-5
            below = compute_loss(u, v, ids, method, negative)[0]
            matrix[index] = original
            gradient[index] = (above - below) / 2e-5
        gradients.append(gradient)
    return gradients[0], gradients[1]


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_one_kernel_launch_follows_the_gradient_and_sums_the_loss(monkeypatch, method):
    limit_launch(monkeypatch)
    monkeypatch.setattr(gpu, "PRECISION", "ieee")
    monkeypatch.setattr(gpu, "CHUNK_WIDTH", 16)  # two chunks of columns, the second not full
    ids, vocabulary_size, dim, rate = [1, 2, 3, 0, 2, -1, 4, 1, -1, 3, 2, 1, -1, 4, -1], 5, 20, 0.1
    settings = VectorSettings(
        method=method, dim=dim, window=1, negative=3, subsample=0, epochs=1, learning_rate=rate
    ).resolve()
    trainer = gpu.GpuWord2VecTrainer(build_corpus(ids, vocabulary_size), settings, DEVICE)
    trainer.threshold.zero_().sub_(1)  # no slot keeps its own word:
    trainer.alias.zero_()  # every draw is word 0
    random = np.random.default_rng(1)
    u, v = random.normal(size=(vocabulary_size, dim)), random.normal(size=(vocabulary_size, dim))
    trainer.inputs.copy_(torch.from_numpy(u).float())
    trainer.outputs.copy_(torch.from_numpy(v).float())
    for _ in trainer.steps():
        pass
    expected, pairs = compute_loss(u, v, ids, method, 3)
    assert trainer.losses[0] == pytest.approx(expected / pairs, rel=1e-5)
    grad_u, grad_v = differentiate(u, v, ids, method, 3)
    np.testing.assert_allclose((trainer.inputs.cpu().numpy() - u) / -rate, grad_u, atol=1e-4)
    np.testing.assert_allclose((trainer.outputs.cpu().numpy() - v) / -rate, grad_v, atol=1e-4)


def test_negatives_follow_their_weights_and_windows_have_the_right_reach(monkeypatch):
    """With zero vectors the loss is log 2 for each term, so it shows how many terms there are."""
    limit_launch(monkeypatch, groups=4)
    settings = VectorSettings(dim=4, window=5, negative=5, subsample=0, epochs=1, learning_rate=1e-9).resolve()
    trainer = gpu.GpuWord2VecTrainer(build_corpus([*range(60), -1], 60), settings, DEVICE)
    trainer.inputs.zero_()
    for _ in trainer.steps():
        pass
    loss, pairs = trainer._tally[0].sum(dim=0).tolist()
    assert 60 * 2 * 2.2 < pairs < 60 * 2 * 3.6  # the mean reach is 3, less at both ends
    assert loss / pairs == pytest.approx((1 + 5 * (1 - 1 / 60)) * np.log(2), rel=0.02)  # a negative may be the word


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_the_loss_falls_and_the_same_seed_gives_the_same_losses(monkeypatch, method):
    limit_launch(monkeypatch, groups=8)
    random = np.random.default_rng(0)
    pairs = random.integers(0, 6, 60)
    ids = np.stack([2 * pairs, 2 * pairs + 1, np.full(60, -1)], axis=1).reshape(-1)  # 0 beside 1, 2 beside 3, …
    settings = VectorSettings(method=method, dim=16, window=2, subsample=0, epochs=6, learning_rate=0.3).resolve()
    trainer = gpu.GpuWord2VecTrainer(build_corpus(ids, 12), settings, DEVICE)
    steps = [step for step in trainer.steps() if step.is_epoch_end]
    assert [step.epoch for step in steps] == list(range(6))
    assert steps[-1].progress == 1
    losses = trainer.losses
    assert losses[-1] < 0.8 * losses[0]
    second_trainer = gpu.GpuWord2VecTrainer(build_corpus(ids, 12), settings, DEVICE)
    for _ in second_trainer.steps():
        pass
    np.testing.assert_allclose(second_trainer.losses, losses, rtol=1e-4)


def test_small_vocabularies_and_high_learning_rates_use_fewer_programs():
    settings = VectorSettings().resolve()
    assert gpu.choose_num_programs(np.full(10_000, 5), settings) == gpu.MAX_PROGRAMS
    assert gpu.choose_num_programs(np.full(400, 5), settings) == 32
    assert gpu.choose_num_programs(np.full(400, 5), VectorSettings(learning_rate=0.05).resolve()) == 16
    assert gpu.choose_num_programs(np.full(400, 5), VectorSettings(window=10).resolve()) == 16
    assert gpu.choose_num_programs(np.full(400, 5), VectorSettings(window=10, method="cbow").resolve()) == 32
    assert gpu.choose_num_programs(np.array([10**9, 1]), settings) == 1


def test_divergence_is_an_error(monkeypatch):
    limit_launch(monkeypatch, groups=2)
    settings = VectorSettings(dim=8, subsample=0, epochs=3, learning_rate=1e6).resolve()
    trainer = gpu.GpuWord2VecTrainer(build_corpus([0, 1, 2, 3, 4, -1] * 20, 5), settings, DEVICE)
    with pytest.raises(NonFiniteError, match="smaller --learning-rate"):
        for _ in trainer.steps():
            pass


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "glove"}, "only skipgram and cbow"),
        ({"loss": "softmax"}, "only skipgram and cbow"),
        ({"subwords": True}, "only skipgram and cbow"),
        ({"window": 25}, "windows wider than 24"),
    ],
)
def test_unsupported_settings_raise_an_error_with_device_cuda(changes, reason):
    settings = VectorSettings(device="cuda", **changes).resolve()
    with pytest.raises(UsageError, match=reason):
        build_trainer(build_corpus([0, 1, -1], 2), settings)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_gpu_and_cpu_train_vectors_of_the_same_quality(method):
    """A corpus of two topics: the same loss on both, and the right neighbours."""
    random = np.random.default_rng(3)
    topics = random.integers(0, 2, 4_000)
    words = random.integers(0, 50, (4_000, 12)) + 50 * topics[:, None]
    ids = np.concatenate([words, np.full((4_000, 1), -1)], axis=1).reshape(-1)
    losses, accuracies = [], []
    for device in ("cpu", "cuda"):
        settings = VectorSettings(method=method, dim=32, subsample=0, device=device, epochs=5, threads=2).resolve()
        trainer = build_trainer(build_corpus(ids, 100), settings)
        for _ in trainer.steps():
            pass
        losses.append(trainer.losses[-1])
        vectors = trainer.export_vectors()
        normalized = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosine = normalized @ normalized.T - 2 * np.eye(100)
        accuracies.append(np.mean(cosine.argmax(axis=1) // 50 == np.arange(100) // 50))
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
    assert accuracies == [1.0, 1.0]
