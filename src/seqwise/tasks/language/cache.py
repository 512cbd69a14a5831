"""The continuous cache: past vectors of a text vote for the words that followed them (Grave et al. 2017).

    p(w) = (1 − λ) p_model(w) + λ p_cache(w)        p_cache(w) ∝ Σ_{i : w_{i+1} = w} exp(θ h_t · h_i)

i runs over the last N positions before t, and h are the vectors that enter the output layer. Only the probability of
the true next word is needed, and λ and θ need no second pass of the model, so they are cheap to search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.corpus.batching import StreamEvaluationLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.scoring import get_window, iterate_batches, iterate_vectors

SEGMENT_TOKENS = 1024  # tokens that a model with a state reads at once
BLOCK_TOKENS = 512  # tokens whose products with the cache are computed at once
# The search: its best values for PTB and WikiText-2 are inside (Merity et al. 2018: λ 0.1 and 0.13, θ 1 and 0.66).
WEIGHTS = (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
THETAS = (0.05, 0.1, 0.2, 0.3, 0.45, 0.66, 1.0, 1.5, 2.2, 3.3)


@dataclass(frozen=True)
class CacheSettings:
    """Size and shape of the cache."""

    window: int
    weight: float  # λ
    theta: float  # θ

    def describe(self) -> str:
        return f"the last {self.window:,} tokens, weight {self.weight:g}, theta {self.theta:g}"


def score_with_cache(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    cache: CacheSettings,
    progress: ProgressCallback = no_progress,
) -> float:
    """Returns the summed negative log likelihood of a text, read from its beginning to its end in one stream."""
    return float(_score_grid(model, store, settings, cache.window, [cache.weight], [cache.theta], progress))


def search_cache(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    window: int,
    progress: ProgressCallback = no_progress,
) -> CacheSettings:
    """Returns the weight and θ of the grid with the smallest loss on a text."""
    nats = _score_grid(model, store, settings, window, WEIGHTS, THETAS, progress)
    best_theta, best_weight = divmod(int(nats.argmin()), len(WEIGHTS))
    return CacheSettings(window, WEIGHTS[best_weight], THETAS[best_theta])


@torch.no_grad()
def _score_grid(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    window: int,
    weights: Sequence[float],
    thetas: Sequence[float],
    progress: ProgressCallback,
) -> Tensor:
    """Returns the summed negative log likelihood for each θ and weight, (θs, weights)."""
    if model.stateful:
        batches = StreamEvaluationLoader(store, 1, SEGMENT_TOKENS).epoch()
    else:  # windows in the order of the text
        batches = iterate_batches(store, get_window(settings), stateful=False)
    device = next(model.parameters()).device
    cache, done = ContinuousCache(window, thetas), 0
    mixing = torch.tensor(weights, dtype=torch.float64, device=device)[:, None]
    nats = torch.zeros(len(thetas), len(weights), dtype=torch.float64, device=device)
    for batch_vectors, batch_targets in iterate_vectors(model, batches):
        for vectors, targets in zip(batch_vectors.split(BLOCK_TOKENS), batch_targets.split(BLOCK_TOKENS)):
            losses = model.head.output.loss(vectors, targets).double()  # type: ignore[operator, union-attr]
            log_cached = cache.score(vectors, targets).double().log()  # (θs, n)
            if done == 0:
                log_cached[:, 0] = -losses[0]  # nothing is in the cache yet: the model alone predicts
            mixed = torch.logaddexp((-mixing).log1p() - losses, mixing.log() + log_cached[:, None])
            nats -= mixed.sum(-1)
            done += len(targets)
        progress(done, len(store) - 1)
    return nats.cpu()


class ContinuousCache:
    """The last `window` vectors of a text, each with the word that followed it."""

    def __init__(self, window: int, thetas: Sequence[float]):
        self.window, self.thetas = window, thetas
        self.keys: Tensor | None = None  # (M, D), M ≤ window
        self.words: Tensor | None = None  # (M,)

    def score(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """Returns p_cache of each target for each θ, (θs, n), and adds the vectors (n, D) and targets (n,).

        A target is predicted from what was added before it, also of this call. The first of all has 0.
        """
        keys = vectors if self.keys is None else torch.cat((self.keys, vectors))
        words = targets if self.words is None else torch.cat((self.words, targets))
        num_old, num_new = len(keys) - len(vectors), len(vectors)
        # Query i may see keys num_old + i − window … num_old + i − 1: a band of the matrix of products.
        offsets = torch.arange(len(keys), device=keys.device) - torch.arange(num_new, device=keys.device)[:, None]
        is_hidden = (offsets >= num_old) | (offsets < num_old - self.window)
        products = (vectors @ keys.T).float().masked_fill_(is_hidden, -math.inf)
        # The largest becomes 0, so that exp cannot overflow; where nothing is visible all stay −∞.
        products -= products.amax(1, keepdim=True).nan_to_num(neginf=0.0)
        is_match = words == targets[:, None]
        probabilities = []
        for theta in self.thetas:
            votes = (products * theta).exp_()
            total = votes.sum(1)
            probabilities.append(votes.mul_(is_match).sum(1) / total.clamp_min(1e-30))
        self.keys, self.words = keys[-self.window :], words[-self.window :]
        return torch.stack(probabilities)
