"""`seqwise evaluate` as a user sees it."""

from __future__ import annotations

import json
import math

import pytest

from seqwise.cli import console
from seqwise.cli.progress import ProgressBar
from seqwise.config import FAMILIES
from seqwise.metrics.evaluation import DEFINITIONS

METRICS = ["perplexity", "word_perplexity", "bits_per_character", "tokens", "unknown_tokens"]


@pytest.mark.parametrize("family", FAMILIES)
def test_json_is_one_document_with_metrics_and_their_definitions(seqwise_command, trained_run, book, family):
    result = seqwise_command("evaluate", trained_run(family), book, "--json")
    assert result.status == 0
    assert result.err == ""
    document = json.loads(result.out)
    assert list(document)[:9] == [*METRICS, "on", "how", "definitions", "baselines"]
    assert list(document["definitions"]) == METRICS
    assert all(math.isfinite(document[name]) and document[name] > 0 for name in METRICS[:-1])
    assert document["on"] == f"{book}, the test split"


def test_the_table_has_a_line_per_metric_with_its_definition(seqwise_command, trained_run, book):
    result = seqwise_command("evaluate", trained_run(), book)
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[: len(METRICS)]] == METRICS
    for name, line in zip(METRICS, lines):
        assert line.endswith(DEFINITIONS[name])
    assert lines[len(METRICS) : -1] == ["", "baselines: perplexity"]
    assert lines[-1].startswith("unigram ")
    assert result.err.splitlines()[:2] == [
        f"{book}, the test split",
        "state passed on over the whole text; full softmax over 22 tokens, tied projection",
    ]


def test_json_and_table_agree(seqwise_command, trained_run, book):
    document = json.loads(seqwise_command("evaluate", trained_run(), book, "--json").out)
    row = seqwise_command("evaluate", trained_run(), book).out.splitlines()[0].split()
    assert float(row[1]) == pytest.approx(document["perplexity"], abs=6e-4)


@pytest.mark.parametrize(("split", "share"), [("train", 0.9), ("valid", 0.05), ("test", 0.05), ("all", 1.0)])
def test_a_split_can_be_named(seqwise_command, trained_run, book, split, share):
    document = json.loads(seqwise_command("evaluate", trained_run(), book, "--split", split, "--json").out)
    assert document["tokens"] == pytest.approx(share * book.stat().st_size, rel=0.05)


def test_a_note_says_that_a_long_text_is_read_in_parts(seqwise_command, trained_run, book):
    document = json.loads(seqwise_command("evaluate", trained_run(), book, "--split", "train", "--json").out)
    assert document["how"].startswith("state passed on over each of 16 equal parts of the text;")


