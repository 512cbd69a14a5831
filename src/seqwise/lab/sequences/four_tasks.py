"""The four tasks of A2 as sequences of vectors, and one backbone that reads all of them.

A vector is a one-hot word, or an image of a few numbers. Words: 0 separates, 1 ends an output, the others are words or
labels. Inputs of the task come first; where the output is a text, its words follow, as in teacher forcing. A target of
IGNORED means that nothing is predicted at that step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwise.layers import GRUCell, OneHot, Recurrent

SEPARATOR, END, FIRST, WORDS, PIXELS = 0, 1, 2, 10, 6
IGNORED = -100
Example = tuple[Tensor, Tensor, int]  # vectors (B, T, D), targets (B, T), steps that are inputs of the task


class Backbone(nn.Module):
    """A GRU over the vectors, with a score for every word at every step."""

    def __init__(self, units: int):
        super().__init__()
        self.embed = nn.Linear(WORDS + PIXELS, units)
        self.layer, self.output = Recurrent(GRUCell(units, units)), nn.Linear(units, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layer(self.embed(x))[0])

    @torch.no_grad()
    def generate(self, x: Tensor, steps: int) -> Tensor:
        """Returns the words (B, steps) that follow x, each fed back as the next input."""
        words: list[Tensor] = []
        state = None
        for _ in range(steps):
            h, state = self.layer(self.embed(x), state)
            words.append(self.output(h[:, -1]).argmax(-1))
            x = to_vectors(words[-1][:, None])
        return torch.stack(words, 1)


def to_vectors(words: Tensor) -> Tensor:
    """Returns words (B, T) as one-hot vectors (B, T, D), with an empty image."""
    return F.pad(OneHot(WORDS)(words), (0, PIXELS))


def draw_sentiment(generator: torch.Generator, batch: int) -> Example:
    """Even words are positive, odd ones negative: which are more? One label after the last word."""
    length = int(torch.randint(3, 7, (1,), generator=generator)) * 2 - 1
    words = torch.randint(FIRST, WORDS, (batch, length), generator=generator)
    targets = torch.full_like(words, IGNORED)
    targets[:, -1] = FIRST + ((words % 2).sum(1) > length / 2).long()
    return to_vectors(words), targets, length


def draw_tagging(generator: torch.Generator, batch: int) -> Example:
    """A word after one of four titles is a name, of a kind that depends on the title. One tag per word."""
    length = int(torch.randint(4, 12, (1,), generator=generator))
    words = torch.randint(FIRST, WORDS, (batch, length), generator=generator)
    before = F.pad(words[:, :-1], (1, 0), value=WORDS)
    tags = torch.where(before < FIRST + 4, FIRST + 1 + before % 2, FIRST)
    return to_vectors(words), tags, length


def draw_translation(generator: torch.Generator, batch: int) -> Example:
    """Words up to 5 stay one word, higher ones become two; so lengths of source and target differ."""
    length = int(torch.randint(2, 4, (1,), generator=generator))
    source = torch.randint(FIRST, WORDS, (batch, length), generator=generator)
    rows = [[part for word in row for part in ([word] if word < 6 else [word, word - 4])] for row in source.tolist()]
    prompt = torch.cat([to_vectors(source), to_vectors(torch.full((batch, 1), SEPARATOR))], 1)
    return append_text(prompt, rows, source.shape[1])


def draw_caption(generator: torch.Generator, batch: int) -> Example:
    """An image of a noisy colour and shape, perhaps twice: "two", colour, shape. The image is the only input."""
    colour, shape = torch.randint(3, (2, batch), generator=generator)
    is_double = torch.rand(batch, generator=generator) < 0.5
    pixels = 0.1 * torch.randn(batch, PIXELS, generator=generator)
    rows_index = torch.arange(batch)
    pixels[rows_index, colour] += 1
    pixels[rows_index, 3 + shape] += 1 + is_double.float()
    named = zip(is_double.tolist(), (FIRST + 1 + colour).tolist(), (FIRST + 4 + shape).tolist(), strict=True)
    rows = [([FIRST] if double else []) + [first, second] for double, first, second in named]
    image = torch.cat([torch.zeros(batch, WORDS), pixels], 1)[:, None]
    return append_text(image, rows, 1)


def append_text(prompt: Tensor, rows: list[list[int]], inputs: int) -> Example:
    """Returns the prompt followed by the words of each row, and targets that are one step ahead, with an end."""
    longest = max(map(len, rows))
    words = torch.tensor([row + [END] * (longest - len(row)) for row in rows])
    targets = torch.tensor([row + [END] + [IGNORED] * (longest - len(row)) for row in rows])
    before = torch.full((len(rows), prompt.shape[1] - 1), IGNORED)
    return torch.cat([prompt, to_vectors(words)], 1), torch.cat([before, targets], 1), inputs


def compute_loss(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """Returns the cross-entropy of every output; steps without an output have none."""
    losses = F.cross_entropy(model(x).flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return losses[targets.flatten() != IGNORED]
