"""The classifier as a model: its batches, its scores, and what it makes of texts whose labels are known.

It knows token ids and numbers of labels, nothing of texts or files. The task that uses it is in `task.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.data.batch import Batch
from seqwise.data.buckets import iterate_by_length, pad_sequences
from seqwise.heads.label import Label, balanced, build_pooling
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.classify.metrics import confusion
from seqwise.tasks.task import ProgressCallback

MOST_TOKENS = 512  # of one text unless set
ROWS, TOKENS = 256, 16_384  # of a batch that is scored


@dataclass(frozen=True)
class TextBatch(Batch):
    """Rows of token ids, padded, and a label for each."""

    ids: Tensor  # (B, T) int64
    lengths: Tensor  # (B,) int64
    labels: Tensor  # (B,) int64

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        return len(self.labels)

    @property
    def num_tokens(self) -> int:
        return int(self.lengths.sum())


class Classifier(nn.Module):
    """Embedding, encoder, label head.

    With the `counts` (K,) of the training labels a new model begins near their frequencies, and knows how much each
    has to weigh where all are to weigh alike. A model whose weights are loaded needs no counts.

    In training some tokens are replaced by `unknown`, where there is such an id: otherwise its vector would never be
    learned, and rare words would be learned by heart.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabulary: int,
        labels: int,
        unknown: int | None = None,
        counts: Tensor | None = None,
    ):
        super().__init__()
        network, classify = settings.network, settings.classify
        width, dropout = network.embedding, network.dropout
        self.unknown, self.word_dropout = unknown, classify.word_dropout
        self.smoothing = classify.label_smoothing
        self.embedding = Embedding(vocabulary, width)
        # Most words are rare: long random vectors of what is hardly ever learned would be noise. After 250,000 tokens
        # of builtin:modules (GRU, width 64, one seed) validation accuracy is 84 %, with vectors of length 1 79 %.
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.encoder = build_encoder(settings, width, settings.data.max_length)
        wide: int = self.encoder.width  # type: ignore[assignment]
        both = settings.recurrent.bidirectional and settings.model not in ("feedforward", "transformer")
        pooling = build_pooling(classify.pooling, wide, wide // 2 if both else 0)
        alike = classify.class_weights == "balanced"
        self.head = Label(pooling, labels, dropout, balanced(counts) if counts is not None and alike else None)
        if counts is not None and not alike:
            with torch.no_grad():
                self.head.output.bias.copy_(torch.log((counts + 1) / (counts.sum() + labels)))
        self.drop_in = VariationalDropout(dropout)

    def forward(self, batch: TextBatch, carry: None = None) -> tuple[Loss, None]:
        """Summed loss of the batch's labels."""
        scores = self.scores(batch.ids, batch.lengths)
        return total(self.head.losses(scores, batch.labels, self.smoothing if self.training else 0.0)), None

    def scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """A score per label, (B, K), of rows of ids (B, T)."""
        if self.training and self.unknown is not None and self.word_dropout:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.word_dropout, self.unknown)
        states = self.encoder(self.drop_in(self.embedding(ids)), lengths=lengths)
        return self.head(states.vectors, lengths)


def collate(rows: Sequence[np.ndarray], labels: np.ndarray, numbers: np.ndarray) -> TextBatch:
    """Rows of different length as a batch; id 0 is that of padding."""
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    ids, positions = torch.from_numpy(pad_sequences(rows)), torch.from_numpy(np.asarray(numbers, dtype=np.int64))
    return TextBatch(ids, lengths, torch.from_numpy(np.asarray(labels, dtype=np.int64)), positions=positions)


@torch.no_grad()
def score(
    model: Classifier, rows: Sequence[np.ndarray], longest: int, rank: int = 0, world: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(numbers of rows, log-probabilities (B, K) of their labels), long rows first; each row once over all ranks."""
    device = model.embedding.weight.device
    cut = [row[:longest] for row in rows]
    model.eval()
    for numbers in iterate_by_length([len(row) for row in cut], ROWS, TOKENS, rank, world):
        batch = collate([cut[number] for number in numbers], np.zeros(len(numbers)), numbers).to(device)
        yield numbers, model.scores(batch.ids, batch.lengths).double().log_softmax(-1).cpu().numpy()


@dataclass(frozen=True)
class Scored:
    """What a model makes of rows whose labels are known. Rows of other ranks have probability 0."""

    nats: float  # summed negative log likelihood of the true labels
    counts: np.ndarray  # (K, K): true labels in rows, predicted ones in columns
    predicted: np.ndarray  # (N,) label of each row
    chances: np.ndarray  # (N,) its probability


def measure(
    model: Classifier,
    rows: Sequence[np.ndarray],
    targets: np.ndarray,
    longest: int,
    rank: int = 0,
    world: int = 1,
    progress: ProgressCallback | None = None,
) -> Scored:
    """Score the rows that belong to a rank."""
    size = model.head.output.out_features
    nats, done, counts = 0.0, 0, np.zeros((size, size), dtype=np.int64)
    predicted, chances = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
    for numbers, logs in score(model, rows, longest, rank, world):
        nats -= float(logs[range(len(numbers)), targets[numbers]].sum())
        predicted[numbers], chances[numbers] = logs.argmax(-1), np.exp(logs.max(-1))
        counts += confusion(targets[numbers], predicted[numbers], size)
        done += len(numbers)
        if progress is not None:
            progress(done, len(rows))
    return Scored(nats, counts, predicted, chances)