def test_another_text_is_evaluated_whole_and_its_unknown_tokens_are_listed(seqwise_command, trained_run, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("the XX gate\n")
    result = seqwise_command("evaluate", trained_run(), text)
    assert "all of it" in result.err
    assert "18.2% of the tokens (2) are <unk>: their spelling was not predicted." in result.err


def test_dynamic_evaluation_is_reported_beside_the_plain_perplexity(seqwise_command, trained_run, book):
    plain = json.loads(seqwise_command("evaluate", trained_run(), book, "--json").out)
    result = seqwise_command("evaluate", trained_run(), book, "--dynamic", "--dynamic-rate", "0.2", "--json")
    document = json.loads(result.out)
    assert "each segment of 20 tokens is scored, then trained on (SGD, rate 0.2" in document["how"]
    assert document["perplexity"] == plain["perplexity"] != document["dynamic_perplexity"]
    assert document["definitions"]["dynamic_perplexity"].endswith("by dynamic evaluation")


def test_temperature_and_cache_are_printed_below_the_plain_perplexity(seqwise_command, trained_run, book):
    options = ("--softmax-temperature", "0.9", "--cache", "--cache-window", "100", "--cache-weight", "0.2")
    result = seqwise_command("evaluate", trained_run(), book, *options)
    names = [line.split()[0] for line in result.out.splitlines() if line.strip()]
    assert names[:8] == [
        *("perplexity", "word_perplexity", "bits_per_character", "tokens", "unknown_tokens"),
        *("temperature_perplexity", "temperature_word_perplexity", "temperature_bits_per_character"),
    ]
    assert "temperature: logits divided by 0.9; otherwise as the plain perplexity" in result.err
    assert "cache: the last 100 tokens, weight 0.2, theta 1; one stream over the whole text" in result.err


def test_each_method_names_its_parts_and_counts_each_to_the_end(seqwise_command, trained_run, book, monkeypatch):
    phases: list[tuple[str, list[float]]] = []
    start = ProgressBar.start

    def record_start(bar, label):
        phases.append((label, []))
        start(bar, label)

    monkeypatch.setattr(ProgressBar, "start", record_start)
    monkeypatch.setattr(ProgressBar, "__call__", lambda bar, done, total: phases[-1][1].append(done / total))
    options = "--softmax-temperature auto --cache --cache-search --dynamic --dynamic-method rms --dynamic-search"
    assert seqwise_command("evaluate", trained_run(), book, *options.split()).status == 0
    assert [label for label, _ in phases] == [
        *("evaluating", "searching the temperature", "evaluating with the temperature"),
        *("searching the cache", "evaluating with the cache"),
        *("gradient statistics", "searching dynamic evaluation", "dynamic evaluation"),
    ]
    for label, shares in phases:
        assert shares == sorted(shares), label
        assert shares[-1] == pytest.approx(1, abs=0.01), label


@pytest.mark.parametrize("columns", [60, 100])
def test_on_a_terminal_no_line_is_wider_than_it(seqwise_command, trained_run, book, monkeypatch, columns):
    plain = seqwise_command("evaluate", trained_run(), book).out
    monkeypatch.setattr(console, "width", lambda: columns)
    narrow = seqwise_command("evaluate", trained_run(), book).out
    assert max(map(len, plain.splitlines())) > columns >= max(map(len, narrow.splitlines()))
    assert narrow.split() == plain.split()
    # Beside its number if there is room for a definition, else below.
    assert narrow.splitlines()[1].startswith("    " if columns == 60 else "word_perplexity")


def test_wide_tables_are_split_into_parts(monkeypatch):
    rows = [["", "first", "second", "third"], ["name", "1", "22", "333"]]
    assert console.align_to_width(rows) == ["      first  second  third", "name      1      22    333"]
    monkeypatch.setattr(console, "width", lambda: 20)
    parts = ["      first  second", "name      1      22", "", "      third", "name    333"]
    assert console.align_to_width(rows) == parts
    monkeypatch.setattr(console, "width", lambda: 5)
    assert [line for line in console.align_to_width(rows) if line.startswith("name")] == [
        "name      1", "name      22", "name    333"
    ]  # fmt: skip


def test_a_warning_says_that_the_text_was_trained_on(seqwise_command, trained_run, book):
    result = seqwise_command("evaluate", trained_run("ngram"), book, "--split", "train")
    assert "occur in the training split of the run: the perplexity says nothing about new data." in result.err
    assert "worse than" not in result.err


def test_every_task_writes_its_predictions(seqwise_command, trained_run, book, tmp_path):
    result = seqwise_command("evaluate", trained_run(), book, "--out", tmp_path / "blocks.jsonl")
    assert f"saved to {tmp_path / 'blocks.jsonl'}" in result.err
    rows = [json.loads(line) for line in (tmp_path / "blocks.jsonl").read_text(encoding="utf-8").splitlines()]
    tokens = json.loads(seqwise_command("evaluate", trained_run(), book, "--json").out)["tokens"]
    assert sum(len(row["predicted"]) for row in rows) == tokens
    assert all(len(row["expected"]) == 128 for row in rows[:-1])


def test_a_missing_column_is_explained_by_the_run_and_the_suggestion_works(seqwise_command, tmp_path):
    rows = [f"film number {i},{'good' if i % 2 else 'bad'}" for i in range(60)]
    (tmp_path / "reviews.csv").write_text("\n".join(["Comment,Stars", *rows]))
    (tmp_path / "other.csv").write_text("\n".join(["text,label", *rows]))
    words = ["--task", "classify", "--columns", "Comment,Stars", "--budget", "200-tokens", "--network.width", "8"]
    assert seqwise_command("train", tmp_path / "reviews.csv", *words, "--out", tmp_path / "run").status == 0
    result = seqwise_command("evaluate", tmp_path / "run", tmp_path / "other.csv")
    assert result.status == 2
    assert result.err == (
        f"error: {tmp_path / 'other.csv'}:1: there is no column 'Comment'. "
        "The run has the names of the columns from its training data.\n"
        "Name those of this file: --columns text,label\n"
    )
    result = seqwise_command("evaluate", tmp_path / "run", tmp_path / "other.csv", "--columns", "text,label")
    assert result.status == 0
    result = seqwise_command("evaluate", tmp_path / "run", tmp_path / "other.csv", "--columns", "txt,label")
    assert "there is no column 'txt'.\nPerhaps you meant 'text'.\n" in result.err
    result = seqwise_command("predict", tmp_path / "run", tmp_path / "other.csv")
    assert result.status == 2
    assert "from its training data.\nRename the columns of this file; it has text, label.\n" in result.err


def test_the_columns_of_a_forecast_come_from_the_run(seqwise_command, tmp_path):
    rows = [f"2024-{1 + i // 28:02}-{1 + i % 28:02},{i % 7}" for i in range(200)]
    (tmp_path / "sales.csv").write_text("\n".join(["Datum,Umsatz", *rows]))
    (tmp_path / "other.csv").write_text("\n".join(["date,sales", *rows]))
    words = ["--task", "forecast", "--horizon", "2", "--forecast.lookback", "4", "--budget", "200-tokens"]
    assert seqwise_command("train", tmp_path / "sales.csv", *words, "--out", tmp_path / "run").status == 0
    for command in ("evaluate", "predict"):
        result = seqwise_command(command, tmp_path / "run", tmp_path / "other.csv")
        assert result.status == 2
        assert "there is no column 'Datum'. The run has the names" in result.err
        assert "Rename the columns of this file; it has date, sales." in result.err


def test_a_table_with_symbols_fits_into_the_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "width", lambda: 30)
    rows = [["", "a\u202e\u202e", "b\u202e", "c"], ["name", "1", "2", "3"]]
    lines = console.align_to_width(rows)
    assert max(map(len, lines)) <= 30
    assert lines[0].endswith("a⟨U+202E⟩⟨U+202E⟩")
