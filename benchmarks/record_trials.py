"""Trials of settings for `records.py`: recipes of which some settings are replaced.

A search is a YAML file that has a list of trials for each recipe:

    ptb-transformer:
      - {}                                              # as in the recipe
      - {network.dropout: 0.3, training.weight_decay: 1.0}
      - {training.learning_rate: null}                  # without that setting: the default rule chooses it

`--set SETTING=VALUE` replaces a setting in all trials, or makes one of a recipe. Trials are compared on the validation
split alone. This module starts no process.

null is also the default of every setting whose value may be null, so that removing a setting and setting it to null are
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from record_jobs import flatten, list_remaining

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
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set: expected SETTING=VALUE; received {text!r}.")
        overrides[name.replace("-", "_")] = yaml.safe_load(value)
    return overrides


def build_trials(
    name: str, recipe: Recipe, trials: Sequence[dict[str, Any]], overrides: Mapping[str, Any], file: Path | None
) -> list[dict[str, Any]]:
    """Returns the different trials with their `overrides`, by dotted name; raises an error for wrong settings.

    Of trials that train with the same settings, however they are written, it returns the first.
    """
    different: list[dict[str, Any]] = []
    meanings: list[dict[str, Any]] = []
    for number, trial in enumerate(trials, start=1):
        try:
            values = parse_trial({**flatten(trial), **overrides}, recipe)
            base = list_remaining(recipe, values)
            combined = combine_settings(base, {name: value for name, value in values.items() if value is not None})
            check_effects([combined], list_changed(combined))
            meaning = get_meaning(combined)
        except UsageError as error:
            problem = error.problem if file is None else f"{name}, trial {number}: {error.problem}"
            raise UsageError(problem, file=file, fix=error.fix) from None
        if meaning not in meanings:
            meanings.append(meaning)
            different.append(values)
    return different


def parse_trial(changes: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Returns the checked changes of the settings of a recipe by dotted name; None removes one that the recipe has."""
    removed = {RENAMED_SETTINGS.get(name, name) for name, value in changes.items() if value is None}
    set_values = {name: value for name, value in changes.items() if value is not None}
    checked = combine_settings(None, {**{name: get_default(name) for name in removed}, **set_values})
    values = flatten(checked.model_dump(exclude_unset=True)) | dict.fromkeys(removed)
    if "seed" in values:
        raise UsageError("seed: seeds are chosen by --seeds.")
    if necessary := [name for name in REQUIRED_SETTINGS if name in removed]:
        raise UsageError(f"{necessary[0]}: a recipe must have this setting, so it cannot be null.")
    settings = flatten(recipe.get_setting_values())
    return {name: value for name, value in values.items() if value is not None or name in settings}


def get_default(name: str) -> Any:
    """Returns the default of a setting; None for sections and unknown names, of which null is an error."""
    value = reduce(lambda section, key: getattr(section, key, None), name.split("."), Settings())
    return None if isinstance(value, BaseModel) else value


def get_meaning(settings: Settings) -> dict[str, Any]:
    """Returns the settings that are set, by dotted name; values that are written differently are equal."""
    values = flatten(settings.model_dump(exclude_unset=True))
    is_set = {name: value for name, value in values.items() if value is not None}
    return is_set | {"budget": Budget.parse(str(settings.budget))}
