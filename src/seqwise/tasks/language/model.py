"""The language model (embedding, backbone, next-token head) and text generation. The task is in `task.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import chain, islice

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_backbone
from seqwise.backbones.registered import is_registered_network
from seqwise.backbones.states import ModelState
from seqwise.backbones.steps import BackboneStep, build_step
from seqwise.data.batch import TokenBatch
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.families import get_family
from seqwise.heads.next_token import NextToken
from seqwise.kernels.packed_linear import PackedLinear
from seqwise.layers.dropout import build_dropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD, log_frequencies
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, MixtureSoftmax, SampledSoftmax
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.ngram import NGramModel
from seqwise.text.tokenizer import TextStream, Tokenizer

STEP_DTYPES = (torch.float32, torch.float64)  # of weights with which `LanguageModel.build_step` works


class LanguageModel(nn.Module):
    """Embedding, backbone, next-token head.

    With the `counts` of the training tokens (V,) an untrained model already predicts each token by its frequency.
    Otherwise recurrent states would learn a constant for that in the first updates, which saturates their gates. The
    sampled softmax also draws tokens by these counts. A model whose weights are loaded needs no counts.
    """

    def __init__(self, settings: ResolvedSettings, vocabulary_size: int, counts: Tensor | None = None):
        super().__init__()
        network = settings.network
        # A Transformer's first position attends to itself alone. If its vector were 0, it would stay 0 in all layers,
        # and the gradient of each norm would be 1/√ε = 316 times as large: infinite after eight layers. A registered
        # network may be a Transformer.
        keep_first = settings.model == "transformer" or is_registered_network(settings)
        self.embedding = Embedding(vocabulary_size, network.embedding, network.embedding_dropout, keep_first)
        self.backbone = build_backbone(settings, network.embedding)
        # Whether training passes the state of one window to the next, as with recurrent backbones.
        self.stateful: bool = self.backbone.stateful  # type: ignore[assignment]
        self.head = NextToken(self._build_output(settings, vocabulary_size, counts))
        self._initialize_weights(counts)
        variational = self.stateful and settings.recurrent.variational_dropout
        self.input_dropout = build_dropout(network.input_dropout, variational)
        self.output_dropout = build_dropout(network.get_output_dropout(self.stateful), variational)
        self.activation_regularization = settings.recurrent.activation_regularization
        self.temporal_regularization = settings.recurrent.temporal_regularization
        if isinstance(self.head.output, MixtureSoftmax):
            self.head.output.dropout = deepcopy(self.output_dropout)

    def _build_output(self, settings: ResolvedSettings, vocabulary_size: int, counts: Tensor | None) -> nn.Module:
        width: int = self.backbone.width  # type: ignore[assignment]
        tied_weight = self.embedding.weight if settings.network.tie_weights else None
        if settings.network.output == "adaptive":
            return AdaptiveSoftmax(width, vocabulary_size, [vocabulary_size // 10, vocabulary_size // 2])
        if settings.network.output == "sampled":
            return SampledSoftmax(width, vocabulary_size, settings.network.samples, tied_weight, counts)
        if settings.network.output == "mixture":
            return MixtureSoftmax(width, vocabulary_size, settings.network.softmaxes, tied_weight)
        return FullSoftmax(width, vocabulary_size, tied_weight)

    @torch.no_grad()
    def _initialize_weights(self, counts: Tensor | None) -> None:
        """Sets the initial weights that depend on the whole model or on the data."""
        matrix, bias = getattr(self.head.output, "weight", None), getattr(self.head.output, "bias", None)
        if not self.stateful:
            # States after a final norm have a large norm; small vectors keep the first scores near the frequencies.
            # PTB after 60 updates: validation perplexity 480, and 538 with vectors of length 1.
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
            if matrix is not None and matrix is not self.embedding.weight:
                nn.init.normal_(matrix, std=EMBEDDING_STD)
        if counts is not None and bias is not None:
            bias.copy_(log_frequencies(counts))

    def forward(self, batch: TokenBatch, state: ModelState = None) -> tuple[Loss, ModelState]:
        """Returns the summed loss of the batch's targets, and the state for the batch that continues it."""
        losses, penalty, state = self._compute_losses(batch, state)
        loss = total(losses, batch.mask)
        return loss if penalty is None else replace(loss, penalty=penalty * loss.num_targets), state

    def losses(self, batch: TokenBatch, state: ModelState = None) -> tuple[Tensor, ModelState]:
        """Returns the loss of each target (B, T), masked ones included, and the state."""
        losses, _, state = self._compute_losses(batch, state)
        return losses, state

    def _compute_losses(self, batch: TokenBatch, state: ModelState) -> tuple[Tensor, Tensor | None, ModelState]:
        """Returns the loss of each target (B, T), the penalty per target, and the state."""
        output = self.backbone(self.input_dropout(self.embedding(batch.ids)), state)
        vectors = self.output_dropout(output.vectors)
        penalty = self._compute_penalty(output.vectors, vectors) if self.training else None
        return self.head.losses(vectors, batch.targets), penalty, output.state

    def _compute_penalty(self, outputs: Tensor, after_dropout: Tensor) -> Tensor | None:
        """Returns the regularisation of the outputs (B, T, D), given before and after dropout; None if there is none.

        α · mean(after_dropout²) + β · mean((h_t − h_{t−1})²) (Merity et al. 2018, section 4.6).
        """
        if not (self.activation_regularization or self.temporal_regularization):
            return None
        penalty = self.activation_regularization * after_dropout.float().square().mean()
        if outputs.shape[1] > 1:
            change = outputs[:, 1:].float() - outputs[:, :-1].float()
            penalty = penalty + self.temporal_regularization * change.square().mean()
        return penalty

    def next(self, ids: Tensor, state: ModelState = None) -> tuple[Tensor, ModelState]:
        """Returns log-probabilities (B, V) of the token after ids (B, T), and the new state."""
        if not self.stateful and state is None:
            ids = ids[:, -self.backbone.window :]  # type: ignore[operator]
        output = self.backbone(self.embedding(ids), state)
        return self.head(output.vectors[:, -1]), output.state

    def build_step(self, state: ModelState) -> LanguageModelStep | None:
        """Returns a faster `next` for one token per sequence, from this state on; None where it does not apply."""
        is_customized = type(self).next is not LanguageModel.next or any(map(_has_hooks, self.modules()))
        weight = self.embedding.weight
        if is_customized or self.training or torch.is_grad_enabled() or torch.is_autocast_enabled(weight.device.type):
            return None
        backbone_step = build_step(self.backbone, state) if weight.dtype in STEP_DTYPES else None
        return None if backbone_step is None else LanguageModelStep(self, backbone_step)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


