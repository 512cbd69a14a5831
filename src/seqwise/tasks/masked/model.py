"""Models that predict masked tokens. They know nothing of text, nor of how tokens are masked.

`MaskedModel`, a Transformer or feedforward network, reads both sides of a masked token at once (Devlin et al. 2019).
`BidirectionalLanguageModel` is two recurrent language models over one vocabulary, one for each direction (Peters et al.
2018). Both have an `embedding` and an `encoder`, from which another task can be initialised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.families import get_family
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD, log_frequencies
from seqwise.layers.output import FullSoftmax
from seqwise.layers.record import record_value
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.masked.masking import MaskedBatch

MIN_WINDOW = 3  # a masked token and one on each side


@dataclass(frozen=True)
class MaskedScores:
    """Scores of the `count` masked tokens of a batch: sums, and the values of each token."""

    loss: Loss  # the training objective at these tokens
    nats: float
    num_correct: int  # the most probable token was the true one
    count: int
    losses: Tensor  # (N,) nats of each, row by row
    predictions: Tensor  # (N,) the most probable tokens


class _TokenPredictor(nn.Module):
    """The parts of both models: embedding, encoder, and a softmax, which may be tied to the embedding."""

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None, num_directions: int):
        super().__init__()
        network = settings.network
        width, dropout = network.embedding, network.dropout
        self.embedding = Embedding(vocabulary, width)
        self.encoder = build_encoder(settings, width, get_window(settings))
        states: int = self.encoder.width  # type: ignore[assignment]
        self.output = FullSoftmax(
            states // num_directions, vocabulary, self.embedding.weight if network.tie_weights else None
        )
        recurrent = get_family(settings.model).is_recurrent
        kind = VariationalDropout if recurrent else nn.Dropout
        self.drop_in, self.drop_out = kind(dropout), kind(dropout if recurrent else 0.0)
        self._initialize_weights(settings, counts)

    @torch.no_grad()
    def _initialize_weights(self, settings: ResolvedSettings, counts: Tensor | None) -> None:
        """As in the language model: small rows with a final norm, and an untrained model predicts by frequency."""
        if settings.model == "transformer":
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
            if not self.output.tied:
                nn.init.normal_(self.output.weight, std=EMBEDDING_STD)
        if counts is not None:
            self.output.bias.copy_(log_frequencies(counts))

    def states(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Returns the encoder's states (B, T, D) of ids (B, T)."""
        vectors: Tensor = self.encoder(self.drop_in(self.embedding(ids)), lengths=lengths).vectors
        return self.drop_out(vectors)

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        raise NotImplementedError

    def scores(self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Returns log-probabilities (N, V) of the tokens at N positions (row, column)."""
        raise NotImplementedError

    def forward(self, batch: MaskedBatch, state: None = None) -> tuple[Loss, None]:
        return self.loss(self.states(batch.ids), batch), None

    def score(self, batch: MaskedBatch) -> MaskedScores:
        """Scores the predictions of a batch's masked tokens."""
        rows, columns = batch.target_mask.nonzero(as_tuple=True)
        targets = batch.targets[rows, columns]
        return _summarize_scores(self.scores(self.states(batch.ids), rows, columns), targets)


class MaskedModel(_TokenPredictor):
    """The state at a masked token predicts it; only masked tokens have a loss."""

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None):
        super().__init__(settings, vocabulary, counts, num_directions=1)

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        return total(self.output.loss(states[batch.target_mask], batch.targets[batch.target_mask]))

    def scores(self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        scores = self.output(states[rows, columns])
        record_value(self, "fillings", scores)
        return scores


class BidirectionalLanguageModel(_TokenPredictor):
    """Each direction predicts every token from the tokens it has read; masked tokens are read as <mask>.

    With l the tokens before a position and r those after it, assumed independent given the token x between them,
    Bayes' rule gives p(x | l, r) ∝ p(x | l) · p(x | r) / p(x). `prior` is log p(x), the frequencies of the training
    split. Where one side is missing, the other decides alone.
    """

    prior: Tensor

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None):
        super().__init__(settings, vocabulary, counts, num_directions=2)
        self.register_buffer("prior", log_frequencies(torch.ones(vocabulary) if counts is None else counts))

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        """Returns the loss of both directions, over all scored tokens."""
        forward, backward = self._direction_losses(states, batch)
        return Loss(forward.total + backward.total, forward.counted + backward.counted)

    def direction_losses(self, batch: MaskedBatch) -> tuple[Loss, Loss]:
        """Returns the loss of each direction on the true text, with nothing masked."""
        return self._direction_losses(self.states(batch.targets), batch)

    def _direction_losses(self, states: Tensor, batch: MaskedBatch) -> tuple[Loss, Loss]:
        """Returns the losses of the next token, read forward, and of the previous token, read backward."""
        left, right = states.chunk(2, dim=-1)
        scored_mask = torch.ones_like(batch.target_mask) if batch.scored_mask is None else batch.scored_mask
        next_mask, previous_mask = scored_mask[:, 1:], scored_mask[:, :-1]
        forward = self.output.loss(left[:, :-1][next_mask], batch.targets[:, 1:][next_mask])
        backward = self.output.loss(right[:, 1:][previous_mask], batch.targets[:, :-1][previous_mask])
        return total(forward), total(backward)

    def scores(self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._combine_directions(*self._direction_scores(states, rows, columns, lengths))

    def score(self, batch: MaskedBatch) -> MaskedScores:
        rows, columns = batch.target_mask.nonzero(as_tuple=True)
        targets = batch.targets[rows, columns]
        left, right = self._direction_scores(self.states(batch.ids), rows, columns)
        objective = Loss(_gather_nats(left, targets).sum() + _gather_nats(right, targets).sum(), 2 * len(targets))
        return _summarize_scores(self._combine_directions(left, right), targets, objective)

    def _direction_scores(
        self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns log p(x | l) and log p(x | r), (N, V) each; log p(x) where that side has no tokens."""
        left, right = states.chunk(2, dim=-1)
        last = (states.shape[1] if lengths is None else lengths.to(rows.device)[rows]) - 1
        from_left = self.output(left[rows, (columns - 1).clamp(min=0)])
        from_right = self.output(right[rows, (columns + 1).clamp(max=states.shape[1] - 1)])
        from_left = torch.where((columns > 0)[:, None], from_left, self.prior)
        from_right = torch.where((columns < last)[:, None], from_right, self.prior)
        record_value(self, "from_left", from_left)
        record_value(self, "from_right", from_right)
        return from_left, from_right

    def _combine_directions(self, left: Tensor, right: Tensor) -> Tensor:
        """Returns log p(x | l, r) by Bayes' rule, (N, V)."""
        scores = torch.log_softmax(left + right - self.prior, dim=-1)
        record_value(self, "fillings", scores)
        return scores


Model = MaskedModel | BidirectionalLanguageModel


def build_model(settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None) -> Model:
    """Returns the model of a resolved run, untrained."""
    kind = BidirectionalLanguageModel if get_family(settings.model).is_recurrent else MaskedModel
    return kind(settings, vocabulary, counts)


def get_window(settings: ResolvedSettings) -> int:
    """Returns the window in tokens; MIN_WINDOW where the settings have no number."""
    return settings.data.window if isinstance(settings.data.window, int) else MIN_WINDOW


def _summarize_scores(scores: Tensor, targets: Tensor, objective: Loss | None = None) -> MaskedScores:
    """Returns the scores of log-probabilities (N, V); the objective is their own loss unless another is given."""
    losses, predictions = _gather_nats(scores, targets), scores.argmax(-1)
    nats, num_correct = losses.sum(), int((predictions == targets).sum())
    objective = objective or Loss(nats, len(targets))
    return MaskedScores(objective, float(nats), num_correct, len(targets), losses, predictions)


def _gather_nats(scores: Tensor, targets: Tensor) -> Tensor:
    """Returns the negative log likelihood (N,) of the targets (N,) under log-probabilities (N, V)."""
    return -scores.gather(1, targets[:, None]).squeeze(1).double()
