"""The classifier: its batches, its network, its default settings, and predictions of labels.

The module knows token ids and label numbers, nothing of texts or files. The task that uses it is in `task.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.data.batch import Batch, iterate_by_length, pad_sequences
from seqwise.families import RECURRENT
from seqwise.heads.label import LabelHead, balanced_weights, build_pooling
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext, Fill, fill_batch_size, fill_transformer

EVALUATION_ROWS, EVALUATION_TOKENS = 256, 16_384  # of a batch in evaluation
LARGE_DATASET = 50_000  # examples; from this many on, a larger network with less dropout is better


@dataclass(frozen=True)
class TextBatch(Batch):
    """Padded rows of token ids, and the label of each."""

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

    With the `counts` (K,) of the training labels the first predictions of a new model are their frequencies; balanced
    class weights are computed from them. A model whose weights are loaded needs no counts.

    Training replaces some tokens by `unknown`, where there is such an id: otherwise its vector would never be learned,
    and rare words would be memorised.
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
        # Most words are rare: large random vectors that are hardly ever updated would be noise. After 250,000 tokens
        # of builtin:modules (GRU, width 64, one seed) validation accuracy is 84 %, with vectors of length 1 79 %.
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.encoder = build_encoder(settings, width, settings.data.max_length)
        states_width: int = self.encoder.width  # type: ignore[assignment]
        bidirectional = settings.recurrent.bidirectional and settings.model not in ("feedforward", "transformer")
        pooling = build_pooling(classify.pooling, states_width, states_width // 2 if bidirectional else 0)
        is_balanced = classify.class_weights == "balanced"
        weights = balanced_weights(counts) if counts is not None and is_balanced else None
        self.head = LabelHead(pooling, labels, dropout, weights)
        if counts is not None and not is_balanced:
            with torch.no_grad():
                self.head.output.bias.copy_(torch.log((counts + 1) / (counts.sum() + labels)))
        self.drop_in = VariationalDropout(dropout)

    def forward(self, batch: TextBatch, state: None = None) -> tuple[Loss, None]:
        """Returns the summed loss of the batch's labels, and no state."""
        scores = self.scores(batch.ids, batch.lengths)
        return total(self.head.losses(scores, batch.labels, self.smoothing if self.training else 0.0)), None

    def scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Returns a score per label, (B, K), for rows of ids (B, T)."""
        if self.training and self.unknown is not None and self.word_dropout:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.word_dropout, self.unknown)
        states = self.encoder(self.drop_in(self.embedding(ids)), lengths=lengths)
        return self.head(states.vectors, lengths)


def collate(rows: Sequence[np.ndarray], labels: np.ndarray, indices: np.ndarray) -> TextBatch:
    """Returns rows of different lengths as a batch; padding has id 0."""
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    ids, positions = torch.from_numpy(pad_sequences(rows)), torch.from_numpy(np.asarray(indices, dtype=np.int64))
    return TextBatch(ids, lengths, torch.from_numpy(np.asarray(labels, dtype=np.int64)), positions=positions)


@torch.no_grad()
def predict_log_probabilities(
    model: Classifier, rows: Sequence[np.ndarray], max_length: int, rank: int = 0, world_size: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (row indices, log-probabilities (B, K) of the labels), long rows first; each row once over all ranks."""
    device = model.embedding.weight.device
    truncated = [row[:max_length] for row in rows]
    lengths = [len(row) for row in truncated]
    model.eval()
    for indices in iterate_by_length(lengths, EVALUATION_ROWS, EVALUATION_TOKENS, rank, world_size):
        batch = collate([truncated[index] for index in indices], np.zeros(len(indices)), indices).to(device)
        yield indices, model.scores(batch.ids, batch.lengths).double().log_softmax(-1).cpu().numpy()


def fill_classify(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Chooses settings: labelled texts are few, and a small network with strong dropout beats a large one.

    The numbers come from the searches in docs/log.md.
    """
    is_transformer, is_small = settings.model == "transformer", context.examples < LARGE_DATASET
    fill("network.width", 128 if is_small else 384 if context.cuda else 256)
    fill("network.depth", 2 if is_transformer or (context.cuda and not is_small) else 1)
    fill("network.embedding", settings.network.width)
    if settings.model in RECURRENT:
        fill("recurrent.bidirectional", True)
    if is_transformer:
        fill_transformer(settings, fill, settings.network.width // 4, feedforward_ratio=2)
    fill("classify.pooling", "attention" if is_small else "max")
    fill("network.dropout", (0.3 if is_transformer else 0.5) if is_small else 0.2)
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    fill("classify.word_dropout", 0.1)
    fill("classify.label_smoothing", 0.0)
    # Small batches: more updates learn more from few examples.
    fill_batch_size(min(32 if is_small else 128, context.examples // 8), context, fill)
    fill("data.max_tokens", 32_768 if context.cuda else 8_192)
    _fill_optimisation(settings, context, fill, is_small)


def _fill_optimisation(settings: ResolvedSettings, context: DefaultsContext, fill: Fill, is_small: bool) -> None:
    """Sets large learning rates, because most words of a small data set occur only a few times.

    Pretrained vectors need smaller ones: SST-2, LSTM, four epochs, validation accuracy 84.5 % with a rate of 0.003,
    82.2 % with 0.01.
    """
    is_adam = settings.training.optimizer == "adamw"
    has_pretrained_vectors = context.vector_width and not settings.network.freeze_embedding
    rate = 1e-2 if is_small and not has_pretrained_vectors else 3e-3
    if settings.model == "transformer":
        rate = 3e-3 if is_small else 1e-3
    fill("training.learning_rate", rate if is_adam else 1.0)
    fill("training.weight_decay", 0.01 if is_adam else 1e-6)
    if is_small and is_adam:
        fill("training.ema", 0.995)  # few texts make noisy updates: averaged weights are better
