"""The translate task: training, validation, several targets, evaluation, prediction, rejected settings."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from used_settings import keep_used

from seqwise.budget import Budget
from seqwise.config import Settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions, ModelBundle, Preprocessor
from seqwise.tasks.translate.task import Translate
from seqwise.training.loop import Trainer

BEAM = InferenceOptions(Translate.beam_search)
NAMES = {
    "en": ["zero", "one", "two", "three", "four", "five"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf"],
}


class SingleProcess:
    """A world of one process."""

    rank, size = 0, 1

    def sum(self, *numbers: float) -> list[float]:
        return [float(number) for number in numbers]


def create_settings(**more) -> Settings:
    values = {
        "task": "translate",
        "model": "gru",
        "network": {"width": 32, "depth": 1, "embedding": 16, "dropout": 0.0},
        "recurrent": {"bidirectional": True, "concat_directions": True, "weight_dropout": 0.0},
        "transformer": {"heads": 2, "hidden": 32},
        "training": {"batch_size": 16, "learning_rate": 0.02, "weight_decay": 0.0, "warmup": 0.1},
        "text": {"tokenizer": "words"},
        "data": {"max_tokens": 512},
    }
    return keep_used(values | more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Parallel texts: digits, and their names in two languages."""
    path, rng = tmp_path_factory.mktemp("digits"), random.Random(0)
    numbers = {tuple(rng.randrange(6) for _ in range(rng.randint(1, 3))) for _ in range(500)}
    lines = sorted(numbers, key=lambda digits: rng.random())
    for split, part in (("train", lines[:-60]), ("val", lines[-60:-30]), ("test", lines[-30:])):
        (path / f"{split}.num").write_text("".join(" ".join(map(str, line)) + "\n" for line in part))
        for name, words in NAMES.items():
            text = "".join(" ".join(words[digit] for digit in line) + "\n" for line in part)
            (path / f"{split}.{name}").write_text(text, encoding="utf-8")
    return path


def train(folder: Path, budget: str = "20k-tokens", **more):
    settings = create_settings(**more)
    task = Translate.prepare(str(folder), settings)
    task.check(settings)
    torch.manual_seed(0)
    model = task.build(settings)
    trainer = Trainer(model, task.batches(settings), settings.training, Budget.parse(budget), None, 0)
    losses = [step.loss for step in trainer.steps()]
    return task, model, settings, losses


@pytest.fixture(scope="module")
def english(folder: Path):
    """A model trained to translate digits into English."""
    return train(folder, columns="num,en", translate={"attention": "additive"})


def test_the_model_learns_to_translate(english):
    task, model, settings, losses = english
    assert losses[-1] < 0.1 < 1 < losses[0]
    metrics = task.validate(model, settings, SingleProcess())
    assert metrics["exact_match"] > 0.7
    assert metrics["bleu"] == 0.0  # three words contain no 4-gram
    assert metrics["loss"] < 0.5


def test_validation_sums_over_processes(english, monkeypatch: pytest.MonkeyPatch):
    task, model, settings, _ = english
    monkeypatch.setattr("seqwise.tasks.translate.task.EVALUATION_ROWS", 4)  # so that both processes have batches
    monkeypatch.setattr("seqwise.tasks.translate.generation.SEARCH_ROWS", {"cpu": 4})

    class Part(SingleProcess):
        def __init__(self, rank: int):
            self.rank, self.size, self.recorded = rank, 2, ()

        def sum(self, *numbers: float) -> list[float]:
            self.recorded = numbers
            return [float(number) for number in numbers]

    parts = [Part(0), Part(1)]
    for part in parts:
        task.validate(model, settings, part)
    assert all(number > 0 for part in parts for number in part.recorded[:4])
    sums = [sum(numbers) for numbers in zip(*(part.recorded for part in parts))]

    class Whole(SingleProcess):
        def sum(self, *numbers: float) -> list[float]:
            assert list(numbers) == pytest.approx(sums)
            return super().sum(*numbers)

    task.validate(model, settings, Whole())


