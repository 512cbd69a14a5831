"""The tables of docs/records.md, from the recipes and their saved results. `docs/generate.py` writes the page."""

from __future__ import annotations

from seqwise.cli.recipes import build_commands, describe_evaluation, format_average
from seqwise.recipe_files import Recipe, list_recipe_names, read_recipe
from seqwise.recipe_results import RecipeResults, average, get_results_file, judge, read_results

HEAD = ("recipe", "metric", "published", "required", "goal", "ours: test", "validation", "minutes", "device", "verdict")


def build_records() -> str:
    """Returns the table of all recipes, then a section for each."""
    recipes = {name: read_recipe(name) for name in list_recipe_names()}
    results = {name: read_results(get_results_file(name)) for name in recipes}
    rows = [row for name, recipe in recipes.items() for row in build_rows(name, recipe, results[name])]
    table = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|", *rows]
    sections = [build_section(name, recipe, results[name]) for name, recipe in recipes.items()]
    return "\n\n".join(["\n".join(table), *sections])


def build_rows(name: str, recipe: Recipe, results: RecipeResults | None) -> list[str]:
    """Returns a row for each evaluation of a recipe."""
    rows = []
    for number, (key, evaluation) in enumerate(recipe.evaluations.items()):
        title = f"[{name}](#{name})" if number == 0 else ""
        unit = recipe.unit if len(recipe.evaluations) == 1 else f"{recipe.unit}, {key}"
        bounds = [evaluation.published.format(), f"{evaluation.required:g}", f"{evaluation.goal:g}"]
        values = [format_mean(recipe, results, split, key) for split in ("test", "valid")]
        has_times = results is not None and number == 0
        times = [f"{results.minutes:.1f}", results.describe_device()] if has_times else ["", ""]
        verdict = judge(recipe, key, results)
        rows.append(f"| {' | '.join([title, unit, *bounds, *values, *times, verdict])} |")
    return rows


def format_mean(recipe: Recipe, results: RecipeResults | None, split: str, key: str) -> str:
    mean = None if results is None else average(results, split, key)
    is_fitted = split == "valid" and recipe.evaluations[key].is_fitted_to_validation
    return "" if mean is None else format_average(mean) + is_fitted * ", fitted"


def build_section(name: str, recipe: Recipe, results: RecipeResults | None) -> str:
    """Returns description, sources, selection, commands and the result of each seed."""
    sources = [f"- {describe_evaluation(recipe, key)}" for key in recipe.evaluations]
    commands = "\n".join(build_commands(name, recipe))
    parts = [
        f"## {name}",
        recipe.description.strip().replace("<", "&lt;"),  # Markdown would read <unk> as a tag
        "Published:\n\n" + "\n".join(sources),
        f"Selection: {recipe.selection.strip()}",
        f"```text\n{commands}\n```",
    ]
    if results is not None:
        parts.append(build_seeds_table(recipe, results))
    return "\n\n".join(parts)


def build_seeds_table(recipe: Recipe, results: RecipeResults) -> str:
    splits = ("validation", "test") if recipe.split == "test" else ("validation",)
    columns = [name_column(recipe, split, key) for split in splits for key in recipe.evaluations]
    rows = [f"| seed | {' | '.join(columns)} | minutes | runs at a time | date | version |"]
    rows.append("|---" * (len(columns) + 5) + "|")
    for seed, result in sorted(results.seeds.items()):
        values = [getattr(result, split).get(key) for split in splits for key in recipe.evaluations]
        cells = ["" if value is None else f"{value:.5g}" for value in values]
        at_a_time = f"{result.jobs}{', MPS' * result.mps}"
        cells += [f"{result.minutes:.1f}", at_a_time, result.date, result.version]
        rows.append(f"| {' | '.join([str(seed), *cells])} |")
    return "\n".join(rows)


def name_column(recipe: Recipe, split: str, evaluation: str) -> str:
    """Returns the header of a column: the split, and the evaluation if there are several."""
    is_fitted = split == "validation" and recipe.evaluations[evaluation].is_fitted_to_validation
    name = split if len(recipe.evaluations) == 1 else f"{split}, {evaluation}"
    return name + " (fitted)" * is_fitted
