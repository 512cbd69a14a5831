"""Language models of `torch.nn` modules, and the loop that generates with them: what a PyTorch user writes.

`decoding.py` compares Seqwise with it. A model is called as `model(ids, state) → (scores of the last token, state)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.resolved_settings import ResolvedSettings


def build_plain_model(settings: ResolvedSettings, vocabulary: int) -> nn.Module:
    """Returns a model of the same family and sizes."""
    network = settings.network
    if settings.model == "feedforward":
        return PlainFeedForward(vocabulary, network.width, network.depth, settings.context.length)
    if settings.model == "transformer":
        transformer = settings.transformer
        return PlainTransformer(vocabulary, network.width, network.depth, transformer.heads, transformer.hidden)
    if settings.model == "attentive-rnn":
        return PlainAttentiveRNN(vocabulary, network.width, network.depth, settings.recurrent)
    return PlainRNN(vocabulary, network.width, network.depth, settings.model)


@torch.inference_mode()
def generate_plainly(model: nn.Module, prompt: Tensor, choose: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Yields an endless continuation of the prompt (B, T), one id per sequence (B,) at a time."""
    scores, state = model(prompt, None)
    while True:
        ids = choose(scores)
        yield ids
        scores, state = model(ids[:, None], state)


class PlainRNN(nn.Module):
    """`nn.RNN`, `nn.GRU` or `nn.LSTM`, one step per token."""

    def __init__(self, vocabulary: int, width: int, depth: int, cell: str):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = getattr(nn, cell.upper())(width, width, depth, batch_first=True)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        vectors, state = self.rnn(self.embedding(ids), state)
        return self.output(vectors[:, -1]), state


class PlainAttentiveRNN(PlainRNN):
    """The same, and the last state attends to `span` earlier states with one head of scaled dot-product attention."""

    def __init__(self, vocabulary: int, width: int, depth: int, settings: Any):
        super().__init__(vocabulary, width, depth, settings.cell)
        self.span, self.project = settings.attention_span, nn.Linear(width, 3 * width, bias=False)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        state, keys, values = (None, None, None) if state is None else state
        vectors, state = self.rnn(self.embedding(ids), state)
        query, new_keys, new_values = self.project(vectors).chunk(3, -1)
        keys = new_keys if keys is None else torch.cat([keys, new_keys], 1)[:, -self.span - 1 :]
        values = new_values if values is None else torch.cat([values, new_values], 1)[:, -self.span - 1 :]
        context = nn.functional.scaled_dot_product_attention(query[:, -1:], keys, values)
        return self.output((vectors[:, -1:] + context)[:, 0]), (state, keys, values)


class PlainFeedForward(nn.Module):
    """A perceptron over the vectors of the last n tokens; the state is those tokens."""

    def __init__(self, vocabulary: int, width: int, depth: int, window: int):
        super().__init__()
        self.window, self.embedding = window, nn.Embedding(vocabulary, width)
        layers = [nn.Linear(width * (window if number == 0 else 1), width) for number in range(depth)]
        self.layers = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
        self.output = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        ids = ids if state is None else torch.cat([state, ids], 1)
        ids = ids[:, -self.window :]
        return self.output(self.layers(self.embedding(ids).flatten(1))), ids


class PlainTransformer(nn.Module):
    """`nn.TransformerEncoder` with a causal mask, which has no cache: every token reads the whole sequence again."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, hidden: int, max_length: int = 4096):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(max_length, width)
        layer = nn.TransformerEncoderLayer(width, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        ids = ids if state is None else torch.cat([state, ids], 1)
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=ids.device)
        x = self.embedding(ids) + self.positions(torch.arange(length, device=ids.device))
        return self.output(self.encoder(x, mask, is_causal=True)[:, -1]), ids
