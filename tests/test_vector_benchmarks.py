"""The benchmarks of word vectors: rare words, cost of the losses, and the comparison with gensim."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from seqwise.data.corpus.sources import open_unsplit
from seqwise.vectors.corpus import EncodedCorpus, Vocabulary, encode_corpus
from seqwise.vectors.evaluation import Pair
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.trainer import build_objective


@pytest.fixture
def rare(monkeypatch, benchmark_script) -> ModuleType:
    module = benchmark_script("rare_words")
    monkeypatch.setattr(module, "MIN_COUNT", 60)
    monkeypatch.setattr(module, "TWIN_COUNTS", (5, 20))
    return module


@pytest.fixture
def cost(monkeypatch, benchmark_script) -> ModuleType:
    module = benchmark_script("softmax_cost")
    monkeypatch.setattr(module, "MIN_BLOCK_SECONDS", 0.002)
    monkeypatch.setattr(module, "REPEATS", 2)
    return module


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """Sixty words of six kinds; those of a line are of one kind. Each occurs some two hundred times."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("text") / "kinds.txt"
    kinds = random.integers(0, 6, 1500)
    words = random.integers(0, 10, (1500, 8))
    lines = [" ".join(f"word{kind}{word}" for word in row) for kind, row in zip(kinds, words)]
    path.write_text("\n".join(lines) + "\n")
    return path


def read_all_ids(sentences: EncodedCorpus) -> list[int]:
    return np.concatenate(list(sentences.iterate_blocks())).tolist()


def test_twins_are_renamed_occurrences_and_the_rest_is_unchanged(rare, text):
    with encode_corpus(open_unsplit(text)) as sentences:
        renamed, twins = rare.create_twins(sentences, 12, seed=1)
        with renamed:
            before = [
                sentences.vocabulary.words[word_id] if word_id >= 0 else "" for word_id in read_all_ids(sentences)
            ]
            after = [renamed.vocabulary.words[word_id] if word_id >= 0 else "" for word_id in read_all_ids(renamed)]
    assert [word.removesuffix("~") for word in after] == before
    counts = Counter(word for word in after if word)
    assert dict(zip(renamed.vocabulary.words, renamed.vocabulary.counts.tolist())) == counts
    assert sorted(renamed.vocabulary.counts.tolist(), reverse=True) == renamed.vocabulary.counts.tolist()
    names = renamed.vocabulary.words
    assert [names[row] for row in twins.rows] == [names[row] + "~" for row in twins.originals]
    assert [counts[names[row]] for row in twins.rows] == twins.counts.tolist() == [5, 20] * 6


def test_another_seed_selects_other_words(rare, text):
    with encode_corpus(open_unsplit(text)) as sentences:
        twins = []
        for seed in (1, 1, 2):
            renamed, _ = rare.create_twins(sentences, 12, seed)
            renamed.file.close()
            twins.append({word for word in renamed.vocabulary.words if word.endswith("~")})
    assert twins[0] == twins[1] != twins[2]


def test_ranks_and_cosines_of_the_originals_equal_hand_computed_values(rare, monkeypatch):
    matrix = np.array([[1, 0], [0, 1], [0.6, 0.8], [2, 0], [0.8, 0.6]], dtype=np.float32)
    keyed = KeyedVectors(["a", "b", "c", "a~", "b~"], matrix, np.array([90, 80, 7, 5, 5]))
    monkeypatch.setattr(rare, "TWIN_COUNTS", (5,))
    twins = rare.Twins(np.array([3, 4]), np.array([0, 1]), np.array([5, 5]))
    # a~ equals a. b~ is nearest to c (0.96), a and a~ (0.8), then b (0.6): rank 4, and 2 among the frequent a and b.
    [line] = rare.evaluate_twins(keyed, twins)
    assert line == pytest.approx(
        {"occurrences": 5, "twins": 2, "first": 0.5, "reciprocal": 0.625, "among_frequent": 0.5, "cosine": 0.8}
    )


def test_the_mean_cosine_of_rare_words_equals_a_hand_computed_value(rare):
    matrix = np.array([[9, 9], [2, 0], [0, 1], [3, 4]], dtype=np.float32)
    keyed = KeyedVectors(["often", "a", "b", "c"], matrix, np.array([10, 9, 6, 5]))
    assert rare.compute_rare_cosine(keyed) == (pytest.approx((0 + 0.6 + 0.8) / 3), 3)
    assert rare.compute_rare_cosine(KeyedVectors(["often"], matrix[:1], np.array([10]))) == (None, 0)


