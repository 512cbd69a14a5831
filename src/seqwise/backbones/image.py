"""Pictures → regions: what a decoder attends to. They know nothing of captions.

Each encoder gives one vector per region of a picture, and reads every picture by itself: nothing is normalised over
the batch, so the loss of a batch is the sum of the losses of its rows.

- `Convolutional`: strided 3 × 3 convolutions down to a small grid, each place a region.
- `Patches`: the pixels of each patch through one matrix, then a Transformer encoder (Dosovitskiy et al. 2021).
- `Features`: vectors that another program computed, through one matrix.
- `Frames`: one of the first two for each frame of a clip, with positions over time.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.memory import Memory
from seqwise.layers.norm import EPSILON, LayerNorm
from seqwise.layers.positions import LearnedPositions, SinusoidalPositions
from seqwise.layers.record import record_value
from seqwise.layers.transformer import Encoder, EncoderLayer, PreNormEncoderLayer
from seqwise.resolved_settings import ResolvedSettings, ResolvedTransformerSettings

GRID = 8  # most regions along a side, unless set
FRAME_GRID = 4  # the same for one frame of a clip, which has many
CHANNELS = 3


def build_image_encoder(settings: ResolvedSettings, inputs: int, longest: int) -> nn.Module:
    """The encoder of a resolved run, called as `encoder(pictures, lengths) → Memory`.

    `inputs` is the width of ready features, `longest` the most regions one picture has of these.
    """
    caption, network = settings.caption, settings.network
    width, size = network.width, caption.image_size
    encoder: nn.Module
    if caption.encoder == "features":
        return Features(inputs, width, longest)
    if caption.encoder == "patches":
        encoder = Patches(width, size, caption.patch, network.depth, settings.transformer, network.dropout)
    else:
        encoder = Convolutional(width, size, caption.blocks, caption.grid)
    return Frames(encoder) if caption.frames else Still(encoder)


def scaled(pixels: Tensor, like: Tensor) -> Tensor:
    """Numbers 0 … 255 as numbers -1 … 1."""
    return pixels.to(like.dtype) / 127.5 - 1


class Convolution(nn.Module):
    """y = W ∗ x + b with a 3 × 3 kernel over (B, height, width, C); a stride of 2 halves the sides, rounded up.

    Weights start normal with variance 2 / inputs (He et al. 2015), as ReLU silences half of them.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        nn.init.normal_(self.convolution.weight, std=math.sqrt(2 / (9 * inputs)))
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        # A view with channels first, whose memory has them last: the layout that processors like best.
        return self.convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class PictureNorm(nn.Module):
    """y = weight · (x − mean) / √(variance + ε) + bias over all places and channels of one picture.

    A group norm with one group (Wu & He 2018). A norm over the channels of each place would blow up the noise of an
    empty background to the strength of an edge: on builtin:shapes (width 128, 25 s of one core) the loss is 0.16 with
    this norm, 0.21 with that one.
    """

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[1:], eps=EPSILON) * self.weight + self.bias
        record_value(self, "norm", y)
        return y


class Residual(nn.Module):
    """x + W₂ ∗ relu(W₁ ∗ norm(x)): pre-norm, as in the Transformer layers. The sum starts as x alone."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = PictureNorm(width)
        self.inward, self.outward = Convolution(width, width), Convolution(width, width)
        nn.init.zeros_(self.outward.convolution.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outward(F.relu(self.inward(self.norm(x))))


class Convolutional(nn.Module):
    """Stages that halve the sides and double the channels, until at most `grid` × `grid` places of `width` are left.

    A stage is relu(norm(convolution)) and `blocks` residual blocks. Learned positions are added at the end: behind
    convolutions alone every place would look alike, and nothing could be told to be left of something else.
    """

    def __init__(self, width: int, size: int, blocks: int = 0, grid: int = GRID):
        super().__init__()
        stages = max(1, math.ceil(math.log2(size / grid)))
        channels = [CHANNELS, *(max(8, width >> (stages - 1 - i)) for i in range(stages - 1)), width]
        self.stage = nn.ModuleList()
        self.side = size
        for inputs, outputs in pairwise(channels):
            parts = [Convolution(inputs, outputs, stride=2), PictureNorm(outputs), nn.ReLU()]
            self.stage.append(nn.Sequential(*parts, *(Residual(outputs) for _ in range(blocks))))
            self.side = -(-self.side // 2)
        self.width, self.norm = width, LayerNorm(width)
        self.mix = Convolution(width, width)  # each region learns of its neighbours
        self.positions = LearnedPositions(width, self.side**2)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, S, S, 3) → (B, regions, width), row by row of the grid."""
        x = scaled(pixels, self.positions.weight)
        for number, stage in enumerate(self.stage):
            x = stage(x)
            record_value(self, f"stage.{number}.maps", x)
        x = self.norm(x + F.relu(self.mix(x)))
        return self.positions(x.flatten(1, 2))


