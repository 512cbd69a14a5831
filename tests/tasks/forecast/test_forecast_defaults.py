"""Default rules of forecasting choose every setting, for any family and machine."""

from __future__ import annotations

import pytest

from seqwise.config import FAMILIES, Settings
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.forecast.model import choose_patch_size


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("model", [family for family in FAMILIES if family != "ngram"])
def test_every_setting_gets_a_default(model: str, cuda: bool):
    facts = DefaultsContext(5_000_000, 0, cuda, cores=2, processes=2, examples=57_000, max_length=336, outputs=96)
    chosen, _ = resolve(Settings(task="forecast", model=model), facts)
    for value in (chosen.network.width, chosen.network.depth, chosen.network.embedding, chosen.forecast.patch):
        assert value
    assert chosen.network.dropout is not None
    assert chosen.training.learning_rate
    assert chosen.training.weight_decay is not None
    assert chosen.training.precision == "float32"
    assert chosen.training.batch_size % 2 == 0
    if model == "transformer":
        assert chosen.network.width % chosen.transformer.heads == 0


def test_few_windows_make_small_batches_and_large_steps():
    few = DefaultsContext(2_000, 0, False, 2, examples=160, max_length=44)
    chosen, _ = resolve(Settings(task="forecast", model="gru"), few)
    assert (chosen.training.batch_size, chosen.training.learning_rate) == (20, 2e-3)
    assert chosen.forecast.patch == 1


@pytest.mark.parametrize(("past", "patch"), [(44, 1), (64, 1), (336, 24), (720, 48), (97, 6), (101, 7)])
def test_patches_divide_the_lookback_if_possible(past: int, patch: int):
    assert choose_patch_size(past) == patch


def test_settings_of_the_user_are_kept():
    facts = DefaultsContext(2_000, 0, False, 2, examples=160, max_length=44)
    chosen, names = resolve(Settings(task="forecast", model="lstm", network={"width": 7}, forecast={"patch": 5}), facts)
    assert (chosen.network.width, chosen.network.embedding, chosen.forecast.patch) == (7, 7, 5)
    assert "network.width" not in names
