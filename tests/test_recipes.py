"""Every recipe of the package can be read, trained and evaluated; wrong recipes are refused with file and line."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_data import WRITERS

from seqwise.budget import Budget
from seqwise.cli.evaluate import Evaluate
from seqwise.cli.main import main
from seqwise.errors import UsageError
from seqwise.metrics.evaluation import LOWER_IS_BETTER
from seqwise.recipe_files import Recipe, build_evaluation_options, list_recipe_names, read_recipe
from seqwise.recipe_results import (
    RecipeResults,
    SeedResult,
    add_results,
    average,
    get_results_file,
    judge,
    read_results,
)
from seqwise.training.check import read_and_check

ROOT = Path(__file__).parents[1]
RECIPES = list_recipe_names()
SMALL: dict[str, Any] = {
    "budget": "200-tokens",
    "device": "cpu",
    "network": {"width": 8},
    "training": {"batch_size": 2, "validate_every": 100, "precision": "float32"},
}
# Sizes that a recipe may set, and the small values that replace them.
SMALL_SIZES = {
    "data.window": 8, "data.max_tokens": 256, "text.vocabulary": 300, "network.embedding": 8, "recurrent.last_width": 8,
    "transformer.heads": 2, "transformer.hidden": 16, "horizon": 4, "forecast.lookback": 24, "forecast.patch": 4,
    "forecast.splits": "300,90,90",
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny_data(tmp_path_factory) -> Callable[[str], Path]:
    """Returns the generated data of a task, which is written once."""
    written: dict[str, Path] = {}

    def get(task: str) -> Path:
        if task not in written:
            written[task] = WRITERS[task](tmp_path_factory.mktemp(task))
        return written[task]

    return get


def shrink(recipe: Recipe) -> dict[str, Any]:
    """Returns settings that make the model of a recipe tiny; what the recipe does not set stays unset."""
    values = recipe.get_setting_values()
    small = {section: dict(value) if isinstance(value, dict) else value for section, value in SMALL.items()}
    for name, size in SMALL_SIZES.items():
        section, _, key = name.rpartition(".")
        if key in (values.get(section, {}) if section else values):
            target = small.setdefault(section, {}) if section else small
            target[key] = size
    return small


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_and_has_its_metric(name: str, tiny_data, tmp_path: Path, capsys):
    recipe = read_recipe(name)
    data = str(tiny_data(str(recipe.settings.task)))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(shrink(recipe)))
    words = ["train", "--recipe", name, data, "--config", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "run")]
    status = main(words)
    assert status == 0, capsys.readouterr().err
    for key, evaluation in recipe.evaluations.items():
        capsys.readouterr()
        words = ["evaluate", str(tmp_path / "run"), data, "--split", recipe.split, "--json"]
        assert main([*words, *build_evaluation_options(evaluation.options)]) == 0
        metrics = json.loads(capsys.readouterr().out)
        assert math.isfinite(metrics[recipe.get_metric(key)])


@pytest.mark.parametrize("name", RECIPES)
def test_the_numbers_of_a_recipe_are_consistent(name: str):
    recipe = read_recipe(name)
    assert {recipe.get_metric(key) in LOWER_IS_BETTER for key in recipe.evaluations} == {recipe.lower_is_better}
    assert recipe.settings.task is not None
    Budget.parse(str(recipe.settings.budget))
    for evaluation in recipe.evaluations.values():
        assert evaluation.options.keys() <= {field.name for field in dataclasses.fields(Evaluate)}
        assert recipe.is_as_good_as(evaluation.goal, evaluation.required)


@pytest.mark.parametrize("name", [name for name in RECIPES if read_recipe(name).prepare])
@pytest.mark.skipif("SEQWISE_DATA" not in os.environ, reason="set SEQWISE_DATA to the folder of benchmark data")
def test_data_is_prepared_in_the_current_folder(name: str, tmp_path: Path):
    recipe = read_recipe(name)
    subprocess.run(["bash", "-euo", "pipefail", "-c", recipe.prepare], cwd=tmp_path, check=True)
    assert [path.name for path in tmp_path.iterdir()] == [recipe.data]
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / recipe.data).iterdir()}
    if name.startswith("shakespeare"):
        assert (len(files["train.txt"]), len(files["valid.txt"])) == (1_003_854, 111_540)  # nanoGPT's prepare.py
        whole = (Path(os.environ["SEQWISE_DATA"]) / "shakespeare" / "input.txt").read_text(encoding="utf-8")
        assert files["train.txt"] + files["valid.txt"] == whole
    elif name.startswith("ptb-characters"):  # as published: 5,017k, 393k and 442k characters, 50 symbols
        assert [len(files[f"{split}.txt"]) for split in ("train", "valid", "test")] == [5_017_482, 393_042, 442_423]
        assert len(set(files["train.txt"])) == 50
    else:
        assert all(text == text.lower() for text in files.values())
        assert len(files["test_2016_flickr.de"].splitlines()) == 1000


@pytest.mark.skipif("SEQWISE_DATA" not in os.environ, reason="set SEQWISE_DATA to the folder of benchmark data")
def test_the_data_of_every_recipe_without_preparation_exists():
    folder = Path(os.environ["SEQWISE_DATA"])
    recipes = [read_recipe(name) for name in RECIPES]
    assert [recipe.data for recipe in recipes if not recipe.prepare and not (folder / recipe.data).exists()] == []
    with gzip.open(folder / "ptb" / "ptb.train.txt.gz", "rt") as file:
        assert file.read(4) == " aer"  # lines begin and end with a space, which ptb-characters removes


@pytest.mark.slow
@pytest.mark.skipif("SEQWISE_DATA" not in os.environ, reason="set SEQWISE_DATA to the folder of benchmark data")
@pytest.mark.parametrize("name", [name for name in RECIPES if not read_recipe(name).prepare])
def test_a_recipe_has_the_fingerprint_of_its_data(name: str):
    recipe = read_recipe(name)
    report = read_and_check(str(Path(os.environ["SEQWISE_DATA"]) / recipe.data), recipe.settings)
    assert report.fingerprint == recipe.fingerprint


@pytest.mark.parametrize(
    ("row", "names", "form"),  # names: of recipes, with that of an evaluation unless it is the first
    [
        ("WikiText-2, words, LSTM", ["wikitext2-awd-1cycle"], ".1f"),
        ("… with a continuous cache", ["wikitext2-awd-1cycle/cache"], ".1f"),
        ("… with dynamic evaluation", ["wikitext2-awd-1cycle/dynamic"], ".1f"),
        ("Penn Treebank, words, LSTM", ["ptb-lstm"], ".1f"),
        ("… with a softmax temperature", ["ptb-lstm/temperature"], ".1f"),
        ("… characters, LSTM, bits", ["ptb-characters"], ".3f"),
        ("Shakespeare, characters", ["shakespeare-lstm", "shakespeare-transformer"], ".3f"),
        ("Multi30k en→de, sacreBLEU, cased", ["multi30k-en-de"], ".1f"),
        ("… lower-cased", ["multi30k-en-de-lowercase"], ".1f"),
        ("CoNLL-2003, F1", ["conll2003"], ".1f"),
        ("ETTh1, horizon 96, MSE; look-back", ["etth1-96", "etth1-720"], ".3f"),
        ("SST-2, accuracy, sentences only", ["sst2"], ".1f"),
    ],
)
def test_the_readme_has_the_results_of_recipes(row: str, names: list[str], form: str):
    (line,) = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if f"| {row}" in line]
    cells = [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]
    means = []
    for name, _, evaluation in (name.partition("/") for name in names):
        recipe, results = read_recipe(name), read_results(get_results_file(name))
        means.append(average(results, recipe.split, evaluation or next(iter(recipe.evaluations))))
    ours = cells[2].partition(" in ")[0]
    assert ours.partition(" ± ")[0] == ", ".join(format(mean.mean, form) for mean in means)
    if "±" in ours:
        assert ours.partition(" ± ")[2] == format(means[0].deviation, form)
    assert cells[3] == str(min(mean.count for mean in means))


# ---- files of a user's own

VALID = """\
description: A test.
data: book.txt
settings:
  task: language
  network: {width: 8}
  model: lstm
  budget: 1-epochs
