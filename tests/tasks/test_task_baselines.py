"""Baselines of each task equal hand-computed values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqwise.config import parse_settings
from seqwise.metrics.evaluation import Baseline
from seqwise.tasks import get_task
from seqwise.tasks.caption.generation import compute_baselines as compute_caption_baselines
from seqwise.tasks.classify.bag_of_words import compute_baselines as compute_label_baselines
from seqwise.tasks.forecast.linear import forecast_linearly
from seqwise.tasks.language.task import Language
from seqwise.tasks.tag.task import compute_baselines as compute_tag_baselines
from seqwise.tasks.task import ModelBundle
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.tasks.translate.evaluation import compute_baselines as compute_translation_baselines
from seqwise.tasks.translate.reader import Pair


def prepare_task(task: str, folder: Path, **settings: Any) -> Any:
    return get_task(task).prepare(str(folder), parse_settings({"task": task, **settings}))


def write(folder: Path, suffix: str, **splits: str) -> Path:
    for name, text in splits.items():
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def get_label_baselines(folder: Path) -> list[Baseline]:
    task = prepare_task("classify", folder)
    return compute_label_baselines(
        task.training_summary, task.token_ids["test"], task.label_ids["test"], task.labels, "words"
    )


def test_the_most_frequent_label_is_that_of_the_training_split(tmp_path: Path):
    rows = {"train": "ababb", "valid": "ab", "test": "aaab"}  # most frequent: b in train, a in test
    texts = {split: "".join(f"word {index} of {split}\t{label}\n" for index, label in enumerate(labels))
             for split, labels in rows.items()}  # fmt: skip
    _, baseline = get_label_baselines(write(tmp_path, "tsv", **texts))
    assert (baseline.name, baseline.value) == ("most frequent label", 0.25)
    assert baseline.about == "It always predicts 'b', the most frequent label of the training split."


def test_the_bag_of_words_learns_which_words_have_which_label(tmp_path: Path):
    train = "".join(f"the film {n} is good\tyes\nthe film {n} is bad\tno\n" for n in range(20))
    test = "good film\tyes\na bad one\tno\ngood\tno\nthe good\tyes\n"
    baseline, _ = get_label_baselines(write(tmp_path, "tsv", train=train, valid=test, test=test))
    assert baseline.name == "bag of words"
    assert baseline.value == 0.75


def format_conll(*sentences: str) -> str:
    return (
        "\n".join("".join(f"{pair.replace('/', ' ')}\n" for pair in sentence.split()) for sentence in sentences) + "\n"
    )


def get_tag_baseline(folder: Path, train: str, test: str) -> Baseline:
    task = prepare_task("tag", write(folder, "conll", train=train, valid=test, test=test))
    (baseline,) = compute_tag_baselines(task.training_summary, task.splits.parts["test"], task.vocabulary.has_spans)
    return baseline


def test_a_word_gets_its_most_frequent_tag_and_an_unseen_word_gets_o(tmp_path: Path):
    train = format_conll("Rome/B-LOC sleeps/O", "Rome/B-LOC and/O Ann/B-PER", "Ann/B-LOC or/O Ann/B-PER Rome/B-PER")
    test = format_conll("Rome/B-LOC and/O Bob/B-PER", "Ann/B-LOC sleeps/O Lima/B-LOC")
    baseline = get_tag_baseline(tmp_path, train, test)
    # Rome is correct, Ann is tagged as a person, Bob and Lima are not found: 1 of 2 predicted and of 4 true spans.
    assert baseline.value == pytest.approx(2 * 1 / (2 + 4))
    assert baseline.about.endswith("an unseen one O.")


def test_an_unseen_word_gets_the_most_frequent_plain_tag(tmp_path: Path):
    train = format_conll("a/DET dog/NOUN runs/VERB", "a/DET cat/NOUN runs/NOUN", "cat/NOUN runs/VERB")
    test = format_conll("a/DET bird/NOUN runs/NOUN", "birds/VERB")
    baseline = get_tag_baseline(tmp_path, train, test)
    assert baseline.value == 2 / 4  # "a", and "bird", because unseen words are nouns
    assert baseline.about.endswith("an unseen one NOUN.")


def test_the_unigram_perplexity_is_that_of_the_counts_plus_one(book: Path):
    task = prepare_task("language", book)
    summary = task.training_summary
    bundle = ModelBundle(None, None, task.preprocessor, training=summary)  # type: ignore[arg-type]
    counts = np.zeros(len(task.tokenizer), dtype=np.int64)
    counts[[3, 5]] = 2, 1
    (baseline,) = Language.compute_baselines(bundle, counts)
    smoothed = task.counts.numpy() + 1
    log_probabilities = np.log(smoothed / smoothed.sum())
    assert baseline.value == pytest.approx(math.exp(-(2 * log_probabilities[3] + log_probabilities[5]) / 3))


def test_a_translation_is_compared_with_its_source_and_with_the_most_frequent_target():
    pairs = [Pair("a b c d", ("a b c d",), "", 1), Pair("x", ("y",), "", 2), Pair("z", ("y",), "", 3)]
    outputs = {"de": [("", (pair.targets[0],)) for pair in pairs]}
    copy, frequent = compute_translation_baselines("exact_match", outputs, pairs, {"de": "y"})  # type: ignore[arg-type]
    assert (copy.name, copy.value) == ("copy of the source", pytest.approx(1 / 3))
    assert (frequent.name, frequent.value) == ("most frequent target", pytest.approx(2 / 3))
    (copy_baseline,) = compute_translation_baselines("bleu", outputs, pairs, {})  # type: ignore[arg-type]
    assert copy_baseline.value > 50  # the first pair is a copy


def test_a_caption_is_compared_with_the_most_frequent_one():
    summary = TrainingSummary("exact_match", np.zeros(0, np.uint64), attributes={"frequent_caption": "a cat"})
    (baseline,) = compute_caption_baselines("exact_match", [["a cat", "one cat"], ["a dog"]], summary)
    assert baseline.value == 0.5
    assert compute_caption_baselines("bleu", [["a cat"]], None) == []


def test_the_linear_model_continues_a_linear_recurrence(tmp_path: Path):
    """Each value is the sum of 1.8 times the value before and -0.97 times that before it: a damped oscillation."""
    values = [1.0, 1.5]
    noise = np.random.default_rng(0).normal(size=400)
    for step in range(2, 400):
        values.append(1.8 * values[-1] - 0.97 * values[-2] + noise[step])
    path = tmp_path / "waves.csv"
    path.write_text("step,wave\n" + "".join(f"{step},{value}\n" for step, value in enumerate(values)))
    task = prepare_task("forecast", path, horizon=3, forecast={"lookback": 6, "season": 1})
    weights = task.training_summary.arrays["linear"]
    assert weights.shape == (7, 3)
    batch = task.rolling.collate(task.windows["test"])
    forecast, scaler = forecast_linearly(batch.past, weights), task.statistics.scaler
    one_step_error = (forecast[:, 0] - batch.future[:, 0].numpy()) * scaler.deviation
    # The best forecast of the next value has the error of the noise, whose variance is 1.
    assert np.mean(one_step_error**2) == pytest.approx(np.mean(noise[task.windows["test"][:, 0]] ** 2), rel=0.25)
    naive_error = (batch.past[:, -1] - batch.future[:, 0]).numpy() * scaler.deviation
    assert np.mean(naive_error**2) > 3 * np.mean(one_step_error**2)
