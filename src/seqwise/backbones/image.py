"""Image encoders: images → region vectors, the memory that a decoder attends to. They know nothing of captions.

Each encoder returns one vector per region of an image and reads every image by itself: nothing is normalised over the
batch, so the loss of a batch is the sum of the losses of its images. In this module S is the side of an image in
pixels, F the number of frames and R the number of regions.

- `ConvolutionalEncoder`: strided 3 × 3 convolutions down to a small grid, each cell a region.
- `PatchEncoder`: the pixels of each patch through one matrix, then a Transformer encoder (Dosovitskiy et al. 2021).
- `FeatureEncoder`: vectors that another program computed, through one matrix.
- `ClipEncoder`: one of the first two for each frame of a clip, with positions over time.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.memory import Memory
from seqwise.layers.norm import LayerNorm
from seqwise.layers.positions import LearnedPositions, SinusoidalPositions
from seqwise.layers.record import record_value
from seqwise.layers.transformer import Encoder, EncoderLayer, PreNormEncoderLayer
from seqwise.resolved_settings import ResolvedSettings, ResolvedTransformerSettings

MAX_GRID = 8  # regions along a side, unless the settings say otherwise
MAX_FRAME_GRID = 4  # the same for one frame of a clip, which has many
CHANNELS = 3


def build_image_encoder(settings: ResolvedSettings, feature_width: int, max_regions: int) -> nn.Module:
    """Returns the encoder of a run, called as `encoder(images, lengths) → Memory`.

    `feature_width` and `max_regions` describe precomputed features; pixels need neither.
    """
    caption, network = settings.caption, settings.network
    width, size = network.width, caption.image_size
    encoder: nn.Module
    if caption.encoder == "features":
        return FeatureEncoder(feature_width, width, max_regions)
    if caption.encoder == "patches":
        encoder = PatchEncoder(width, size, caption.patch, network.depth, settings.transformer, network.dropout)
    else:
        encoder = ConvolutionalEncoder(width, size, caption.blocks, caption.grid)
    return ClipEncoder(encoder) if caption.frames else ImageEncoder(encoder)


def normalize_pixels(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns pixels 0 … 255 as numbers -1 … 1."""
    return pixels.to(dtype) / 127.5 - 1


def build_linear(inputs: int, outputs: int) -> nn.Linear:
    """Returns a linear layer whose initial weights keep the variance of its input; its initial bias is zero."""
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=inputs**-0.5)
    nn.init.zeros_(linear.bias)
    return linear


class Convolution(nn.Module):
    """y = W ∗ x + b with a 3 × 3 kernel over (B, height, width, C); a stride of 2 halves the sides, rounded up.

    Weights are initialised from a normal distribution with variance 2 / inputs (He et al. 2015), for ReLU.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        nn.init.normal_(self.convolution.weight, std=math.sqrt(2 / (9 * inputs)))
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        # A view with channels first over memory with channels last: the fastest layout for convolutions.
        return self.convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class ImageNorm(nn.Module):
    """y = weight · (x − mean) / √(variance + ε) + bias over all positions and channels of one image.

    A group norm with one group (Wu & He 2018). A norm over the channels of each position would amplify the noise of an
    empty background to the strength of an edge: on builtin:shapes (width 128, 25 s of one core) the loss is 0.16 with
    this norm and 0.21 with a norm over channels.
    """

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[1:]) * self.weight + self.bias
        record_value(self, "norm", y)
        return y


class ResidualBlock(nn.Module):
    """x + W₂ ∗ relu(W₁ ∗ norm(x)): pre-norm, as in the Transformer layers. The initial W₂ is zero: the identity."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = ImageNorm(width)
        self.conv1, self.conv2 = Convolution(width, width), Convolution(width, width)
        nn.init.zeros_(self.conv2.convolution.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.relu(self.conv1(self.norm(x))))