metric: perplexity
unit: perplexity
lower_is_better: true
selection: none
evaluations:
  static:
    published: {value: 60, source: nowhere}
    required: 61
    goal: 59
    tolerance: 0.5
"""


def write_recipe(folder: Path, text: str = VALID) -> Path:
    path = folder / "own.yaml"
    path.write_text(text)
    return path


def test_a_file_is_a_recipe_too(tmp_path: Path):
    recipe = read_recipe(str(write_recipe(tmp_path)))
    assert recipe.get_setting_values() == {
        "task": "language",
        "model": "lstm",
        "budget": "1-epochs",
        "network": {"width": 8},
    }
    assert recipe.evaluations["static"].required == 61


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("metric: perp", "metrik: perp", 8, "metrik: no such key. Perhaps you meant 'metric'."),
        ("{width: 8}", "{widht: 8}", 5, "settings.network.widht: no such setting. Perhaps you meant 'width'."),
        (
            "{width: 8}",
            "{width: 0}",
            5,
            "settings.network.width: input should be greater than or equal to 1; received 0.",
        ),
        ("    required: 61", "    required: much", 15, "evaluations.static.required: input should be a valid number"),
        ("value: 60, ", "", 14, "evaluations.static.published.value: field required."),
        ("    goal: 59", "    options: {help: true}\n    goal: 59", 16, "help: chosen by the command that evaluates"),
        ("    goal: 59", "    options: {split: test}\n    goal: 59", 16, "split: chosen by the command that evaluates"),
        ("{width: 8}", "{no: 8}", 5, "settings.network.no: no such setting. Choose from: width, depth"),
        ("metric: perp", "on: 3\nmetric: perp", 8, "on: no such key. Choose from: description, "),
        ("metric: perp", "metric: [perp", 9, "not valid YAML"),
        (
            "lower_is_better: true",
            "lower_is_better: maybe",
            10,
            "lower_is_better: expected true or false; received 'maybe'.",
        ),
        ("  model: lstm\n", "", 3, "settings: expected task, model, budget; missing: model."),
        ("1-epochs", "8 parsecs", 7, "settings.budget: the budget '8 parsecs' is not understood. Write a time"),
        ("    tolerance: 0.5", "    tolerance: 0", 17, "evaluations.static.tolerance: input should be greater than 0."),
    ],
)
def test_a_mistake_is_reported_with_file_and_line(tmp_path: Path, old: str, new: str, line: int, message: str):
    assert old in VALID
    path = write_recipe(tmp_path, VALID.replace(old, new))
    with pytest.raises(UsageError) as error:
        read_recipe(str(path))
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path):
    text = VALID.replace("{width: 8}", "{widht: 8}").replace("unit: perplexity\n", "")
    with pytest.raises(UsageError, match=r"(?s)widht: no such setting.*unit: field required"):
        read_recipe(str(write_recipe(tmp_path, text)))


def test_every_mistake_has_its_line_and_missing_keys_are_last(tmp_path: Path):
    text = VALID.replace("{width: 8}", "{widht: 8, depht: 2}").replace("metric:", "metrik:")
    path = write_recipe(tmp_path, text.replace("    goal", "    gaol"))
    with pytest.raises(UsageError) as error:
        read_recipe(str(path))
    assert [line.split(" ")[:2] for line in str(error.value).splitlines()[:-1]] == [
        [f"{path}:5:", "settings.network.widht:"],
        [f"{path}:5:", "settings.network.depht:"],
        [f"{path}:8:", "metrik:"],
        [f"{path}:16:", "evaluations.static.gaol:"],
        [f"{path}:1:", "metric:"],
        [f"{path}:13:", "evaluations.static.goal:"],
    ]


def test_an_unknown_name_suggests_another():
    with pytest.raises(
        UsageError, match=r"there is no recipe 'sst-2'\.\nPerhaps you meant 'sst2'\. See seqwise recipes"
    ):
        read_recipe("sst-2")
    with pytest.raises(UsageError, match="Perhaps you meant 'sst2'"):
        read_recipe("SST2")
    with pytest.raises(UsageError, match=r"nothing\.yaml: the recipe does not exist"):
        read_recipe("nothing.yaml")


def test_a_list_is_not_a_recipe(tmp_path: Path):
    for text, found in (("- a\n", "found list"), ("", "the file is empty")):
        with pytest.raises(UsageError, match=f"expected a mapping of keys to values; {found}"):
            read_recipe(str(write_recipe(tmp_path, text)))


def test_the_digest_changes_with_the_settings_and_not_with_the_goal(tmp_path: Path):
    first = read_recipe(str(write_recipe(tmp_path))).compute_digest()
    assert read_recipe(str(write_recipe(tmp_path, VALID.replace("goal: 59", "goal: 58")))).compute_digest() == first
    assert read_recipe(str(write_recipe(tmp_path, VALID.replace("width: 8", "width: 9")))).compute_digest() != first


# ---- results


def make_results(recipe: Recipe, *values: float, digest: str | None = None) -> RecipeResults:
    seeds = {
        seed: SeedResult(
            validation={"static": value + 2}, test={"static": value}, minutes=3.0, device="GPU", jobs=1,
            date="2026-01-01", version="0.2.0",
        )
        for seed, value in enumerate(values)
    }  # fmt: skip
    return RecipeResults(recipe="own", digest=digest or recipe.compute_digest(), seeds=seeds)


def test_results_are_averaged_over_seeds(tmp_path: Path):
    recipe = read_recipe(str(write_recipe(tmp_path)))
    results = make_results(recipe, 60.0, 61.0, 62.0)
    mean = average(results, "test", "static")
    assert mean is not None
    assert (mean.mean, mean.deviation, mean.count) == (61.0, 1.0, 3)
    assert average(results, "valid", "static").mean == 63.0  # type: ignore[union-attr]
    assert average(results, "test", "cache") is None
    assert average(make_results(recipe, 60.0), "test", "static").deviation is None  # type: ignore[union-attr]


def test_results_are_judged_by_the_mean_of_the_seeds(tmp_path: Path):
    recipe = read_recipe(str(write_recipe(tmp_path)))
    verdicts = [judge(recipe, "static", make_results(recipe, *[value] * 3)) for value in (59.0, 60.0, 61.0, 61.5)]
    assert verdicts == ["goal reached", "required reached", "required reached", "not reached"]
    assert judge(recipe, "static", None) == "not measured"
    assert judge(recipe, "static", make_results(recipe, 50.0, digest="old")) == "settings changed"


def test_fewer_than_three_seeds_reach_nothing(tmp_path: Path):
    recipe = read_recipe(str(write_recipe(tmp_path)))
    verdicts = [judge(recipe, "static", make_results(recipe, *values)) for values in ([50.0], [90.0, 90.0], [50.0] * 3)]
    assert verdicts == ["1 of 3 seeds", "2 of 3 seeds", "goal reached"]


def test_a_search_on_the_validation_split_is_fitted_to_it(tmp_path: Path):
    for options, is_fitted in (
        ("softmax_temperature: auto", True),
        ("softmax_temperature: 0.9", False),
        ("cache: true, cache_search: true", True),
        ("dynamic: true, dynamic_search: false", False),
        ("dynamic: true, dynamic_search: true", True),
    ):
        text = VALID.replace("    goal", f"    options: {{{options}}}\n    goal")
        recipe = read_recipe(str(write_recipe(tmp_path, text)))
        assert recipe.evaluations["static"].is_fitted_to_validation is is_fitted, options


def test_new_seeds_are_added_and_results_of_other_settings_replaced(tmp_path: Path):
    recipe, path = read_recipe(str(write_recipe(tmp_path))), tmp_path / "own.json"
    add_results(path, make_results(recipe, 60.0, 61.0))
    added = make_results(recipe, 50.0, 51.0, 52.0)
    del added.seeds[0]
    add_results(path, added)
    saved = read_results(path)
    assert saved is not None
    assert [saved.seeds[seed].test["static"] for seed in (0, 1, 2)] == [60.0, 51.0, 52.0]
    add_results(path, make_results(recipe, 40.0, digest="new"))
    assert list(read_results(path).seeds) == [0]  # type: ignore[union-attr]
    path.write_text('{"recipe": "own"}')
    with pytest.raises(UsageError, match="not the results of a recipe"):
        read_results(path)
