"""Rules about the whole curve of a run, for `seqwise inspect --view health`: see `health_rules.py`.

They are not certain enough for a message during training: a rising validation loss may fall again, and a short budget
may be intended.
"""

from __future__ import annotations

import math

import numpy as np

from seqwise.budget import has_reached_max_epochs
from seqwise.training.health_rules import BLOCK_ROWS, Curve, Diagnosis, Rule, RunProperties, find_divergence

OVERFITTED = 0.05  # rise of the validation loss since its best, relative to it
MIN_RISE = 0.01  # nats
SPIKE = 2.0  # loss / median of the ten before it
MIN_SPIKES = 3
RISEN = 1.15  # training loss at the end / lowest mean of 100 updates
FEW_UPDATES = 100
STEEP = 0.1  # share of the whole improvement that the last fifth of the budget has brought


def find_overfitting(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The validation loss has risen by 5 % since its best value, at least two validations ago; training loss fell."""
    if len(curve.validation_losses) < 4:
        return None
    steps, losses = (np.array(column) for column in zip(*curve.validation_losses))
    best = int(losses.argmin())
    rise = float(losses[-1] - losses[best])
    if best > len(losses) - 3 or losses[best] <= 0 or rise < max(MIN_RISE, OVERFITTED * losses[best]):
        return None
    then, now = average_near(curve, int(steps[best])), average_near(curve, curve.num_updates)
    if not now < then:
        return None
    return Diagnosis(
        "overfitting",
        "warning",
        f"the model overfits: since update {int(steps[best]):,} the validation loss has risen from {losses[best]:.3f} "
        f"to {losses[-1]:.3f} while the training loss has fallen from {then:.3f} to {now:.3f}",
        f"validation loss {rise / losses[best]:+.0%} over {len(losses) - 1 - best} validations"
        + (f"; the saved weights are those of update {curve.saved[0]:,}" if curve.saved else ""),
        advice="train on more data, or a smaller network",
    )


def average_near(curve: Curve, step: int) -> float:
    """Returns the mean of the ten logged losses up to a step."""
    stop = max(1, int(np.searchsorted(curve.steps, step, side="right")))
    return float(curve.losses[max(0, stop - BLOCK_ROWS) : stop].mean())


def find_spikes(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """At least three logged losses, and 1 % of them, are twice the median of the ten before them.

    They must also exceed that median by three times the spread of the ten, and the loss before training.
    """
    if len(curve.losses) < 3 * BLOCK_ROWS or find_divergence(curve, properties):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(curve.losses, BLOCK_ROWS)[:-1]
    medians, spread = np.median(windows, axis=1), windows.max(axis=1) - windows.min(axis=1)
    after = curve.losses[BLOCK_ROWS:]
    is_spike = (after > SPIKE * medians) & (after > medians + 3 * spread) & (after > curve.get_initial_loss())
    count = int(is_spike.sum())
    if count < max(MIN_SPIKES, 0.01 * len(after)):
        return None
    worst = int(np.argmax(np.where(is_spike, after / medians, 0)))
    return Diagnosis(
        "loss spikes",
        "warning",
        f"the loss jumps: {count} logged updates have more than twice the loss of those before them",
        f"largest at update {int(curve.steps[BLOCK_ROWS + worst]):,}: {after[worst]:.3g} after {medians[worst]:.3g}",
        {"training.learning_rate": f"{properties.learning_rate / 3:.1g}"},
    )


def find_rising_loss(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The training loss ends 15 % above its lowest mean of 100 updates, and above it by a tenth of the initial loss."""
    _, losses = curve.average_blocks()
    if len(losses) < 4 or find_divergence(curve, properties):
        return None
    lowest, last, initial = float(losses.min()), float(losses[-1]), curve.get_initial_loss()
    if lowest <= 0 or last < RISEN * lowest or not last - lowest > 0.1 * initial:
        return None
    return Diagnosis(
        "rising training loss",
        "warning",
        f"the training loss has risen from {lowest:.3f} to {last:.3f}: the learning rate "
        f"{properties.learning_rate:g} is probably too high",
        f"lowest mean of 100 updates {lowest:.3f}, last {last:.3f}",
        {"training.learning_rate": f"{properties.learning_rate / 3:.1g}"},
    )


def find_small_budget(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The budget is spent after fewer than 100 updates, or its last fifth has brought 10 % of the whole improvement.

    The same for a training that its maximum of epochs has ended.
    """
    if curve.progress < 1:
        return None
    limit, end, advice = "the budget", "spent", "a larger budget"
    if has_reached_max_epochs(curve.ended):
        limit, end = "the maximum of epochs", "reached"
        advice = "a new run with a larger --training.max-epochs"
    if curve.num_updates < FEW_UPDATES:
        text = f"{limit} is far too small: it was {end} after {curve.num_updates:,} updates"
        return Diagnosis("small budget", "warning", text, f"fewer than {FEW_UPDATES} updates", advice=advice)
    points = curve.validation_losses
    if len(points) < 5:
        points = list(zip(*curve.average_blocks()))
    if len(points) < 5:
        return None
    steps, losses = (np.array(column, dtype=np.float64) for column in zip(*points))
    earlier = float(np.interp(0.8 * curve.num_updates, steps, losses))
    first, last = max(float(losses[0]), properties.entropy or -math.inf), float(losses[-1])
    share = (earlier - last) / max(1e-9, first - last)
    if first - last < 0.02 * abs(first) or share < STEEP:
        return None
    return Diagnosis(
        "small budget",
        "warning" if share >= 2 * STEEP else "note",
        f"the loss was still falling steeply when {limit} was {end}: from {earlier:.3f} to {last:.3f} in its last "
        "fifth",
        f"{share:.0%} of the whole improvement from {first:.3f} came in the last fifth",
        advice=advice,
    )


CURVE_RULES: tuple[Rule, ...] = (find_rising_loss, find_spikes, find_overfitting, find_small_budget)
