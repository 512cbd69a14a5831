"""`seqwise evaluate` as a user sees it."""

from __future__ import annotations

import json
import math

import pytest

from seqwise.config import FAMILIES
from seqwise.metrics.evaluation import DEFINITIONS

METRICS = ["perplexity", "word_perplexity", "bits_per_character", "tokens", "unknown_tokens"]


@pytest.mark.parametrize("family", FAMILIES)
def test_json_is_one_document_with_plain_names_and_their_definitions(seqwise_command, run_of, book, family):
    answer = seqwise_command("evaluate", run_of(family), book, "--json")
    assert answer.status == 0
    assert answer.err == ""
    document = json.loads(answer.out)
    assert list(document) == [*METRICS, "on", "how", "definitions"]
    assert list(document["definitions"]) == METRICS
    assert all(math.isfinite(document[name]) and document[name] > 0 for name in METRICS[:-1])
    assert document["on"] == f"{book}, the test split"


def test_the_table_has_a_line_per_metric_with_its_definition(seqwise_command, run_of, book):
    answer = seqwise_command("evaluate", run_of(), book)
    assert [line.split()[0] for line in answer.out.splitlines()] == METRICS
    for name, line in zip(METRICS, answer.out.splitlines()):
        assert line.endswith(DEFINITIONS[name])
    assert answer.err.splitlines() == [
        f"{book}, the test split",
        "state carried over the whole text; full softmax over 22 tokens, tied projection",
    ]


def test_json_and_table_agree(seqwise_command, run_of, book):
    document = json.loads(seqwise_command("evaluate", run_of(), book, "--json").out)
    row = seqwise_command("evaluate", run_of(), book).out.splitlines()[0].split()
    assert float(row[1]) == pytest.approx(document["perplexity"], abs=6e-4)


@pytest.mark.parametrize(("split", "share"), [("train", 0.9), ("valid", 0.05), ("test", 0.05), ("all", 1.0)])
def test_a_split_can_be_named(seqwise_command, run_of, book, split, share):
    document = json.loads(seqwise_command("evaluate", run_of(), book, "--split", split, "--json").out)
    assert document["tokens"] == pytest.approx(share * book.stat().st_size, rel=0.05)


def test_a_long_text_is_said_to_be_read_in_parts(seqwise_command, run_of, book):
    document = json.loads(seqwise_command("evaluate", run_of(), book, "--split", "train", "--json").out)
    assert document["how"].startswith("state carried over each of 16 equal parts of the text;")


def test_another_text_is_scored_whole_and_its_unknown_tokens_are_named(seqwise_command, run_of, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("the XX gate\n")
    answer = seqwise_command("evaluate", run_of(), text)
    assert "all of it" in answer.err
    assert "18.2% of the tokens (2) are <unk>: their spelling was not predicted." in answer.err


def test_dynamic_evaluation_says_how_it_was_done(seqwise_command, run_of, book):
    answer = seqwise_command("evaluate", run_of(), book, "--dynamic", "--dynamic-rate", "0.2", "--json")
    assert "each piece is scored, then learned from (SGD, rate 0.2)" in json.loads(answer.out)["how"]
