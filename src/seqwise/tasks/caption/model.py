"""The captioning model: an image encoder, and a decoder over its regions. It knows nothing of files or text."""

from __future__ import annotations

from torch import Tensor, nn

from seqwise.backbones.image import build_image_encoder, shift_and_flip
from seqwise.backbones.memory import Memory
from seqwise.layers.dropout import VariationalDropout
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.caption.batches import CaptionBatch
from seqwise.tasks.token_decoder import TokenDecoder


class CaptionModel(nn.Module):
    """Image encoder and decoder.

    `feature_width` and `max_regions` describe ready features; pixels need neither. With the `counts` of the training
    tokens a new model already predicts each token by its frequency.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabulary_size: int,
        feature_width: int,
        max_regions: int,
        counts: Tensor | None = None,
    ):
        super().__init__()
        caption, max_length = settings.caption, settings.data.max_length + 1
        self.encoder = build_image_encoder(settings, feature_width, max_regions)
        width: int = self.encoder.width  # type: ignore[assignment]
        self.writer = TokenDecoder(settings, vocabulary_size, width, max_length, caption.attention, counts=counts)
        self.drop = VariationalDropout(settings.network.dropout)
        self.label_smoothing, self.flip, self.max_shift = caption.label_smoothing, caption.flip, caption.shift
        self.has_pixels = caption.encoder != "features"

    def forward(self, batch: CaptionBatch, state: None = None) -> tuple[Loss, None]:
        """Summed loss of the captions' tokens."""
        memory = self.encode(batch.images, batch.lengths)
        label_smoothing = self.label_smoothing if self.training else 0.0
        return self.writer.loss(memory, batch.ids, batch.targets, batch.mask, label_smoothing), None

    def encode(self, images: Tensor, lengths: Tensor | None = None) -> Memory:
        """Returns the regions of each image; in training the images are augmented first."""
        if self.training and self.has_pixels and (self.max_shift or self.flip):
            images = shift_and_flip(images, self.max_shift, self.flip)
        memory = self.encoder(images, lengths)
        return Memory(self.drop(memory.vectors), memory.lengths)
