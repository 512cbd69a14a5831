"""What each test example says, task by task: rows that all models share, aligned with the text, which add up.

That the sums of every task add up for trained models is in the contract of tasks; here are the cases of their own.
"""

from __future__ import annotations

import math
import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seqwise.compare.statistics.significance import compare_pairs
from seqwise.config import parse_settings
from seqwise.data.corpus.sources import open_corpus
from seqwise.data.corpus.store import prepare
from seqwise.errors import UsageError
from seqwise.metrics.evaluation import BLOCK_TOKENS, Evaluation, ExampleScores, compute_metric
from seqwise.tasks import get_task, latency
from seqwise.tasks.forecast.evaluation import BlockErrors
from seqwise.tasks.language.scoring import evaluation_rows
from seqwise.tasks.task import InferenceOptions
from seqwise.training.training_run import create_run

SMALL = {
    "budget": "1-epochs",
    "device": "cpu",
    "network": {"width": 12, "depth": 1, "dropout": 0.0, "embedding": 8},
    "training": {"batch_size": 4},
    "transformer": {"heads": 2, "hidden": 16},
}


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """(task, data, settings) → the task, its settings, and a model with random weights."""

    def make(task: str, data: Any, model: str = "gru", /, **sections: Any) -> SimpleNamespace:
        settings = parse_settings({**SMALL, "task": task, "model": model, **sections})
        run, prepared = create_run(str(data), settings, tmp_path_factory.mktemp("run") / "run")
        torch.manual_seed(0)
        built = prepared.build(run.settings)
        if model == "ngram":
            prepared.fit(built)
        return SimpleNamespace(task=prepared, settings=run.settings, model=built, data=str(data))

    return make


def evaluated(made: SimpleNamespace, **how: Any) -> Evaluation:
    split = how.pop("split", None)
    options = InferenceOptions(
        **{"beam_search": made.task.beam_search, "examples": True, "primary_metric": made.task.primary_metric[0], **how}
    )
    return made.task.evaluate(made.task.bundle(made.model, made.settings), made.data, split, options)


def examples_of(made: SimpleNamespace, **how: Any) -> ExampleScores:
    """The examples of an evaluation, whose sums must give its metric."""
    found = evaluated(made, **how)
    each = found.examples
    assert each is not None
    assert compute_metric(each.metric, each.sums.sum(0)) == pytest.approx(found.metrics[each.metric], rel=1e-6)
    return each


# ---- language


@pytest.fixture(scope="module")
def readers(untrained, book):
    """A text of characters, read in streams, in windows of two lengths, and by counts."""
    windows = {"gru": 20, "transformer": 32, "feedforward": 7, "ngram": None}
    text = {"text": {"tokenizer": "characters"}}
    return {
        family: untrained("language", book, family, **text, **({"data": {"window": size}} if size else {}))
        for family, size in windows.items()
    }


@pytest.mark.parametrize("split", ["test", "all"])
def test_blocks_of_a_text_are_the_same_whatever_reads_it(readers, book, split):
    found = {family: examples_of(made, split=split) for family, made in readers.items()}
    first = found["gru"]
    tokens = int(first.sums[:, 1].sum()) + 1
    assert len(first.sums) == math.ceil(tokens / BLOCK_TOKENS) > 5
    assert first.sums[:-1, 1].tolist() == [BLOCK_TOKENS - 1, *[BLOCK_TOKENS] * (len(first.sums) - 2)]
    for family, each in found.items():
        assert each.unit == first.unit == "blocks of 128 tokens", family
        assert each.sums[:, 1].tolist() == first.sums[:, 1].tolist(), family
        assert each.texts == first.texts, family
    text = book.read_text()[-tokens:]
    assert first.texts[1].expected == text[BLOCK_TOKENS : 2 * BLOCK_TOKENS]
    assert first.texts[1].input == text[BLOCK_TOKENS - 32 : BLOCK_TOKENS]
    assert (first.texts[0].input, first.texts[0].answer) == ("", "")


def test_the_whole_text_is_long_enough_for_several_streams(readers, book):
    store = prepare(open_corpus(str(book)), readers["gru"].task.preprocessor.tokenizer)["train"]
    assert evaluation_rows(store) == 16


