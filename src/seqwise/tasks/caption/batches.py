"""Turns captions into batches of token ids, each next to its image. It knows nothing of files or models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.data.batch import Batch
from seqwise.data.buckets import pad_sequences
from seqwise.tasks.caption.images import ImageSet
from seqwise.tasks.caption.reader import CaptionedImage
from seqwise.text.patterns import END
from seqwise.text.tokenizer import Tokenizer

PAD, BEGIN = "<pad>", "<bos>"
SPECIAL_TOKENS = (PAD, BEGIN, END)


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
    """The captions of a split as token ids, and the image that each belongs to."""

    def __init__(self, examples: Sequence[CaptionedImage], images: ImageSet, tokenizer: Tokenizer):
        self.examples, self.images, self.tokenizer = examples, images, tokenizer
        self.token_ids = tokenizer.encode_many([caption for example in examples for caption in example.captions])
        self.example_indices = np.repeat(np.arange(len(examples)), [len(example.captions) for example in examples])
        self.image_indices = np.array([example.index for example in examples], dtype=np.int64)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each caption with its <eos>."""
        return [len(ids) + 1 for ids in self.token_ids]

    def collate(self, indices: np.ndarray, max_length: int) -> CaptionBatch:
        """Returns the batch of these captions, cut to `max_length` tokens."""
        images, lengths = self.images.collate(self.image_indices[self.example_indices[indices]])
        begin, end = self.tokenizer.id(BEGIN), self.tokenizer.id(END)
        return CaptionBatch(
            *shift_captions([self.token_ids[index] for index in indices], begin, end, max_length),
            torch.from_numpy(images),
            None if lengths is None else torch.from_numpy(lengths),
            positions=torch.from_numpy(np.asarray(indices, dtype=np.int64)),
        )


def shift_captions(
    captions: Sequence[np.ndarray], begin: int, end: int, max_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns inputs that start with `begin`, targets that finish with `end`, and the mask of targets, each (B, T).

    Captions are cut to `max_length`. A caption that is cut has no `end`: the model must not learn to stop there.
    """
    ids = torch.from_numpy(pad_sequences([np.append(begin, caption)[:max_length] for caption in captions]))
    targets = torch.from_numpy(pad_sequences([np.append(caption, end)[:max_length] for caption in captions]))
    lengths = torch.tensor([min(max_length, len(caption) + 1) for caption in captions])
    return ids, targets, torch.arange(ids.shape[1]) < lengths[:, None]
