"""Output layers: vectors → a distribution over the vocabulary. They know nothing of words, nor of time.

Each has these methods; calling the layer calls `log_probabilities`:

    log_probabilities(vectors (…, D)) → (…, V)         normalised, always over the whole vocabulary
    loss(vectors (…, D), targets (…)) → (…)            negative log-likelihood of each target, in nats
    describe()                                         one sentence for the run's description

Those whose logits are linear in W also have this one, for evaluation:

    tempered_losses(vectors (N, D), targets (N,), temperatures) → (temperatures, N)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.kernels.loss import linear_cross_entropy

COUNT_EXPONENT = 0.75  # exponent of the unigram counts: Mikolov et al. 2013, §2.2


class FullSoftmax(nn.Module):
    """log softmax(W x + b). `tied` shares the embedding matrix as W (Press & Wolf 2017; Inan et al. 2017).

    If the widths differ, a linear layer without bias projects the vectors to the width of the embedding. The initial
    entries of an untied W are normal with standard deviation 1/√D, which gives logits of variance 1 for vectors whose
    entries have variance 1.
    """

    def __init__(self, width: int, vocabulary: int, tied: nn.Parameter | None = None):
        super().__init__()
        self.width, self.vocabulary, self.tied = width, vocabulary, tied is not None
        self.weight = _create_weight(width, vocabulary) if tied is None else _check_tied_weight(tied, vocabulary)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        embedding_width = self.weight.shape[1]
        self.project = nn.Identity() if embedding_width == width else nn.Linear(width, embedding_width, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.log_probabilities(vectors)

    def logits(self, vectors: Tensor) -> Tensor:
        """Returns the scores before normalisation, (…, V)."""
        return F.linear(self.project(vectors), self.weight, self.bias)

    def log_probabilities(self, vectors: Tensor) -> Tensor:
        return F.log_softmax(self.logits(vectors), dim=-1)

    def loss(self, vectors: Tensor, targets: Tensor) -> Tensor:
        rows = self.project(vectors.flatten(0, -2))
        return linear_cross_entropy(rows, self.weight, self.bias, targets.flatten()).view_as(targets)

    def tempered_losses(self, vectors: Tensor, targets: Tensor, temperatures: Sequence[float]) -> Tensor:
        """Returns the losses with logits divided by each temperature."""
        return compute_tempered_losses(self.logits(vectors), targets, temperatures)

    def describe(self) -> str:
        return f"full softmax over {self.vocabulary:,} tokens, {'tied' if self.tied else 'untied'} projection"

    def extra_repr(self) -> str:
        return f"{self.width}, {self.vocabulary}, tied={self.tied}"


class SampledSoftmax(FullSoftmax):
    """In training the softmax over the target and a few negatives, in evaluation the full softmax.

    The sum over the vocabulary, Z = exp(l_target) + Σ_{k≠target} exp(l_k), is estimated by importance sampling
    (Bengio & Senécal 2008, §III; Jean et al. 2015, §3): S negatives are drawn from q, with replacement and shared by
    the whole batch, and each logit l_k is lowered by log(S · q_k), the log of how often k is expected among them.
    A negative that equals the target is masked. The estimate of Z is unbiased, so loss and gradient approach the full
    softmax as S grows.

    q is proportional to counts^0.75; without counts it is log-uniform, which fits ids sorted by decreasing frequency.
    """

    probability: Tensor

    def __init__(
        self, width: int, vocabulary: int, samples: int, tied: nn.Parameter | None = None, counts: Tensor | None = None
    ):
        super().__init__(width, vocabulary, tied)
        self.samples = samples
        if counts is None:
            # P(k) = log((k+2)/(k+1)) / log(V+1): close to Zipf's law, and its sum telescopes to 1.
            rank = torch.arange(vocabulary, dtype=torch.float64)
            probability = (torch.log1p(1 / (rank + 1)) / math.log(vocabulary + 1)).float()
        elif counts.shape == (vocabulary,):
            # A token that never occurs is counted once: its term of Z must not vanish.
            weight = counts.double().clamp(min=1.0) ** COUNT_EXPONENT
            probability = (weight / weight.sum()).float()
        else:
            raise UsageError(f"expected one count per token, ({vocabulary},); received {tuple(counts.shape)}.")
        self.register_buffer("probability", probability, persistent=False)  # q; needed in training only

    def loss(self, vectors: Tensor, targets: Tensor) -> Tensor:
        if not self.training:
            return super().loss(vectors, targets)
        return self._estimate_loss(vectors.flatten(0, -2), targets.flatten()).view_as(targets)

    def _estimate_loss(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """Returns the losses (N,) of targets (N,) among the negatives of this batch."""
        negatives = self.sample_negatives()  # (S,)
        ids = torch.cat((targets, negatives))
        rows, bias = F.embedding(ids, self.weight), self.bias[ids]  # one lookup: one dense gradient
        target_rows, negative_rows = rows.split((len(targets), len(negatives)))
        vectors = self.project(vectors)
        target_logits = (vectors * target_rows).sum(-1) + bias[: len(targets)]  # (N,)
        log_expected = torch.log(len(negatives) * self.probability[negatives])
        # Added after the product, which may be in 16 bits: the correction would lose its small differences there.
        negative_logits = F.linear(vectors, negative_rows) + (bias[len(targets) :] - log_expected)  # (N, S)
        negative_logits = negative_logits.masked_fill(negatives == targets[:, None], -math.inf)
        return torch.cat((target_logits[:, None], negative_logits), dim=-1).logsumexp(-1) - target_logits

    def sample_negatives(self) -> Tensor:
        """Draws the ids of the negatives of one batch, (S,)."""
        return torch.multinomial(self.probability, self.samples, replacement=True)

    def describe(self) -> str:
        training = f"{self.samples:,} shared negatives, {'tied' if self.tied else 'untied'} projection"
        evaluation = f"evaluation uses the full softmax over {self.vocabulary:,} tokens"
        return f"sampled softmax in training ({training}); {evaluation}"


class MixtureSoftmax(nn.Module):
    """log Σ_k π_k softmax(W h_k + b), with h_k = tanh(P_k x + c_k) and π = softmax(R x) (Yang et al. 2018, §2.4).

    The logits of one softmax are a matrix of rank D + 1 at most, whatever the contexts; those of a mixture are not.
    All components share W, which may be `tied` to the embedding: P_k maps to its width. `dropout` acts on the h_k, of
    all components together (…, K · E).
    """

    def __init__(self, width: int, vocabulary: int, softmaxes: int, tied: nn.Parameter | None = None):
        super().__init__()
        self.width, self.vocabulary, self.softmaxes, self.tied = width, vocabulary, softmaxes, tied is not None
        self.weight = _create_weight(width, vocabulary) if tied is None else _check_tied_weight(tied, vocabulary)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.prior = nn.Linear(width, softmaxes, bias=False)
        self.context = nn.Linear(width, softmaxes * self.weight.shape[1])
        self.dropout: nn.Module = nn.Identity()

    def forward(self, vectors: Tensor) -> Tensor:
        return self.log_probabilities(vectors)

    def compute_contexts(self, vectors: Tensor) -> Tensor:
        """Returns the vectors h_k of all components, (…, K, E)."""
        return self.dropout(torch.tanh(self.context(vectors))).unflatten(-1, (self.softmaxes, -1))

    def log_priors(self, vectors: Tensor) -> Tensor:
        """Returns the log-weights of the components, (…, K)."""
        return F.log_softmax(self.prior(vectors), dim=-1)

    def log_probabilities(self, vectors: Tensor) -> Tensor:
        total: Tensor | None = None
        # One component after the other: (…, K, V) would take K times the memory.
        for context, log_prior in zip(self.compute_contexts(vectors).unbind(-2), self.log_priors(vectors).unbind(-1)):
            term = F.log_softmax(F.linear(context, self.weight, self.bias), dim=-1) + log_prior[..., None]
            total = term if total is None else torch.logaddexp(total, term)
        assert total is not None
        return total

    def loss(self, vectors: Tensor, targets: Tensor) -> Tensor:
        rows = self.compute_contexts(vectors).flatten(0, -2)  # (N · K, E)
        row_targets = targets.flatten().repeat_interleave(self.softmaxes)
        losses = linear_cross_entropy(rows, self.weight, self.bias, row_targets, defer_gradients=True)
        log_posteriors = self.log_priors(vectors) - losses.view(*targets.shape, self.softmaxes)
        return -log_posteriors.logsumexp(-1)

    def tempered_losses(self, vectors: Tensor, targets: Tensor, temperatures: Sequence[float]) -> Tensor:
        """Returns the losses with the logits of every component divided by each temperature; priors stay."""
        losses = [compute_tempered_losses(F.linear(context, self.weight, self.bias), targets, temperatures)
                  for context in self.compute_contexts(vectors).unbind(-2)]  # fmt: skip
        return -(self.log_priors(vectors) - torch.stack(losses, dim=-1)).logsumexp(-1)

    def describe(self) -> str:
        projection = "tied" if self.tied else "untied"
        return f"mixture of {self.softmaxes} softmaxes over {self.vocabulary:,} tokens, {projection} projection"

    def extra_repr(self) -> str:
        return f"{self.width}, {self.vocabulary}, softmaxes={self.softmaxes}, tied={self.tied}"


class AdaptiveSoftmax(nn.Module):
    """Frequent words in a small head, rarer ones in clusters of decreasing width (Grave et al. 2017).

    Ids must be sorted by decreasing frequency: cluster i holds the ids from cutoffs[i-1] up to cutoffs[i]. Its
    projection is 4^i times narrower. The distribution is normalised exactly, in training as in evaluation.
    """

    def __init__(self, width: int, vocabulary: int, cutoffs: Sequence[int]):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs or cutoffs != sorted(set(cutoffs)) or cutoffs[0] < 1 or cutoffs[-1] >= vocabulary:
            raise UsageError(
                f"cutoffs must rise and lie between 1 and {vocabulary - 1:,}; received {cutoffs}.",
                fix="For example the ids that cover about 80 % and 95 % of the text.",
            )
        if width < 4 ** len(cutoffs):
            raise UsageError(
                f"{len(cutoffs)} clusters, each 4 times narrower than the one before, need a width of at least "
                f"{4 ** len(cutoffs)}; received {width}.",
                fix="Use fewer cutoffs or a wider model.",
            )
        self.width, self.vocabulary, self.cutoffs = width, vocabulary, cutoffs
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(width, vocabulary, cutoffs)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.log_probabilities(vectors)

    def log_probabilities(self, vectors: Tensor) -> Tensor:
        flat = _to_float32_under_autocast(vectors).reshape(-1, self.width)
        return self.softmax.log_prob(flat).unflatten(0, vectors.shape[:-1])

    def loss(self, vectors: Tensor, targets: Tensor) -> Tensor:
        rows = _to_float32_under_autocast(vectors).flatten(0, -2)
        return -self.softmax(rows, targets.flatten()).output.view_as(targets)

    def describe(self) -> str:
        cuts = ", ".join(f"{cut:,}" for cut in self.cutoffs)
        return f"adaptive softmax over {self.vocabulary:,} tokens, clusters cut at {cuts}; exact in evaluation too"


def compute_tempered_losses(logits: Tensor, targets: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Returns the cross-entropies (temperatures, N) of logits (N, V) that are divided by each temperature."""
    return torch.stack([F.cross_entropy(logits / temperature, targets, reduction="none")
                        for temperature in temperatures])  # fmt: skip


def _create_weight(width: int, vocabulary: int) -> nn.Parameter:
    """Returns an untied W (V, D) with normal entries of standard deviation 1/√D."""
    return nn.Parameter(nn.init.normal_(torch.empty(vocabulary, width), std=width**-0.5))


def _check_tied_weight(weight: nn.Parameter, vocabulary: int) -> nn.Parameter:
    if weight.shape[0] != vocabulary:
        raise UsageError(
            f"the tied matrix must have one row per word: expected {vocabulary:,} rows, received {weight.shape[0]:,}."
        )
    return weight


def _to_float32_under_autocast(vectors: Tensor) -> Tensor:
    """Returns the vectors in float32 if autocast is enabled: PyTorch's adaptive softmax keeps the input's dtype."""
    return vectors.float() if torch.is_autocast_enabled(vectors.device.type) else vectors