@pytest.mark.parametrize("family", ["gru", "feedforward"])
def test_a_block_has_the_losses_of_its_tokens(readers, family):
    made = readers[family]
    store = made.task.stores["test"]
    ids = torch.from_numpy(store.read(0, len(store)))[None]
    with torch.no_grad():
        scores, _ = _scores(made.model.eval(), ids)
    losses = F.cross_entropy(scores[0, :-1], ids[0, 1:], reduction="none").double().numpy()
    by_hand = np.add.reduceat(losses, [0, *range(BLOCK_TOKENS - 1, len(losses), BLOCK_TOKENS)])
    assert examples_of(made).sums[:, 0] == pytest.approx(by_hand, rel=1e-5)


def _scores(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, Any]:
    states = model.backbone(model.embedding(ids))
    return model.head(states.vectors), states.state


def test_counts_are_told_block_by_block(readers):
    made = readers["ngram"]
    store = made.task.stores["test"]
    logs = made.model.ngram.score_tokens(store.read(0, len(store)))
    by_hand = -np.add.reduceat(logs[1:], [0, *range(BLOCK_TOKENS - 1, len(logs) - 1, BLOCK_TOKENS)])
    assert examples_of(made).sums[:, 0] == pytest.approx(by_hand)


def test_dynamic_evaluation_is_told_too(readers):
    made = readers["gru"]
    still = examples_of(made)
    learning = examples_of(made, dynamic=True, rate=0.5)
    assert learning.texts == still.texts
    assert not np.allclose(learning.sums, still.sums)


# ---- filling in


def test_hidden_tokens_are_told_in_blocks_that_no_window_changes(untrained, book):
    made = [
        untrained("masked", book, family, data={"window": window}, text={"tokenizer": "words"})
        for family, window in (("transformer", 9), ("lstm", 24))
    ]
    near, far = (examples_of(each, split="all") for each in made)
    assert len(near.sums) > 50
    assert near.unit == far.unit == "blocks of 128 tokens"
    assert near.sums[:, 1].tolist() == far.sums[:, 1].tolist()
    for found, each in ((near, made[0]), (far, made[1])):
        right = 0
        for row, shown in zip(found.sums, found.texts):
            true, filled = shown.expected.split(" | "), shown.answer.split(" | ")
            assert len(true) == len(filled) == row[1]
            masks = shown.input.count("[MASK]")
            assert 0 < masks <= row[1] if shown.input.endswith("…") else masks == row[1]
            right += sum(a == b for a, b in zip(true, filled))
        accuracy = evaluated(each, split="all").metrics["accuracy"]
        assert 0 < right / found.sums[:, 1].sum() == pytest.approx(accuracy)
    assert [shown.expected for shown in near.texts] == [shown.expected for shown in far.texts]


# ---- one answer per example


def test_a_text_is_shown_with_its_label_and_the_answer(untrained, tmp_path):
    draw = random.Random(0)
    lines = [f"{' '.join(draw.choices('abcde', k=draw.randint(1, 9)))}\t{draw.choice('xyz')}" for _ in range(90)]
    (tmp_path / "train.tsv").write_text("\n".join(lines[:50]) + "\n")
    (tmp_path / "valid.tsv").write_text("\n".join(lines[50:70]) + "\n")
    (tmp_path / "test.tsv").write_text("\n".join(lines[70:]) + "\n")
    made = untrained("classify", tmp_path)
    found = examples_of(made)
    assert [f"{each.input}\t{each.expected}" for each in found.texts] == lines[70:]
    assert found.sums[:, 0].tolist() == [each.expected == each.answer for each in found.texts]
    asked, _ = made.task.latency_inputs(made.task.bundle(made.model, made.settings), made.data, "valid")
    assert asked == [line.partition("\t")[0] for line in lines[50:70]]


