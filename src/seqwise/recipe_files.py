"""`Recipe`: the settings that reproduce a published result, read from a YAML file; the package contains one per result.

    seqwise train --recipe wikitext2-awd-1cycle $SEQWISE_DATA/wikitext2

A recipe names the data, the settings of training, how the run is evaluated, and the numbers to reach. What it reached
is not in the file but beside it: `recipe_results.py`. This module does not train, and never executes what is in a file.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from seqwise.applicability import REMOVE_FIXES
from seqwise.budget import Budget
from seqwise.config import Settings, list_errors
from seqwise.digests import compute_digest
from seqwise.errors import FileKindError, UsageError, suggest
from seqwise.metric_names import METHOD_OPTIONS, TASK_METRICS, TEXT_METRICS
from seqwise.yaml_files import Location, build_file_error, parse_yaml, read_yaml_text

DATA_SECTION = "docs/records.md#the-data"
FOLDER = Path(__file__).parent / "recipes"
SUFFIX = ".yaml"
KEYS_FIX = "docs/records.md describes the keys of a recipe."
REQUIRED_SETTINGS = ("task", "model", "budget")
DATA_VARIABLE = "SEQWISE_DATA"  # environment variable: the folder of benchmark data


class RecipePart(BaseModel):
    """A mapping in a recipe. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, frozen=True)


class PublishedResult(RecipePart):
    """A number to compare with."""

    value: float
    source: str
    """Paper, repository or table that the number is from."""
    comparable: bool = True
    """Whether it is of the same metric on the same data; tables have a number that is not in brackets."""

    def format(self) -> str:
        """Returns the number for a table."""
        return f"{self.value:g}" if self.comparable else f"({self.value:g})"


class RecipeEvaluation(RecipePart):
    """One way to evaluate the run, and the numbers to reach."""

    options: dict[str, bool | int | float | str] = {}
    """Options of `seqwise evaluate`, such as `beam: 5`."""
    metric: str | None = None
    """Metric of `seqwise evaluate`, if it is not that of the recipe."""
    published: PublishedResult
    required: float
    """The mean of our seeds must be at least as good."""
    goal: float
    tolerance: float = Field(gt=0)
    """How far a repetition may be from our result and still reproduce it: the noise of seeds and machines."""

    @property
    def is_fitted_to_validation(self) -> bool:
        """Returns whether an option chooses numbers on the validation split: on that split the metric is optimistic."""
        return "auto" in self.options.values() or any(
            self.options.get(f"{each}_search") for each in ("cache", "dynamic")
        )

    @field_validator("options")
    @classmethod
    def _check_names(cls, options: dict[str, Any]) -> dict[str, Any]:
        names = [name.replace("-", "_") for name in options]  # as typed, or as in Python
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(repeated)}: set twice")
        options = dict(zip(names, options.values()))
        if reserved := {"split", "json", "device", "out", "help", "help_all"} & options.keys():
            raise ValueError(f"{', '.join(sorted(reserved))}: chosen by the command that evaluates, not by the recipe")
        return options


class Recipe(RecipePart):
    """The settings that reproduce a published result."""

    description: str
    """What is reproduced, and where it differs from the original."""
    data: str
    """Folder or file under $SEQWISE_DATA, or one that `prepare` creates."""
    prepare: str = ""
    """Shell commands that create `data` in the current folder from $SEQWISE_DATA; empty if there is nothing to do."""
    fingerprint: str = ""
    """Digest of the data and its splits, as in the model card of a run; training on other data logs a warning."""
    settings: Settings
    """Settings of `seqwise train`, nested as in `--config`."""
    metric: str
    """Metric of `seqwise evaluate`."""
    scale: float = Field(1.0, gt=0)
    """Factor from that metric to the unit of the published number, such as 100 for an accuracy in percent."""
    unit: str
    """Name of the scaled metric in tables."""
    lower_is_better: bool
    split: Literal["valid", "test"] = "test"
    """Split that the published number is of; valid: there is no test split, or its labels are not public."""
    selection: str
    """How the settings were chosen, and what was looked at."""
    evaluations: dict[str, RecipeEvaluation] = Field(min_length=1)
    """By name. The first is the main one; others use the same run, such as with a cache."""

    @property
    def data_name(self) -> str:
        """Returns the data as it is typed: in $SEQWISE_DATA, or in the current folder if it is prepared."""
        return self.data if self.prepare else f"${DATA_VARIABLE}/{self.data}"

    def get_setting_values(self) -> dict[str, Any]:
        """Returns the settings that the file contains, without defaults."""
        return self.settings.model_dump(mode="json", exclude_unset=True)

    def compute_digest(self) -> str:
        """Returns a digest of everything that changes the numbers; descriptions and goals do not."""
        evaluations = {name: [self.get_metric(name), each.options] for name, each in self.evaluations.items()}
        values = [self.data, self.prepare, self.get_setting_values(), self.scale, self.split, evaluations]
        return compute_digest(json.dumps(values, sort_keys=True).encode())

    def get_metric(self, evaluation: str) -> str:
        """Returns the metric of an evaluation."""
        return self.evaluations[evaluation].metric or self.metric

    def is_as_good_as(self, value: float, bound: float) -> bool:
        """Returns whether a value is as good as a bound."""
        return value <= bound if self.lower_is_better else value >= bound


