"""The classifier: its batches, its network, its default settings, and predictions of labels.

The module knows ids of tokens and labels, nothing of texts or files. The task that uses it is in `task.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.data.batch import Batch, iterate_by_length, pad_sequences
from seqwise.families import RECURRENT_FAMILIES
from seqwise.heads.label import LabelHead, build_pooling, compute_balanced_weights
from seqwise.heads.ngrams import NGramHead, choose_buckets, limit_buckets
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.losses import Loss, r_drop, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import (
    SAME_WIDTH,
    DefaultsContext,
    SetDefault,
    set_batch_size,
    set_max_epochs,
    set_transformer_defaults,
)

EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS = 256, 16_384  # of a batch in evaluation
LARGE_DATASET = 50_000  # number of examples from which a larger network with less dropout is better


@dataclass(frozen=True)
class TextBatch(Batch):
    """Padded token ids of texts, and their labels."""

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
    """Embedding, encoder, label head; with `classify.ngrams` also an n-gram head beside them.

    The scores are the mean of those of the network and of the n-grams. Each is trained with its own loss: the loss of
    the mean would leave nothing to learn for one of them as soon as the other has memorised the texts.

    With the `counts` (K,) of the training labels an untrained model already predicts each label by its frequency, or,
    if the class weights are balanced, they are computed from the counts. A model whose weights are loaded needs none.

    Training replaces some tokens by the id `unknown`, if there is one: otherwise its vector would never be learned, and
    rare words would be memorised.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabulary_size: int,
        num_labels: int,
        unknown: int | None = None,
        counts: Tensor | None = None,
    ):
        super().__init__()
        network, classify = settings.network, settings.classify
        width, dropout = network.embedding, network.dropout
        self.unknown, self.word_dropout = unknown, classify.word_dropout
        self.smoothing, self.r_drop = classify.label_smoothing, classify.r_drop
        self.embedding = Embedding(vocabulary_size, width)
        # Most words are rare: large random vectors that are hardly ever updated would be noise. After 250,000 tokens
        # of builtin:modules (GRU, width 64, one seed) validation accuracy is 84 %; with vectors of length 1 it is 79 %.
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.encoder = build_encoder(settings, width, settings.data.max_length)
        states_width: int = self.encoder.width  # type: ignore[assignment]
        bidirectional = settings.recurrent.bidirectional and settings.model not in ("feedforward", "transformer")
        pooling = build_pooling(classify.pooling, states_width, states_width // 2 if bidirectional else 0)
        is_balanced = classify.class_weights == "balanced"
        weights = compute_balanced_weights(counts) if counts is not None and is_balanced else None
        self.head = LabelHead(pooling, num_labels, dropout, weights)
        frequencies = None if counts is None or is_balanced else (counts + 1) / (counts.sum() + num_labels)
        if frequencies is not None:
            with torch.no_grad():
                self.head.output.bias.copy_(torch.log(frequencies))
        self.input_dropout = VariationalDropout(dropout)
        self.ngrams: NGramHead | None = None
        if classify.ngrams:
            buckets = classify.ngram_buckets
            self.ngrams = NGramHead(vocabulary_size, num_labels, classify.ngrams, buckets, frequencies)

    def forward(self, batch: TextBatch, state: None = None) -> tuple[Loss, None]:
        """Returns the summed loss of the batch's labels, and no state; in training, smoothed or of R-Drop."""
        if not self.training:
            return total(self.head.losses(self.scores(batch.ids, batch.lengths), batch.labels)), None
        ids, lengths, labels = batch.ids, batch.lengths, batch.labels
        if self.r_drop:
            ids, lengths, labels = (torch.cat([each, each]) for each in (ids, lengths, labels))
        parts = self.compute_scores_by_part(ids, lengths)
        losses = average([self.head.losses(scores, labels, self.smoothing) for scores in parts])
        if self.r_drop:
            return r_drop(losses, average(parts).log_softmax(-1, dtype=losses.dtype), self.r_drop), None
        return total(losses), None

    def scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Returns a score per label, (B, K), for texts of ids (B, T)."""
        return average(self.compute_scores_by_part(ids, lengths))

    def compute_scores_by_part(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Returns the scores (B, K) of the network and, if there are any, of the n-grams."""
        if self.training and self.unknown is not None and self.word_dropout:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.word_dropout, self.unknown)
        states = self.encoder(self.input_dropout(self.embedding(ids)), lengths=lengths)
        scores = self.head(states.vectors, lengths)
        return [scores] if self.ngrams is None else [scores, self.ngrams(ids, lengths)]


