"""`seqwise recipes` lists all recipes; `seqwise train --recipe` starts from one, and other settings override it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from seqwise.recipe_files import find_recipe, list_recipe_names, read_recipe
from seqwise.recipe_results import RecipeResults, SeedResult, add_results, get_results_file
from seqwise.training.run import Run

RECIPE = """\
description: A small language model.
data: book.txt
settings:
  task: language
  model: gru
  budget: 200-tokens
  text: {tokenizer: characters}
  data: {window: 8}
  network: {width: 12, depth: 1}
  training: {batch_size: 2, learning_rate: 0.002}
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


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(RECIPE)
    return path


def test_the_list_has_every_recipe_with_its_numbers(seqwise_command):
    result = seqwise_command("recipes")
    assert result.status == 0
    lines = {line.split()[0]: line for line in result.out.splitlines()}
    assert set(list_recipe_names()) <= set(lines)
    assert "83.1" in lines["sst2"]
    documents = json.loads(seqwise_command("recipes", "--json").out)
    assert [each["name"] for each in documents] == list_recipe_names()
    assert all(each["settings"]["task"] and each["commands"] for each in documents)


@pytest.mark.parametrize("name", list_recipe_names())
def test_one_recipe_is_shown_with_its_commands(seqwise_command, name):
    result = seqwise_command("recipes", name)
    recipe = read_recipe(name)
    assert result.status == 0
    data = recipe.data if recipe.prepare else f"$SEQWISE_DATA/{recipe.data}"
    assert f"  seqwise train --recipe {name} {data} --out runs/{name}\n" in result.out
    assert f"  seqwise evaluate runs/{name} {data} --split {recipe.split}" in result.out
    assert json.loads(seqwise_command("recipes", name, "--json").out)["name"] == name


def test_a_recipe_is_shown_with_its_unit_its_device_and_its_time(seqwise_command, recipe_file):
    recipe_file.write_text(RECIPE.replace("unit: perplexity", "unit: nats\nscale: 0.6931471805599453"))
    out = " ".join(seqwise_command("recipes", recipe_file).out.split())
    assert "published, static: 60 (nats: 0.6931 × perplexity of seqwise evaluate), nowhere" in out
    assert "time: not measured yet. selection:" in out
    seeds = {
        seed: SeedResult(
            validation={"static": 60}, test={"static": 60}, minutes=minutes, device="H1", jobs=2, date="", version=""
        )
        for seed, minutes in ((0, 2.0), (1, 3.0))
    }
    for digest, remark in ((read_recipe(str(recipe_file)).compute_digest(), ""), ("", ", with earlier settings")):
        add_results(get_results_file(str(recipe_file)), RecipeResults(recipe="own", digest=digest, seeds=seeds))
        out = " ".join(seqwise_command("recipes", recipe_file).out.split())
        assert f"time: 2.5 minutes of training on H1, 2 runs at a time (2 seeds{remark})." in out


def test_options_of_an_evaluation_that_cannot_be_used_are_errors(seqwise_command, recipe_file, book, tmp_path):
    for options, message in (
        ("{softmax_temp: auto}", "unknown option '--softmax-temp'. Perhaps you meant '--softmax-temperature'."),
        ("{beam: 5}", "--beam applies to translate, caption; the task of this run is language."),
        ("{softmax_temperature: 0}", "--softmax-temperature: expected a finite number, above 0; received 0."),
        ("{cache: true, cache_weight: -0.5}", "--cache-weight must lie in [0, 1); received -0.5."),
        ("{cache_window: 5}", "--cache-window has an effect with --cache only."),
    ):
        recipe_file.write_text(RECIPE.replace("    required", f"    options: {options}\n    required"))
        for words in (["recipes", recipe_file], ["train", "--recipe", recipe_file, book, "--out", tmp_path / "run"]):
            result = seqwise_command(*words)
            assert result.status == 2
            assert result.err.startswith(f"error: {recipe_file}:18: evaluations.static.options: {message}\n")
    assert not (tmp_path / "run").exists()


