"""Training examples are recognised by content: hashes, their file, and what an evaluation says about them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import seqwise
from seqwise.errors import RunError
from seqwise.metrics.evaluation import Baseline, Evaluation, TrainingOverlap
from seqwise.tasks import training_summary
from seqwise.tasks.training_summary import (
    MISSING_SUMMARY,
    SUMMARY_FILE,
    TrainingSummary,
    hash_sequences,
    hash_texts,
    measure_overlap,
)

SMALL = {"network": {"width": 8, "embedding": 8}, "training": {"batch_size": 16}, "device": "cpu"}


def test_the_hash_of_a_sequence_depends_on_its_values_alone():
    values = np.array([7, 1, 2, 3, 9, 9, 1, 2, 3, 7, 3, 2, 1])
    hashes = hash_sequences(values, 3)
    assert len(hashes) == len(values) - 2
    assert hashes[1] == hashes[6] == hash_sequences(np.array([1, 2, 3]), 3)[0]
    assert len(set(hashes.tolist())) == len(hashes) - 1  # all others differ, also the reverse
    assert len(hash_sequences(values[:2], 3)) == 0


def test_hashes_of_texts_ignore_whitespace_only():
    first, second, third = hash_texts(["a  b\n", "a b", "A b"])
    assert first == second != third


def test_a_summary_is_restored_and_a_damaged_one_is_explained(tmp_path: Path):
    summary = TrainingSummary.create("bleu", hash_texts("abc"), {"weight": np.eye(2)}, {"most": ["ä"]})
    summary.save(tmp_path)
    loaded = TrainingSummary.load(tmp_path)
    assert loaded is not None
    assert (loaded.metric, loaded.sampling, loaded.attributes) == ("bleu", 1, {"most": ["ä"]})
    assert loaded.arrays["weight"].tolist() == np.eye(2).tolist()
    assert loaded.find(hash_texts("xbc"))[1].tolist() == [False, True, True]
    with pytest.raises(RunError, match=f"{SUMMARY_FILE}: 'bias' is missing"):
        loaded.arrays["bias"]
    TrainingSummary("bleu", hash_texts("abc"), 0).save(tmp_path)
    with pytest.raises(RunError, match="its hashes or its metric are not valid"):
        TrainingSummary.load(tmp_path)
    (tmp_path / SUMMARY_FILE).write_bytes(b"damaged")
    with pytest.raises(RunError, match="the file is damaged"):
        TrainingSummary.load(tmp_path)


def test_of_many_examples_a_sample_is_kept_and_the_count_is_scaled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training_summary, "MAX_HASHES", 1_000)
    known, unknown = (hash_texts(f"{kind} {n}" for n in range(8_000)) for kind in ("known", "new"))
    summary = TrainingSummary.create("accuracy", known, {}, {})
    assert summary.sampling == 8
    assert len(summary.hashes) == pytest.approx(1_000, rel=0.15)
    hashes = np.concatenate([known[:2_000], unknown[:2_000]])
    overlap = measure_overlap(*summary.find(hashes), "texts", lambda others: float(others.min()))
    assert overlap is not None
    assert overlap.count == pytest.approx(2_000, rel=0.15)
    assert overlap.value is not None
    assert overlap.value >= 2_000  # the others are new ones


def evaluate_example(overlap: TrainingOverlap | None = None, *baselines: Baseline) -> Evaluation:
    return Evaluation({"accuracy": 0.8}, {}, "data", primary_metric="accuracy", baselines=baselines, overlap=overlap)


def test_notes_name_better_baselines():
    assert evaluate_example(None, Baseline("most frequent label", 0.8, "")).notes == ()
    better = Baseline("bag of words", 0.84, "It counts."), Baseline("most frequent label", 0.85, "")
    assert evaluate_example(None, better[0]).notes == (
        "The model is worse than a baseline: its accuracy is 0.800, that of the bag of words 0.840.",
    )
    assert evaluate_example(None, *better).notes == (
        "The model is worse than 2 baselines: its accuracy is 0.800, that of the bag of words 0.840, of the most "
        "frequent label 0.850.",
    )
    document = evaluate_example(None, better[0]).as_dict()
    assert document["baselines"] == [
        {"name": "bag of words", "value": 0.84, "about": "It counts.", "metric": "accuracy", "better": True}
    ]
    assert document["warnings"] == list(evaluate_example(None, better[0]).notes)


def test_notes_count_examples_of_training_from_one_per_cent_on():
    assert evaluate_example(TrainingOverlap(9, 1_000, "texts", 0.79)).notes == ()
    assert evaluate_example(TrainingOverlap(890, 1_000, "texts", 0.779)).notes == (
        "890 of 1,000 texts (89.0%) occur in the training split of the run; without them the accuracy is 0.779.",
    )
    document = evaluate_example(TrainingOverlap(9, 1_000, "texts", 0.79)).as_dict()
    assert document["in_training"] == {"count": 9, "total": 1_000, "unit": "texts", "value": 0.79}
    json.dumps(document)


def test_a_copy_of_training_texts_among_new_ones_is_detected(tmp_path: Path):
    lines = [f"text {n} is {'good' if n % 2 else 'bad'}\t{n % 2}" for n in range(200)]
    (tmp_path / "data.tsv").write_text("\n".join(lines) + "\n")
    model = seqwise.train(
        tmp_path / "data.tsv", task="classify", model="gru", budget="1-epochs", out=tmp_path / "run", settings=SMALL
    )
    assert model.evaluate(tmp_path / "data.tsv").overlap == TrainingOverlap(0, 10, "texts", None)
    new_lines = [f"item {n} is {'good' if n % 2 else 'bad'}\t{1 - n % 2}" for n in range(50)]  # the labels are swapped
    (tmp_path / "mixed.tsv").write_text("\n".join([*lines, *new_lines]) + "\n")
    evaluation = model.evaluate(tmp_path / "mixed.tsv")
    assert evaluation.overlap is not None
    assert (evaluation.overlap.count, evaluation.overlap.total) == (180, 250)
    (tmp_path / "new.tsv").write_text("\n".join(new_lines) + "\n")
    num_held_out_correct = model.evaluate(tmp_path / "data.tsv", split="valid").metrics["accuracy"] * 10
    num_held_out_correct += model.evaluate(tmp_path / "data.tsv", split="test").metrics["accuracy"] * 10
    num_correct = num_held_out_correct + model.evaluate(tmp_path / "new.tsv").metrics["accuracy"] * 50
    assert evaluation.overlap.value == pytest.approx(num_correct / 70)


def test_a_run_of_an_older_version_is_evaluated_without_baselines(tmp_path: Path):
    (tmp_path / "data.tsv").write_text("".join(f"some text {n}\t{n % 2}\n" for n in range(40)))
    model = seqwise.train(
        tmp_path / "data.tsv", task="classify", model="gru", budget="1-epochs", out=tmp_path / "run", settings=SMALL
    )
    assert MISSING_SUMMARY not in model.evaluate(tmp_path / "data.tsv").warnings
    (tmp_path / "run" / SUMMARY_FILE).unlink()
    evaluation = seqwise.load(tmp_path / "run").evaluate(tmp_path / "data.tsv")
    assert evaluation.baselines == ()
    assert evaluation.overlap is None
    assert evaluation.warnings[-1] == MISSING_SUMMARY


def test_text_is_recognised_wherever_it_begins(book: Path, tmp_path: Path):
    settings = {**SMALL, "data": {"window": 16}, "text": {"tokenizer": "characters"}}
    model = seqwise.train(
        book, task="language", model="gru", budget="1k-tokens", out=tmp_path / "run", settings=settings
    )
    text = book.read_text(encoding="utf-8")
    (tmp_path / "part.txt").write_text("x y " + text[1_001:4_001], encoding="utf-8")
    overlap = model.evaluate(tmp_path / "part.txt").overlap
    assert overlap is not None
    assert overlap.count == overlap.total == 24
    letters = np.random.default_rng(0).choice(list(" abcdefghij"), size=3_000)
    (tmp_path / "new.txt").write_text("".join(letters), encoding="utf-8")
    overlap = model.evaluate(tmp_path / "new.txt").overlap
    assert overlap is not None
    assert overlap.count == 0


def test_windows_of_a_longer_table_are_recognised_by_time_and_values(tmp_path: Path):
    rng = np.random.default_rng(0)
    values = np.sin(np.arange(300)) + rng.normal(size=300) / 10
    rows = [f"{2_000 + step},{value:.4f}" for step, value in enumerate(values)]
    (tmp_path / "series.csv").write_text("\n".join(["time,a", *rows[:200]]) + "\n")
    settings = {**SMALL, "horizon": 4, "forecast": {"lookback": 8, "season": 1}}
    model = seqwise.train(
        tmp_path / "series.csv",
        task="forecast",
        model="gru",
        budget="1-epochs",
        out=tmp_path / "run",
        settings=settings,
    )
    num_windows = model.evaluate(tmp_path / "series.csv", split="train").overlap.count  # type: ignore[union-attr]
    assert num_windows == 140 - 8 - 4 + 1
    assert model.evaluate(tmp_path / "series.csv").overlap.count == 0  # type: ignore[union-attr]
    (tmp_path / "longer.csv").write_text("\n".join(["time,a", *rows[30:]]) + "\n")
    evaluation = model.evaluate(tmp_path / "longer.csv", split="all")
    assert evaluation.overlap is not None
    assert evaluation.overlap.count == 140 - 30 - 8 - 4 + 1
    assert evaluation.overlap.value is not None
    shifted = [f"{2_500 + step},{value:.4f}" for step, value in enumerate(values)]
    (tmp_path / "shifted.csv").write_text("\n".join(["time,a", *shifted]) + "\n")
    assert model.evaluate(tmp_path / "shifted.csv", split="all").overlap.count == 0  # type: ignore[union-attr]