def test_pairs_are_grouped_by_their_rarer_word(rare):
    keyed = KeyedVectors(["a", "b", "c"], np.eye(3, dtype=np.float32), np.array([500, 150, 20]))
    pairs = [Pair("a", "b", 1), Pair("A", "C", 1), Pair("b", "c", 2), Pair("a", "unknown", 1)]
    assert [line["pairs"] for line in rare.evaluate_bands(keyed, pairs)] == [0, 2, 1, 0]


@pytest.mark.slow
def test_every_row_is_trained_and_reported(rare, text, tmp_path, capsys):
    scores = tmp_path / "scores.tsv"
    scores.write_text("word00\tword01\t9\nword00\tword10\t1\nword20\tword21\t8\n")
    command = [str(text), "--words", "12", "--seeds", "2", "--threads", "1", "--tests", str(scores)]
    rare.main([*command, "--rows", "skipgram,cbow@0.3,cbow-as-gensim", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["row"], row["seed"]) for row in rows[::2]] == [
        ("skipgram", 1),
        ("cbow-as-gensim", 1),
        ("cbow@0.3", 2),
    ]
    assert all(line["twins"] == 6 and -1 <= line["cosine"] <= 1 for row in rows for line in row["twins"])
    assert rows[0]["bands"]["scores"][-2]["pairs"] == 3
    rare.main([*command, "--rows", "cbow"])
    output = capsys.readouterr().out
    assert "share of twins whose nearest word is the original" in output
    assert "Spearman, scores" in output


def test_a_rate_can_be_named_with_a_row(rare):
    assert rare.resolve_row("cbow@0.3").learning_rate == 0.3
    assert rare.resolve_row("cbow-as-gensim").update == "gensim"
    with pytest.raises(SystemExit, match="there is no row glove"):
        rare.resolve_row("glove")


def test_a_text_with_too_few_frequent_words_is_an_error(rare, text):
    with pytest.raises(SystemExit, match="60 words occur 60 to 10,000 times, expected 480"):
        rare.main([str(text)])


@pytest.mark.parametrize("name", ["rare_words", "softmax_cost", "vectors"])
def test_a_missing_corpus_is_reported(monkeypatch, capsys, name, benchmark_script):
    monkeypatch.delenv("SEQWISE_DATA", raising=False)
    benchmark_script(name).main([])
    assert capsys.readouterr().out == "skipped: no corpus. Name a text file, or set SEQWISE_DATA.\n"


def test_time_in_proportion_to_the_vocabulary_has_exponent_one(cost):
    lines = [{"vocabulary": size, "microseconds": size / 7} for size in (100, 300, 2000)]
    assert cost.compute_exponent(lines) == pytest.approx(1)
    assert cost.compute_exponent([{**line, "microseconds": 3} for line in lines]) == pytest.approx(0)
    assert cost.compute_exponent(lines[:1]) is None


def test_the_text_keeps_the_most_frequent_words_and_the_ends_of_sentences(cost):
    ids = np.array([0, 3, 1, -1, 2, 0, -1, 0], dtype=np.int32)
    reduced_ids, reduced = cost.keep_most_frequent(ids, Vocabulary(["a", "b", "c", "d"], np.array([3, 1, 1, 1]), 4), 2)
    assert reduced_ids.tolist() == [0, 1, -1, 0, -1, 0]
    assert reduced.words == ["a", "b"]
    rare, frequent = np.full(5000, 1), np.array([1, 1])  # counts: the words make up 1/5000 and 1/2 of the text
    assert cost.subsample(reduced_ids, rare, 3).tolist() == [0, 1, -1, 0]
    assert len(cost.subsample(np.zeros(10_000, dtype=np.int32), frequent, 10_000)) < 1000


def test_the_number_of_output_rows_per_window_is_that_of_the_loss(cost):
    words, counts, text = list("abcd"), np.array([9, 9, 9, 9]), np.array([0, 1, -1, 2], dtype=np.int32)
    rows = {}
    for loss in cost.LOSSES:
        objective = build_objective(words, counts, VectorSettings(loss=loss, dim=8).resolve())
        rows[loss] = cost.count_output_rows(objective, text)
    assert rows == {"negative": 6, "hierarchical": 2.0, "softmax": 4}


