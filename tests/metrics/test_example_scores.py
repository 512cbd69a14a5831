"""Sums of examples: each metric by hand and against sacreBLEU, many at once, saved and read again."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import numpy as np
import pytest

from seqwise.errors import RunError, SaveError
from seqwise.metrics.evaluation import (
    LOWER_IS_BETTER,
    MAX_TEXT_LENGTH,
    SCORES_FILE,
    TEXTS_FILE,
    ExampleScores,
    ExampleText,
    ScoreSums,
    compute_metric,
    count_correct,
    exp_or_inf,
)
from seqwise.metrics.translation import compute_bleu, compute_exact_match, compute_example_sums, count_bleu_ngrams
from seqwise.tasks.tag.spans import compute_f1

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", ",", ".", "today"]


def create_corpus(seed: int, min_words: int = 0, max_words: int = 12) -> tuple[list[str], list[list[str]]]:
    """Outputs that share words with one to three references each."""
    generator = random.Random(seed)

    def text() -> str:
        return " ".join(generator.choices(WORDS, k=generator.randint(min_words, max_words)))

    references = [[text() or "a" for _ in range(generator.randint(1, 3))] for _ in range(20)]
    return [generator.choice(texts) if generator.random() < 0.3 else text() for texts in references], references


def create_example_scores(**changes: object) -> ExampleScores:
    defaults = {
        "metric": "accuracy",
        "unit": "texts",
        "sums": count_correct([True, False]),
        "texts": (ExampleText("a"), ExampleText("b", "c")),
    }
    return ExampleScores(**{**defaults, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "sums", "value"),
    [
        ("perplexity", [3 * math.log(7), 3], 7.0),
        ("accuracy", [3, 4], 0.75),
        ("token_accuracy", [0, 4], 0.0),
        ("exact_match", [0, 0], 0.0),
        ("mse", [5.0, 2], 2.5),
        ("span_f1", [2, 4, 8], 2 * 0.5 * 0.25 / 0.75),
        ("span_f1", [0, 0, 5], 0.0),
    ],
)
def test_metrics_are_computed_from_sums(metric, sums, value):
    assert compute_metric(metric, np.array(sums)) == pytest.approx(value)


def test_f1_and_perplexity_equal_their_other_implementations():
    generator = np.random.RandomState(0)
    for correct in range(4):
        counts = np.array([correct, *correct + generator.randint(0, 3, 2)])
        assert compute_metric("span_f1", counts) == pytest.approx(compute_f1(*counts)[2])
    for nats in (0.5, 699.0, 701.0, 9e9):
        assert compute_metric("perplexity", np.array([nats, 1.0])) == pytest.approx(exp_or_inf(nats))


@pytest.mark.parametrize(
    ("seed", "min_words", "max_words"), [*((seed, 0, 12) for seed in range(12)), (1, 0, 3), (2, 4, 5)]
)
def test_added_counts_give_the_corpus_bleu_of_any_subset(seed, min_words, max_words):
    outputs, references = create_corpus(seed, min_words, max_words)
    counts = count_bleu_ngrams(outputs, references)
    for subset in (range(20), range(3), [0, 0, 7], *([index] for index in range(20))):
        expected = compute_bleu([outputs[index] for index in subset], [references[index] for index in subset]).value
        assert compute_metric("bleu", counts[list(subset)].sum(0)) == pytest.approx(expected, abs=1e-9)


def test_the_bleu_subsets_cover_all_special_cases():
    """Some subsets have no matching n-gram of one length, some none at all, some no 4-gram."""
    ngram_counts = np.concatenate([count_bleu_ngrams(*create_corpus(seed)) for seed in range(12)])
    matches, ngrams = ngram_counts[:, :4], ngram_counts[:, 4:8]
    assert ((matches == 0).any(1) & (matches > 0).any(1) & (ngrams > 0).all(1)).sum() > 5
    assert ((matches == 0).all(1) & (ngrams > 0).all(1)).any()
    assert ((ngrams == 0).any(1) & (matches > 0).any(1)).any()
    assert (ngram_counts[:, 8] == 0).any()


def test_exact_matches_are_counted_per_output():
    outputs, references = create_corpus(4)
    sums = compute_example_sums("exact_match", outputs, references)
    assert sums[:, 1].tolist() == [1.0] * 20
    assert 0 < compute_metric("exact_match", sums.sum(0)) == pytest.approx(compute_exact_match(outputs, references))


def test_metrics_of_many_resamples_are_computed_at_once():
    draws = np.random.RandomState(0).randint(0, 20, (6, 5, 20))
    counts = count_bleu_ngrams(*create_corpus(5, 4))
    together = compute_metric("bleu", counts[draws].sum(axis=2))
    assert together.shape == (6, 5)
    assert together[2, 3] == pytest.approx(float(compute_metric("bleu", counts[draws[2, 3]].sum(0))))


def test_the_metric_of_several_targets_is_their_mean():
    sums = np.array([[1.0, 2.0, 1.0, 4.0], [1.0, 1.0, 0.0, 1.0]])
    assert compute_metric("exact_match", sums).tolist() == [(0.5 + 0.25) / 2, 0.5]


@pytest.mark.parametrize(("metric", "parts"), [("chrf", 2), ("bleu", 9), ("mse", 0)])
def test_unknown_metrics_and_wrong_numbers_of_sums_are_rejected(metric, parts):
    with pytest.raises(ValueError, match=metric):
        compute_metric(metric, np.zeros((3, parts)))


def test_lower_is_better_for_errors_and_perplexities_only():
    assert {"perplexity", "mse", "mae", "loss"} <= LOWER_IS_BETTER
    assert not {"accuracy", "bleu", "span_f1", "exact_match", "token_accuracy"} & LOWER_IS_BETTER


def test_score_sums_do_not_depend_on_the_order():
    score_sums = ScoreSums(3)
    score_sums.add(np.array([2, 0, 2]), np.array([1.5, 2.0, 3.0]))
    score_sums.add(np.array([0]), np.array([4.0]), np.array([6]))
    assert score_sums.sums.tolist() == [[6.0, 7.0], [0.0, 0.0], [4.5, 2.0]]


def test_texts_are_truncated_to_single_valid_lines():
    text = ExampleText.single_line("two\nlines ", "x" * 1000, "\ud800")
    assert text.input == "two lines"
    assert text.expected == "x" * (MAX_TEXT_LENGTH - 1) + "…"
    assert text.answer == "?"
    assert ExampleText.single_line("y" * MAX_TEXT_LENGTH).input == "y" * MAX_TEXT_LENGTH


def test_multi_line_texts_keep_line_breaks_and_blanks():
    text = ExampleText.multi_line("two\n\n  lines ", "x\n" * 500, "\ud800")
    assert text.input == "two\n\n  lines "
    assert len(text.expected) == MAX_TEXT_LENGTH
    assert text.expected == ("x\n" * 500)[: MAX_TEXT_LENGTH - 1] + "…"
    assert text.answer == "?"


def test_loaded_example_scores_equal_the_saved_ones(tmp_path):
    saved = create_example_scores(
        sums=np.array([[1 / 3, 1.0], [0.1, 7.0]]), texts=(ExampleText("ä", "b", "c"), ExampleText(""))
    )
    saved.save(tmp_path / "test")
    loaded = ExampleScores.load(tmp_path / "test")
    assert (loaded.metric, loaded.unit, loaded.texts) == (saved.metric, saved.unit, saved.texts)
    assert loaded.sums.dtype == np.float64
    assert np.array_equal(loaded.sums, saved.sums)
    assert sorted(path.name for path in (tmp_path / "test").iterdir()) == [TEXTS_FILE, SCORES_FILE]


def test_an_interrupted_save_is_not_mixed_with_an_earlier_one(tmp_path, monkeypatch):
    create_example_scores().save(tmp_path)
    replaced_files: list[str] = []

    def fail_on_texts(self: Path, target: Path) -> None:
        replaced_files.append(target.name)
        if target.name == TEXTS_FILE:
            raise OSError("the disk is full")
        os.replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_on_texts)
    with pytest.raises(SaveError, match="the disk is full"):
        create_example_scores(sums=count_correct([False, False])).save(tmp_path)
    assert replaced_files == [SCORES_FILE, TEXTS_FILE]
    with pytest.raises(RunError):
        ExampleScores.load(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "no scores", "truncated", "other rows", "no json"])
def test_damaged_files_are_named(tmp_path, damage):
    create_example_scores().save(tmp_path)
    if damage == "missing":
        (tmp_path / TEXTS_FILE).unlink()
    elif damage == "no scores":
        (tmp_path / SCORES_FILE).unlink()
    elif damage == "truncated":
        (tmp_path / SCORES_FILE).write_bytes((tmp_path / SCORES_FILE).read_bytes()[:-3])
    elif damage == "other rows":
        create_example_scores(sums=count_correct([True]), texts=(ExampleText("a"),)).save(tmp_path / "other")
        (tmp_path / "other" / SCORES_FILE).replace(tmp_path / SCORES_FILE)
    else:
        (tmp_path / TEXTS_FILE).write_text("[")
    with pytest.raises(RunError, match="missing or damaged"):
        ExampleScores.load(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="cannot write"):
        create_example_scores().save(tmp_path / "file")


def test_sums_and_texts_of_different_lengths_are_rejected():
    with pytest.raises(ValueError, match="do not belong"):
        create_example_scores(texts=(ExampleText("a"),))
