"""Default rules of forecasting choose every setting, for any family and machine."""

from __future__ import annotations

import pytest

from seqwise.config import FAMILIES, Settings
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.forecast.model import choose_patch_size


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("model", [family for family in FAMILIES if family != "ngram"])
def test_every_setting_gets_a_default(model: str, cuda: bool):
    context = DefaultsContext(5_000_000, 0, cuda, cores=2, processes=2, num_examples=57_000, max_length=336)
    settings, _ = resolve(Settings(task="forecast", model=model), context)
    for value in (settings.network.width, settings.network.depth, settings.network.embedding, settings.forecast.patch):
        assert value
    assert settings.network.dropout is not None
    assert settings.training.learning_rate
    assert settings.training.weight_decay is not None
    assert settings.training.precision == "float32"
    assert settings.training.batch_size % 2 == 0
    if model == "transformer":
        assert settings.network.width % settings.transformer.heads == 0


def test_few_windows_get_small_batches_and_a_large_learning_rate():
    context = DefaultsContext(2_000, 0, False, 2, num_examples=160, max_length=44)
    settings, _ = resolve(Settings(task="forecast", model="gru"), context)
    assert (settings.training.batch_size, settings.training.learning_rate) == (20, 2e-3)
    assert settings.forecast.patch == 1


def test_the_epochs_of_a_budget_in_time_are_limited():
    """Eight epochs or 1,750 updates, with few windows 1,000."""
    cases = ((57_463, False, 8), (57_463, True, 32), (2_400, False, 195), (1_900, False, 125), (500_000, False, 0))
    for num_examples, cuda, max_epochs in cases:
        context = DefaultsContext(2_000, 0, cuda, 2, num_examples=num_examples, max_length=44)
        settings, _ = resolve(Settings(task="forecast", model="gru"), context)
        assert settings.training.max_epochs == max_epochs


@pytest.mark.parametrize(("lookback", "patch"), [(44, 1), (64, 1), (336, 24), (720, 48), (97, 6), (101, 7)])
def test_patches_divide_the_lookback_if_possible(lookback: int, patch: int):
    assert choose_patch_size(lookback) == patch


def test_settings_of_the_user_are_kept():
    context = DefaultsContext(2_000, 0, False, 2, num_examples=160, max_length=44)
    settings, names = resolve(
        Settings(task="forecast", model="lstm", network={"width": 7}, forecast={"patch": 5}), context
    )
    assert (settings.network.width, settings.network.embedding, settings.forecast.patch) == (7, 7, 5)
    assert "network.width" not in names
