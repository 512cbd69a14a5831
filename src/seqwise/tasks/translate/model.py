"""The model of translate: one encoder, and a writer for each target or one for all.

    source ids → embedding → encoder → memory → writer → losses (training) or hypotheses (use)

It knows nothing of text or of files. The writer is explained in `writing.py`, the search in `decoding/beam.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.decoder import Memory
from seqwise.backbones.encoder import build_encoder
from seqwise.data.batch import Batch
from seqwise.data.buckets import pad_sequences
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.writing import Writer


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources, and what is to be written for each in N languages: `targets[:, n]` after `inputs[:, n]`."""

    position_unit = "pair"

    source: Tensor  # (B, S) int64
    lengths: Tensor  # (B,) int64
    inputs: Tensor  # (B, N, T) int64: the token that begins, then the target
    targets: Tensor  # (B, N, T) int64: the target, then the token that ends
    real: Tensor  # (B, N, T) bool: the targets that are there

    @property
    def length(self) -> int:
        return max(self.source.shape[1], self.targets.shape[2])

    @property
    def num_targets(self) -> int:
        return int(self.real.sum())


@dataclass(frozen=True)
class Marks:
    """The ids that begin each target, and the ids that end it."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]


def collate(
    sources: Sequence[np.ndarray], targets: Sequence[Sequence[np.ndarray]], marks: Marks, longest: int
) -> PairBatch:
    """Pairs of ids as a batch; id 0 is that of padding.

    What lies beyond `longest` is cut off. A target that was cut has no end: the model must not learn to stop there.
    """
    sources = [row[:longest] for row in sources]
    inputs, wanted = [], []
    for row in targets:
        for number, ids in enumerate(row):
            kept = ids[:longest]
            inputs.append(np.concatenate([[marks.begins[number]], kept]))
            wanted.append(kept if len(ids) > longest else np.concatenate([kept, [marks.ends[number]]]))
    width = max(len(ids) for ids in inputs)
    shape = (len(sources), len(marks.begins), width)
    real = np.arange(width) < np.array([len(ids) for ids in wanted])[:, None]
    filled = [np.concatenate([ids, np.zeros(width - len(ids), dtype=np.int64)]) for ids in wanted]
    return PairBatch(
        torch.from_numpy(pad_sequences(sources)),
        torch.tensor([len(row) for row in sources], dtype=torch.int64),
        torch.from_numpy(pad_sequences(inputs)).view(shape),
        torch.from_numpy(np.stack(filled).astype(np.int64)).view(shape),
        torch.from_numpy(real).view(shape),
    )


class Translator(nn.Module):
    """Embedding and encoder of the source, and the writers.

    `vocabularies` has the size of the source's vocabulary and that of each writer; `counts` how often each token is to
    be written, so that a new model already predicts by frequency. `progress` is the share of the training that is
    done, as the loop tells it; None where nothing hangs on it.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabularies: tuple[int, Sequence[int]],
        counts: Sequence[Tensor] | None = None,
    ):
        super().__init__()
        network, chosen = settings.network, settings.translate
        width, longest = network.embedding, settings.data.max_length + 1
        source, targets = vocabularies
        transformer = settings.model == "transformer"
        self.embedding = Embedding(source, width)
        if transformer:  # short rows, as in the language model: states behind a final norm are long
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.drop_in = (nn.Dropout if transformer else VariationalDropout)(network.dropout)
        self.encoder = build_encoder(settings, width, longest)
        memory: int = self.encoder.width  # type: ignore[assignment]
        shared = self.embedding if chosen.vocabulary == "shared" else None
        self.writers = nn.ModuleList(
            Writer(settings, size, memory, longest, embedding=shared, counts=None if counts is None else counts[number])
            for number, size in enumerate(targets)
        )
        self.smoothing, self.forced = chosen.label_smoothing, chosen.teacher_forcing
        self.progress: float | None = 0.0 if self.forced < 1 else None

    def forward(self, batch: PairBatch, carry: None = None) -> tuple[Loss, None]:
        """Summed loss of all targets in all languages; smoothed in training only."""
        memory = self.encode(batch.source, batch.lengths)
        smoothing = self.smoothing if self.training else 0.0
        losses = []
        for number in range(batch.inputs.shape[1]):
            writer, inputs = self.writer(number), batch.inputs[:, number]
            if self.training and self.true_share < 1:
                inputs = self.mixed(writer, memory, inputs)
            losses.append(writer.loss(memory, inputs, batch.targets[:, number], batch.real[:, number], smoothing))
        return Loss(torch.stack([loss.total for loss in losses]).sum(), sum(loss.counted for loss in losses)), None

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Memory:
        """What the writers read: ids (B, S) of which the first `lengths` are there, or all."""
        return Memory(self.encoder(self.drop_in(self.embedding(ids)), lengths=lengths).vectors, lengths)

    def writer(self, number: int) -> Writer:
        """The writer of a target; all targets share it where there is one only."""
        return self.writers[number if len(self.writers) > 1 else 0]  # type: ignore[return-value]

    # Scheduled sampling

    @property
    def true_share(self) -> float:
        """How many of the previous tokens are the true ones at this point of the training."""
        return 1.0 - (self.progress or 0.0) * (1.0 - self.forced)

    @torch.no_grad()
    def mixed(self, writer: Writer, memory: Memory, inputs: Tensor) -> Tensor:
        """The inputs with some tokens replaced by what the model itself would have written there.

        Scheduled sampling (Bengio et al. 2015) in two passes (Mihaylova & Martins 2019), for decoders that read all
        steps at once: the first reads the true tokens, the second the mixture. No gradient flows through the first.
        """
        own = writer.logits(writer.read(inputs[:, :-1], None, memory).vectors).argmax(-1)
        true = torch.rand(own.shape, device=own.device) < self.true_share
        return torch.cat([inputs[:, :1], torch.where(true, inputs[:, 1:], own)], dim=1)
