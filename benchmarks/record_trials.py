"""Trials of settings for `records.py`: recipes of which some settings are replaced.

A search is a YAML file that has a list of trials for each recipe:

    ptb-transformer:
      - {}                                              # as in the recipe
      - {network.dropout: 0.3, training.weight_decay: 1.0}
      - {training.learning_rate: null}                  # the default: a rule chooses the value

`--set SETTING=VALUE` replaces a setting in all trials, or makes one of a recipe. Trials are compared on the validation
split alone. This module starts no process.

null stands for the default of a setting, as if the recipe did not set it. Settings that may be null have that default,
so that null has one meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from seqwise.applicability import check_effects, list_changed
from seqwise.budget import Budget
from seqwise.config import RENAMED_SETTINGS, Settings, combine_settings
from seqwise.errors import UsageError
from seqwise.recipe_files import REQUIRED_SETTINGS, Recipe
from seqwise.yaml_files import read_yaml


def read_search(path: Path, names: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Returns recipe → trials, each with the settings that replace those of the recipe.

    Without `names`, all recipes of the file are returned.
    """
    try:
        search = read_yaml(path)
    except OSError as error:
        raise UsageError(f"the search cannot be read: {error.strerror}.", file=path) from None
    except yaml.YAMLError as error:
        raise UsageError(f"not valid YAML: {error}.", file=path) from None
    lists = search.values() if isinstance(search, dict) and search else [None]
    if not all(
        isinstance(trials, list) and trials and all(isinstance(each, dict) for each in trials) for trials in lists
    ):
        fix = "For example:\nsst2:\n- {network.width: 128}\n- {network.width: 256, training.learning_rate: 0.003}"
        raise UsageError("expected a list of trials for each recipe, and settings by name in each.", file=path, fix=fix)
    if missing := set(names or ()) - search.keys():
        raise UsageError(f"no trials for {', '.join(sorted(missing))}; there are {', '.join(search)}.", file=path)
    return {name: search[name] for name in names or search}


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Returns setting → value of `training.learning_rate=0.003` and the like; values are YAML."""
    overrides = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not value.strip():  # YAML reads it as null
            fix = "Write null for the default of a setting: --set training.learning_rate=null"
            raise UsageError(f"--set: expected SETTING=VALUE; received {text!r}.", fix=fix)
        try:
            overrides[name.replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(f"--set: {value!r} is not valid YAML; received {text!r}.") from None
    return overrides


def build_trials(
    name: str, recipe: Recipe, trials: Sequence[dict[str, Any]], overrides: Mapping[str, Any], file: Path | None
) -> list[dict[str, Any]]:
    """Returns the different trials with their `overrides`, by dotted name; raises an error for wrong settings.

    Of trials that train with the same settings, however they are written, it returns the first.
    """
    different: list[dict[str, Any]] = []
    known: list[dict[str, Any]] = []
    for number, trial in enumerate(trials, start=1):
        try:
            values = parse_trial({**flatten(trial), **overrides})
            combined = combine_settings(recipe.settings, values)
            check_effects([combined], list_changed(combined))
            effective = get_effective_settings(combined)
        except UsageError as error:
            problem = error.problem if file is None else f"{name}, trial {number}: {error.problem}"
            raise UsageError(problem, file=file, fix=error.fix) from None
        if effective not in known:
            known.append(effective)
            different.append(values)
    return different


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested settings by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def parse_trial(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the checked settings of a trial by dotted name; null becomes the default of the setting."""
    if necessary := [name for name in REQUIRED_SETTINGS if name in changes and changes[name] is None]:
        raise UsageError(f"{necessary[0]}: a recipe must have this setting, so it cannot be null.")
    values = {name: get_default(name) if value is None else value for name, value in changes.items()}
    checked = flatten(combine_settings(None, values).model_dump(exclude_unset=True))
    if "seed" in checked:
        raise UsageError("seed: seeds are chosen by --seeds.")
    return checked


def get_default(name: str) -> Any:
    """Returns the default of a setting; None for sections and unknown names, of which null is an error."""
    keys = RENAMED_SETTINGS.get(name, name).split(".")
    value = reduce(lambda section, key: getattr(section, key, None), keys, Settings())
    return None if isinstance(value, BaseModel) else value


def get_effective_settings(settings: Settings) -> dict[str, Any]:
    """Returns all settings by dotted name, defaults too; those that are written differently are equal."""
    return flatten(settings.model_dump()) | {"budget": Budget.parse(str(settings.budget))}
