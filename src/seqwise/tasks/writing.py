"""`Writer`: what translate and caption share. It writes tokens over a memory, whatever made the memory.

    ids → embedding → decoder over the memory → next-token head → losses (training) or log-probabilities (use)

Searching for whole sequences is in `decoding/beam.py`. This page knows nothing of sources, pictures or text.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.decoder import DecoderOutput, Memory, build_decoder, continue_or_start
from seqwise.backbones.states import ModelState
from seqwise.decoding.sequences import StepOutput
from seqwise.heads.next_token import NextToken
from seqwise.kernels.packed_linear import MIN_SEQUENCES, PackedLinear
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.output import FullSoftmax
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings


class Writer(nn.Module):
    """Embedding, decoder, next-token head over one vocabulary.

    `embedding` may be that of the encoder where both share a vocabulary. With the `counts` of the training tokens (V,)
    a new writer already predicts each token by its frequency.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabulary: int,
        memory_width: int,
        longest: int,
        attention: str | None = None,
        embedding: Embedding | None = None,
        counts: Tensor | None = None,
    ):
        super().__init__()
        network = settings.network
        dropout, width = network.dropout, network.embedding
        transformer = settings.model == "transformer"
        self.embedding = embedding or Embedding(vocabulary, width)
        self.decoder = build_decoder(settings, self.embedding.width, memory_width, longest, attention)
        tied = self.embedding.weight if network.tie_weights else None
        self.head = NextToken(FullSoftmax(self.decoder.width, vocabulary, tied))
        kind = nn.Dropout if transformer else VariationalDropout
        self.drop_in, self.drop_out = kind(dropout), kind(0.0 if transformer else dropout)
        if transformer:  # short rows, as in the language model: states behind a final norm are long
            new = [self.embedding.weight] if embedding is None else []
            for matrix in new if network.tie_weights else [*new, self.output.weight]:
                nn.init.normal_(matrix, std=EMBEDDING_STD)
        if counts is not None:
            with torch.no_grad():
                self.output.bias.copy_(torch.log((counts + 1) / (counts.sum() + len(counts))))

    @property
    def output(self) -> FullSoftmax:
        return self.head.output  # type: ignore[return-value]

    # Training

    def losses(self, memory: Memory, inputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Negative log likelihood (B, T) of each target after the inputs (B, T) up to it, also of padding."""
        states = self.drop_out(self.read(inputs, None, memory).vectors)
        return self._losses(states.flatten(0, 1), targets.flatten(), smoothing).view_as(targets)

    def loss(self, memory: Memory, inputs: Tensor, targets: Tensor, real: Tensor, smoothing: float = 0.0) -> Loss:
        """Sum over the targets that are `real` (B, T). The others never reach the vocabulary."""
        states = self.drop_out(self.read(inputs, None, memory).vectors)
        losses = self._losses(states[real], targets[real], smoothing)
        return Loss(losses.sum(), len(losses))

    def _losses(self, vectors: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """vectors (N, D) and targets (N,) → losses (N,).

        Smoothed by ε the target is (1 − ε) one-hot + ε uniform (Szegedy et al. 2016, §7), and the loss is
        nll + ε (l_target − mean of all logits l). That mean is the logit of the mean row: no second pass over V.
        """
        losses = self.output.loss(vectors, targets)
        if not smoothing:
            return losses
        rows = self.output.project(vectors)
        target_scores = (rows * F.embedding(targets, self.output.weight)).sum(-1) + self.output.bias[targets]
        mean = rows @ self.output.weight.mean(0) + self.output.bias.mean()
        return losses + smoothing * (target_scores - mean)

    # Use

    def start(self, memory: Memory) -> ModelState:
        """What writing over the memory begins with. The weights must not change while it is used."""
        output, rows = self.output, len(memory.vectors)
        return PackedLinear(output.weight, output.bias, rows, copy=rows >= MIN_SEQUENCES), self.decoder.start(memory)

    def step(self, ids: Tensor, carry: ModelState, weights: bool = False) -> StepOutput:
        """Read on: ids (R, T) that were not read yet → the log-probabilities of the token after them."""
        last, inner = carry
        states = self.read(ids, inner, None, weights)
        scores = last(self.output.project(states.vectors[:, -1]))
        if torch.is_grad_enabled() or scores.dtype != torch.float32:
            scores = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        else:
            torch.log_softmax(scores, -1, out=scores)  # the largest tensor of a step: not twice
        return StepOutput(scores, (last, states.state), states.weights)

    def next(self, ids: Tensor, carry: ModelState = None, memory: Memory | None = None) -> tuple[Tensor, ModelState]:
        """The same as a pair; without a carry it begins over the memory."""
        written = self.step(ids, continue_or_start(carry, memory, self))
        return written.log_probabilities, written.state

    def read(
        self, ids: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> DecoderOutput:
        """The decoder's states after each of the ids (R, T), from the decoder's carry or the beginning."""
        return self.decoder(self.drop_in(self.embedding(ids)), carry, memory, weights)

    def logits(self, vectors: Tensor) -> Tensor:
        """Scores before normalisation, of states (…, D): (…, V)."""
        return self.output.logits(vectors)

    def select(self, carry: ModelState, rows: Tensor, sources: Tensor | None = None) -> ModelState:
        """The carry of these rows, over these rows of the memory."""
        return carry[0], self.decoder.select(carry[1], rows, sources)
