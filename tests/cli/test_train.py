"""`seqwise train` as a user sees it, from the data to a run that can be used."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from PIL import Image

from seqwise.cli.main import main
from seqwise.config import FAMILIES
from seqwise.training.run import Run

SMALL = ["--network.width", "16", "--network.depth", "1", "--budget", "1k-tokens", "--data.window", "16"]
SMALL += ["--training.batch-size", "4", "--training.validate-every", "5", "--device", "cpu"]
RUN_FILES = {"config.yaml", "env.json", "metrics.jsonl", "model.safetensors", "tokenizer.json", "README.md"}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_writes_a_complete_run_and_prints_the_next_commands(seqwise_command, book, tmp_path, family):
    run = tmp_path / "my run"
    result = seqwise_command("train", book, "--model", family, "--out", run, *(SMALL if family != "ngram" else ()))
    assert result.status == 0
    assert result.out == ""
    assert {path.name for path in run.iterdir()} >= RUN_FILES
    assert f"seqwise evaluate '{run}' {book}" in result.err
    assert f"seqwise predict '{run}'" in result.err
    assert seqwise_command("evaluate", run, book, "--json").status == 0


def test_chosen_settings_are_printed_and_saved(seqwise_command, book, tmp_path):
    result = seqwise_command("train", book, "--out", tmp_path / "run", *SMALL)
    lines = result.err.splitlines()
    assert lines[0] == "task: language, because it is plain text. Choose another with --task."
    assert lines[1] == "tokeniser: characters, because the text is smaller than 2 MB."
    assert lines[2].startswith("tokens: train 56,153, valid 3,106, test 3,111; vocabulary 22.")
    (rule_line,) = (line for line in lines if line.startswith("chosen by rule: "))
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    for pair in rule_line.removeprefix("chosen by rule: ").split(", "):
        name, value = pair.split(" ")
        section, _, key = name.replace("-", "_").rpartition(".")
        assert str((saved[section] if section else saved)[key]) == value
    assert saved["network"]["width"] == 16
    assert "network.width" not in rule_line


def test_flags_override_a_settings_file(seqwise_command, book, tmp_path):
    (tmp_path / "mine.yaml").write_text("model: gru\nseed: 7\nnetwork:\n  width: 24\n  dropout: 0.25\n")
    words = ["--config", tmp_path / "mine.yaml", "--out", tmp_path / "run", *SMALL, "--seed", "8"]
    assert seqwise_command("train", book, *words).status == 0
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (saved["model"], saved["seed"]) == ("gru", 8)
    assert (saved["network"]["width"], saved["network"]["dropout"]) == (16, 0.25)


def test_a_run_is_never_overwritten(seqwise_command, book, tmp_path):
    words = ["train", book, "--model", "ngram", "--out", tmp_path / "run"]
    assert seqwise_command(*words).status == 0
    before = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    result = seqwise_command(*words)
    assert result.status == 2
    assert f"seqwise train --resume {tmp_path / 'run'}" in result.err
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == before


def test_runs_without_a_name_are_numbered(seqwise_command, book, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert seqwise_command("train", book, "--model", "ngram").status == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["language-ngram-1", "language-ngram-2"]


def test_every_validation_is_a_line_and_every_line_has_its_metrics(seqwise_command, book, tmp_path):
    result = seqwise_command("train", book, "--out", tmp_path / "run", *SMALL)
    lines = [line for line in result.err.splitlines() if line.startswith("step ")]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    validations = [row for row in rows if row.get("validation")]
    assert len(lines) == len(validations) == 4  # 16 updates of 64 tokens: after 5, 10, 15 and at the end
    for line, row in zip(lines, validations):
        assert line.split()[1] == str(row["step"])
        assert f"{row['validation']['perplexity']:.2f}" in line


def test_help_marks_settings_chosen_by_rule(seqwise_command):
    page = " ".join(seqwise_command("train", "--help-all").out.replace("│", " ").split())
    assert "Peak learning rate. (default: chosen automatically)" in page
    assert "Number of layers. (default: chosen automatically)" in page
    assert "(default: None)" not in " ".join(seqwise_command("evaluate", "--help").out.replace("│", " ").split())
    assert "(default: None)" not in " ".join(seqwise_command("predict", "--help").out.replace("│", " ").split())


def test_the_learning_curve_can_be_a_png(seqwise_command, book, tmp_path):
    result = seqwise_command("train", book, "--out", tmp_path / "run", *SMALL, "--plot", tmp_path / "curve.png")
    assert result.status == 0
    assert f"saved to {tmp_path / 'curve.png'}" in result.err
    assert Image.open(tmp_path / "curve.png").size == (1520, 640)
    assert seqwise_command("train", "--resume", tmp_path / "run", "--plot", tmp_path / "again.svg").status == 0
    assert (tmp_path / "again.svg").read_text() == (tmp_path / "run" / "curve.svg").read_text()


def test_a_run_without_a_checkpoint_says_that_it_starts_from_the_beginning(seqwise_command, trained_run, tmp_path):
    run = shutil.copytree(trained_run(), tmp_path / "run")
    weights = (run / "model.safetensors").read_bytes()
    shutil.rmtree(run / "checkpoints")
    for name in ("model.safetensors", "metrics.jsonl", "summary.json"):
        (run / name).unlink()
    result = seqwise_command("train", "--resume", run)
    assert result.status == 0
    assert "the run has no checkpoint yet: training starts from the beginning." in result.err.splitlines()
    assert (run / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("has_improved", [False, True])
def test_a_resumed_run_says_if_the_earlier_weights_are_kept(
    seqwise_command, trained_run, tmp_path, monkeypatch, has_improved
):
    run = shutil.copytree(trained_run(), tmp_path / "run")
    weights = (run / "model.safetensors").read_bytes()
    monkeypatch.setattr("seqwise.training.loop.get_objective", lambda metrics: -1e9 if has_improved else 1e9)
    result = seqwise_command("train", "--resume", run, "--budget", "1100-tokens")
    assert result.status == 0, result.err
    lines = result.err.splitlines()
    assert "resuming at step 16." in lines
    message = "no validation was better than the best one before: the weights of that one are kept."
    assert (message in lines) is not has_improved
    assert ((run / "model.safetensors").read_bytes() == weights) is not has_improved


def test_a_limit_of_the_data_may_be_raised_when_a_run_is_resumed(tmp_path, capsys):
    """Such as that of a run whose version had no limits: the advice of the error is accepted."""
    data, folder = tmp_path / "texts.csv", tmp_path / "run"
    rows = [f"good {number},a\nbad {number},b\n" for number in range(40)]
    data.write_text("text,label\n" + "".join(rows) + "word " * 300_000 + ",a\n")
    options = ["--task", "classify", "--model", "rnn", "--network.width", "4", "--budget", "500-tokens"]
    assert main(["train", str(data), *options, "--out", str(folder)]) == 0
    config = (folder / "config.yaml").read_text()
    assert "max_text_mb: 10" in config
    (folder / "config.yaml").write_text(config.replace("max_text_mb: 10", "max_text_mb: 1"))
    capsys.readouterr()
    assert main(["train", "--resume", str(folder)]) == 2
    assert "--data.max-text-mb" in capsys.readouterr().err
    assert main(["train", "--resume", str(folder), "--data.max-text-mb", "10"]) == 0


def test_a_rule_for_rare_words_applies_unless_the_user_has_set_their_number(seqwise_command, tmp_path):
    """Masked omits words of a small text that occur once: the command line must not set every setting."""
    text = tmp_path / "a.txt"
    text.write_text("the cat sat on the mat\n" * 60 + "a zebra came\n" + "the cat sat on the mat\n" * 60)
    small = ["--task", "masked", "--budget", "100-tokens", "--network.width", "8", "--device", "cpu"]
    result = seqwise_command("train", text, *small, "--out", tmp_path / "rule")
    assert "tokeniser: words that occur at least twice" in result.err
    assert Run.open(tmp_path / "rule").settings.text.min_count == 2
    result = seqwise_command("train", text, *small, "--text.min-count", "1", "--out", tmp_path / "set")
    assert "tokeniser: words, because" in result.err
    tokenizer = Run.open(tmp_path / "set").tokenizer
    assert tokenizer.id("zebra") != tokenizer.unknown
