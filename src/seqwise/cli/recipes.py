"""`seqwise recipes`: lists the published results that can be reproduced; with a name, all about one of them."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from seqwise.cli import console
from seqwise.cli.evaluate import check_options
from seqwise.cli.options import UNSET, parse
from seqwise.errors import DataError, UsageError
from seqwise.recipe_files import (
    DATA_SECTION,
    DATA_VARIABLE,
    Recipe,
    build_evaluate_commands,
    build_evaluation_options,
    find_recipe,
    list_recipe_names,
    read_recipe,
)
from seqwise.recipe_results import RecipeResults, average, get_results_file, judge, read_results
from seqwise.yaml_files import build_file_error, read_yaml_text

EXAMPLE = "seqwise recipes wikitext2-awd-1cycle"
LIST_COLUMNS = ("recipe", "metric", "published", "ours", "minutes", "verdict")
COLUMNS = ("recipe", "metric", "published", "required", "goal", "ours", "verdict")  # of one recipe
TEXT_WIDTH = 100


@dataclass
class Recipes:
    """List the recipes: settings that reproduce published results. With NAME: one of them, with its commands."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint=""), UNSET] = (
        None
    )
    """A recipe of the list, or a recipe file of your own."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def main(argv: Sequence[str]) -> int:
    options = parse(Recipes, argv, prog="seqwise recipes", example=EXAMPLE)
    names = list_recipe_names() if options.name is None else [options.name]
    recipes = {name: read_and_check_recipe(name) for name in names}
    if options.json:
        values = [_describe(name, recipe) for name, recipe in recipes.items()]
        console.print_json(values if options.name is None else values[0])
    elif options.name is None:
        _print_table([row for name, recipe in recipes.items() for row in _build_rows(name, recipe)], LIST_COLUMNS)
        console.log("\nPublished in brackets: not directly comparable. Ours: mean ± standard deviation (seeds).")
        console.log("All about one: seqwise recipes NAME. How the numbers were measured: docs/records.md")
        console.log(f"Which data ${DATA_VARIABLE} has: {DATA_SECTION}")
    else:
        _print_recipe(options.name, recipes[options.name])
    return 0


def read_and_check_recipe(name: str) -> Recipe:
    """Returns a recipe whose evaluations have options of `seqwise evaluate`; raises an error for others."""
    recipe, path = read_recipe(name), find_recipe(name)
    for key, evaluation in recipe.evaluations.items():
        try:
            check_options(build_evaluation_options(evaluation.options), str(recipe.settings.task))
        except UsageError as error:
            location = ("evaluations", key, "options")
            problem = f"{'.'.join(location)}: {error.problem}"
            raise build_file_error([(location, problem)], read_yaml_text(path), path, error.fix) from None
    return recipe


def build_commands(name: str, recipe: Recipe) -> list[str]:
    """Returns the commands that reproduce a recipe: prepare the data, train, evaluate."""
    run = shlex.quote(f"runs/{find_recipe(name).stem}")
    train = f"seqwise train --recipe {shlex.quote(name)} {recipe.data_name} --out {run}"
    return [*_list_prepare_commands(recipe), train, *build_evaluate_commands(recipe, run, recipe.data_name)]


def suggest_evaluations(name: str, run: str, data: str, overrides: Sequence[str] = ()) -> list[str]:
    """Returns the commands that evaluate a run of a recipe, each followed by the numbers to compare with.

    A run with other settings than the recipe, whose names are `overrides`, has no such numbers.
    """
    recipe, results = read_recipe(name), read_results(get_results_file(name))
    if results is not None and results.digest != recipe.compute_digest():  # of an earlier version of the recipe
        results = None
    commands = build_evaluate_commands(recipe, run, data)
    if overrides:
        reason = f"  the numbers of the recipe {name} do not apply: this run has other values of {', '.join(overrides)}"
        return [*commands, reason]
    lines = []
    for command, (key, evaluation) in zip(commands, recipe.evaluations.items()):
        mean = None if results is None else average(results, recipe.split, key)
        numbers = f"published {evaluation.published.format()}"
        if mean is not None:
            numbers += f", ours {format_average(mean, ' seed' if mean.count == 1 else ' seeds')}"
        lines += [command, f"  {_describe_metric(recipe, key)}: {numbers}"]
    return lines


def check_prepared(name: str, data: str) -> None:
    """Raises an error if the data is that which commands of a recipe create, and does not exist yet."""
    recipe = read_recipe(name)
    if recipe.prepare and Path(data).name == Path(recipe.data).name and not Path(data).exists():
        raise describe_missing_data(name, f"there is no {data}")


def describe_missing_data(name: str, problem: str = "DATA is missing") -> UsageError:
    """Returns the error for a training with a recipe but without data."""
    recipe = read_recipe(name)
    commands = build_commands(name, recipe)[: len(_list_prepare_commands(recipe)) + 1]
    created = ", which commands of the recipe create" if recipe.prepare else ""
    fix = "\n".join(["Run:", *commands, f"${DATA_VARIABLE} is your folder of benchmark data; see {DATA_SECTION}"])
    return UsageError(f"{problem}: the recipe {name} expects {recipe.data_name}{created}.", fix=fix)


def _list_prepare_commands(recipe: Recipe) -> list[str]:
    return recipe.prepare.strip().splitlines()


@contextmanager
def explain_recipe_data(name: str | None, data: str | None) -> Iterator[None]:
    """Adds the data that a recipe expects to an error about other data."""
    try:
        yield
    except DataError as error:
        if name is not None and data is not None:
            error.fix = f"{error.fix}\n{_describe_expected_data(name, data, error)}".strip()
        raise


def _describe_expected_data(name: str, data: str, error: DataError) -> str:
    """Returns which data a recipe expects; empty if `data` is that, or if the error is about another file."""
    recipe = read_recipe(name)
    files = [Path(each.file) for each in error.parts or (error,) if each.file is not None]
    is_other_file = bool(files) and not any(file.is_relative_to(data) for file in files)
    if is_other_file or (Path(data).name == Path(recipe.data).name and Path(data).exists()):
        return ""
    expected = f"The recipe {name} expects {recipe.data_name}"
    if recipe.prepare:
        return f"{expected}, which its commands create: seqwise recipes {shlex.quote(name)}"
    unset = "" if os.environ.get(DATA_VARIABLE) else f" {DATA_VARIABLE} is not set."
    return f"{expected} ({DATA_SECTION}).{unset}"


def _describe(name: str, recipe: Recipe) -> dict[str, Any]:
    """Returns a recipe with its results and commands, for JSON."""
    results = read_results(get_results_file(name))
    return {
        "name": name,
        **recipe.model_dump(mode="json", exclude={"settings"}),
        "settings": recipe.get_setting_values(),
        "results": None if results is None else results.model_dump(mode="json"),
        "verdicts": {evaluation: judge(recipe, evaluation, results) for evaluation in recipe.evaluations},
        "commands": build_commands(name, recipe),
    }


def _build_rows(name: str, recipe: Recipe) -> list[dict[str, str]]:
    """Returns the cells of a row for each evaluation of a recipe, by column."""
    results, rows = read_results(get_results_file(name)), []
    for number, (key, evaluation) in enumerate(recipe.evaluations.items()):
        mean = None if results is None else average(results, recipe.split, key)
        rows.append(
            {
                "recipe": f"  {key}" if number else name,
                "metric": "" if number else recipe.unit,
                "published": evaluation.published.format(),
                "required": f"{evaluation.required:g}",
                "goal": f"{evaluation.goal:g}",
                "ours": "–"
                if mean is None
                else format_average(mean) + (" (validation)" if recipe.split == "valid" else ""),
                "minutes": "–" if results is None or mean is None or number else f"{results.minutes:.1f}",
                "verdict": judge(recipe, key, results),
            }
        )
    return rows


def _print_table(rows: list[dict[str, str]], columns: Sequence[str]) -> None:
    console.write(
        "\n".join(console.align([list(columns), *([row[each] for each in columns] for row in rows)], num_left=2))
    )


def format_average(value: Any, unit: str = "") -> str:
    """Returns a mean with its standard deviation and number of seeds, and the unit of that number."""
    deviation = "" if value.deviation is None else f" ± {value.deviation:.2g}"
    return f"{value.mean:.4g}{deviation} ({value.count}{unit})"


def _print_recipe(name: str, recipe: Recipe) -> None:
    """Prints description, numbers, settings and commands."""
    console.write(f"{name}\n\n{_wrap(recipe.description)}\n")
    _print_table(_build_rows(name, recipe), COLUMNS)
    for key in recipe.evaluations:
        console.write(f"\n{_wrap(f'published, {describe_evaluation(recipe, key)}')}")
    console.write(f"\n{_wrap(_describe_time(recipe, read_results(get_results_file(name))))}")
    console.write(f"\n{_wrap(f'selection: {recipe.selection}')}")
    settings = yaml.safe_dump(recipe.get_setting_values(), sort_keys=False, allow_unicode=True).rstrip()
    console.write("\nsettings:\n" + textwrap.indent(settings, "  "))
    console.write("\ncommands:\n" + textwrap.indent("\n".join(build_commands(name, recipe)), "  "))


def describe_evaluation(recipe: Recipe, key: str) -> str:
    """Returns the published number of an evaluation, and how its unit follows from a metric of `seqwise evaluate`."""
    published, metric = recipe.evaluations[key].published, _describe_metric(recipe, key)
    unit = "" if metric == recipe.unit.lower() else f" ({recipe.unit}: {metric} of seqwise evaluate)"
    return f"{key}: {published.value:g}{unit}, {published.source}"


def _describe_metric(recipe: Recipe, key: str) -> str:
    """Returns the metric of `seqwise evaluate`, with the factor that gives the unit of the published number."""
    return ("" if recipe.scale == 1 else f"{recipe.scale:.4g} × ") + recipe.get_metric(key)


def _describe_time(recipe: Recipe, results: RecipeResults | None) -> str:
    """Returns how long a training takes, and where that was measured."""
    if results is None:
        return "time: not measured yet."
    seeds = "one seed" if len(results.seeds) == 1 else f"{len(results.seeds)} seeds"
    changed = ", with earlier settings" if results.digest != recipe.compute_digest() else ""
    return f"time: {results.minutes:.1f} minutes of training on {results.describe_device()} ({seeds}{changed})."


def _wrap(text: str) -> str:
    """Returns a text with lines that fit into the terminal; blank lines separate paragraphs."""
    width = min(console.width(), TEXT_WIDTH)
    return "\n\n".join(textwrap.fill(" ".join(paragraph.split()), width) for paragraph in text.strip().split("\n\n"))
