"""Metrics of single test examples, task by task: the same examples for all models, aligned with the text; and latency.

`sums` has a row per example. For means such as perplexity or accuracy its columns are the sum and the count, for F1
correct, predicted and true spans, for BLEU the 10 sums of sacreBLEU. `tests/contracts/test_task_contracts.py` checks
that the sums of every task add up to its metric; here are the cases of each task.
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
from used_settings import keep_used

from seqwise.compare.statistics.significance import compare_pairs
from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import open_corpus
from seqwise.decoding.steps import TokenReader
from seqwise.errors import UsageError
from seqwise.metrics.evaluation import BLEU_ORDERS, BLOCK_TOKENS, Evaluation, ExampleScores, compute_metric
from seqwise.tasks import get_task, latency
from seqwise.tasks.forecast.evaluation import BlockErrors
from seqwise.tasks.language.scoring import choose_num_streams
from seqwise.tasks.language.task import PROMPT_TOKENS
from seqwise.tasks.task import InferenceOptions
from seqwise.tasks.translate import generation
from seqwise.training.create import create_run

SMALL = {
    "budget": "1-epochs",
    "device": "cpu",
    "network": {"width": 12, "depth": 1, "dropout": 0.0, "embedding": 8},
    "training": {"batch_size": 4},
    "transformer": {"heads": 2, "hidden": 16},
}


@pytest.fixture(scope="module")
def create_setup(tmp_path_factory):
    """Returns a function that creates a task, its settings, and a model: random weights, or a fitted n-gram model."""

    def create(task: str, data: Any, model: str = "gru", /, **sections: Any) -> SimpleNamespace:
        settings = keep_used({**SMALL, "task": task, "model": model, **sections})
        run, prepared_task = create_run(str(data), settings, tmp_path_factory.mktemp("run") / "run")
        torch.manual_seed(0)
        network = prepared_task.build(run.settings)
        if model == "ngram":
            prepared_task.fit(network)
        return SimpleNamespace(task=prepared_task, settings=run.settings, model=network, data=str(data))

    return create


def evaluate_model(setup: SimpleNamespace, **overrides: Any) -> Evaluation:
    split = overrides.pop("split", None)
    options = InferenceOptions(
        **{
            "beam_search": setup.task.beam_search,
            "examples": True,
            "primary_metric": setup.task.primary_metric[0],
            **overrides,
        }
    )
    return setup.task.evaluate(setup.task.bundle(setup.model, setup.settings), setup.data, split, options)


def evaluate_examples(setup: SimpleNamespace, **overrides: Any) -> ExampleScores:
    """Returns the examples of an evaluation, and checks that their sums give its metric."""
    evaluation = evaluate_model(setup, **overrides)
    examples = evaluation.examples
    assert examples is not None
    total = compute_metric(examples.metric, examples.sums.sum(0))
    assert total == pytest.approx(evaluation.metrics[examples.metric], rel=1e-6)
    return examples


# Language


@pytest.fixture(scope="module")
def language_models(create_setup, book):
    """Models of one text: untrained ones that read streams or windows of two lengths, and a fitted n-gram model."""
    windows = {"gru": 20, "transformer": 32, "feedforward": 7, "ngram": None}
    text = {"text": {"tokenizer": "characters"}}
    return {
        family: create_setup("language", book, family, **text, **({"data": {"window": size}} if size else {}))
        for family, size in windows.items()
    }


@pytest.mark.parametrize("split", ["test", "all"])
def test_all_families_are_scored_on_the_same_blocks(language_models, book, split):
    examples = {family: evaluate_examples(setup, split=split) for family, setup in language_models.items()}
    first = examples["gru"]
    tokens = int(first.sums[:, 1].sum()) + 1
    assert len(first.sums) == math.ceil(tokens / BLOCK_TOKENS) > 5
    assert first.sums[:-1, 1].tolist() == [BLOCK_TOKENS - 1, *[BLOCK_TOKENS] * (len(first.sums) - 2)]
    for family, each in examples.items():
        assert each.unit == first.unit == "blocks of 128 tokens", family
        assert each.sums[:, 1].tolist() == first.sums[:, 1].tolist(), family
        assert each.texts == first.texts, family
    text = book.read_text()[-tokens:]
    assert first.texts[1].expected == text[BLOCK_TOKENS : 2 * BLOCK_TOKENS]
    assert first.texts[1].input == text[BLOCK_TOKENS - 32 : BLOCK_TOKENS]
    assert (first.texts[0].input, first.texts[0].answer) == ("", "")


def test_the_whole_text_is_long_enough_for_several_streams(language_models, book):
    store = prepare_stores(open_corpus(str(book)), language_models["gru"].task.preprocessor.tokenizer)["train"]
    assert choose_num_streams(store) == 16


@pytest.mark.parametrize("family", ["gru", "feedforward"])
def test_the_loss_of_a_block_is_the_sum_over_its_tokens(language_models, family):
    setup = language_models[family]
    store = setup.task.stores["test"]
    ids = torch.from_numpy(store.read(0, len(store)))[None]
    with torch.no_grad():
        logits = compute_logits(setup.model.eval(), ids)
    losses = F.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none").double().numpy()
    expected = np.add.reduceat(losses, [0, *range(BLOCK_TOKENS - 1, len(losses), BLOCK_TOKENS)])
    assert evaluate_examples(setup).sums[:, 0] == pytest.approx(expected, rel=1e-5)


def compute_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    return model.head(model.backbone(model.embedding(ids)).vectors)


def test_blocks_of_the_ngram_model_equal_hand_computed_sums(language_models):
    setup = language_models["ngram"]
    store = setup.task.stores["test"]
    log_probs = setup.model.ngram.score_tokens(store.read(0, len(store)))
    expected = -np.add.reduceat(log_probs[1:], [0, *range(BLOCK_TOKENS - 1, len(log_probs) - 1, BLOCK_TOKENS)])
    assert evaluate_examples(setup).sums[:, 0] == pytest.approx(expected)


def test_other_methods_do_not_change_the_examples(language_models):
    setup = language_models["gru"]
    plain, other = evaluate_examples(setup), evaluate_examples(setup, dynamic=True, dynamic_rate=0.5, cache=True)
    assert other.texts == plain.texts
    assert np.array_equal(other.sums, plain.sums)


# Masked


def test_blocks_of_masked_tokens_do_not_depend_on_the_window(create_setup, book):
    setups = [
        create_setup("masked", book, family, data={"window": window}, text={"tokenizer": "words"})
        for family, window in (("transformer", 9), ("lstm", 24))
    ]
    of_short_window, of_long_window = (evaluate_examples(each, split="all") for each in setups)
    assert len(of_short_window.sums) > 50
    assert of_short_window.unit == of_long_window.unit == "blocks of 128 tokens"
    assert of_short_window.sums[:, 1].tolist() == of_long_window.sums[:, 1].tolist()
    for examples, each in ((of_short_window, setups[0]), (of_long_window, setups[1])):
        num_correct = 0
        for row, text in zip(examples.sums, examples.texts):
            references, predictions = text.expected.split(" | "), text.answer.split(" | ")
            assert len(references) == len(predictions) == row[1]
            masks = text.input.count("[MASK]")
            assert 0 < masks <= row[1] if text.input.endswith("…") else masks == row[1]
            num_correct += sum(a == b for a, b in zip(references, predictions))
        accuracy = evaluate_model(each, split="all").metrics["accuracy"]
        assert 0 < num_correct / examples.sums[:, 1].sum() == pytest.approx(accuracy)
    assert [text.expected for text in of_short_window.texts] == [text.expected for text in of_long_window.texts]


# Tasks with one prediction per example


def test_an_example_of_classify_has_its_text_label_and_prediction(create_setup, tmp_path):
    rng = random.Random(0)
    lines = [f"{' '.join(rng.choices('abcde', k=rng.randint(1, 9)))}\t{rng.choice('xyz')}" for _ in range(90)]
    (tmp_path / "train.tsv").write_text("\n".join(lines[:50]) + "\n")
    (tmp_path / "valid.tsv").write_text("\n".join(lines[50:70]) + "\n")
    (tmp_path / "test.tsv").write_text("\n".join(lines[70:]) + "\n")
    setup = create_setup("classify", tmp_path)
    examples = evaluate_examples(setup)
    assert [f"{each.input}\t{each.expected}" for each in examples.texts] == lines[70:]
    assert examples.sums[:, 0].tolist() == [each.expected == each.answer for each in examples.texts]
    inputs, _ = setup.task.latency_inputs(setup.task.bundle(setup.model, setup.settings), setup.data, "valid")
    assert inputs == [line.partition("\t")[0] for line in lines[50:70]]


@pytest.mark.parametrize(("spans", "metric"), [(True, "span_f1"), (False, "token_accuracy")])
def test_the_sums_of_a_sentence_count_its_spans_or_tags(create_setup, tmp_path, spans, metric):
    rng = random.Random(1)
    tags = ["B-PER", "O", "O"] if spans else ["DET", "NOUN", "VERB"]
    sentences = [[(rng.choice("abcdef"), rng.choice(tags)) for _ in range(rng.randint(1, 7))] for _ in range(80)]
    path = tmp_path / "some.conll"
    path.write_text("\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences))
    examples = evaluate_examples(create_setup("tag", path, tag={"characters": 4}))
    assert (examples.metric, examples.unit) == (metric, "sentences")
    for row, text in zip(examples.sums, examples.texts):
        if spans:
            assert (row[1], row[2]) == (text.answer.count("[PER"), text.expected.count("[PER"))
            assert row[0] <= min(row[1], row[2])
        else:
            pairs = zip(text.expected.split(), text.answer.split(), strict=True)
            assert row.tolist() == [sum(a == b for a, b in pairs), len(text.input.split())]


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """Parallel texts: four to six digits, and their names in two languages."""
    path, rng = tmp_path_factory.mktemp("digits"), random.Random(2)
    names = {"en": ["nil", "one", "two", "three"], "de": ["null", "eins", "zwei", "drei"]}
    lines = [[rng.randrange(4) for _ in range(rng.randint(4, 6))] for _ in range(60)]
    (path / "train.num").write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    for language, words in names.items():
        (path / f"train.{language}").write_text(
            "".join(" ".join(words[index] for index in line) + "\n" for line in lines)
        )
    return path


@pytest.mark.parametrize("metric", ["bleu", "exact_match"])
def test_the_sums_of_several_targets_are_concatenated(create_setup, digits, metric):
    setup = create_setup("translate", digits, columns="num,en,de", text={"tokenizer": "words"})
    assert setup.task.primary_metric[0] == "bleu"
    examples = evaluate_examples(setup, split="train", primary_metric=metric)
    num_sums = 2 * BLEU_ORDERS + 2 if metric == "bleu" else 2  # of one target
    assert examples.sums.shape == (54, 2 * num_sums)
    assert all("en: " in each.expected and " / de: " in each.expected for each in examples.texts)
    if metric == "bleu":  # the last sum of each target is the length of the reference, here that of the source
        for last in (num_sums - 1, 2 * num_sums - 1):
            assert examples.sums[:, last].tolist() == [len(each.input.split()) for each in examples.texts]


def test_a_metric_that_is_not_a_sum_has_no_examples(create_setup, digits):
    setup = create_setup("translate", digits, columns="num,en", text={"tokenizer": "words"})
    with pytest.raises(UsageError, match="'chrf' has no scores per example"):
        evaluate_model(setup, primary_metric="chrf")


# Forecast


def create_table(steps: int) -> str:
    rows = (f"{step},{math.sin(step / 2) + step % 3:.3f},{step % 7}\n" for step in range(steps))
    return "time,a,b\n" + "".join(rows)


def test_a_block_sums_the_errors_of_its_steps(create_setup, tmp_path):
    (tmp_path / "some.csv").write_text(create_table(200))
    short_lookback, long_lookback = (
        create_setup("forecast", tmp_path / "some.csv", horizon=6, forecast={"lookback": lookback, "season": 7})
        for lookback in (8, 30)
    )
    short_examples, long_examples = evaluate_examples(short_lookback), evaluate_examples(long_lookback)
    # 40 test steps: six blocks, five of 6 steps and one of 10. In each of the two series 1, 2, … 5 windows reach the
    # first steps and 5, 4, … 1 the last ones; 6 windows reach every other step.
    num_at_ends = sum(range(1, 6))
    expected = [2 * (num_at_ends + 6), *[2 * 36] * 4, 2 * (5 * 6 + num_at_ends)]
    assert short_examples.sums[:, 1].tolist() == long_examples.sums[:, 1].tolist() == expected
    assert short_examples.unit == "blocks of 6 steps"
    texts = short_examples.texts
    assert [(a.input, a.expected) for a in texts] == [(b.input, b.expected) for b in long_examples.texts]
    assert [each.input.partition(":")[0] for each in texts[:2]] == ["a before 160", "a before 166"]
    assert texts[0].expected.split(", ")[0] == f"{math.sin(80) + 160 % 3:.3f}".rstrip("0")[:5]
    assert len(texts[0].answer.split(", ")) == 6


def compute_block_sums(errors: np.ndarray, horizon: int) -> np.ndarray:
    """Returns the sums of blocks if all windows have the same error at a step."""
    block_errors = BlockErrors(SimpleNamespace(horizon=horizon), 0, len(errors))  # type: ignore[arg-type]
    windows = np.stack([np.arange(len(errors) - horizon + 1), np.zeros(len(errors) - horizon + 1, dtype=int)], axis=1)
    future = np.lib.stride_tricks.sliding_window_view(errors, horizon).astype(np.float32)
    batch = SimpleNamespace(mask=torch.ones(future.shape, dtype=torch.bool), future=torch.from_numpy(future))
    block_errors.add(windows, batch, torch.zeros(future.shape))  # type: ignore[arg-type]
    return block_errors.sums.sums


def test_errors_of_one_step_count_in_one_block_only():
    errors = np.zeros(100)
    errors[39] = 1.0  # the last step of a block; windows that begin in the one before reach it too
    assert np.flatnonzero(compute_block_sums(errors, 10)[:, 0]).tolist() == [3]
    assert compute_block_sums(np.ones(100), 10).sum(axis=0).tolist() == [910, 910]


def test_equally_good_forecasts_are_rarely_significantly_different():
    """Errors are independent between steps, so the differences of two families are independent between blocks."""
    rng, p_values = np.random.default_rng(4), []
    for trial in range(400):
        common = rng.normal(size=480)
        families = {name: [compute_block_sums(1 + 0.2 * (common + rng.normal(size=480)), 16)] for name in "ab"}
        (pair,) = compare_pairs(partial(compute_metric, "mse"), families, draws=100, seed=trial, deterministic="ab")
        p_values.append(pair.p)
    # The rate of false positives would be 0.10 if each window counted in the block of its first step.
    assert 0.01 <= np.mean(np.array(p_values) < 0.05) <= 0.05


def test_a_block_in_which_no_window_begins_is_illustrated_by_the_first_window_that_reaches_it():
    block_errors = BlockErrors(SimpleNamespace(horizon=4), 0, 12)  # type: ignore[arg-type]
    for origins in ([0, 1], [2, 8], [9]):
        windows = np.stack([origins, np.zeros(len(origins), dtype=int)], axis=1)
        shape = (len(origins), 4)
        batch = SimpleNamespace(mask=torch.ones(shape, dtype=torch.bool), future=torch.ones(shape))
        block_errors.add(windows, batch, torch.zeros(shape))  # type: ignore[arg-type]
    assert block_errors.sums.sums[:, 1].tolist() == [9, 3, 8]
    assert {row: origin for row, (origin, _, _) in block_errors.first_windows.items()} == {0: 0, 1: 1, 2: 8}


def test_a_block_is_illustrated_by_a_window_that_begins_in_it_if_there_is_one():
    block_errors = BlockErrors(SimpleNamespace(horizon=4), 0, 8)  # type: ignore[arg-type]
    for origin in (2, 4):
        batch = SimpleNamespace(mask=torch.ones((1, 4), dtype=torch.bool), future=torch.ones((1, 4)))
        block_errors.add(np.array([[origin, 0]]), batch, torch.zeros((1, 4)))  # type: ignore[arg-type]
    assert {row: origin for row, (origin, _, _) in block_errors.first_windows.items()} == {0: 2, 1: 4}


def test_a_missing_value_counts_in_no_block(create_setup, tmp_path):
    lines = create_table(120).splitlines()
    lines[110] = lines[110].split(",")[0] + ",,4"
    (tmp_path / "gap.csv").write_text("\n".join(lines) + "\n")
    horizon, num_series, num_windows = 4, 2, 21
    examples = evaluate_examples(
        create_setup("forecast", tmp_path / "gap.csv", horizon=horizon, forecast={"lookback": 8, "season": 7})
    )
    assert examples.sums[:, 1].sum() < num_series * horizon * num_windows
    assert any("–" in each.expected or "–" in each.input for each in examples.texts)


# Latency


def test_the_latency_of_a_language_model_is_that_of_one_token(language_models, monkeypatch):
    setup = language_models["transformer"]
    lengths: list[int] = []
    original = TokenReader.read
    monkeypatch.setattr(TokenReader, "read", lambda self, ids: lengths.append(ids.shape[1]) or original(self, ids))
    seconds = setup.task.measure_latency(
        setup.task.bundle(setup.model, setup.settings), setup.data, num_predictions=5
    )()
    assert 0 < seconds < math.inf
    assert lengths == [PROMPT_TOKENS, *[1] * (latency.NUM_WARMUP_CALLS + 5 - 1)]


def test_the_latency_of_an_ngram_model_can_be_measured(language_models):
    setup = language_models["ngram"]
    bundle = setup.task.bundle(setup.model, setup.settings)
    assert 0 < get_task("language").measure_latency(bundle, setup.data, num_predictions=3)() < math.inf


def test_the_latency_of_a_translation_includes_beam_search(create_setup, digits, monkeypatch):
    setup = create_setup("translate", digits, columns="num,en", text={"tokenizer": "words"})
    beams: list[int] = []
    original = generation.decode_sequences
    monkeypatch.setattr(
        generation,
        "decode_sequences",
        lambda *args, **kwargs: beams.append(kwargs["options"].beam) or original(*args, **kwargs),
    )
    assert (
        setup.task.measure_latency(setup.task.bundle(setup.model, setup.settings), setup.data, num_predictions=2)() > 0
    )
    assert beams == [5] * (latency.NUM_WARMUP_CALLS + 2)


def test_latency_is_the_median_over_evenly_spaced_inputs(monkeypatch):
    clock, inputs = [0.0], []

    def predict(seconds: int) -> None:
        inputs.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(latency, "perf_counter", lambda: clock[0])
    assert latency.measure_median_seconds(range(100), predict, 5) == 40
    assert inputs[latency.NUM_WARMUP_CALLS :] == [0, 20, 40, 60, 80]
    inputs.clear()
    assert latency.measure_median_seconds([3, 5], predict, 5) == 3
    assert inputs[latency.NUM_WARMUP_CALLS :] == [3, 5, 3, 5, 3]
