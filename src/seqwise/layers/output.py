"""Output layers: vectors → a distribution over the vocabulary. They know nothing of words, nor of time.

Each has these methods; calling the layer calls `log_probabilities`:

    log_probabilities(vectors (…, D)) → (…, V)         normalised, always over the whole vocabulary
    loss(vectors (N, D), targets (N,)) → (N,)          negative log-likelihood of each target, in nats
    describe()                                         one sentence for the run's description
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
        if tied is not None and tied.shape[0] != vocabulary:
            raise UsageError(
                f"the tied matrix must have one row per word: expected {vocabulary:,} rows, received {tied.shape[0]:,}."
            )
        self.width, self.vocabulary, self.tied = width, vocabulary, tied is not None
        self.weight = nn.Parameter(torch.empty(vocabulary, width)) if tied is None else tied
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        embedding_width = self.weight.shape[1]
        self.project = nn.Identity() if embedding_width == width else nn.Linear(width, embedding_width, bias=False)
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.log_probabilities(vectors)

    def logits(self, vectors: Tensor) -> Tensor:
        """Returns the scores before normalisation, (…, V)."""
        return F.linear(self.project(vectors), self.weight, self.bias)

    def log_probabilities(self, vectors: Tensor) -> Tensor:
        return F.log_softmax(self.logits(vectors), dim=-1)

    def loss(self, vectors: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(self.project(vectors), self.weight, self.bias, targets)

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
        return -self.softmax(_to_float32_under_autocast(vectors), targets).output

    def describe(self) -> str:
        cuts = ", ".join(f"{cut:,}" for cut in self.cutoffs)
        return f"adaptive softmax over {self.vocabulary:,} tokens, clusters cut at {cuts}; exact in evaluation too"


def _to_float32_under_autocast(vectors: Tensor) -> Tensor:
    """Returns the vectors in float32 if autocast is enabled: PyTorch's adaptive softmax keeps the input's dtype."""
    return vectors.float() if torch.is_autocast_enabled(vectors.device.type) else vectors
