"""`TokenDecoder`: the decoder of translate and caption, which generates tokens from an encoder's output, the memory.

    ids → embedding → decoder over the memory → next-token head → losses (training) or log-probabilities (inference)

Beam search is in `decoding/beam.py`. This module knows nothing of encoders, images or text.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.decoder import build_decoder
from seqwise.backbones.memory import DecoderOutput, Memory, continue_or_start
from seqwise.backbones.states import ModelState
from seqwise.decoding.sequences import StepOutput
from seqwise.heads.next_token import NextToken
from seqwise.kernels.packed_linear import PackedLinear
from seqwise.layers.dropout import build_dropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD, log_frequencies
from seqwise.layers.output import FullSoftmax
from seqwise.losses import Loss, r_drop
from seqwise.resolved_settings import ResolvedSettings


class TokenDecoder(nn.Module):
    """Embedding, decoder, next-token head over one vocabulary.

    `embedding` may be the encoder's, if both have the same vocabulary. With the `counts` of the training tokens (V,)
    an untrained decoder already predicts each token by its frequency.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabulary_size: int,
        memory_width: int,
        max_length: int,
        attention: str | None = None,
        embedding: Embedding | None = None,
        counts: Tensor | None = None,
    ):
        super().__init__()
        network = settings.network
        dropout, width = network.dropout, network.embedding
        is_transformer = settings.model == "transformer"
        self.embedding = embedding or Embedding(vocabulary_size, width)
        self.decoder = build_decoder(settings, self.embedding.width, memory_width, max_length, attention)
        tied_weight = self.embedding.weight if network.tie_weights else None
        self.head = NextToken(FullSoftmax(self.decoder.width, vocabulary_size, tied_weight))
        self.input_dropout = build_dropout(dropout, variational=not is_transformer)
        self.output_dropout = build_dropout(0.0 if is_transformer else dropout, variational=not is_transformer)
        if is_transformer:  # small vectors, as in the language model: states after a final norm have a large norm
            matrices = [self.embedding.weight] if embedding is None else []
            for matrix in matrices if network.tie_weights else [*matrices, self.output.weight]:
                nn.init.normal_(matrix, std=EMBEDDING_STD)
        if counts is not None:
            with torch.no_grad():
                self.output.bias.copy_(log_frequencies(counts))

    @property
    def output(self) -> FullSoftmax:
        return self.head.output  # type: ignore[return-value]

    # Training

    def losses(self, memory: Memory, inputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the negative log likelihood (B, T) of each target, padding included, after inputs (B, T)."""
        states = self.output_dropout(self.decode(inputs, None, memory).vectors)
        return self._compute_losses(states.flatten(0, 1), targets.flatten(), smoothing).view_as(targets)

    def loss(self, memory: Memory, inputs: Tensor, targets: Tensor, mask: Tensor, smoothing: float = 0.0) -> Loss:
        """Returns the summed loss of the targets in `mask` (B, T). The softmax is computed for these only."""
        states = self.output_dropout(self.decode(inputs, None, memory).vectors)
        losses = self._compute_losses(states[mask], targets[mask], smoothing)
        return Loss(losses.sum(), len(losses))

    def r_drop_loss(
        self, memory: Memory, inputs: Tensor, targets: Tensor, mask: Tensor, smoothing: float, weight: float
    ) -> Loss:
        """Returns the loss of R-Drop, see `losses.r_drop`.

        Memory and inputs hold each sequence twice, first all sequences, then all again, so that dropout gives two
        distributions for each target. `targets` and `mask` hold it once.
        """
        states = self.output_dropout(self.decode(inputs, None, memory).vectors)
        logits = self.logits(states[mask.repeat(2, 1)])
        log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))  # (2N, V)
        nll = F.nll_loss(log_p, targets[mask].repeat(2), reduction="none")
        nll = (1 - smoothing) * nll - smoothing * log_p.mean(-1)
        return r_drop(nll, log_p, weight)

    def _compute_losses(self, vectors: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """Returns the losses (N,) of targets (N,), given the decoder's outputs (N, D).

        With label smoothing ε the target is (1 − ε) one-hot + ε uniform (Szegedy et al. 2016, §7), and the loss is
        nll + ε (l_target − mean of all logits l). That mean is the logit of the weights' mean: no second pass over V.
        """
        losses = self.output.loss(vectors, targets)
        if not smoothing:
            return losses
        projected = self.output.project(vectors)
        target_logits = (projected * F.embedding(targets, self.output.weight)).sum(-1) + self.output.bias[targets]
        mean_logits = projected @ self.output.weight.mean(0) + self.output.bias.mean()
        return losses + smoothing * (target_logits - mean_logits)

    # Inference

    def start(self, memory: Memory) -> ModelState:
        """Returns the initial state for decoding over the memory. The weights must not change while it is in use."""
        output, batch_size = self.output, len(memory.vectors)
        return PackedLinear(output.weight, output.bias, batch_size), self.decoder.start(memory)

    def step(self, ids: Tensor, state: ModelState, need_weights: bool = False) -> StepOutput:
        """Returns the log-probabilities of the token after ids (B, T), and the new state."""
        output_layer, decoder_state = state
        decoded = self.decode(ids, decoder_state, None, need_weights)
        scores = output_layer(self.output.project(decoded.vectors[:, -1]))
        if torch.is_grad_enabled() or scores.dtype != torch.float32:
            scores = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        else:
            torch.log_softmax(scores, -1, out=scores)  # in place: it is the largest tensor of a step
        return StepOutput(scores, (output_layer, decoded.state), decoded.weights)

    def next(self, ids: Tensor, state: ModelState = None, memory: Memory | None = None) -> tuple[Tensor, ModelState]:
        """Returns the log-probabilities and the state of `step`; without a state, decoding starts over the memory."""
        output = self.step(ids, continue_or_start(state, memory, self))
        return output.log_probabilities, output.state

    def decode(
        self, ids: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        """Returns the decoder's output at each of the ids (B, T), from its state or from the beginning."""
        return self.decoder(self.input_dropout(self.embedding(ids)), state, memory, need_weights)

    def logits(self, vectors: Tensor) -> Tensor:
        """Returns unnormalised scores (…, V) of decoder outputs (…, D)."""
        return self.output.logits(vectors)

    def select(self, state: ModelState, beams: Tensor, sources: Tensor | None = None) -> ModelState:
        """Returns the state of these beams, over these sources of the memory."""
        return state[0], self.decoder.select(state[1], beams, sources)