def test_evaluation_has_a_definition_of_every_metric(english, folder: Path, tmp_path: Path):
    task, model, settings, _ = english
    out = tmp_path / "answers.tsv"
    options = InferenceOptions(BeamSearchOptions(beam=3), out=out)
    evaluation = Translate.evaluate(task.bundle(model, settings), str(folder), None, options)
    assert evaluation.data == f"{folder}, the test split"
    assert evaluation.method == "beam 3, length penalty 1; gru, additive attention"
    assert evaluation.metrics["exact_match"] > 0.6
    assert evaluation.metrics["pairs"] == 30
    assert set(evaluation.metrics) == {"bleu", "chrf", "exact_match", "rouge_1", "rouge_2", "rouge_l", "pairs"}
    assert set(evaluation.definitions) == set(evaluation.metrics)
    assert evaluation.warnings == ("BLEU counts 4-grams; most of these texts are shorter.",)
    assert "tok:13a" in evaluation.as_dict()["definitions"]["bleu"]
    head, *rows = (line.split("\t") for line in out.read_text().splitlines())
    assert head == ["input", "expected", "predicted"]
    assert [row[1] for row in rows] == (folder / "test.en").read_text().splitlines()
    num_correct = sum(expected == predicted for _, expected, predicted in rows)
    assert num_correct / 30 == pytest.approx(evaluation.metrics["exact_match"])


def test_a_table_with_source_and_target_can_be_evaluated(english, tmp_path: Path):
    task, model, settings, _ = english
    (tmp_path / "more.csv").write_text("source,target\n1 2,one two\n3,three\n")
    evaluation = Translate.evaluate(task.bundle(model, settings), str(tmp_path / "more.csv"), None, BEAM)
    assert (evaluation.data, evaluation.metrics["pairs"]) == (f"{tmp_path / 'more.csv'}, all of it", 2)


def test_predictions_are_in_the_order_of_the_inputs(english):
    task, model, settings, _ = english
    inputs = ["1 0", "2 3 4", "", "5 5", "  4   1 "]
    predictions = list(Translate.predict(task.bundle(model, settings), inputs, BEAM))
    alone = [next(Translate.predict(task.bundle(model, settings), [text], BEAM)) for text in inputs]
    assert [each.text for each in predictions] == [each.text for each in alone]
    assert [each.text for each in predictions] == ["one zero", "two three four", "", "five five", "four one"]
    assert [each.values["source"] for each in predictions] == inputs
    assert predictions[0].values["hypotheses"][0]["ended"]


def test_options_of_the_search_are_applied(english):
    task, model, settings, _ = english

    def translate(text: str, **search_options) -> str:
        options = InferenceOptions(replace(BeamSearchOptions(beam=4), **search_options))
        return next(Translate.predict(task.bundle(model, settings), [text], options)).text

    assert translate("1 2", start="five").startswith("five")
    assert len(translate("1 2", n_best=3).splitlines()) == 3
    assert len(translate("1", min_length=3).split()) >= 3
    short = InferenceOptions(BeamSearchOptions(beam=2), max_length=1)
    assert next(Translate.predict(task.bundle(model, settings), ["1 2 3"], short)).text == "one"
    sampling = InferenceOptions(sampling=SamplingOptions(temperature=0.01), seed=5)
    assert next(Translate.predict(task.bundle(model, settings), ["3 2"], sampling)).text == "three two"


def test_save_and_load_give_the_same_translations(english, tmp_path: Path):
    task, model, settings, _ = english
    task.preprocessor.save(tmp_path)
    preprocessor = Preprocessor.load(tmp_path)
    assert sorted(preprocessor.tokenizers) == ["en", "text"]
    copy = Translate.restore(settings, preprocessor)
    copy.load_state_dict(model.state_dict())
    options = InferenceOptions(BeamSearchOptions(beam=2, n_best=2))
    first, second = (
        [each.values for each in Translate.predict(bundle, ["1 4 2", "5"], options)]
        for bundle in (task.bundle(model, settings), ModelBundle(copy, settings, preprocessor))
    )
    assert first == second


