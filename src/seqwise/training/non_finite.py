"""The error for an update whose loss or gradient is infinite or NaN: it names the samples to blame."""

from __future__ import annotations

import torch
from torch import nn

from seqwise.backbones.states import ModelState, map_state
from seqwise.data.batch import Batch
from seqwise.errors import NonFiniteError
from seqwise.training.distribution import World

MAX_NAMED = 8  # samples in the message


def explain_non_finite(
    model: nn.Module, batch: Batch, state: ModelState, world: World, step: int, loss: float, norm: float
) -> NonFiniteError:
    """Return the error for update number `step`; every row is evaluated alone to find those that are not finite."""
    positions = [] if batch.positions is None else batch.positions.tolist()
    culprits = [position for row, position in enumerate(positions) if not is_row_finite(model, batch, state, row)]
    samples = world.gather(culprits) or world.gather(positions)
    where = ""
    if samples:
        listed = ", ".join(f"{position:,}" for position in samples[:MAX_NAMED])
        where = (
            f", in the samples that begin at {batch.position_unit} {listed}{' …' if len(samples) > MAX_NAMED else ''}"
        )
    return NonFiniteError(
        f"the loss is {loss:g} and the gradient norm {norm:g} at step {step}{where}. The update was not made.",
        repair="The last good checkpoint is kept. Try half the learning rate (--training.learning-rate) "
        "or a smaller --training.clip-threshold.",
    )


@torch.no_grad()
def is_row_finite(model: nn.Module, batch: Batch, state: ModelState, row: int) -> bool:
    """Return whether the loss of one row alone is finite."""
    row_state = map_state(lambda tensor: tensor[row : row + 1], state)
    return bool(torch.isfinite(model(batch.slice(row, row + 1), row_state)[0].total))