class LanguageModelStep:
    """A step of generation: one token per sequence, in preallocated memory; see `decoding/steps.py`."""

    def __init__(self, model: LanguageModel, backbone_step: BackboneStep):
        self.backbone_step = backbone_step
        self.prepare_cache, self.get_state = backbone_step.prepare_cache, backbone_step.get_state
        self.embedding_weight, output = model.embedding.weight, model.head.output
        self.project: Callable[[Tensor], Tensor] = model.head
        if isinstance(output, FullSoftmax):
            logits = PackedLinear(output.weight, output.bias, backbone_step.batch_size)
            self.project = lambda vectors: logits(output.project(vectors))

    def advance(self, ids: Tensor) -> Tensor:
        """Returns logits (B, V) of the token after ids (B, 1), or log-probabilities without a full softmax."""
        return self.project(self.backbone_step.advance(torch.embedding(self.embedding_weight, ids[:, 0])))


Model = LanguageModel | NGramModel


def build_model(settings: ResolvedSettings, vocabulary_size: int, counts: Tensor | None = None) -> Model:
    """Returns an untrained model."""
    if get_family(settings.model).has_gradients:
        return LanguageModel(settings, vocabulary_size, counts)
    return NGramModel(settings.context.length, vocabulary_size)


def generate_text(
    model: Model, tokenizer: Tokenizer, prompt: str, sampling: SamplingOptions, seed: int, max_length: int
) -> Iterator[str]:
    """Yields a continuation of the prompt piece by piece, at most `max_length` tokens.

    An empty prompt stands for the beginning of a line.
    """
    ids = tokenizer.encode(prompt).ids
    if not len(ids):
        ids = tokenizer.encode("\n").ids
    weight = next(model.eval().parameters(), None)
    prompt_ids = torch.tensor(ids[None], device="cpu" if weight is None else weight.device)
    tokens = islice(generate(model, prompt_ids, sampling, seed), max_length)
    return _decode_stream(tokens, TextStream(tokenizer, ids), strip_space=prompt[-1:].isspace())


def _decode_stream(tokens: Iterator[Tensor], stream: TextStream, strip_space: bool) -> Iterator[str]:
    """Yields the non-empty pieces of text; `strip_space` removes the space that joins the first word to the prompt."""
    texts = chain((stream.add(int(token)) for token in tokens), (stream.flush() for _ in range(1)))  # `flush` runs last
    for index, text in enumerate(filter(None, texts)):
        yield text.removeprefix(" ") if strip_space and index == 0 and not stream.has_spaces_in_tokens else text