def list_recipe_names() -> list[str]:
    """Returns the names of the recipes in the package."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def find_recipe(name: str) -> Path:
    """Returns the file of a recipe: `name` is one of `list_recipe_names`, or the path of a file."""
    if name in list_recipe_names():
        return FOLDER / f"{name}{SUFFIX}"
    path = Path(name)
    if path.suffix in (SUFFIX, ".yml") or len(path.parts) > 1 or path.is_file():
        return path
    raise UsageError(f"there is no recipe {name!r}.", fix=f"{suggest(name, list_recipe_names())} See seqwise recipes.")


def read_recipe(name: str) -> Recipe:
    """Returns a recipe of the package by its name, or that of a file; all errors in it are reported at once."""
    path = find_recipe(name)
    try:
        text = read_yaml_text(path)
        values = parse_yaml(text)
    except FileNotFoundError:
        fix = f"{suggest(path.stem, list_recipe_names())} See seqwise recipes."
        raise UsageError("the recipe does not exist.", file=path, fix=fix) from None
    except OSError as error:
        raise UsageError(f"the recipe cannot be read: {error.strerror}.", file=path) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = f"not valid YAML: {getattr(error, 'problem', None) or error}."
        raise UsageError(problem, file=path, line=line, fix=KEYS_FIX) from None
    if not isinstance(values, dict):
        found = "the file is empty" if values is None else f"found {type(values).__name__}"
        raise UsageError(f"expected a mapping of keys to values; {found}.", file=path, fix=KEYS_FIX)
    if values.keys() & Settings.model_fields and not values.keys() & (Recipe.model_fields.keys() - {"data"}):
        problem = "this is a settings file, not a recipe: it has no key 'settings'."
        raise FileKindError(problem, file=path, fix="Pass it to seqwise train as --config.")
    return _parse_recipe(values, path, text)


def describe_other_data(name: str, recipe: Recipe, fingerprint: str) -> str:
    """Returns a warning if data with this fingerprint is not that of the recipe, otherwise ""."""
    if recipe.fingerprint in ("", fingerprint):
        return ""
    problem = f"this is not the data of the recipe {name}, or it has other splits: published numbers do not apply."
    return f"{problem} The recipe is for {recipe.data_name}, see {DATA_SECTION}"


@contextmanager
def explain_recipe_settings(name: str | None, settings: Iterable[str]) -> Iterator[None]:
    """Adds to an error which settings in its text are those of a recipe; `settings` has the names that only it sets.

    `name` is None without a recipe.
    """
    try:
        yield
    except UsageError as error:
        mentioned = [each.replace("-", "_") for each in re.findall(r"--([a-z][\w.-]*\w)", str(error))]
        if name is not None and (named := [each for each in settings if each in mentioned]):
            options = ", ".join(f"--{each.replace('_', '-')}" for each in named)
            copy = f"remove {'it' if len(named) == 1 else 'them'} from a copy of {find_recipe(name)}"
            if error.fix in REMOVE_FIXES:  # an option would be refused like the value of the recipe
                error.fix = f"The recipe {name} sets {options}: {copy}, and pass --recipe COPY.yaml"
            else:
                change = f"Override a setting, or {copy} and pass --recipe COPY.yaml"
                error.fix = f"{error.fix}\nThe recipe {name} sets {options}. {change}".strip()
        raise


def build_evaluate_commands(recipe: Recipe, run: str, data: str) -> list[str]:
    """Returns the command of each evaluation; `run` and `data` are quoted already."""
    options = [shlex.join(build_evaluation_options(each.options)) for each in recipe.evaluations.values()]
    return [f"seqwise evaluate {run} {data} --split {recipe.split} {each}".rstrip() for each in options]


def build_evaluation_options(options: dict[str, Any]) -> list[str]:
    """Returns options of `seqwise evaluate` as they are typed; a switch has no value."""
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is False:
            words.append(option.replace("--", "--no-", 1))
        else:
            words += [option, str(value)]
    return words


def _parse_recipe(values: dict[str, Any], path: Path, text: str) -> Recipe:
    """Returns a recipe from the values of a file; raises `UsageError` with all that is wrong."""
    problems: list[tuple[Location, str]] = []
    if isinstance(values.get("settings"), dict):
        try:
            values = values | {"settings": Settings.model_validate(values["settings"])}
        except ValidationError as error:
            errors = list_errors(error, Settings, lambda name: f"settings.{name}", is_yaml=True)
            problems += [(("settings", *location), sentence) for location, sentence in errors]
            values = values | {"settings": Settings()}
        else:
            problems += _check_settings(values["settings"])
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        problems += [
            (each["loc"], _describe_problem(each["loc"], each["type"], each["msg"], each["input"]))
            for each in error.errors()
        ]
    else:
        problems += _check_metrics(recipe)
    if problems:
        raise build_file_error(problems, text, path, fix=KEYS_FIX)
    return recipe


def _check_metrics(recipe: Recipe) -> list[tuple[Location, str]]:
    """Returns what is wrong with the metrics of the evaluations: the place and a sentence.

    The metrics of a task of the user's own are not known.
    """
    problems: dict[Location, str] = {}
    task = str(recipe.settings.task)
    methods = METHOD_OPTIONS if task == "language" else {}
    needed_options = {f"{method}_{each}": option for method, option in methods.items() for each in TEXT_METRICS}
    for key, evaluation in recipe.evaluations.items() if task in TASK_METRICS else ():
        metric = recipe.get_metric(key)
        used = [option for option, value in evaluation.options.items() if value is not False]
        known = [*TASK_METRICS[task], *(name for name, option in needed_options.items() if option in used)]
        location: Location = ("metric",) if evaluation.metric is None else ("evaluations", key, "metric")
        if metric in needed_options and metric not in known:
            problem = f"evaluations.{key}: {metric} is a metric with the option {needed_options[metric]} only."
            problems["evaluations", key] = problem
        elif metric not in known:
            hint = suggest(metric, known)
            problem = f"{'.'.join(map(str, location))}: expected a metric of the task {task}: {', '.join(known)}"
            problems[location] = f"{problem}; received {metric!r}.{f' {hint}' if hint.startswith('Perhaps') else ''}"
    return list(problems.items())


def _check_settings(settings: Settings) -> list[tuple[Location, str]]:
    """Returns what is wrong with valid settings of a recipe: the place and a sentence."""
    problems: list[tuple[Location, str]] = []
    if missing := [name for name in REQUIRED_SETTINGS if name not in settings.model_fields_set]:
        expected = f"settings: expected {', '.join(REQUIRED_SETTINGS)}; missing: {', '.join(missing)}."
        problems.append((("settings",), expected))
    if settings.budget is not None:
        try:
            Budget.parse(settings.budget)
        except UsageError as error:
            problems.append((("settings", "budget"), f"settings.budget: {error.problem} {error.fix}".strip()))
    return problems


def _describe_problem(location: tuple[int | str, ...], kind: str, message: str, received: object) -> str:
    """Returns a sentence about a wrong key."""
    problem = f"{message[:1].lower()}{message[1:]}.".removeprefix("value error, ")
    if kind == "extra_forbidden":
        problem = (
            f"no such key. {suggest(str(location[-1]), Recipe.model_fields) if len(location) == 1 else ''}".strip()
        )
    elif kind.startswith("bool"):
        problem = f"expected true or false; received {received!r}."
    return f"{'.'.join(map(str, location))}: {problem}"