@pytest.mark.parametrize("targets", ["decoders", pytest.param("token", marks=pytest.mark.slow)])
def test_one_encoder_serves_several_targets(folder: Path, targets: str, monkeypatch: pytest.MonkeyPatch):
    translate = {"attention": "general", "targets": targets, "vocabulary": "separate"}
    task, model, settings, _ = train(folder, "30k-tokens", columns="num,en,de", translate=translate)
    assert len(model.writers) == (2 if targets == "decoders" else 1)
    reads = []
    monkeypatch.setattr(model, "encode", lambda *args, encode=model.encode: reads.append(1) or encode(*args))
    (both,) = Translate.predict(
        task.bundle(model, settings), ["2 1 3"], InferenceOptions(BeamSearchOptions(), target="de,en")
    )
    assert both.text == "de: zwei eins drei\nen: two one three"
    assert len(reads) == 1
    assert both.values["de"]["translation"] == "zwei eins drei"
    (one,) = Translate.predict(
        task.bundle(model, settings), ["2 1 3"], InferenceOptions(BeamSearchOptions(), target="de")
    )
    assert one.text == "zwei eins drei"
    evaluation = Translate.evaluate(
        task.bundle(model, settings), str(folder), None, InferenceOptions(BeamSearchOptions(beam=2))
    )
    assert set(evaluation.tables[0].rows) == {"en", "de"}
    assert evaluation.metrics["chrf"] == pytest.approx(sum(row[1] for row in evaluation.tables[0].rows.values()) / 2)
    only = Translate.evaluate(
        task.bundle(model, settings), str(folder), None, InferenceOptions(BeamSearchOptions(beam=2), target="de")
    )
    assert only.metrics["chrf"] == pytest.approx(evaluation.tables[0].rows["de"][1])
    with pytest.raises(UsageError, match="the run does not translate into 'fr'; its targets are en, de"):
        list(Translate.predict(task.bundle(model, settings), ["1"], InferenceOptions(target="fr")))


def test_preparing_logs_the_data_and_fills_in_settings(folder: Path):
    messages: list[str] = []
    settings = create_settings(target="de", columns="num,de", text={})
    task = Translate.prepare(str(folder), settings, log=messages.append)
    assert messages[0].startswith("tokeniser: characters")
    assert messages[1].startswith("pairs: train ")
    assert "valid 30, test 30; num → de; vocabulary" in messages[1]
    assert (settings.text.tokenizer, settings.translate.vocabulary) == ("characters", "separate")
    assert settings.data.max_length == max(len(line) for line in (folder / "train.de").read_text("utf-8").splitlines())
    size = task.size()
    assert (size.examples, size.max_length) == (len(task.sides["train"][0]), settings.data.max_length)
    report = task.report()
    assert report.columns == ("pairs", "num tokens", "de tokens", "longest", "unknown")
    assert report.rows["test"][0] == 30


def test_long_texts_are_truncated_and_counted(folder: Path):
    messages: list[str] = []
    settings = create_settings(columns="num,de", data={"max_length": 2})
    task = Translate.prepare(str(folder), settings, log=messages.append)
    assert "texts of more than 2 tokens, which are truncated (--data.max-length)" in messages[-1]
    assert max(batch.length for batch in task.batches(settings).epoch(0)) == 3


def test_every_pair_is_in_one_batch_of_at_most_max_tokens(folder: Path):
    settings = create_settings(columns="num,de", data={"max_tokens": 60})
    task = Translate.prepare(str(folder), settings)
    batches = list(task.batches(settings).epoch(0))
    assert sorted(int(index) for batch in batches for index in batch.positions) == list(
        range(len(task.sides["train"][0]))
    )
    assert all(batch.rows * batch.length <= 60 for batch in batches)


def test_the_primary_metric_of_single_word_targets_is_exact_match():
    assert Translate.prepare("builtin:dates", Settings()).primary_metric[0] == "exact_match"
    assert Translate.primary_metric[0] == "bleu"


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"model": "ngram"}, "cannot do the task translate"),
        ({"network": {"output": "sampled", "width": 8}}, "the full softmax only; received --network.output sampled"),
        ({"model": "feedforward", "translate": {"attention": "none"}}, "needs attention; received none"),
        ({"translate": {"attention": "dot"}, "network": {"width": 7}}, "dot attention compares vectors of one width"),
        ({"translate": {"input_feeding": True}}, "received gru with additive attention"),
        ({"translate": {"input_feeding": True, "attention": "none"}}, "received gru with none attention"),
        (
            {"model": "transformer", "translate": {"input_feeding": True, "attention": "dot"}},
            "input feeding needs an rnn, gru or lstm with dot or general attention",
        ),
    ],
)
def test_invalid_settings_are_rejected(folder: Path, change: dict, fragment: str):
    settings = create_settings(columns="num,de", **change)
    task = Translate.prepare(str(folder), settings)
    with pytest.raises(UsageError, match=fragment):
        task.check(ResolvedSettings.from_settings(settings))


def test_the_training_loop_sets_the_progress_of_the_model(folder: Path):
    translate = {"attention": "general", "teacher_forcing": 0.5}
    _, model, _, losses = train(folder, "1k-tokens", columns="num,de", translate=translate)
    assert 0.5 < model.progress < 1
    again = train(folder, "1k-tokens", columns="num,de", translate=translate)[3]
    assert losses == again