LANGUAGE_METRICS = "perplexity, word_perplexity, bits_per_character, tokens, unknown_tokens"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "metric: perplexity", "metric: perplexty", 11,
            f"metric: expected a metric of the task language: {LANGUAGE_METRICS}; received 'perplexty'. "
            "Perhaps you meant 'perplexity'.",
        ),
        (
            "    required", "    metric: span_f1\n    required", 18,
            f"evaluations.static.metric: expected a metric of the task language: {LANGUAGE_METRICS}; "
            "received 'span_f1'.",
        ),
        (
            "    required", "    options: {cache: true}\n    metric: cache_perplexty\n    required", 19,
            f"evaluations.static.metric: expected a metric of the task language: {LANGUAGE_METRICS}, cache_perplexity, "
            "cache_word_perplexity, cache_bits_per_character; received 'cache_perplexty'. "
            "Perhaps you meant 'cache_perplexity'.",
        ),
        (
            "    required", "    metric: temperature_perplexity\n    required", 16,
            "evaluations.static: temperature_perplexity is a metric with the option softmax_temperature only.",
        ),
    ],
)  # fmt: skip
def test_a_metric_that_its_evaluation_does_not_have_is_an_error(
    seqwise_command, recipe_file, book, tmp_path, old, new, line, message
):
    recipe_file.write_text(RECIPE.replace(old, new))
    for words in (["recipes", recipe_file], ["train", "--recipe", recipe_file, book, "--out", tmp_path / "run"]):
        result = seqwise_command(*words)
        assert result.status == 2
        assert (
            result.err == f"error: {recipe_file}:{line}: {message}\ndocs/records.md describes the keys of a recipe.\n"
        )
    assert not (tmp_path / "run").exists()


def test_options_are_written_with_dashes_or_underscores(seqwise_command, recipe_file):
    metric = "    options: {softmax-temperature: auto}\n    metric: temperature_perplexity\n    required"
    recipe_file.write_text(RECIPE.replace("    required", metric))
    result = seqwise_command("recipes", recipe_file, "--json")
    assert result.status == 0, result.err
    assert json.loads(result.out)["evaluations"]["static"]["options"] == {"softmax_temperature": "auto"}
    assert read_recipe(str(recipe_file)).evaluations["static"].is_fitted_to_validation
    recipe_file.write_text(recipe_file.read_text().replace("{softmax-", "{softmax_temperature: 1.1, softmax-"))
    assert "static.options: softmax_temperature: set twice" in seqwise_command("recipes", recipe_file).err


def test_metrics_of_a_task_of_the_users_own_are_not_known(seqwise_command, recipe_file, tmp_path, monkeypatch):
    (tmp_path / "own_task.py").write_text("raise SystemExit('this file is not imported')")
    monkeypatch.setenv("SEQWISE_TASKS", f"own={tmp_path / 'own_task.py'}")
    text = RECIPE.replace("task: language", "task: own").replace("metric: perplexity", "metric: own_metric")
    recipe_file.write_text(text)
    assert seqwise_command("recipes", recipe_file).status == 0


def test_the_last_of_several_recipes_counts_as_with_other_options(seqwise_command, recipe_file, book, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.replace("width: 12", "width: 6"))
    words = ["train", "--recipe", recipe_file, f"--recipe={other}", book, "--device", "cpu", "--out", tmp_path / "run"]
    assert seqwise_command(*words).status == 0
    assert read_run(tmp_path / "run")["network"]["width"] == 6


def test_an_unknown_recipe_is_an_error(seqwise_command):
    for words in (["recipes", "sst3"], ["train", "builtin:docs", "--recipe", "sst3"]):
        result = seqwise_command(*words)
        assert result.status == 2
        assert result.err == "error: there is no recipe 'sst3'.\nPerhaps you meant 'sst2'. See seqwise recipes.\n"


def read_run(folder: Path) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def test_settings_of_a_recipe_are_overridden_by_a_file_and_both_by_options(
    seqwise_command, recipe_file, book, tmp_path
):
    (tmp_path / "more.yaml").write_text("network: {width: 16}\ntraining: {learning_rate: 0.003, batch_size: 3}\n")
    run = tmp_path / "run"
    words = ["--config", tmp_path / "more.yaml", "--training.batch-size", 4, "--device", "cpu", "--out", run]
    result = seqwise_command("train", "--recipe", recipe_file, book, *words)
    assert result.status == 0, result.err
    saved = read_run(run)
    assert (saved["model"], saved["data"]["window"], saved["network"]["depth"]) == ("gru", 8, 1)  # the recipe
    assert (saved["network"]["width"], saved["training"]["learning_rate"]) == (16, 0.003)  # the file
    assert saved["training"]["batch_size"] == 4  # the option
    assert f"--recipe {recipe_file}" in saved["run"]["command"]
    assert f"--recipe {recipe_file}" in (run / "README.md").read_text()


