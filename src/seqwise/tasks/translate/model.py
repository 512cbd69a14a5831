"""The translation model: one encoder, and a writer for each target or one for all.

    source ids → embedding → encoder → memory → writer → losses (training) or hypotheses (use)

The module knows nothing of text or files. The writer is in `tasks/token_decoder.py`, the search in `decoding/beam.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.memory import Memory
from seqwise.data.batch import Batch
from seqwise.data.buckets import pad_sequences
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources with their targets in N languages: the decoder reads `inputs[:, n]` and predicts `targets[:, n]`."""

    position_unit = "pair"

    source: Tensor  # (B, S) int64
    lengths: Tensor  # (B,) int64
    inputs: Tensor  # (B, N, T) int64: the begin token, then the target
    targets: Tensor  # (B, N, T) int64: the target, then the end token
    mask: Tensor  # (B, N, T) bool: False for padding

    @property
    def length(self) -> int:
        return max(self.source.shape[1], self.targets.shape[2])

    @property
    def num_targets(self) -> int:
        return int(self.mask.sum())


@dataclass(frozen=True)
class BoundaryTokens:
    """The ids of the begin and the end token of each target."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]


def collate(
    sources: Sequence[np.ndarray],
    targets: Sequence[Sequence[np.ndarray]],
    boundaries: BoundaryTokens,
    max_length: int,
) -> PairBatch:
    """Return pairs of ids as a batch; padding has id 0.

    Ids beyond `max_length` are cut off. A target that is cut has no end token: the model must not learn to stop there.
    """
    sources = [row[:max_length] for row in sources]
    inputs, outputs = [], []
    for row in targets:
        for number, ids in enumerate(row):
            truncated = ids[:max_length]
            inputs.append(np.concatenate([[boundaries.begins[number]], truncated]))
            is_cut = len(ids) > max_length
            outputs.append(truncated if is_cut else np.concatenate([truncated, [boundaries.ends[number]]]))
    width = max(len(ids) for ids in inputs)
    shape = (len(sources), len(boundaries.begins), width)
    mask = np.arange(width) < np.array([len(ids) for ids in outputs])[:, None]
    padded = [np.concatenate([ids, np.zeros(width - len(ids), dtype=np.int64)]) for ids in outputs]
    return PairBatch(
        torch.from_numpy(pad_sequences(sources)),
        torch.tensor([len(row) for row in sources], dtype=torch.int64),
        torch.from_numpy(pad_sequences(inputs)).view(shape),
        torch.from_numpy(np.stack(padded).astype(np.int64)).view(shape),
        torch.from_numpy(mask).view(shape),
    )


class Translator(nn.Module):
    """Embedding and encoder of the source, and the writers.

    `vocabularies` has the size of the source's vocabulary and that of each writer. With the `counts` of the target
    tokens the first predictions of a new model are their frequencies. The training loop sets `progress`, the share of
    the training that is done, unless it is None: only scheduled sampling depends on it.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabularies: tuple[int, Sequence[int]],
        counts: Sequence[Tensor] | None = None,
    ):
        super().__init__()
        network, chosen = settings.network, settings.translate
        width, max_length = network.embedding, settings.data.max_length + 1
        source, targets = vocabularies
        transformer = settings.model == "transformer"
        self.embedding = Embedding(source, width)
        if transformer:  # small vectors, as in the language model: states after the final norm are large
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.drop_in = (nn.Dropout if transformer else VariationalDropout)(network.dropout)
        self.encoder = build_encoder(settings, width, max_length)
        memory: int = self.encoder.width  # type: ignore[assignment]
        shared = self.embedding if chosen.vocabulary == "shared" else None
        self.writers = nn.ModuleList(
            TokenDecoder(
                settings, size, memory, max_length, embedding=shared, counts=None if counts is None else counts[number]
            )
            for number, size in enumerate(targets)
        )
        self.smoothing, self.teacher_forcing = chosen.label_smoothing, chosen.teacher_forcing
        self.progress: float | None = 0.0 if self.teacher_forcing < 1 else None

    def forward(self, batch: PairBatch, state: None = None) -> tuple[Loss, None]:
        """Return the summed loss of all targets in all languages, and no state; smoothed in training only."""
        memory = self.encode(batch.source, batch.lengths)
        smoothing = self.smoothing if self.training else 0.0
        losses = []
        for number in range(batch.inputs.shape[1]):
            writer, inputs = self.writer(number), batch.inputs[:, number]
            if self.training and self.true_token_share < 1:
                inputs = self.mix_predictions(writer, memory, inputs)
            losses.append(writer.loss(memory, inputs, batch.targets[:, number], batch.mask[:, number], smoothing))
        return Loss(torch.stack([loss.total for loss in losses]).sum(), sum(loss.counted for loss in losses)), None

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Memory:
        """Return the memory of the sources (B, S), of which the first `lengths` tokens are not padding, or all."""
        return Memory(self.encoder(self.drop_in(self.embedding(ids)), lengths=lengths).vectors, lengths)

    def writer(self, number: int) -> TokenDecoder:
        """Return the writer of a target; a single writer serves all targets."""
        return self.writers[number if len(self.writers) > 1 else 0]  # type: ignore[return-value]

    # Scheduled sampling

    @property
    def true_token_share(self) -> float:
        """The share of decoder inputs that are true tokens at this point of the training."""
        return 1.0 - (self.progress or 0.0) * (1.0 - self.teacher_forcing)

    @torch.no_grad()
    def mix_predictions(self, writer: TokenDecoder, memory: Memory, inputs: Tensor) -> Tensor:
        """Return the inputs with some tokens replaced by the model's own predictions.

        Scheduled sampling (Bengio et al. 2015) in two passes (Mihaylova & Martins 2019), for decoders that read all
        steps at once: the first reads the true tokens, the second the mixture. No gradient flows through the first.
        """
        predicted = writer.logits(writer.read(inputs[:, :-1], None, memory).vectors).argmax(-1)
        is_true = torch.rand(predicted.shape, device=predicted.device) < self.true_token_share
        return torch.cat([inputs[:, :1], torch.where(is_true, inputs[:, 1:], predicted)], dim=1)
