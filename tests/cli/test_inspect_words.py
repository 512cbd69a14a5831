"""`seqwise inspect` shows neighbours of words, senses of a word and the steps of decoding."""

from __future__ import annotations

import json


def test_neighbours_of_the_words_of_the_text(seqwise_command, trained_run):
    run, options = trained_run("lstm", "words"), ("--view", "neighbours", "--top", 3, "--json")
    result = seqwise_command("inspect", run, "old model", *options)
    found = json.loads(result.out)["data"]["vocabularies"]["vocabulary"]["input"]
    assert list(found) == ["old", "model"]
    assert all(len(each["words"]) == 3 for each in found.values())


def test_each_text_is_a_sentence_with_the_word(seqwise_command, trained_run):
    texts = "the old model reads", "a small model writes"
    run = trained_run("lstm", "words")
    result = seqwise_command("inspect", run, *texts, "--view", "senses", "--layer", 1, "--json")
    data = json.loads(result.out)["data"]
    assert data["word"] == "model"
    assert data["layer"] == 1
    assert data["cosines"][0][0][1] > data["cosines"][1][0][1]
    result = seqwise_command("inspect", run, texts[0], "--view", "senses")
    assert result.status == 2
    assert "at least two sentences that share a word; received 1" in result.err


def test_a_word_of_digits_stays_a_word(seqwise_command, trained_run):
    options = "--view", "senses", "--word", 1984, "--labels", 1
    result = seqwise_command("inspect", trained_run("lstm", "words"), "the 1984 model", "a model of 1984", *options)
    assert result.status == 2
    assert "expected one label for each of 2 sentences; received 1: 1" in result.err


def test_decoding_shows_what_predict_prints(seqwise_command, trained_run):
    run = trained_run("lstm", "words")
    options = "--greedy", "--max-length", 5, "--json"
    view = seqwise_command("inspect", run, "the old model", "--view", "decoding", "--top", 2, *options)
    data = json.loads(view.out)["data"]
    predicted = json.loads(seqwise_command("predict", run, "the old model", *options).out)
    assert data["output"] == predicted["continuation"]
    assert [len(step["top"]) for step in data["steps"]] == [2] * 5
    result = seqwise_command("inspect", run, "the old model", "--view", "decoding", "--beam", 3)
    assert result.status == 2
    assert "beam search applies to translate and caption" in result.err
