"""The captioning model, an image encoder and a decoder that attends to its regions; and the batches for it.

The module knows nothing of files or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.image import build_image_encoder, shift_and_flip
from seqwise.backbones.memory import Memory
from seqwise.data.batch import Batch, pad_sequences
from seqwise.layers.dropout import VariationalDropout
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.caption.images import ImageSet
from seqwise.tasks.caption.reader import CaptionedImage
from seqwise.tasks.token_decoder import TokenDecoder
from seqwise.text.patterns import END
from seqwise.text.tokenizer import Tokenizer

PAD, BOS, EOS = "<pad>", "<bos>", END
SPECIAL_TOKENS = (PAD, BOS, EOS)


@dataclass(frozen=True)
class CaptionBatch(Batch):
    """Images, each with the tokens of one caption.

    `images` are pixels (B, S, S, 3), frames (B, F, S, S, 3) or features (B, R, W); `lengths` (B,) are the numbers of
    frames or regions that are not padding.
    """

    position_unit = "caption"

    ids: Tensor  # (B, T) int64: <bos> and the caption
    targets: Tensor  # (B, T) int64: the caption and <eos>
    mask: Tensor  # (B, T) bool: the targets that are not padding
    images: Tensor
    lengths: Tensor | None = None

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.mask.sum())


class EncodedCaptions:
    """The captions of a split as token ids, and the index of the example that each belongs to."""

    def __init__(self, examples: Sequence[CaptionedImage], images: ImageSet, tokenizer: Tokenizer):
        self.examples, self.images, self.tokenizer = examples, images, tokenizer
        self.token_ids = tokenizer.encode_many([caption for example in examples for caption in example.captions])
        self.example_indices = np.repeat(np.arange(len(examples)), [len(example.captions) for example in examples])

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each caption, including <eos>."""
        return [len(ids) + 1 for ids in self.token_ids]

    def collate(self, indices: np.ndarray, max_length: int) -> CaptionBatch:
        """Returns the batch of these captions, truncated to `max_length` tokens."""
        images, lengths = self.images.collate([self.examples[i].index for i in self.example_indices[indices]])
        bos_id, eos_id = self.tokenizer.id(BOS), self.tokenizer.id(EOS)
        return CaptionBatch(
            *shift_captions([self.token_ids[index] for index in indices], bos_id, eos_id, max_length),
            torch.from_numpy(images),
            None if lengths is None else torch.from_numpy(lengths),
            positions=torch.from_numpy(np.asarray(indices, dtype=np.int64)),
        )


def shift_captions(
    captions: Sequence[np.ndarray], bos_id: int, eos_id: int, max_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns inputs that start with <bos>, targets that end with <eos>, and the mask of targets, each (B, T).

    A caption that is truncated to `max_length` has no <eos>: the model must not learn to stop there.
    """
    ids = torch.from_numpy(pad_sequences([np.append(bos_id, caption)[:max_length] for caption in captions]))
    targets = torch.from_numpy(pad_sequences([np.append(caption, eos_id)[:max_length] for caption in captions]))
    lengths = torch.tensor([min(max_length, len(caption) + 1) for caption in captions])
    return ids, targets, torch.arange(ids.shape[1]) < lengths[:, None]


class CaptionModel(nn.Module):
    """Image encoder and decoder.

    `feature_width` and `max_regions` describe precomputed features only. With the `counts` of the training
    tokens an untrained model already predicts each token by its frequency.
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
        self.decoder = TokenDecoder(settings, vocabulary_size, width, max_length, caption.attention, counts=counts)
        self.memory_dropout = VariationalDropout(settings.network.dropout)
        self.label_smoothing, self.flip, self.max_shift = caption.label_smoothing, caption.flip, caption.shift
        self.has_pixels = caption.encoder != "features"

    def forward(self, batch: CaptionBatch, state: None = None) -> tuple[Loss, None]:
        """Returns the summed loss of the captions' tokens, and no state."""
        memory = self.encode(batch.images, batch.lengths)
        label_smoothing = self.label_smoothing if self.training else 0.0
        return self.decoder.loss(memory, batch.ids, batch.targets, batch.mask, label_smoothing), None

    def encode(self, images: Tensor, lengths: Tensor | None = None) -> Memory:
        """Returns the regions of each image; in training the images are augmented first."""
        if self.training and self.has_pixels and (self.max_shift or self.flip):
            images = shift_and_flip(images, self.max_shift, self.flip)
        memory = self.encoder(images, lengths)
        return Memory(self.memory_dropout(memory.vectors), memory.lengths)