class ConvolutionalEncoder(nn.Module):
    """Stages that halve the sides and double the channels, until at most `grid` × `grid` regions of `width` are left.

    A stage is relu(norm(convolution)) and `blocks` residual blocks. Learned positions are added at the end, because
    convolutions alone do not encode where in the image a region is.
    """

    def __init__(self, width: int, size: int, blocks: int = 0, grid: int = MAX_GRID):
        super().__init__()
        stages = max(1, math.ceil(math.log2(size / grid)))
        channels = [CHANNELS, *(max(8, width >> (stages - 1 - i)) for i in range(stages - 1)), width]
        self.stage = nn.ModuleList()
        self.image_size = self.side = size
        for inputs, outputs in pairwise(channels):
            layers = [Convolution(inputs, outputs, stride=2), ImageNorm(outputs), nn.ReLU()]
            self.stage.append(nn.Sequential(*layers, *(ResidualBlock(outputs) for _ in range(blocks))))
            self.side = -(-self.side // 2)
        self.width, self.norm = width, LayerNorm(width)
        self.mix = Convolution(width, width)  # exchanges information between neighbouring regions
        self.positions = LearnedPositions(width, self.side**2)

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns the regions (B, regions, width) of pixels (B, S, S, 3), row by row of the grid."""
        x = normalize_pixels(pixels, self.positions.weight.dtype)
        for index, stage in enumerate(self.stage):
            x = stage(x)
            record_value(self, f"stage.{index}.maps", x)
        x = self.norm(x + F.relu(self.mix(x)))
        return self.positions(x.flatten(1, 2))


class PatchEncoder(nn.Module):
    """Patches of `patch` × `patch` pixels, each through one matrix, learned positions, and a Transformer encoder.

    A side that is no multiple of `patch` is padded with black.
    """

    def __init__(
        self, width: int, size: int, patch: int, depth: int, settings: ResolvedTransformerSettings, dropout: float = 0.0
    ):
        super().__init__()
        self.width, self.patch, self.side = width, patch, -(-size // patch)
        self.input_projection = build_linear(CHANNELS * patch**2, width)
        self.positions = LearnedPositions(width, self.side**2)
        layer_class = PreNormEncoderLayer if settings.norm == "pre" else EncoderLayer
        sizes, attention_dropout = (width, settings.heads, settings.hidden), settings.attention_dropout
        self.encoder = Encoder(
            [
                layer_class(*sizes, settings.activation, dropout, attention_dropout=attention_dropout)
                for _ in range(depth)
            ]
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns the patches (B, patches, width) of pixels (B, S, S, 3), row by row of the grid."""
        padding = self.side * self.patch - pixels.shape[1]
        pixels = F.pad(pixels, (0, 0, 0, padding, 0, padding))
        x = normalize_pixels(pixels, self.input_projection.weight.dtype)
        x = x.unflatten(2, (self.side, self.patch)).unflatten(1, (self.side, self.patch))  # (B, side, P, side, P, 3)
        x = self.positions(self.input_projection(x.transpose(2, 3).flatten(3, 5).flatten(1, 2)))
        return self.encoder(x, causal=False)[0]


class ImageEncoder(nn.Module):
    """Encodes one image per example."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder
        self.width: int = encoder.width  # type: ignore[assignment]

    def forward(self, pixels: Tensor, lengths: Tensor | None = None) -> Memory:
        """Returns the regions of pixels (B, S, S, 3) as a memory; `lengths` are those of clips, which images ignore."""
        regions = self.encoder(pixels)
        record_value(self, "regions", regions)
        return Memory(regions)


class ClipEncoder(nn.Module):
    """Encodes one clip per example: each frame by itself, pooled to at most 4 × 4 regions, with sinusoidal positions
    over time."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder
        self.width: int = encoder.width  # type: ignore[assignment]
        self.grid = min(MAX_FRAME_GRID, int(encoder.side))  # type: ignore[arg-type]
        self.time = SinusoidalPositions(self.width)

    def forward(self, pixels: Tensor, lengths: Tensor | None = None) -> Memory:
        """Returns a memory (B, F · regions, width) of pixels (B, F, S, S, 3), padded after each clip's length."""
        batch_size, frames = pixels.shape[:2]
        x = self.encoder(pixels.flatten(0, 1)).transpose(1, 2)  # (B · F, width, regions)
        x = F.adaptive_avg_pool2d(x.unflatten(2, (int(self.encoder.side), -1)), self.grid)  # type: ignore[arg-type]
        x = x.flatten(2).unflatten(0, (batch_size, frames)).permute(0, 3, 1, 2)  # (B, regions, F, width)
        x = self.time(x).transpose(1, 2).flatten(1, 2)
        record_value(self, "regions", x)
        return Memory(x, None if lengths is None else lengths * self.grid**2)


class FeatureEncoder(nn.Module):
    """Encodes precomputed vectors by one matrix and a norm, with learned positions: the order of regions may matter."""

    def __init__(self, inputs: int, width: int, max_regions: int):
        super().__init__()
        self.width = width
        self.input_projection = build_linear(inputs, width)
        self.norm, self.positions = LayerNorm(width), LearnedPositions(width, max_regions)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Memory:
        """Returns a memory (B, R, width) of features (B, R, inputs), padded after each image's number of regions."""
        regions = self.positions(self.norm(self.input_projection(features.to(self.input_projection.weight.dtype))))
        record_value(self, "regions", regions)
        return Memory(regions, lengths)


def shift_and_flip(images: Tensor, max_shift: int, flip: bool) -> Tensor:
    """Augments each image (…, S, S, 3): moves it by up to `max_shift` pixels, and mirrors half of the images if `flip`.

    The edge is repeated where an image moves inwards. All frames of a clip move together. Uses PyTorch's
    global random generator.
    """
    batch_size, size = images.shape[0], images.shape[-2]
    device = images.device
    positions = torch.arange(size, device=device)
    if max_shift:
        shifts = torch.randint(-max_shift, max_shift + 1, (2, batch_size, 1), device=device)
        rows, columns = (positions + shifts).clamp(0, size - 1)  # (B, S) each
    else:
        rows = columns = positions.expand(batch_size, size)
    if flip:
        is_flipped = torch.rand(batch_size, 1, device=device) < 0.5
        columns = torch.where(is_flipped, columns.flip(1), columns)
    batch = torch.arange(batch_size, device=device)[:, None, None]
    shifted = images.movedim((-3, -2), (1, 2))[batch, rows[:, :, None], columns[:, None, :]]  # (B, S, S, …, 3)
    return shifted.movedim((1, 2), (-3, -2))