@pytest.mark.parametrize(("spans", "metric"), [(True, "span_f1"), (False, "token_accuracy")])
def test_a_sentence_has_the_counts_of_its_tags(untrained, tmp_path, spans, metric):
    draw = random.Random(1)
    tags = ["B-PER", "O", "O"] if spans else ["DET", "NOUN", "VERB"]
    sentences = [[(draw.choice("abcdef"), draw.choice(tags)) for _ in range(draw.randint(1, 7))] for _ in range(80)]
    path = tmp_path / "some.conll"
    path.write_text("\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences))
    found = examples_of(untrained("tag", path, tag={"characters": 4}))
    assert (found.metric, found.unit) == (metric, "sentences")
    for row, shown in zip(found.sums, found.texts):
        if spans:
            assert (row[1], row[2]) == (shown.answer.count("[PER"), shown.expected.count("[PER"))
            assert row[0] <= min(row[1], row[2])
        else:
            pairs = zip(shown.expected.split(), shown.answer.split(), strict=True)
            assert row.tolist() == [sum(a == b for a, b in pairs), len(shown.input.split())]


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """Numbers, and their names in two languages; four to six words each."""
    path, draw = tmp_path_factory.mktemp("digits"), random.Random(2)
    names = {"en": ["nil", "one", "two", "three"], "de": ["null", "eins", "zwei", "drei"]}
    lines = [[draw.randrange(4) for _ in range(draw.randint(4, 6))] for _ in range(60)]
    (path / "train.num").write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    for language, words in names.items():
        (path / f"train.{language}").write_text("".join(" ".join(words[at] for at in line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("metric", ["bleu", "exact_match"])
def test_of_several_targets_the_parts_stand_side_by_side(untrained, digits, metric):
    made = untrained("translate", digits, columns="num,en,de", text={"tokenizer": "words"})
    assert made.task.primary_metric[0] == "bleu"
    found = examples_of(made, split="train", primary_metric=metric)
    assert found.sums.shape == (54, {"bleu": 20, "exact_match": 4}[metric])
    assert all("en: " in each.expected and " / de: " in each.expected for each in found.texts)
    if metric == "bleu":  # as many words as the references of each language have
        for at in (9, 19):
            assert found.sums[:, at].tolist() == [len(each.input.split()) for each in found.texts]


def test_only_what_is_made_of_sums_is_told_of_texts(untrained, digits):
    made = untrained("translate", digits, columns="num,en", text={"tokenizer": "words"})
    with pytest.raises(UsageError, match="'chrf' has no scores per example"):
        evaluated(made, primary_metric="chrf")


# ---- forecasts


def table(steps: int) -> str:
    rows = (f"{step},{math.sin(step / 2) + step % 3:.3f},{step % 7}\n" for step in range(steps))
    return "time,a,b\n" + "".join(rows)


def test_a_block_sums_the_errors_of_its_steps(untrained, tmp_path):
    (tmp_path / "some.csv").write_text(table(200))
    short, long = (
        untrained("forecast", tmp_path / "some.csv", horizon=6, forecast={"lookback": past, "season": 7})
        for past in (8, 30)
    )
    found, other = examples_of(short), examples_of(long)
    # 40 steps of testing: six blocks of 6, the last of 4 more. Of the two series 1, 2, … 5 windows reach the first
    # steps, and as few the last ones; 6 all others.
    ends = sum(range(1, 6))
    expected = [2 * (ends + 6), *[2 * 36] * 4, 2 * (5 * 6 + ends)]
    assert found.sums[:, 1].tolist() == other.sums[:, 1].tolist() == expected
    assert found.unit == "blocks of 6 steps"
    assert [(each.input, each.expected) for each in found.texts] == [
        (each.input, each.expected) for each in other.texts
    ]
    assert [each.input.partition(":")[0] for each in found.texts[:2]] == ["a before 160", "a before 166"]
    assert found.texts[0].expected.split(", ")[0] == f"{math.sin(80) + 160 % 3:.3f}".rstrip("0")[:5]
    assert len(found.texts[0].answer.split(", ")) == 6


def block_sums(errors: np.ndarray, horizon: int) -> np.ndarray:
    """The sums of forecasts that are off by so much at each step, whatever window they come from."""
    found = BlockErrors(SimpleNamespace(horizon=horizon), 0, len(errors))  # type: ignore[arg-type]
    windows = np.stack([np.arange(len(errors) - horizon + 1), np.zeros(len(errors) - horizon + 1, dtype=int)], axis=1)
    future = np.lib.stride_tricks.sliding_window_view(errors, horizon).astype(np.float32)
    batch = SimpleNamespace(mask=torch.ones(future.shape, dtype=torch.bool), future=torch.from_numpy(future))
    found.add(windows, batch, torch.zeros(future.shape))  # type: ignore[arg-type]
    return found.sums.sums


def test_errors_of_one_step_count_in_one_block_only():
    errors = np.zeros(100)
    errors[39] = 1.0  # the last step of a block; windows that begin in the one before reach it too
    assert np.flatnonzero(block_sums(errors, 10)[:, 0]).tolist() == [3]
    assert block_sums(np.ones(100), 10).sum(axis=0).tolist() == [910, 910]


def test_blocks_of_equal_forecasts_are_rarely_significantly_different():
    """Steps are hard or easy independently of each other; two families differ by chance at each of them."""
    draw, found = np.random.default_rng(4), []
    for trial in range(400):
        common = draw.normal(size=480)
        families = {name: [block_sums(1 + 0.2 * (common + draw.normal(size=480)), 16)] for name in "ab"}
        (pair,) = compare_pairs(partial(compute_metric, "mse"), families, draws=100, seed=trial, deterministic="ab")
        found.append(pair.p)
    assert 0.03 <= np.mean(np.array(found) < 0.05) <= 0.075  # 0.10 where windows are counted where they begin


def test_a_block_in_which_no_window_begins_shows_the_first_that_reaches_it():
    found = BlockErrors(SimpleNamespace(horizon=4), 0, 12)  # type: ignore[arg-type]
    for origins in ([0, 1], [2, 8], [9]):
        windows = np.stack([origins, np.zeros(len(origins), dtype=int)], axis=1)
        shape = (len(origins), 4)
        batch = SimpleNamespace(mask=torch.ones(shape, dtype=torch.bool), future=torch.ones(shape))
        found.add(windows, batch, torch.zeros(shape))  # type: ignore[arg-type]
    assert found.sums.sums[:, 1].tolist() == [9, 3, 8]
    assert {row: origin for row, (origin, _, _) in found.first_windows.items()} == {0: 0, 1: 1, 2: 8}


def test_a_window_that_begins_in_a_block_is_shown_before_one_that_only_reaches_it():
    found = BlockErrors(SimpleNamespace(horizon=4), 0, 8)  # type: ignore[arg-type]
    for origin in (2, 4):
        batch = SimpleNamespace(mask=torch.ones((1, 4), dtype=torch.bool), future=torch.ones((1, 4)))
        found.add(np.array([[origin, 0]]), batch, torch.zeros((1, 4)))  # type: ignore[arg-type]
    assert {row: origin for row, (origin, _, _) in found.first_windows.items()} == {0: 2, 1: 4}


def test_a_missing_value_counts_nowhere(untrained, tmp_path):
    lines = table(120).splitlines()
    lines[110] = lines[110].split(",")[0] + ",,4"
    (tmp_path / "gap.csv").write_text("\n".join(lines) + "\n")
    found = examples_of(untrained("forecast", tmp_path / "gap.csv", horizon=4, forecast={"lookback": 8, "season": 7}))
    assert found.sums[:, 1].sum() < 2 * 4 * 21
    assert any("–" in each.expected or "–" in each.input for each in found.texts)


# ---- the pace of one answer


def test_the_pace_of_writing_on_counts_single_tokens(readers, monkeypatch):
    made = readers["transformer"]
    read: list[int] = []
    whole = type(made.model).next
    monkeypatch.setattr(
        type(made.model), "next", lambda self, ids, carry=None: read.append(ids.shape[1]) or whole(self, ids, carry)
    )
    taken = made.task.measure_latency(made.task.bundle(made.model, made.settings), made.data, answers=5)()
    assert 0 < taken < math.inf
    assert read == [64, *[1] * (latency.WARM_UP + 5 - 1)]


def test_counts_answer_too(readers):
    made = readers["ngram"]
    assert (
        0
        < get_task("language").measure_latency(made.task.bundle(made.model, made.settings), made.data, answers=3)()
        < math.inf
    )


def test_a_translation_is_searched_for_as_usual(untrained, digits, monkeypatch):
    made = untrained("translate", digits, columns="num,en", text={"tokenizer": "words"})
    beams: list[int] = []
    from seqwise.tasks.translate import generation as translating

    whole = translating.decode_sequences
    monkeypatch.setattr(
        translating,
        "decode_sequences",
        lambda *args, **named: beams.append(named["options"].beam) or whole(*args, **named),
    )
    assert made.task.measure_latency(made.task.bundle(made.model, made.settings), made.data, answers=2)() > 0
    assert beams == [5] * (latency.WARM_UP + 2)


def test_the_median_is_over_inputs_at_even_distances(monkeypatch):
    clock, asked = [0.0], []

    def answer(given: int) -> None:
        asked.append(given)
        clock[0] += given

    monkeypatch.setattr(latency, "perf_counter", lambda: clock[0])
    assert latency.median_seconds(range(100), answer, 5) == 40
    assert asked[latency.WARM_UP :] == [0, 20, 40, 60, 80]
    asked.clear()
    assert latency.median_seconds([3, 5], answer, 5) == 3
    assert asked[latency.WARM_UP :] == [3, 5, 3, 5, 3]