def test_a_settings_file_as_a_recipe_is_an_error_with_the_corrected_command(seqwise_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my settings.yaml").write_text("model: gru\ndata: {window: 8}\n")
    result = seqwise_command("train", "--recipe", "my settings.yaml", "book.txt", "--seed", 1)
    assert result.status == 2
    assert result.err == (
        "error: my settings.yaml: this is a settings file, not a recipe: it has no key 'settings'.\n"
        "Pass it as --config: seqwise train --config 'my settings.yaml' book.txt --seed 1\n"
    )
    assert "Pass it to seqwise train as --config." in seqwise_command("recipes", "my settings.yaml").err


def test_a_recipe_as_a_settings_file_is_an_error_with_the_corrected_command(seqwise_command, recipe_file, tmp_path):
    result = seqwise_command("train", f"--config={recipe_file}", "book.txt")
    assert result.status == 2
    assert result.err == (
        f"error: {recipe_file}: this is a recipe, not a settings file: its settings are under the key 'settings'.\n"
        f"Pass it as --recipe: seqwise train --recipe={recipe_file} book.txt\n"
    )
    result = seqwise_command("compare", "book.txt", "--config", recipe_file)
    assert result.err.endswith("\nCopy what is under that key to a file of its own.\n"), "a comparison has no recipe"


def test_a_comparison_takes_the_settings_of_a_recipe_but_no_recipe(seqwise_command, recipe_file, tmp_path):
    for words in (["compare", "book.txt", "--recipe", recipe_file], ["compare", f"--recipe={recipe_file}", "book.txt"]):
        result = seqwise_command(*words)
        assert result.status == 2
        assert result.err == (
            "error: a recipe has the settings of one model, for seqwise train; received --recipe.\n"
            "Copy what seqwise recipes NAME prints under 'settings' to a file, and pass it as --config FILE.\n"
        )
    page = seqwise_command("recipes", recipe_file).out
    (tmp_path / "settings.yaml").write_text(page.partition("\nsettings:\n")[2].partition("\ncommands:\n")[0])
    words = ["--config", tmp_path / "settings.yaml", "--lr-trials", 1]
    result = seqwise_command("compare", tmp_path / "missing.txt", *words)
    assert str(tmp_path / "missing.txt") in result.err, "the settings are accepted"


def test_a_recipe_and_a_settings_file_that_are_interchanged_are_an_error(seqwise_command, recipe_file, tmp_path):
    (tmp_path / "more.yaml").write_text("network: {width: 16}\n")
    for recipe, config in ((tmp_path / "more.yaml", recipe_file), ("sst2", recipe_file), [tmp_path / "more.yaml"] * 2):
        result = seqwise_command("train", "book.txt", "--recipe", recipe, "--config", config)
        assert result.status == 2
        assert result.err.endswith("Pass the recipe as --recipe, and settings that override it as --config.\n")


@pytest.mark.parametrize("name", list_recipe_names())
def test_every_recipe_of_the_package_is_recognised_as_one(seqwise_command, name):
    result = seqwise_command("train", "book.txt", "--config", find_recipe(name))
    assert f"seqwise train book.txt --recipe {find_recipe(name)}\n" in result.err


def test_an_option_that_makes_a_setting_of_the_recipe_useless_is_an_error(seqwise_command, recipe_file, book, tmp_path):
    text = RECIPE.replace("  training:", "  recurrent: {reset: before}\n  training:")
    recipe_file.write_text(text)
    result = seqwise_command("train", "--recipe", recipe_file, book, "--model", "lstm", "--out", tmp_path / "run")
    assert result.status == 2
    assert "--recurrent.reset has an effect with the models gru and attentive-rnn only" in result.err
    assert f"The recipe {recipe_file} sets --recurrent.reset: remove it from a copy of {recipe_file}, and" in result.err
    assert "Leave it out" not in result.err, "the user has not set it"
    assert not (tmp_path / "run").exists()


def test_an_error_about_a_setting_of_the_user_does_not_name_the_recipe(seqwise_command, recipe_file, book, tmp_path):
    words = ["train", "--recipe", recipe_file, book, "--out", tmp_path / "run"]
    (tmp_path / "more.yaml").write_text("transformer: {heads: 7}\n")
    for more in (["--transformer.heads", 7], ["--config", tmp_path / "more.yaml"], ["--network.width", 0]):
        result = seqwise_command(*words, *more)
        assert result.status == 2
        assert "The recipe" not in result.err


def test_missing_data_is_named_with_the_commands_of_the_recipe(seqwise_command):
    result = seqwise_command("train", "--recipe", "wikitext2-transformer")
    assert result.status == 2
    assert result.err.startswith(
        "error: DATA is missing: the recipe wikitext2-transformer expects $SEQWISE_DATA/wikitext2.\n"
        "Run:\nseqwise train --recipe wikitext2-transformer $SEQWISE_DATA/wikitext2 --out runs/wikitext2-transformer\n"
    )
    result = seqwise_command("train", "--recipe", "ptb-characters")
    assert "expects ptb-characters, which commands of the recipe create.\nRun:\nmkdir -p ptb-characters\n" in result.err
    assert "\nseqwise train --recipe ptb-characters ptb-characters --out runs/ptb-characters\n" in result.err
    result = seqwise_command("train", "--recipe", "ptb-characters", "folder/ptb-characters")
    assert result.status == 2
    assert "there is no folder/ptb-characters: the recipe ptb-characters expects ptb-characters, which" in result.err
    assert "\nmkdir -p ptb-characters\n" in result.err


def test_an_error_about_other_data_names_that_of_the_recipe(seqwise_command, book, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQWISE_DATA", "/benchmarks")
    expected = "\nThe recipe sst2 expects $SEQWISE_DATA/sst2 (docs/records.md#the-data).\n"
    for data in (book, tmp_path / "missing"):
        result = seqwise_command("train", "--recipe", "sst2", data, "--out", tmp_path / "run")
        assert result.status == 2
        assert result.err.endswith(expected)
    monkeypatch.delenv("SEQWISE_DATA")  # a shell replaces $SEQWISE_DATA/sst2 by /sst2
    result = seqwise_command("train", "--recipe", "sst2", "/nowhere/sst2", "--out", tmp_path / "run")
    assert result.err.endswith("expects $SEQWISE_DATA/sst2 (docs/records.md#the-data). SEQWISE_DATA is not set.\n")
    result = seqwise_command("train", "--recipe", "shakespeare-lstm", tmp_path / "missing")
    assert result.err.endswith(
        "\nThe recipe shakespeare-lstm expects shakespeare-nanogpt, which its commands create: "
        "seqwise recipes shakespeare-lstm\n"
    )


def test_an_error_in_the_data_of_the_recipe_or_in_another_file_does_not_name_the_data(seqwise_command, book, tmp_path):
    data = tmp_path / "sst2"
    data.mkdir()
    (data / "train.tsv").write_text("a text\n")
    result = seqwise_command("train", "--recipe", "sst2", data, "--out", tmp_path / "run")
    assert result.status == 2
    assert "train.tsv:1: expected the columns text, label" in result.err
    assert "expects" not in result.err
    words = ["--vectors", tmp_path / "missing.vec", "--out", tmp_path / "run"]
    result = seqwise_command("train", "--recipe", "ptb-transformer", book, *words)
    assert f"{tmp_path / 'missing.vec'}: cannot be read" in result.err
    assert "expects" not in result.err


def test_data_that_is_not_that_of_the_recipe_is_trained_on_with_a_warning(seqwise_command, recipe_file, book, tmp_path):
    data = tmp_path / "book.txt"
    data.write_text(book.read_text())
    words = ["train", "--recipe", recipe_file, data, "--device", "cpu", "--out"]
    result = seqwise_command(*words, tmp_path / "no-fingerprint")
    assert "not the data of the recipe" not in result.err
    fingerprint = yaml.safe_load((tmp_path / "no-fingerprint" / "config.yaml").read_text())["run"]["fingerprint"]
    recipe_file.write_text(f"{RECIPE}fingerprint: {fingerprint}\n")
    result = seqwise_command(*words, tmp_path / "same")
    assert "not the data of the recipe" not in result.err
    data.write_text(book.read_text() + "One more line.\n")
    result = seqwise_command(*words, tmp_path / "other")
    assert result.status == 0
    assert (
        f"warning: this is not the data of the recipe {recipe_file}, or it has other splits: published numbers do not "
        "apply. The recipe is for $SEQWISE_DATA/book.txt, see docs/records.md#the-data\n"
    ) in result.err


def test_the_commands_after_training_evaluate_as_the_recipe_does(seqwise_command, recipe_file, book, tmp_path):
    recipe_file.write_text(RECIPE.replace("    required", "    options: {cache: true, cache_window: 50}\n    required"))
    run = tmp_path / "run"
    result = seqwise_command("train", "--recipe", recipe_file, book, "--device", "cpu", "--out", run)
    assert (
        f"\n  seqwise evaluate {run} {book} --split test --cache --cache-window 50\n    perplexity: published 60\n"
    ) in result.err
    other, words = tmp_path / "other", ["--seed", "3", "--network.depth", "2"]
    result = seqwise_command("train", "--recipe", recipe_file, book, "--device", "cpu", "--out", other, *words)
    reason = f"the numbers of the recipe {recipe_file} do not apply: this run has other values of network.depth\n"
    assert f"--cache-window 50\n    {reason}" in result.err
    assert f"- recipe: `{recipe_file}`, with its settings\n" in (run / "README.md").read_text()
    assert f"- recipe: `{recipe_file}`, with other values of `network.depth`\n" in (other / "README.md").read_text()
    recipe_file.unlink()
    result = seqwise_command("train", "--resume", run)
    assert f"\n  seqwise evaluate {run} {book}\n" in result.err
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace(f"  recipe: {recipe_file}\n", ""))  # as in a run of an earlier version
    assert config.read_text() != text
    result = seqwise_command("train", "--resume", run)
    assert result.status == 0
    assert f"\n  seqwise evaluate {run} {book}\n" in result.err


def test_the_model_card_has_the_commands_of_the_recipe(seqwise_command, recipe_file, book, tmp_path):
    recipe_file.write_text(RECIPE.replace("    required", "    options: {cache: true, cache_window: 50}\n    required"))
    run = tmp_path / "run"
    assert seqwise_command("train", f"--recipe={recipe_file}", book, "--device", "cpu", "--out", run).status == 0
    card = (run / "README.md").read_text()
    command = f"seqwise evaluate {run} {book} --split test --cache --cache-window 50"
    assert f"Use it:\n\n```\n{command}\nseqwise predict {run} 'the '\n```\n" in card
    assert seqwise_command(*command.split()[1:]).status == 0


def test_a_resumed_run_takes_no_recipe(seqwise_command, recipe_file, tmp_path):
    result = seqwise_command("train", "--resume", tmp_path / "run", "--recipe", recipe_file)
    assert result.status == 2
    assert "with its own settings; received --recipe." in result.err


def test_the_command_of_a_new_run_has_the_recipe_if_it_can_be_read(seqwise_command, recipe_file, book, tmp_path):
    run = tmp_path / "run"
    assert seqwise_command("train", "--recipe", recipe_file, book, "--device", "cpu", "--out", run).status == 0
    words = ["train", "--resume", run, "--training.max-epochs", 2, "--plot", "curve.svg"]
    rest = "--training.max-epochs 2 --plot curve.svg\n"
    error = seqwise_command(*words).err
    assert error.endswith(f"Or start a new run: seqwise train --recipe {recipe_file} {book} --device cpu {rest}")
    assert seqwise_command(*error.split(": seqwise ")[-1].split()[:-2], "--out", tmp_path / "more").status == 0
    more = Run.open(tmp_path / "more")
    assert more.metadata.overrides == ("training.max_epochs",)
    command = more.build_training_command(["--training.max-epochs", "3", "--seed=4"])
    assert command == f"seqwise train --recipe {recipe_file} {book} --device cpu --training.max-epochs 3 --seed=4"
    assert "--training.max-epochs 2 --device cpu" in more.build_training_command([])
    same = ["--budget", "0.2k-tokens", "--training.watch", "--training.save-every", "9", "--out", tmp_path / "same"]
    assert seqwise_command("train", "--recipe", recipe_file, book, "--device", "cpu", *same).status == 0
    assert Run.open(tmp_path / "same").metadata.overrides == (), "none changes a number"
    recipe_file.unlink()
    assert seqwise_command(*words).err.endswith(
        f"Or start a new run: seqwise train {book} --config {run}/config.yaml {rest}"
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_names_of_recipes_are_completed(seqwise_command, tmp_path):
    (tmp_path / "script.sh").write_text(seqwise_command("--print-completion", "bash").out)
    calls = "".join(
        f'COMP_WORDS=(seqwise {line}); COMP_CWORD={len(line.split())}; _seqwise; echo "${{COMPREPLY[*]}}"\n'
        for line in ("train --recipe conll", "recipes conll", "recipes --js")
    )
    script = f"source {tmp_path / 'script.sh'}\n{calls}"
    output = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["conll2003", "conll2003", "--json"]
