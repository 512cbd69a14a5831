"""Models that fill in hidden tokens. They know nothing of text, nor of which tokens are hidden.

`MaskedModel` sees both sides of a hidden token at once (Devlin et al. 2019). `TwoWayModel` is two language models over
one vocabulary, one for each direction (Peters et al. 2018). Both have an `embedding` and an `encoder`, which another
task can begin with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.output import FullSoftmax
from seqwise.layers.record import record_value
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.masked.masking import MaskedBatch

AT_ONCE = ("transformer", "feedforward")  # families that see both sides of a token at once


@dataclass(frozen=True)
class Filled:
    """How well some batch was filled in: sums over the `count` tokens that were chosen, and each of them."""

    loss: Loss  # what training makes small, at these tokens
    nats: float
    hits: int  # the likeliest token was the true one
    count: int
    losses: Tensor  # (N,) nats of each, row by row
    best: Tensor  # (N,) the likeliest token


class _FillIn(nn.Module):
    """What both kinds share: token vectors, an encoder, a softmax tied to the token vectors."""

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None, num_directions: int):
        super().__init__()
        network = settings.network
        width, dropout = network.embedding, network.dropout
        self.embedding = Embedding(vocabulary, width)
        self.encoder = build_encoder(settings, width, _longest(settings))
        states: int = self.encoder.width  # type: ignore[assignment]
        self.output = FullSoftmax(
            states // num_directions, vocabulary, self.embedding.weight if network.tie_weights else None
        )
        recurrent = settings.model not in AT_ONCE
        kind = VariationalDropout if recurrent else nn.Dropout
        self.drop_in, self.drop_out = kind(dropout), kind(dropout if recurrent else 0.0)
        self._begin(settings, counts)

    @torch.no_grad()
    def _begin(self, settings: ResolvedSettings, counts: Tensor | None) -> None:
        """As in the language model: short rows behind a final norm, and a new model predicts by frequency."""
        if settings.model == "transformer":
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
            if not self.output.tied:
                nn.init.normal_(self.output.weight, std=EMBEDDING_STD)
        if counts is not None:
            self.output.bias.copy_(log_frequencies(counts))

    def states(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """ids (B, T) → (B, T, D)."""
        vectors: Tensor = self.encoder(self.drop_in(self.embedding(ids)), lengths=lengths).vectors
        return self.drop_out(vectors)

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        raise NotImplementedError

    def scores(self, states: Tensor, rows: Tensor, places: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Log-probabilities (N, V) of what stands at the given places of the given rows."""
        raise NotImplementedError

    def forward(self, batch: MaskedBatch, carry: None = None) -> tuple[Loss, None]:
        return self.loss(self.states(batch.ids), batch), None

    def judge(self, batch: MaskedBatch) -> Filled:
        """How well the chosen tokens of a batch are filled in."""
        rows, places = batch.chosen.nonzero(as_tuple=True)
        true = batch.targets[rows, places]
        scores = self.scores(self.states(batch.ids), rows, places)
        return _filled(scores, true)


class MaskedModel(_FillIn):
    """The state at a hidden token predicts it; nothing else counts."""

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None):
        super().__init__(settings, vocabulary, counts, num_directions=1)

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        return total(self.output.loss(states[batch.chosen], batch.targets[batch.chosen]))

    def scores(self, states: Tensor, rows: Tensor, places: Tensor, lengths: Tensor | None = None) -> Tensor:
        scores = self.output(states[rows, places])
        record_value(self, "fillings", scores)
        return scores


