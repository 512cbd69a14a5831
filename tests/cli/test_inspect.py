"""`seqwise inspect`: views in the terminal, as JSON and as files; the list of views; clear errors."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

import seqwise
from seqwise.lens import VIEWS

TEXT = "the old model reads"


def test_a_view_is_drawn_in_the_terminal(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("lstm", "words"), TEXT, "--view", "gates")
    assert (result.status, result.err) == (0, "")
    assert "forget gate f" in result.out
    assert "units forget over" in result.out


def test_json_has_the_numbers_of_a_view(seqwise_command, trained_run):
    run = trained_run("lstm", "words")
    result = seqwise_command("inspect", run, TEXT, "--view", "gates", "--layer", "1", "--json")
    document = json.loads(result.out)
    data = document["data"]["layer 1"]
    expected = seqwise.lens.gates(seqwise.load(run), TEXT).data["layer 1"]
    assert document["view"] == "gates"
    assert data["tokens"] == TEXT.split()
    assert data["forget"] == pytest.approx(expected["forget"], rel=1e-4)


@pytest.mark.parametrize(
    ("suffix", "start"), [(".html", b"<!doctype html>"), (".svg", b"<svg"), (".png", b"\x89PNG"), (".json", b"{")]
)
def test_a_view_is_saved_in_each_format(seqwise_command, trained_run, tmp_path: Path, suffix: str, start: bytes):
    out = tmp_path / f"view{suffix}"
    result = seqwise_command("inspect", trained_run("gru", "words"), TEXT, "--view", "gates", "--out", out)
    assert result.status == 0
    assert f"saved to {out}" in result.err
    assert start in out.read_bytes()[:200].lower() or start in out.read_bytes()[:200]
    assert "update gate z" in result.out, "the summary"


def test_one_figure_is_drawn_alone(seqwise_command, trained_run):
    arguments = ("inspect", trained_run("gru", "words"), TEXT, "--view", "gates")
    result = seqwise_command(*arguments, "--figure", "2")
    assert "reset gate r, layer 1" in result.out
    assert "update gate z, layer 1" not in result.out
    result = seqwise_command(*arguments, "--figure", "9")
    assert result.status == 2
    assert "the view gates has no figure 9" in result.err
    assert "1 update gate z, layer 1" in result.err


def test_the_terminal_shows_the_first_figures_and_names_the_others(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("lstm", "words"), TEXT, "--view", "gates")
    assert "More figures, by --figure N" in result.out
    assert "4 candidate, layer 1" in result.out
    assert "candidate  −1" not in result.out, "the fourth figure is not drawn"


def test_several_runs_are_on_one_chart(seqwise_command, trained_run):
    runs = trained_run("lstm", "words"), trained_run("gru", "words")
    result = seqwise_command("inspect", *runs, TEXT, "--view", "gradients", "--json")
    assert [name.split()[0] for name in json.loads(result.out)["data"]] == ["lstm", "gru"]


def test_the_cost_of_several_runs_needs_no_text_and_no_measurement(seqwise_command, trained_run):
    runs = trained_run("lstm", "words"), trained_run("gru", "words")
    result = seqwise_command("inspect", *runs, "--view", "cost", "--no-measure", "--max-length", "64", "--json")
    assert (result.status, result.err) == (0, "")
    for values in json.loads(result.out)["data"].values():
        assert values["lengths"] == [8, 16, 32, 64]
        assert "measured" not in values


def test_without_a_text_an_example_is_chosen_and_named(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("lstm", "words"), "--view", "gates", "--json")
    assert result.status == 0
    assert "no text was given; shown is tokens" in result.err
    assert "the valid split" in result.err
    assert len(json.loads(result.out)["data"]["layer 1"]["tokens"]) == 16


def test_standard_input_is_a_text(seqwise_command, trained_run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode() + b"\n")))
    result = seqwise_command("inspect", trained_run("lstm", "words"), "-", "--view", "gates", "--json")
    assert json.loads(result.out)["data"]["layer 1"]["tokens"] == TEXT.split()


def test_views_are_listed_with_a_command_or_a_reason(seqwise_command, trained_run):
    run = trained_run("lstm", "words")
    result = seqwise_command("inspect", run, TEXT)
    assert result.status == 0
    for name in ("attribution", "gates", "gradients"):
        assert f"{name}: {VIEWS[name][1]}\n  seqwise inspect {run} '{TEXT}' --view {name}\n" in result.out
    assert "not for this run:\n  attention: " in result.out
    result = seqwise_command("inspect", trained_run("transformer", "words"), TEXT)
    assert "not for this run:\n  gates: " in result.out
    assert "has no recurrent layer" in result.out
    rows = json.loads(seqwise_command("inspect", run, TEXT, "--json").out)
    assert {row["view"] for row in rows} == set(VIEWS)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--view", "gate"), "Perhaps you meant 'gates'"),
        (("--view", "gates", "--layer", "9"), "there is no recurrent layer 9"),
        (("--view", "gates", "--unit", "99"), "has no unit 99"),
        (("--view", "gradients", "--unit", "1"), "--unit has no effect on the view gradients"),
        (("--view", "gates", "--out", "view.pdf"), ".pdf"),
        (("--layer", "1"), "--layer needs a view"),
        (("--out", "view.png"), "--out needs a view"),
        (("--figure", "1"), "--figure needs a view"),
        (("--figure", "0", "--view", "gates"), "figures are counted from 1; received --figure 0."),
        (("another text", "--view", "gates"), "expected one text"),
        (("--view", "gates", "another text"), "expected one text"),
        (("--view", "cost"), f"the view cost reads no text; received {TEXT!r}."),
    ],
)
def test_wrong_arguments_are_one_clear_message(seqwise_command, trained_run, arguments, problem):
    result = seqwise_command("inspect", trained_run("lstm", "words"), TEXT, *arguments)
    assert result.status == 2
    assert problem in result.err
    assert "Traceback" not in result.err
    assert not result.out


def test_the_text_may_follow_the_options(seqwise_command, trained_run):
    run = trained_run("lstm", "words")
    before = seqwise_command("inspect", run, TEXT, "--view", "gates", "--layer", "1")
    assert seqwise_command("inspect", run, "--view", "gates", TEXT, "--layer", "1") == before
    result = seqwise_command("inspect", run, "--view", "cost", TEXT)
    assert f"the view cost reads no text; received {TEXT!r}." in result.err


def test_several_runs_have_the_views_of_all_and_of_each(seqwise_command, trained_run):
    lstm, gru, transformer = (trained_run(name, "words") for name in ("lstm", "gru", "transformer"))
    result = seqwise_command("inspect", transformer, lstm, gru, TEXT)
    together, _, single = result.out.partition("views of one run:")
    assert together.startswith("views of several runs:")
    assert f"seqwise inspect {transformer} {lstm} {gru} --view cost\n" in together
    assert f"seqwise inspect {lstm} {gru} '{TEXT}' --view gradients\n" in together
    assert f"seqwise inspect {lstm} '{TEXT}' --view gates\n" in single
    assert f"seqwise inspect {transformer} '{TEXT}' --view attention\n" in single


def test_a_folder_of_runs_names_them(seqwise_command, trained_run, tmp_path: Path):
    shutil.copytree(trained_run("lstm", "words"), tmp_path / "first")
    result = seqwise_command("inspect", tmp_path)
    assert result.status == 2
    assert f"{tmp_path} is not a run, but a folder of runs.\nName one of them: {tmp_path / 'first'}" in result.err


def test_empty_text_is_an_error(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("lstm", "words"), " ", "--view", "gates")
    assert result.status == 2
    assert "the text is empty" in result.err


def test_a_view_of_one_run_refuses_several(seqwise_command, trained_run):
    runs = trained_run("lstm", "words"), trained_run("gru", "words")
    result = seqwise_command("inspect", *runs, TEXT, "--view", "gates")
    assert result.status == 2
    assert "the view gates shows one run; received 2" in result.err


def test_a_view_that_does_not_apply_says_why(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("transformer", "words"), TEXT, "--view", "gates")
    assert result.status == 2
    assert "has no recurrent layer" in result.err


def test_a_folder_that_is_not_a_run_is_an_error(seqwise_command, tmp_path: Path):
    result = seqwise_command("inspect", tmp_path, "--view", "gates")
    assert result.status == 2
    assert f"{tmp_path} is not a run" in result.err
    assert "RUN is missing" in seqwise_command("inspect").err


def test_a_run_without_weights_says_that_they_come_with_the_first_validation(
    seqwise_command, trained_run, tmp_path: Path
):
    run = tmp_path / "running"
    shutil.copytree(trained_run("lstm", "words"), run)
    (run / "model.safetensors").unlink()
    result = seqwise_command("inspect", run, TEXT, "--view", "gates")
    assert result.status == 2
    assert "has no weights yet" in result.err
    assert "Wait for it if the run is training" in result.err
    assert f"seqwise inspect {run} --view training\n" in result.err
    assert seqwise_command("inspect", run, "--view", "training").status == 0


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_an_error(seqwise_command, trained_run, value: str):
    run = trained_run("gru", "words")
    result = seqwise_command("inspect", run, TEXT, "--view", "decoding", f"--length-penalty={value}")
    assert result.status == 2
    assert f"--length-penalty: expected a finite number; received {value}." in result.err
