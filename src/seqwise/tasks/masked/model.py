"""Models that predict masked tokens, and their default settings. The module knows nothing of text or of masking.

`MaskedModel`, a Transformer or feedforward network, reads both sides of a masked token at once (Devlin et al. 2019).
`BidirectionalLanguageModel` is two recurrent language models over one vocabulary, one for each direction (Peters et al.
2018). Both have an `embedding` and an `encoder`, from which another task can be initialised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.families import RECURRENT_FAMILIES, get_family
from seqwise.layers.dropout import build_dropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD, log_frequencies
from seqwise.layers.output import FullSoftmax
from seqwise.layers.record import record_value
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import (
    SAME_WIDTH,
    DefaultsContext,
    SetDefault,
    describe_epochs,
    describe_rate,
    estimate_epochs,
    scale_learning_rate,
    set_batch_size,
    set_transformer_defaults,
)
from seqwise.tasks.masked.masking import MaskedBatch

MIN_WINDOW = 3  # a masked token and one on each side


@dataclass(frozen=True)
class MaskedScores:
    """Losses and predictions of the N masked tokens of a batch, window by window."""

    objective: Loss  # the training loss of these tokens: of a bidirectional language model that of both directions
    nats: Tensor  # (N,) float64, negative log likelihood of the true tokens
    predictions: Tensor  # (N,) the most probable tokens
    targets: Tensor  # (N,) the true tokens


class _TokenPredictor(nn.Module):
    """The base class of both models: embedding, encoder, and a softmax, whose weights may be tied to the embedding."""

    num_directions = 1  # directions that predict a token, each from its own part of the encoder's states

    def __init__(self, settings: ResolvedSettings, vocabulary_size: int, counts: Tensor | None = None):
        super().__init__()
        network = settings.network
        width, dropout = network.embedding, network.dropout
        self.embedding = Embedding(vocabulary_size, width)
        self.encoder = build_encoder(settings, width, get_window(settings))
        states_width: int = self.encoder.width  # type: ignore[assignment]
        self.output = FullSoftmax(
            states_width // self.num_directions, vocabulary_size, self.embedding.weight if network.tie_weights else None
        )
        is_recurrent = get_family(settings.model).is_recurrent
        self.input_dropout = build_dropout(dropout, variational=is_recurrent)
        self.output_dropout = build_dropout(dropout if is_recurrent else 0.0, variational=is_recurrent)
        # As in the language model: small vectors with a final norm, and an untrained model predicts by frequency.
        if settings.model == "transformer":
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
            if not self.output.tied:
                nn.init.normal_(self.output.weight, std=EMBEDDING_STD)
        if counts is not None:
            with torch.no_grad():
                self.output.bias.copy_(log_frequencies(counts))

    def states(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Returns the encoder's states (B, T, D) of ids (B, T)."""
        vectors: Tensor = self.encoder(self.input_dropout(self.embedding(ids)), lengths=lengths).vectors
        return self.output_dropout(vectors)

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        raise NotImplementedError

    def scores(self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Returns log-probabilities (N, V) of the tokens at N positions (row, column)."""
        raise NotImplementedError

    def forward(self, batch: MaskedBatch, state: None = None) -> tuple[Loss, None]:
        return self.loss(self.states(batch.ids), batch), None

    def score(self, batch: MaskedBatch) -> MaskedScores:
        """Returns losses and predictions of a batch's masked tokens, for evaluation."""
        rows, columns = batch.target_mask.nonzero(as_tuple=True)
        targets = batch.targets[rows, columns]
        scores = self.scores(self.states(batch.ids), rows, columns)
        nats = _gather_nats(scores, targets)
        return MaskedScores(Loss(nats.sum(), len(targets)), nats, scores.argmax(-1), targets)


class MaskedModel(_TokenPredictor):
    """A masked language model: the state at a masked token predicts it, and only masked tokens have a loss."""

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        return total(self.output.loss(states[batch.target_mask], batch.targets[batch.target_mask]))

    def scores(self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        scores = self.output(states[rows, columns])
        record_value(self, "fillings", scores)
        return scores


class BidirectionalLanguageModel(_TokenPredictor):
    """Two language models: each direction predicts every token from the tokens it has read; masked ones are <mask>.

    With l the tokens before a position and r the tokens after it, assumed independent given the token x between them,
    Bayes' rule gives p(x | l, r) ∝ p(x | l) · p(x | r) / p(x). `prior` is log p(x), from the frequencies in the
    training split. At the ends of a text only one direction predicts.
    """

    num_directions = 2
    prior: Tensor

    def __init__(self, settings: ResolvedSettings, vocabulary_size: int, counts: Tensor | None = None):
        super().__init__(settings, vocabulary_size, counts)
        self.register_buffer("prior", log_frequencies(torch.ones(vocabulary_size) if counts is None else counts))

    def loss(self, states: Tensor, batch: MaskedBatch) -> Loss:
        """Returns the loss of both directions, over all scored tokens."""
        forward, backward = self._compute_direction_losses(states, batch)
        return Loss(forward.total + backward.total, forward.num_targets + backward.num_targets)

    def compute_direction_losses(self, batch: MaskedBatch) -> tuple[Loss, Loss]:
        """Returns the loss of each direction on the true text, without masks."""
        return self._compute_direction_losses(self.states(batch.targets), batch)

    def _compute_direction_losses(self, states: Tensor, batch: MaskedBatch) -> tuple[Loss, Loss]:
        """Returns the losses of both directions: forward predicts the next token, backward the previous one."""
        left, right = states.chunk(2, dim=-1)
        scored_mask = torch.ones_like(batch.target_mask) if batch.scored_mask is None else batch.scored_mask
        next_mask, previous_mask = scored_mask[:, 1:], scored_mask[:, :-1]
        forward = self.output.loss(left[:, :-1][next_mask], batch.targets[:, 1:][next_mask])
        backward = self.output.loss(right[:, 1:][previous_mask], batch.targets[:, :-1][previous_mask])
        return total(forward), total(backward)

    def scores(self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._combine_directions(*self._compute_direction_scores(states, rows, columns, lengths))

    def score(self, batch: MaskedBatch) -> MaskedScores:
        rows, columns = batch.target_mask.nonzero(as_tuple=True)
        targets = batch.targets[rows, columns]
        left, right = self._compute_direction_scores(self.states(batch.ids), rows, columns)
        objective = Loss(_gather_nats(left, targets).sum() + _gather_nats(right, targets).sum(), 2 * len(targets))
        scores = self._combine_directions(left, right)
        return MaskedScores(objective, _gather_nats(scores, targets), scores.argmax(-1), targets)

    def _compute_direction_scores(
        self, states: Tensor, rows: Tensor, columns: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns log p(x | l) and log p(x | r), (N, V) each; log p(x) if there are no tokens on that side."""
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


def build_model(settings: ResolvedSettings, vocabulary_size: int, counts: Tensor | None = None) -> Model:
    """Returns an untrained model."""
    model_class = BidirectionalLanguageModel if get_family(settings.model).is_recurrent else MaskedModel
    return model_class(settings, vocabulary_size, counts)


def get_window(settings: ResolvedSettings) -> int:
    """Returns the window in tokens; MIN_WINDOW if `data.window` is not a number."""
    return settings.data.window if isinstance(settings.data.window, int) else MIN_WINDOW


def _gather_nats(scores: Tensor, targets: Tensor) -> Tensor:
    """Returns the negative log likelihood (N,) of the targets (N,) under log-probabilities (N, V)."""
    return -scores.gather(1, targets[:, None]).squeeze(1).double()


def set_masked_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set, by the rules of the language task; comments explain the differences."""
    is_recurrent, is_transformer = settings.model in RECURRENT_FAMILIES, settings.model == "transformer"
    is_small, cuda = context.num_tokens < 200_000, context.cuda
    # A recurrent model is two language models, each half as wide as the whole.
    width = (256 if is_small else 512) if is_recurrent else (128 if is_small else 256)
    size = f"{context.num_tokens:,} training tokens on {context.machine}"
    set_default("network.width", 2 * width if cuda else width, f"{size}: more text supports a wider model")
    depth = (6 if is_transformer else 2) if cuda else 1 if is_recurrent else 2
    set_default("network.depth", depth, f"{settings.model} on {context.machine}")
    embedding = -(-settings.network.width // 2) if is_recurrent else settings.network.width
    set_default("network.embedding", embedding, "the width of each direction" if is_recurrent else SAME_WIDTH)
    if is_recurrent:
        set_default("recurrent.bidirectional", True, "a masked word depends on those before and after it")
        reason = "concatenated directions would see what they predict"
        set_default("recurrent.concat_directions", False, reason)
    if is_transformer:
        set_transformer_defaults(settings, set_default, 64)
    set_default("data.order", "windows", "each window is read on its own")
    set_default("data.window", max(3, min(128 if cuda else 64, context.num_tokens // 64)), size)
    # Where only every seventh token is a target, twice the batch size of the language task.
    max_batch_size = (64 if cuda else 16) if is_recurrent else (128 if cuda else 32)
    reason = "every token is a target" if is_recurrent else "only every seventh token is a target"
    set_batch_size(min(max_batch_size, context.num_tokens // 256), context, set_default, reason)
    window = settings.data.window if isinstance(settings.data.window, int) else 1
    set_default("data.max_length", window, "the window")
    set_default("data.max_tokens", settings.training.batch_size * window, "the batch size times the window")
    # Each epoch masks other tokens, so less dropout is needed than in the language task.
    epochs = estimate_epochs(settings, context)
    level = 0 if epochs <= 6 else 1 if epochs <= 15 else 2 if epochs <= 40 else 3
    reason, dropout = describe_epochs(epochs), (0.0, 0.0, 0.1, 0.1) if is_transformer else (0.1, 0.2, 0.3, 0.4)
    set_default("network.dropout", dropout[level], reason)
    if is_recurrent:
        set_default("recurrent.weight_dropout", (0.0, 0.0, 0.1, 0.2)[level], reason)
    is_adam = settings.training.is_adam
    rate = {"transformer": 2e-3, "feedforward": 2e-3, "rnn": 3e-3}.get(settings.model, 5e-3)
    rate = scale_learning_rate(settings, rate, 512) if is_adam else 10.0
    set_default("training.learning_rate", rate, describe_rate(settings))
    decay = (0.1 if is_transformer else 0.01) if is_adam else 1e-6
    set_default("training.weight_decay", decay, f"for {settings.model} with {settings.training.optimizer}")
