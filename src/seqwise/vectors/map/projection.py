"""Projects vectors onto the plane by PCA or t-SNE. It knows nothing of words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqwise.errors import UsageError
from seqwise.vectors.map.tsne import STEPS, tsne

By = Literal["pca", "tsne"]
ProgressCallback = Callable[[int, int], None]

MIN_WORDS = 3  # a map of fewer is meaningless
TSNE_MIN_WORDS, TSNE_MAX_WORDS = 10, 2_000  # t-SNE compares all pairs: time and memory grow with the square
PERPLEXITY = 30.0  # effective number of neighbours


@dataclass(frozen=True)
class Projection:
    """Points of the plane, and a description of how they were computed."""

    points: np.ndarray  # (N, 2)
    by: By
    description: str


def project(
    vectors: np.ndarray, by: By | None = None, seed: int = 0, progress: ProgressCallback | None = None
) -> Projection:
    """Projects unit vectors (N, D); `by` defaults to t-SNE for 10 to 2,000 vectors, otherwise to PCA."""
    count = len(vectors)
    if count < MIN_WORDS:
        raise UsageError(f"a map needs at least {MIN_WORDS} words; received {count}.", repair="Name more words.")
    if by is None:
        by = "tsne" if TSNE_MIN_WORDS <= count <= TSNE_MAX_WORDS else "pca"
    if by == "tsne" and count > TSNE_MAX_WORDS:
        raise UsageError(
            f"t-SNE compares all pairs, and is limited to at most {TSNE_MAX_WORDS:,} words; received {count:,}.",
            repair="Show fewer words, or project them by PCA.",
        )
    return _project_by_pca(vectors) if by == "pca" else _project_by_tsne(vectors, seed, progress)


def compute_principal_axes(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns coordinates on the first two principal axes, (N, 2), and the share of the variance on each, (2,)."""
    centred = np.asarray(vectors, np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    _, singular_values, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.vstack([axes, np.zeros((2, axes.shape[1]))])[:2]  # vectors of one dimension have one axis
    # The sign of an axis is arbitrary; its largest entry is made positive, so that maps are reproducible.
    axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    variances = np.append(singular_values**2, [0.0, 0.0])
    return centred @ axes.T, variances[:2] / (variances.sum() or 1.0)


def _project_by_pca(vectors: np.ndarray) -> Projection:
    points, shares = compute_principal_axes(vectors)
    description = f"PCA of unit vectors: these two axes hold {shares.sum():.0%} of the variance"
    return Projection(points, "pca", f"{description} ({shares[0]:.1%} across, {shares[1]:.1%} up)")


def _project_by_tsne(vectors: np.ndarray, seed: int, progress: ProgressCallback | None) -> Projection:
    perplexity = max(1.0, min(PERPLEXITY, (len(vectors) - 1) / 3))
    start, _ = compute_principal_axes(vectors)
    points, divergence = tsne(vectors, start, perplexity, seed, progress)
    points, _ = compute_principal_axes(points)  # rotations are equivalent: the longer side becomes horizontal
    description = (
        f"t-SNE of unit vectors: perplexity {perplexity:.3g}, {STEPS:,} steps, seed {seed}, KL {divergence:.2f}"
    )
    return Projection(points, "tsne", f"{description}; distances between clusters have no meaning")