def average(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the mean of tensors of the same shape; of a single one, the tensor itself."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors)).mean(0)


def collate(token_ids: Sequence[np.ndarray], labels: np.ndarray, indices: np.ndarray) -> TextBatch:
    """Returns texts, which have these indices in the data, as a batch; padding has id 0."""
    lengths = torch.tensor([len(ids) for ids in token_ids], dtype=torch.int64)
    ids, positions = torch.from_numpy(pad_sequences(token_ids)), torch.from_numpy(np.asarray(indices, dtype=np.int64))
    return TextBatch(ids, lengths, torch.from_numpy(np.asarray(labels, dtype=np.int64)), positions=positions)


@torch.no_grad()
def predict_log_probabilities(
    model: Classifier, token_ids: Sequence[np.ndarray], max_length: int, rank: int = 0, world_size: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (indices of texts, log-probabilities (B, K) of the labels), long texts first; each text on one rank."""
    device = model.embedding.weight.device
    truncated = [ids[:max_length] for ids in token_ids]
    lengths = [len(ids) for ids in truncated]
    model.eval()
    for indices in iterate_by_length(lengths, EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS, rank, world_size):
        batch = collate([truncated[index] for index in indices], np.zeros(len(indices)), indices).to(device)
        yield indices, model.scores(batch.ids, batch.lengths).double().log_softmax(-1).cpu().numpy()


def set_classify_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set: for few labelled texts a small network with strong dropout is best.

    The numbers come from the searches in docs/log.md.
    """
    is_transformer, is_small = settings.model == "transformer", context.num_examples < LARGE_DATASET
    size = f"{context.num_examples:,} texts are {'few' if is_small else 'many'}"
    width = 128 if is_small else 384 if context.cuda else 256
    set_default("network.width", width, size if is_small else f"{size}; {context.machine}")
    depth = 2 if is_transformer or (context.cuda and not is_small) else 1
    set_default("network.depth", depth, f"{settings.model} on {context.machine}; {size}")
    set_default("network.embedding", settings.network.width, SAME_WIDTH)
    if settings.model in RECURRENT_FAMILIES:
        set_default("recurrent.bidirectional", True, "the whole text is known")
    if is_transformer:
        set_transformer_defaults(settings, set_default, settings.network.width // 4, feedforward_ratio=2)
    set_default("classify.pooling", "attention" if is_small else "max", size)
    dropout = (0.3 if is_transformer else 0.5) if is_small else 0.2
    set_default("network.dropout", dropout, f"{size}: few texts need strong dropout")
    if settings.model in RECURRENT_FAMILIES:
        set_default("recurrent.weight_dropout", 0.0, "the dropout of the layers is enough")
    set_default("classify.word_dropout", 0.1, "a model should not depend on single words")
    set_default("classify.label_smoothing", 0.0, "off unless set")
    if settings.classify.ngrams > 1:
        _set_ngram_defaults(settings, context, set_default)
    # Small batches, because few examples need many updates.
    reason = f"{size}: few texts need small batches, and so many updates"
    set_batch_size(min(32 if is_small else 128, context.num_examples // 8), context, set_default, reason)
    if is_small:
        set_max_epochs(4, 700, settings, context, set_default)
    set_default("data.max_tokens", 32_768 if context.cuda else 8_192, f"what {context.machine} reads at once")
    _set_optimisation_defaults(settings, context, set_default, is_small)


def _set_ngram_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Sets as many weights per label as the training data may have n-grams, unless that is too large a file."""
    order, num_labels = settings.classify.ngrams, context.num_labels
    buckets = choose_buckets(context.num_tokens, order, num_labels)
    num_ngrams = context.num_tokens * (order - 1)
    reason = f"one or more per n-gram of the {context.num_tokens:,} training tokens"
    if buckets < num_ngrams and buckets == limit_buckets(num_labels):
        reason = f"{num_labels:,} labels: no more, to keep the file small"
    set_default("classify.ngram_buckets", buckets, reason)


def _set_optimisation_defaults(
    settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault, is_small: bool
) -> None:
    """Sets large learning rates, because most words of a small data set occur only a few times.

    Pretrained vectors need smaller ones: SST-2, LSTM, four epochs, validation accuracy 84.5 % with a rate of 0.003,
    82.2 % with 0.01.
    """
    is_adam = settings.training.is_adam
    has_pretrained_vectors = context.vector_width and not settings.network.freeze_embedding
    rate = 1e-2 if is_small and not has_pretrained_vectors else 3e-3
    if settings.model == "transformer":
        rate = 3e-3 if is_small else 1e-3
    reason = f"for {settings.model} with {settings.training.optimizer}"
    details = f"{'few' if is_small else 'many'} texts{', word vectors' if has_pretrained_vectors else ''}"
    set_default("training.learning_rate", rate if is_adam else 1.0, f"{reason}; {details}")
    set_default("training.weight_decay", 0.01 if is_adam else 1e-6, reason)
    if is_small and is_adam:
        set_default("training.ema", 0.995, "with few texts, updates are noisy and averaged weights are better")
