"""The language model: embedding, backbone, next-token head; and how it writes on. The task is in `task.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import torch
from torch import Tensor, nn

from seqwise.backbones.build import build_backbone
from seqwise.backbones.states import ModelState
from seqwise.data.batch import TokenBatch
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.families import get_family
from seqwise.heads.next_token import NextToken
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, SampledSoftmax
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.ngram_model import NGramModel
from seqwise.text.streaming import TextStream
from seqwise.text.tokenizer import Tokenizer


class LanguageModel(nn.Module):
    """Embedding, backbone, next-token head.

    With the `counts` of the training tokens (V,) a new model already predicts each token by its frequency. Otherwise
    the first updates would teach recurrent states a constant for that, and saturate their gates. They also say how
    often the sampled softmax draws a token. A model whose weights are loaded needs no counts.
    """

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None):
        super().__init__()
        network = settings.network
        dropout, width = network.dropout, network.embedding
        self.embedding = Embedding(vocabulary, width)
        self.backbone = build_backbone(settings, width)
        self.stateful: bool = self.backbone.stateful  # type: ignore[assignment]
        self.head = NextToken(self._output(settings, vocabulary, counts))
        self._begin(counts)
        kind = VariationalDropout if self.stateful else nn.Dropout
        self.drop_in, self.drop_out = kind(dropout), kind(dropout if self.stateful else 0.0)

    def _output(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None) -> nn.Module:
        width: int = self.backbone.width  # type: ignore[assignment]
        tied = self.embedding.weight if settings.network.tie_weights else None
        if settings.network.output == "adaptive":
            return AdaptiveSoftmax(width, vocabulary, [vocabulary // 10, vocabulary // 2])
        if settings.network.output == "sampled":
            return SampledSoftmax(width, vocabulary, settings.network.samples, tied, counts)
        return FullSoftmax(width, vocabulary, tied)

    @torch.no_grad()
    def _begin(self, counts: Tensor | None) -> None:
        """Initial weights that the layers cannot know of."""
        matrix, bias = getattr(self.head.output, "weight", None), getattr(self.head.output, "bias", None)
        if not self.stateful:
            # States behind a final norm are long; short rows keep the first scores near the frequencies.
            # On PTB at 60 updates: validation perplexity 480 against 538 with rows of length 1.
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
            if matrix is not None and matrix is not self.embedding.weight:
                nn.init.normal_(matrix, std=EMBEDDING_STD)
        if counts is not None and bias is not None:
            bias.copy_(torch.log((counts + 1) / (counts.sum() + len(counts))))

    def forward(self, batch: TokenBatch, carry: ModelState = None) -> tuple[Loss, ModelState]:
        """Summed loss of the batch's targets, and the carry for the batch that continues it."""
        losses, carry = self.losses(batch, carry)
        return total(losses, batch.mask), carry

    def losses(self, batch: TokenBatch, carry: ModelState = None) -> tuple[Tensor, ModelState]:
        """The loss of each target (B, T), also of those that do not count, and the carry."""
        states = self.backbone(self.drop_in(self.embedding(batch.ids)), carry)
        return self.head.losses(self.drop_out(states.vectors), batch.targets), states.state

    def next(self, ids: Tensor, carry: ModelState = None) -> tuple[Tensor, ModelState]:
        """Read ids (B, T); log-probabilities (B, V) of the token after them."""
        if not self.stateful and carry is None:
            ids = ids[:, -self.backbone.window :]  # type: ignore[operator]
        states = self.backbone(self.embedding(ids), carry)
        return self.head(states.vectors[:, -1]), states.state


Model = LanguageModel | NGramModel


def build_model(settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None) -> Model:
    """Returns the model of a resolved run, untrained."""
    if get_family(settings.model).has_gradients:
        return LanguageModel(settings, vocabulary, counts)
    return NGramModel(settings.context.length, vocabulary)


def write_on(
    model: Model, tokenizer: Tokenizer, prompt: str, choice: SamplingOptions, seed: int, longest: int
) -> Iterator[str]:
    """Continue the prompt; pieces of text as they come, at most `longest` tokens. An empty prompt begins a line."""
    ids = tokenizer.encode(prompt).ids
    if not len(ids):
        ids = tokenizer.encode("\n").ids
    weight = next(model.eval().parameters(), None)
    prompt_ids = torch.tensor(ids[None], device="cpu" if weight is None else weight.device)
    chosen = islice(generate(model, prompt_ids, choice, seed), longest)
    return _as_text(chosen, TextStream(tokenizer, ids), blank=not prompt[-1:].isspace())


def _as_text(chosen: Iterator[Tensor], stream: TextStream, blank: bool) -> Iterator[str]:
    """Pieces that are not empty. After a prompt that ends in a blank, words bring no second one."""
    texts = chain((stream.add(int(number)) for number in chosen), (stream.end() for _ in range(1)))
    for number, text in enumerate(filter(None, texts)):
        yield text if blank or number or stream.is_exact else text.removeprefix(" ")