@pytest.mark.slow
def test_every_loss_is_timed_at_every_size(cost, text, monkeypatch, capsys):
    monkeypatch.setattr(cost, "SUBSAMPLE", 0)  # of sixty words, all would be dropped
    command = [str(text), "--vocabularies", "20,60", "--dim", "16", "--quality", "40"]
    cost.main([*command, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert len(report["rows"]) == 2 * 2 * 3
    for row in report["rows"]:
        assert row["words_per_second"] > 0
        if row["vocabulary"] == 60:  # no line is emptied, and each word has a window
            # A pair is the whole window in CBOW, and in skip-gram a neighbour, of which a window has several.
            pairs = 1e6 / row["words_per_second"] / row["microseconds"]
            assert pairs == pytest.approx(1 if row["method"] == "cbow" else 5, rel=0.3)
    assert [line["loss"] for line in report["quality"]] == ["softmax", "hierarchical", "negative"]
    assert all(0.25 < line["agreement"] <= 1 for line in report["quality"])  # by chance: 10/39
    cost.main([*command[:-2], "--methods", "cbow"])
    assert "exponent" in capsys.readouterr().out


def test_a_vocabulary_larger_than_the_text_has_is_an_error(cost, text):
    with pytest.raises(SystemExit, match="has 60 different words"):
        cost.main([str(text), "--vocabularies", "100"])


# ---- comparison with gensim


@pytest.fixture
def vectors(benchmark_script) -> ModuleType:
    return benchmark_script("vectors")


@pytest.mark.slow
def test_both_implementations_are_trained_and_evaluated(vectors, text, tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("word00\tword01\t9\nword00\tword10\t1\nword02\tword30\t2\n")
    rows = "gensim-skipgram,skipgram"
    vectors.main([str(text), "--rows", rows, "--seeds", "1", "--tests", str(tmp_path / "pairs.tsv"), "--json"])
    results = json.loads(capsys.readouterr().out)["rows"]
    assert [row["row"] for row in results] == rows.split(",")
    for row in results:
        assert row["words_per_second"] > 1_000
        assert 20 < row["peak_mb"] < 2_000
        assert -1 <= row["pairs"] <= 1
    assert results[1]["loss"] < 6 * np.log(2)


def test_a_failed_row_is_recorded_and_the_others_are_measured(vectors, text, monkeypatch, capsys):
    measure = vectors.measure
    monkeypatch.setattr(
        vectors, "measure", lambda name, corpus, *more: measure(name, corpus if name == "cbow" else Path("none"), *more)
    )
    assert vectors.main([str(text), "--rows", "skipgram,cbow", "--seeds", "1", "--tests", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["rows"][0]["failed"].startswith("RuntimeError: ")
    assert report["rows"][1]["words_per_second"] > 1_000
    assert list(report["table"]) == ["cbow"]
    assert report["planned"] == ["skipgram, seed 1", "cbow, seed 1"]


def test_the_error_about_an_unknown_row_lists_the_names(vectors, text):
    with pytest.raises(SystemExit, match=r"there is no row skipgran. The rows are: gensim-skipgram, skipgram, "):
        vectors.main([str(text), "--rows", "skipgran", "--tests"])


def test_speed_and_quality_are_required(vectors):
    baseline = {"words_per_second": 100.0, "peak_mb": 50.0, "wordsim353": 0.4, "questions-words": 0.2}
    good = {"words_per_second": 301.0, "peak_mb": 50.0, "wordsim353": 0.391, "questions-words": 0.191}
    ratios, missed = vectors.check_table({"skipgram": good, "gensim-skipgram": baseline})
    assert (ratios, missed) == (["skipgram is 3.01 times as fast as gensim-skipgram"], [])
    for worse in ({"words_per_second": 299.0}, {"wordsim353": 0.389}, {"questions-words": 0.189}):
        assert len(vectors.check_table({"skipgram": {**good, **worse}, "gensim-skipgram": baseline})[1]) == 1
    assert vectors.check_table({"gpu-skipgram": {**good, "words_per_second": 9e6}})[1] != []


def test_the_table_has_medians_of_speeds_and_means_of_the_rest(vectors):
    rows = [
        {"row": "cbow", "words_per_second": speed, "peak_mb": peak_mb} for speed, peak_mb in ((1, 10), (2, 20), (9, 60))
    ]
    assert vectors.summarize(rows, ["cbow"], ["words_per_second", "peak_mb"]) == {
        "cbow": {"words_per_second": 2, "peak_mb": 30}
    }