class TwoWayModel(_FillIn):
    """Each direction predicts every token from what it has read; hidden tokens are read as they are shown.

    With l the tokens before a place and r those behind it, which must be independent given the token x between them,
    Bayes' rule gives p(x | l, r) ∝ p(x | l) · p(x | r) / p(x). `prior` is log p(x), the frequencies of the training
    split. Where one side is missing the other decides alone.
    """

    prior: Tensor

    def __init__(self, settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None):
        super().__init__(settings, vocabulary, counts, num_directions=2)
        self.register_buffer("prior", log_frequencies(torch.ones(vocabulary) if counts is None else counts))

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        """Both directions, over all tokens that count."""
        ahead, back = self._direction_losses(states, batch)
        return Loss(ahead.total + back.total, ahead.counted + back.counted)

    def direction_losses(self, batch: MaskedBatch) -> tuple[Loss, Loss]:
        """The loss of each direction on the true text, with nothing hidden."""
        return self._direction_losses(self.states(batch.targets), batch)

    def _direction_losses(self, states: Tensor, batch: MaskedBatch) -> tuple[Loss, Loss]:
        """The next token from the left, and the one before from the right."""
        left, right = states.chunk(2, dim=-1)
        counted = torch.ones_like(batch.chosen) if batch.counted is None else batch.counted
        next_one, one_before = counted[:, 1:], counted[:, :-1]
        ahead = self.output.loss(left[:, :-1][next_one], batch.targets[:, 1:][next_one])
        back = self.output.loss(right[:, 1:][one_before], batch.targets[:, :-1][one_before])
        return total(ahead), total(back)

    def scores(self, states: Tensor, rows: Tensor, places: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._joined(*self._sides(states, rows, places, lengths))

    def judge(self, batch: MaskedBatch) -> Filled:
        rows, places = batch.chosen.nonzero(as_tuple=True)
        true = batch.targets[rows, places]
        left, right = self._sides(self.states(batch.ids), rows, places)
        scores = self._joined(left, right)
        return _filled(scores, true, Loss(_nats(left, true).sum() + _nats(right, true).sum(), 2 * len(true)))

    def _sides(
        self, states: Tensor, rows: Tensor, places: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """log p(x | l) and log p(x | r), (N, V) each; the frequencies where nothing stands on that side."""
        left, right = states.chunk(2, dim=-1)
        last = (states.shape[1] if lengths is None else lengths.to(rows.device)[rows]) - 1
        from_left = self.output(left[rows, (places - 1).clamp(min=0)])
        from_right = self.output(right[rows, (places + 1).clamp(max=states.shape[1] - 1)])
        from_left = torch.where((places > 0)[:, None], from_left, self.prior)
        from_right = torch.where((places < last)[:, None], from_right, self.prior)
        record_value(self, "from_left", from_left)
        record_value(self, "from_right", from_right)
        return from_left, from_right

    def _joined(self, left: Tensor, right: Tensor) -> Tensor:
        scores = torch.log_softmax(left + right - self.prior, dim=-1)
        record_value(self, "fillings", scores)
        return scores


def build_model(settings: ResolvedSettings, vocabulary: int, counts: Tensor | None = None) -> MaskedModel | TwoWayModel:
    """The model of a resolved run."""
    kind = MaskedModel if settings.model in AT_ONCE else TwoWayModel
    return kind(settings, vocabulary, counts)


def log_frequencies(counts: Tensor) -> Tensor:
    """Log of how frequent each token is, (V,); as if each had occurred once more."""
    return torch.log((counts + 1) / (counts.sum() + len(counts)))


def _filled(scores: Tensor, true: Tensor, loss: Loss | None = None) -> Filled:
    """What log-probabilities (N, V) are worth; the loss is that of the scores unless it is another."""
    losses, best = _nats(scores, true), scores.argmax(-1)
    nats = losses.sum()
    return Filled(loss or Loss(nats, len(true)), float(nats), int((best == true).sum()), len(true), losses, best)


def _nats(scores: Tensor, true: Tensor) -> Tensor:
    """Negative log likelihood (N,) of the true tokens (N,) under log-probabilities (N, V)."""
    return -scores.gather(1, true[:, None]).squeeze(1).double()


def _longest(settings: ResolvedSettings) -> int:
    return settings.data.window if isinstance(settings.data.window, int) else 1
