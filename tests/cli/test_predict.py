"""`seqwise predict` as a user sees it."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from seqwise.cli.options import list_typed
from seqwise.cli.predict import OPTION_TASKS, reject_options_of_other_tasks
from seqwise.config import FAMILIES
from seqwise.errors import UsageError


def set_standard_input(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompt_is_continued_on_standard_output(seqwise_command, trained_run, family):
    result = seqwise_command("predict", trained_run(family), "the old", "--max-length", "12")
    assert result.status == 0
    assert result.err == ""
    assert result.out.startswith("the old")
    assert len(result.out) == len("the old") + 12 + 1


def test_json_holds_the_same_text_and_nothing_else_is_printed(seqwise_command, trained_run):
    words = ("predict", trained_run(), "the old", "--max-length", "30", "--seed", "5")
    document = json.loads(seqwise_command(*words, "--json").out)
    assert list(document) == ["prompt", "continuation", "seed"]
    assert document["prompt"] + document["continuation"] + "\n" == seqwise_command(*words).out


def test_text_is_printed_as_it_is_generated(trained_run, monkeypatch):
    from seqwise.cli import predict

    written: list[str] = []

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stdout", Screen())
    assert predict.main([str(trained_run()), "the", "--max-length", "8"]) == 0
    assert written[0] == "the"
    assert [len(piece) for piece in written[1:]] == [1] * 9  # eight characters and the line end


def test_the_same_seed_generates_the_same_text(seqwise_command, trained_run):
    def text(*words: str) -> str:
        return seqwise_command("predict", trained_run(), "the", "--max-length", "40", *words).out

    assert text("--seed", "1") == text("--seed", "1") != text("--seed", "2")
    assert text("--greedy") == text("--greedy", "--seed", "9") == text("--top-k", "1")
    assert text("--repetition-penalty", "3", "--greedy") != text("--greedy")


def test_the_prompt_may_be_a_file_or_standard_input(seqwise_command, trained_run, tmp_path, monkeypatch):
    path = tmp_path / "with blank ünd.txt"
    path.write_text("the old", encoding="utf-8")
    words = ("--max-length", "9", "--seed", "3")
    expected = seqwise_command("predict", trained_run(), "the old", *words)
    assert seqwise_command("predict", trained_run(), path, *words) == expected
    set_standard_input(monkeypatch, b"the old")
    assert seqwise_command("predict", trained_run(), "-", *words) == expected


def test_a_prompt_may_look_like_an_option(seqwise_command, trained_run):
    result = seqwise_command("predict", trained_run(), "--max-length", "2", "--", "--seed")
    assert result.out.startswith("--seed")


@pytest.mark.parametrize(
    "prompt", ["", "x" * 5000, "a\0b", ".", "..", "and/or", "31/12/1999", "old film.csv", "a://b.csv"]
)
def test_unusual_prompts_are_accepted(seqwise_command, trained_run, prompt):
    result = seqwise_command("predict", trained_run(), prompt, "--max-length", "1")
    assert result.status == 0
    assert len(result.out) == len(prompt) + 2


def test_unknown_tokens_of_a_prompt_are_listed(seqwise_command, trained_run):
    result = seqwise_command("predict", trained_run(), "thé ολδ", "--max-length", "4")
    assert result.status == 0
    assert result.err == "warning: 4 of 7 tokens of the prompt are not in the vocabulary: 'é', 'ο', 'λ', 'δ'\n"
    words = seqwise_command("predict", trained_run("lstm", "words"), "the zebra reads", "--max-length", "4")
    assert "1 of 3 tokens of the prompt are not in the vocabulary: 'zebra'" in words.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--greedy", "--sample"], "--greedy and --sample exclude each other."),
        (["--temperature", "0"], "the temperature must be above 0; received 0.\nUse --greedy."),
        (["--temperature", "-1"], "the temperature must be above 0; received -1."),
        (["--temperature", "nan"], "--temperature: expected a finite number; received nan."),
        (["--temperature", "hot"], "--temperature: expected FLOAT; received 'hot'."),
        (["--top-k", "0"], "top-k must be at least 1; received 0."),
        (["--top-p", "1.5"], "top-p must lie in (0, 1]; received 1.5."),
        (["--repetition-penalty", "nan"], "--repetition-penalty: expected a finite number; received nan."),
        (["--max-length", "0"], "--max-length must be at least 1; received 0."),
        (["--seed", "-1"], "the seed must lie between 0 and 2^63 - 1; received -1."),
        (["--seed", "9" * 30], "the seed must lie between"),
        (["--device", "tpu"], "--device: expected one of auto, cpu, cuda; received 'tpu'."),
        (["--beem", "3"], "unknown option '--beem'."),
    ],
)
def test_an_invalid_option_is_one_message_and_nothing_is_written(seqwise_command, trained_run, words, expected):
    result = seqwise_command("predict", trained_run(), "the", *words)
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith(f"error: {expected}")


def test_a_prompt_in_another_encoding_is_converted_and_a_damaged_one_is_an_error(
    seqwise_command, trained_run, tmp_path, monkeypatch
):
    path = tmp_path / "latin.txt"
    path.write_bytes("the\nschön".encode("latin1"))
    result = seqwise_command("predict", trained_run(), path)
    assert result.status == 0
    assert f"note: 1 file in Latin-1, converted to UTF-8 (--data.encoding sets another) ({path})." in result.err
    set_standard_input(monkeypatch, b"\xff")
    result = seqwise_command("predict", trained_run(), "-")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("error: standard input:1: byte 0xFF at offset 0 (line 1) is not UTF-8. Nor is it")
    result = seqwise_command("predict", trained_run(), "the \udcff")
    assert result.err.startswith("error: the text is not UTF-8.")


def test_a_missing_prompt_file_is_an_error(seqwise_command, trained_run, tmp_path):
    (tmp_path / "prompt.txt").write_text("the")
    result = seqwise_command("predict", trained_run(), tmp_path / "promt.txt")
    assert result.status == 2
    assert result.err == (
        f"error: {tmp_path}/promt.txt: there is no such file or folder.\nPerhaps you meant 'prompt.txt'.\n"
        f"If it is the text itself: echo {tmp_path}/promt.txt | seqwise predict RUN -\n"
    )
    assert "this is a folder" in seqwise_command("predict", trained_run(), tmp_path).err


def test_only_the_end_of_a_very_long_prompt_is_read(monkeypatch, capsys):
    from seqwise.cli import predict

    assert predict._truncate_prompt("a" * 10_000) == "a" * 10_000
    assert predict._truncate_prompt("b" + "a" * 10_000) == "a" * 10_000
    assert "the prompt has 10,001 characters; only the last 10,000 are used." in capsys.readouterr().err


# ---- beam search


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    """A run of a translation model that is hardly trained."""
    from seqwise.training.api import train

    folder = tmp_path_factory.mktemp("dates") / "run"
    train("builtin:dates", out=folder, model="gru", budget="1k-tokens", network={"width": 8, "embedding": 4})
    return folder


@pytest.mark.parametrize("words", [["--beam", "0"], ["--n-best", "3", "--beam", "2"], ["--max-length", "0"]])
def test_invalid_search_options_are_an_error(seqwise_command, dates, words):
    for command in ("predict", "evaluate"):
        if command == "predict" or "--n-best" not in words:
            result = seqwise_command(command, dates, "builtin:dates" if command == "evaluate" else "3 May 1998", *words)
            assert result.status == 2, result.err


def test_sampling_options_without_sample_are_an_error(seqwise_command, dates):
    result = seqwise_command("predict", dates, "3 May 1998", "--temperature", "0.5")
    assert result.status == 2
    assert "Add --sample." in result.err


def test_greedy_decoding_is_a_beam_of_one_and_json_has_one_value_per_line(seqwise_command, dates, tmp_path):
    questions = tmp_path / "questions.txt"
    questions.write_text("3 May 1998\n14. Juli 1989\n")
    greedy = seqwise_command("predict", dates, questions, "--greedy", "--json")
    assert len(json.loads(greedy.out)) == 2
    assert greedy.out == seqwise_command("predict", dates, questions, "--beam", "1", "--json").out
    samples = [seqwise_command("predict", dates, questions, "--sample", "--seed", seed).out for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]


def test_predict_reads_the_source_column_of_a_table_and_rejects_options_of_other_tasks(
    seqwise_command, dates, tmp_path
):
    table = tmp_path / "some.csv"
    table.write_text('source,target\n"3 May\n1998",1998-05-03\n14. Juli 1989,1989-07-14\n')
    assert len(json.loads(seqwise_command("predict", dates, table, "--json").out)) == 2
    table.write_text("source\n3 May 1998\n")
    assert len(json.loads(seqwise_command("predict", dates, table, "--json").out)) == 1
    result = seqwise_command("predict", dates, "3 May 1998", "--top", "2")
    assert (result.status, result.err.splitlines()[0]) == (
        2,
        "error: --top applies to classify, masked; the task of this run is translate.",
    )


def test_several_texts_are_predicted_one_after_the_other(seqwise_command, trained_run):
    words = ("--max-length", "5", "--seed", "2")
    lines = [seqwise_command("predict", trained_run(), text, *words).out for text in ("the old", "a river")]
    assert seqwise_command("predict", trained_run(), "the old", "a river", *words).out == "".join(lines)
    documents = json.loads(seqwise_command("predict", trained_run(), "the old", "a river", *words, "--json").out)
    assert [document["prompt"] for document in documents] == ["the old", "a river"]


@pytest.mark.slow
def test_a_pipe_is_read_without_a_dash(trained_run):
    words = [sys.executable, "-m", "seqwise", "predict", str(trained_run()), "--max-length", "5", "--seed", "2"]
    piped = subprocess.run(words, input="the old", capture_output=True, text=True, check=True)
    named = subprocess.run([*words, "the old"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert piped.stdout == named.stdout
    assert piped.stdout.startswith("the old")


def test_an_empty_answer_gets_a_remark(seqwise_command, trained_run, monkeypatch):
    from seqwise.training.api import TrainedModel

    monkeypatch.setattr(TrainedModel, "predict", lambda self, prompt, options: iter([""]))
    result = seqwise_command("predict", trained_run(), "the old", "a")
    assert result.out == "the old\na\n"
    assert result.err == "warning: 2 of 2 answers are empty: the model ends them at once.\n"
    assert "1 of 1 answer is empty" in seqwise_command("predict", trained_run(), "the old").err


@pytest.mark.parametrize("words", [("--seed", "0"), ("--temperature", "1"), ("--beam", "1"), ("--max-length", "5")])
def test_an_option_that_other_tasks_use_is_an_error_even_with_its_default(words):
    with pytest.raises(UsageError, match=f"{words[0]} applies to .*; the task of this run is classify"):
        reject_options_of_other_tasks(list_typed(words), "classify", OPTION_TASKS)
