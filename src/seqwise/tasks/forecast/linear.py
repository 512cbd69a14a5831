"""Linear baseline of forecasting: ridge regression of the next steps on the look-back window, in closed form.

The last value is subtracted from the window and added to the forecast (NLinear: Zeng et al. 2023), so that the penalty
draws the forecast towards the last value. Unlike in NLinear the last value is an input too, for series that return to a
level. All series share the weights; values known in advance are not used. The penalty is chosen on the validation
split.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from seqwise.tasks.forecast.windows import RollingWindows

PENALTIES = tuple(10.0**exponent for exponent in range(-5, 3))  # times the mean diagonal of the Gram matrix
MAX_WINDOWS = 50_000  # of the training split, evenly spaced; a tenth as many for validation
BATCH_SIZE = 4_096


def fit_linear(rolling: RollingWindows, train: np.ndarray, valid: np.ndarray) -> np.ndarray | None:
    """Returns the weights (lookback + 1, horizon), the last row of which is the bias; None without complete windows."""
    size = rolling.lookback + 1
    gram, products = np.zeros((size, size)), np.zeros((size, rolling.horizon))
    for inputs, targets, mask in _iterate_batches(rolling, train[:: -(-len(train) // MAX_WINDOWS)]):
        is_complete = mask.all(axis=1)
        gram += inputs[is_complete].T @ inputs[is_complete]
        products += inputs[is_complete].T @ targets[is_complete]
    if not gram[-1, -1]:
        return None
    # The solution of (gram + penalty · I) weights = products, for all penalties by one eigendecomposition.
    eigenvalues, eigenvectors = np.linalg.eigh(gram)
    rotated, scale = eigenvectors.T @ products, np.trace(gram) / size
    candidates = [eigenvectors @ (rotated / (eigenvalues + p * scale)[:, None]) for p in PENALTIES]
    errors = np.zeros(len(candidates))
    for inputs, targets, mask in _iterate_batches(rolling, valid[:: -(-len(valid) * 10 // MAX_WINDOWS)]):
        errors += [(((inputs @ weights - targets) ** 2) * mask).sum() for weights in candidates]
    return candidates[int(errors.argmin())].astype(np.float32)


def forecast_linearly(past: Tensor, weights: np.ndarray) -> np.ndarray:
    """Returns forecasts (B, horizon) for windows (B, lookback)."""
    inputs, last = _build_inputs(past)
    return (inputs @ weights + last).astype(np.float32)


def _build_inputs(past: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs (B, lookback + 1) and the last value (B, 1).

    The inputs are the earlier values minus the last value, the last value, and 1.
    """
    values = past.double().numpy()
    last = values[:, -1:]
    return np.concatenate([values[:, :-1] - last, last, np.ones_like(last)], axis=1), last


def _iterate_batches(
    rolling: RollingWindows, windows: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields inputs, targets minus the last value, and the mask of observed targets."""
    for start in range(0, len(windows), BATCH_SIZE):
        batch = rolling.collate(windows[start : start + BATCH_SIZE])
        inputs, last = _build_inputs(batch.past)
        yield inputs, batch.future.double().numpy() - last, batch.mask.numpy()