class Patches(nn.Module):
    """Patches of `patch` × `patch` pixels, each through one matrix, learned positions, and a Transformer encoder.

    The last patches of a side that is no multiple are filled up with black.
    """

    def __init__(
        self, width: int, size: int, patch: int, depth: int, settings: ResolvedTransformerSettings, dropout: float = 0.0
    ):
        super().__init__()
        self.width, self.patch, self.side = width, patch, -(-size // patch)
        self.enter = nn.Linear(CHANNELS * patch**2, width)
        nn.init.normal_(self.enter.weight, std=self.enter.in_features**-0.5)
        nn.init.zeros_(self.enter.bias)
        self.positions = LearnedPositions(width, self.side**2)
        kind = PreNormEncoderLayer if settings.norm == "pre" else EncoderLayer
        heads, hidden = settings.heads, settings.hidden
        self.encoder = Encoder([kind(width, heads, hidden, settings.activation, dropout) for _ in range(depth)])

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, S, S, 3) → (B, patches, width), row by row of the grid."""
        missing = self.side * self.patch - pixels.shape[1]
        pixels = F.pad(pixels, (0, 0, 0, missing, 0, missing))
        x = scaled(pixels, self.enter.weight)
        x = x.unflatten(2, (self.side, self.patch)).unflatten(1, (self.side, self.patch))  # (B, side, P, side, P, 3)
        x = self.positions(self.enter(x.transpose(2, 3).flatten(3, 5).flatten(1, 2)))
        return self.encoder(x, causal=False)[0]


class Still(nn.Module):
    """One picture per row."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder
        self.width: int = encoder.width  # type: ignore[assignment]

    def forward(self, pixels: Tensor, lengths: Tensor | None = None) -> Memory:
        regions = self.encoder(pixels)
        record_value(self, "regions", regions)
        return Memory(regions)


class Frames(nn.Module):
    """A clip per row: each frame by itself, brought to at most 4 × 4 regions, with sinusoidal positions over time."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder = encoder
        self.width: int = encoder.width  # type: ignore[assignment]
        self.grid = min(FRAME_GRID, int(encoder.side))  # type: ignore[arg-type]
        self.time = SinusoidalPositions(self.width)

    def forward(self, pixels: Tensor, lengths: Tensor | None = None) -> Memory:
        """(B, F, S, S, 3) → (B, F · regions, width); frames beyond a row's length are padding."""
        rows, frames = pixels.shape[:2]
        x = self.encoder(pixels.flatten(0, 1)).transpose(1, 2)  # (B · F, width, regions)
        x = F.adaptive_avg_pool2d(x.unflatten(2, (int(self.encoder.side), -1)), self.grid)  # type: ignore[arg-type]
        x = x.flatten(2).unflatten(0, (rows, frames)).permute(0, 3, 1, 2)  # (B, regions, F, width)
        x = self.time(x).transpose(1, 2).flatten(1, 2)
        record_value(self, "regions", x)
        return Memory(x, None if lengths is None else lengths * self.grid**2)


class Features(nn.Module):
    """Ready vectors through one matrix and a norm, with learned positions: the order of regions may tell a place."""

    def __init__(self, inputs: int, width: int, longest: int):
        super().__init__()
        self.width = width
        self.enter = nn.Linear(inputs, width)
        nn.init.normal_(self.enter.weight, std=inputs**-0.5)
        nn.init.zeros_(self.enter.bias)
        self.norm, self.positions = LayerNorm(width), LearnedPositions(width, longest)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Memory:
        """(B, R, W) → (B, R, width); regions beyond a row's length are padding."""
        regions = self.positions(self.norm(self.enter(features.to(self.enter.weight.dtype))))
        record_value(self, "regions", regions)
        return Memory(regions, lengths)


def moved(pixels: Tensor, shift: int, flip: bool) -> Tensor:
    """Augmentation: each picture (…, S, S, 3) of the batch moved by up to `shift` pixels, and perhaps mirrored.

    What comes in at an edge repeats it. All frames of a clip move together. Draws from PyTorch's generator.
    """
    rows, size = pixels.shape[0], pixels.shape[-2]
    places = torch.arange(size, device=pixels.device)
    if shift:
        by = torch.randint(-shift, shift + 1, (2, rows, 1), device=pixels.device)
        down, right = (places + by).clamp(0, size - 1)  # (B, S) each
    else:
        down = right = places.expand(rows, size)
    if flip:
        mirrored = torch.rand(rows, 1, device=pixels.device) < 0.5
        right = torch.where(mirrored, right.flip(1), right)
    row = torch.arange(rows, device=pixels.device)[:, None, None]
    taken = pixels.movedim((-3, -2), (1, 2))[row, down[:, :, None], right[:, None, :]]  # (B, S, S, …, 3)
    return taken.movedim((1, 2), (-3, -2))
