"""`seqwise inspect --view horizon`: its options, and several runs."""

from __future__ import annotations

import json

import pytest


def test_several_runs_are_measured_on_the_same_targets(seqwise_command, trained_run):
    runs = trained_run("lstm", "words"), trained_run("gru", "words")
    options = "--max-context", "8", "--num-targets", "40"
    result = seqwise_command("inspect", *runs, "--view", "horizon", *options)
    assert result.status == 0, result.err
    assert "Loss against visible context" in result.out
    assert "Measured on 40 tokens evenly spread over" in result.out
    data = json.loads(seqwise_command("inspect", *runs, "--view", "horizon", *options, "--json").out)["data"]
    lstm, gru = data.values()
    assert lstm["losses"][0] == pytest.approx(gru["losses"][0], rel=1e-6)
    assert lstm["max_context"] == gru["max_context"] == 8


def test_other_data_can_be_measured(seqwise_command, trained_run, book):
    options = "--max-context", "4", "--num-targets", "30", "--data", book
    result = seqwise_command("inspect", trained_run("lstm", "words"), "--view", "horizon", *options)
    assert result.status == 0, result.err
    assert "the test split" in result.out.replace("\n", " ")


def test_a_text_file_that_is_too_short_is_an_error(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("lstm", "words"), "the old", "--view", "horizon")
    assert result.status == 2
    assert "too few to measure the benefit of context" in result.err
