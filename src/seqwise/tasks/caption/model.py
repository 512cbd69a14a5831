"""The captioning model: an image encoder and a writer over its regions. It knows nothing of files or of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.image import build_image_encoder, moved
from seqwise.backbones.memory import Memory
from seqwise.data.batch import Batch
from seqwise.data.buckets import pad_sequences
from seqwise.layers.dropout import VariationalDropout
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.writing import Writer


@dataclass(frozen=True)
class CaptionBatch(Batch):
    """Pictures, each with the tokens of one caption.

    `pictures` are pixels (B, S, S, 3), frames (B, F, S, S, 3) or features (B, R, W); `lengths` (B,) says how many of
    the frames or regions of a row are real.
    """

    position_unit = "caption"

    ids: Tensor  # (B, T) int64: the caption behind <bos>
    targets: Tensor  # (B, T) int64: the caption before <eos>
    mask: Tensor  # (B, T) bool: the targets that are there
    pictures: Tensor
    lengths: Tensor | None = None

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.mask.sum())


def marked(rows: Sequence[np.ndarray], begin: int, end: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Captions as inputs behind `begin`, targets before `end`, and which targets are there, each (B, T ≤ longest).

    What lies beyond `longest` is cut off. A caption that was cut has no end: the model must not learn to stop there.
    """
    ids = torch.from_numpy(pad_sequences([np.append(begin, row)[:longest] for row in rows]))
    targets = torch.from_numpy(pad_sequences([np.append(row, end)[:longest] for row in rows]))
    lengths = torch.tensor([min(longest, len(row) + 1) for row in rows])
    return ids, targets, torch.arange(ids.shape[1]) < lengths[:, None]


class Captioner(nn.Module):
    """Image encoder and writer.

    `inputs` is the width of ready features and `regions` the most of them a picture has; pixels need neither. With the
    `counts` of the training tokens a new model already predicts each token by its frequency.
    """

    def __init__(
        self, settings: ResolvedSettings, vocabulary: int, inputs: int, regions: int, counts: Tensor | None = None
    ):
        super().__init__()
        caption, longest = settings.caption, settings.data.max_length + 1
        self.encoder = build_image_encoder(settings, inputs, regions)
        width: int = self.encoder.width  # type: ignore[assignment]
        self.writer = Writer(settings, vocabulary, width, longest, caption.attention, counts=counts)
        self.drop = VariationalDropout(settings.network.dropout)
        self.smoothing, self.flip = caption.label_smoothing, caption.flip
        self.shift = 0 if caption.encoder == "features" else caption.shift
        self.pixels = caption.encoder != "features"

    def forward(self, batch: CaptionBatch, carry: None = None) -> tuple[Loss, None]:
        """Summed loss of the captions' tokens."""
        memory = self.look(batch.pictures, batch.lengths)
        smoothing = self.smoothing if self.training else 0.0
        return self.writer.loss(memory, batch.ids, batch.targets, batch.mask, smoothing), None

    def look(self, pictures: Tensor, lengths: Tensor | None = None) -> Memory:
        """The regions of each picture; in training the pictures are moved a little first."""
        if self.training and self.pixels and (self.shift or self.flip):
            pictures = moved(pictures, self.shift, self.flip)
        memory = self.encoder(pictures, lengths)
        return Memory(self.drop(memory.vectors), memory.lengths)
