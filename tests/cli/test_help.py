"""`--help` is one screen with the main options and examples; `--help-all` and the completion have every option."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from seqwise.cli.lab import COMMANDS as LAB_COMMANDS
from seqwise.cli.main import COMMANDS
from seqwise.cli.vectors import COMMANDS as VECTOR_COMMANDS
from seqwise.tasks.defaults import DEFAULT_BUDGET

PAGES = [
    *((name,) for name in COMMANDS),
    *(("vectors", name) for name in VECTOR_COMMANDS),
    *(("lab", name) for name in LAB_COMMANDS),
    ("lab", "run", "C2"),
]


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_is_one_screen_with_examples(seqwise_command, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = seqwise_command(*words, "--help")
    lines = result.out.splitlines()
    assert result.status == 0
    assert len(lines) < 40
    assert sum(line.startswith("  --") for line in lines) <= 15
    assert re.search(rf"^examples?:\n  seqwise {' '.join(words)} ?", result.out, flags=re.MULTILINE)
    assert max(map(len, result.out.partition("example")[0].splitlines())) <= 100


def test_help_all_has_every_setting_with_its_default(seqwise_command):
    short, full = (seqwise_command("train", option).out for option in ("--help", "--help-all"))
    assert "--training.warmup" in full
    assert "--training.warmup" not in short
    assert re.search(r"shows the other \d+ options", short)
    assert full.count("\n") > 200


def test_main_options_are_explained(seqwise_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = " ".join(seqwise_command("train", "--help").out.split())
    assert "--model MODEL feedforward, rnn, gru, lstm, attentive-rnn, transformer, ngram or a family of" in page
    assert f"--budget STR How long to train: 90s, 5m, 1h, 2M-tokens, 3-epochs; {DEFAULT_BUDGET} unless set." in page
    assert "seqwise train --help-all" in page


def test_help_of_evaluate_has_the_methods_of_language_models(seqwise_command):
    page = seqwise_command("evaluate", "--help").out
    for option in ("--softmax-temperature", "--cache", "--dynamic"):
        assert re.search(rf"^  {option} ", page, flags=re.MULTILINE)


def test_help_shows_one_form_of_a_switch_and_help_all_both(seqwise_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert re.search(r"^  --json  +Print the result", seqwise_command("evaluate", "--help").out, flags=re.MULTILINE)
    page = " ".join(re.sub("[│╭╰─╮╯]", " ", seqwise_command("train", "--help-all").out).split())
    for name, text in [("network.{}tie-weights", "Share the"), ("forecast.{}linear", "Add a linear")]:
        assert f"--{name.format('')}, --{name.format('no-')} {text}" in page


@pytest.mark.parametrize("option", ["init", "vectors", "forecast.series", "forecast.known-future"])
def test_a_setting_that_no_rule_chooses_has_the_default_none(seqwise_command, monkeypatch, option):
    monkeypatch.setenv("COLUMNS", "100")
    page = " ".join(re.sub("[│╭╰─╮╯]", " ", seqwise_command("train", "--help-all").out).split())
    assert re.search(rf"--{option} STR [^-(]*(\([^-]*)?\(default: none\)", page)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_completion_knows_commands_options_and_choices(seqwise_command, tmp_path):
    result = seqwise_command("--print-completion", "bash")
    assert result.status == 0
    (tmp_path / "script.sh").write_text(result.out)
    lines = {
        "tr": "train",
        "train --mod": "--model",
        "train book.txt --model tr": "transformer",
        "train --network.no-t": "--network.no-tie-weights",
        "compare --transformer.pos": "--transformer.positions",
        "vectors near": "nearest",
        "vectors nearest v.vec --by c": "cosine",
        "train boo": "",
    }
    calls = "".join(
        f'COMP_WORDS=(seqwise {line}); COMP_CWORD={len(line.split())}; _seqwise; echo "${{COMPREPLY[*]}}"\n'
        for line in lines
    )
    script = f"source {tmp_path / 'script.sh'}\n{calls}"
    output = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.split("\n")[:-1] == list(lines.values())
    assert "bashcompinit" in seqwise_command("--print-completion", "zsh").out


def test_completion_needs_a_known_shell(seqwise_command):
    result = seqwise_command("--print-completion", "fish")
    assert result.status == 2
    assert result.err.startswith("error: --print-completion: expected bash or zsh; received fish.\nFor example: ")
