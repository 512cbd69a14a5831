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

BEAM_SEARCH = InferenceOptions(Translate.beam_search)
NAMES = {
    "en": ["zero", "one", "two", "three", "four", "five"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf"],
}


class SingleProcess:
    """A world of one process."""

    rank, size = 0, 1

    def sum(self, *numbers: float) -> list[float]:
        return [float(number) for number in numbers]


def make_settings(**overrides) -> Settings:
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
    return keep_used(values | overrides)


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


def train(folder: Path, budget: str = "20k-tokens", **overrides):
    """Returns the task, the trained model, its settings and the loss of each step."""
    settings = make_settings(**overrides)
    task = Translate.prepare(str(folder), settings)
    task.check(settings)
    torch.manual_seed(0)
    model = task.build(settings)
    training = ResolvedSettings.from_settings(settings).training
    trainer = Trainer(model, task.batches(settings), training, Budget.parse(budget), None, 0)
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
    monkeypatch.setattr("seqwise.tasks.translate.task.VALIDATION_BATCH_SIZE", 4)  # so that both processes have batches
    monkeypatch.setattr("seqwise.tasks.translate.generation.DECODER_BATCH_SIZE", {"cpu": 4})

    class RecordingProcess(SingleProcess):
        """One of `size` processes, which records what it adds to the sums over all of them."""

        def __init__(self, rank: int, size: int):
            self.rank, self.size, self.summands = rank, size, ()

        def sum(self, *numbers: float) -> list[float]:
            self.summands = numbers
            return super().sum(*numbers)

    first, second, single = RecordingProcess(0, 2), RecordingProcess(1, 2), RecordingProcess(0, 1)
    for process in (first, second, single):
        task.validate(model, settings, process)
    # Both have a part of the first four sums: nats, targets, exact matches and translated pairs.
    assert min(*first.summands[:4], *second.summands[:4]) > 0
    assert [sum(pair) for pair in zip(first.summands, second.summands)] == pytest.approx(list(single.summands))


def test_evaluation_has_a_definition_of_every_metric(english, folder: Path):
    task, model, settings, _ = english
    options = InferenceOptions(BeamSearchOptions(beam=3))
    evaluation = Translate.evaluate(task.bundle(model, settings), str(folder), None, options)
    assert evaluation.data == f"{folder}, the test split"
    assert evaluation.method == "beam 3, length penalty 1; gru, additive attention"
    assert evaluation.metrics["exact_match"] > 0.6
    assert evaluation.metrics["pairs"] == 30
    names = {"bleu", "bleu_lowercase", "chrf", "exact_match", "rouge_1", "rouge_2", "rouge_l", "pairs"}
    assert set(evaluation.metrics) == names
    assert set(evaluation.definitions) == set(evaluation.metrics)
    assert evaluation.warnings == ("BLEU counts 4-grams; most of these texts are shorter.",)
    assert "tok:13a" in evaluation.as_dict()["definitions"]["bleu"]


def test_translations_of_an_evaluation_are_written_to_a_file(english, folder: Path, tmp_path: Path):
    task, model, settings, _ = english
    out = tmp_path / "answers.tsv"
    options = InferenceOptions(BeamSearchOptions(beam=3), out=out)
    evaluation = Translate.evaluate(task.bundle(model, settings), str(folder), None, options)
    header, *rows = (line.split("\t") for line in out.read_text().splitlines())
    assert header == ["input", "expected", "predicted"]
    assert [row[1] for row in rows] == (folder / "test.en").read_text().splitlines()
    num_correct = sum(expected == predicted for _, expected, predicted in rows)
    assert num_correct / 30 == pytest.approx(evaluation.metrics["exact_match"])


def test_a_table_with_source_and_target_can_be_evaluated(english, tmp_path: Path):
    task, model, settings, _ = english
    (tmp_path / "more.csv").write_text("source,target\n1 2,one two\n3,three\n")
    evaluation = Translate.evaluate(task.bundle(model, settings), str(tmp_path / "more.csv"), None, BEAM_SEARCH)
    assert (evaluation.data, evaluation.metrics["pairs"]) == (f"{tmp_path / 'more.csv'}, all of it", 2)


def test_predictions_are_in_the_order_of_the_inputs(english):
    task, model, settings, _ = english
    inputs = ["1 0", "2 3 4", "", "5 5", "  4   1 "]
    predictions = list(Translate.predict(task.bundle(model, settings), inputs, BEAM_SEARCH))
    one_by_one = [next(Translate.predict(task.bundle(model, settings), [text], BEAM_SEARCH)) for text in inputs]
    assert [each.text for each in predictions] == [each.text for each in one_by_one]
    assert [each.text for each in predictions] == ["one zero", "two three four", "", "five five", "four one"]
    assert [each.values["source"] for each in predictions] == inputs
    assert predictions[0].values["hypotheses"][0]["ended"]


def test_decoding_options_are_applied(english):
    task, model, settings, _ = english

    def translate(text: str, **search_options) -> str:
        options = InferenceOptions(replace(BeamSearchOptions(beam=4), **search_options))
        return next(Translate.predict(task.bundle(model, settings), [text], options)).text

    assert translate("1 2", start="five").startswith("five")
    assert len(translate("1 2", n_best=3).splitlines()) == 3
    assert len(translate("1", min_length=3).split()) >= 3
    one_token = InferenceOptions(BeamSearchOptions(beam=2), max_length=1)
    assert next(Translate.predict(task.bundle(model, settings), ["1 2 3"], one_token)).text == "one"
    sampling = InferenceOptions(sampling=SamplingOptions(temperature=0.01), seed=5)
    assert next(Translate.predict(task.bundle(model, settings), ["3 2"], sampling)).text == "three two"


def test_save_and_load_give_the_same_translations(english, tmp_path: Path):
    task, model, settings, _ = english
    task.preprocessor.save(tmp_path)
    preprocessor = Preprocessor.load(tmp_path)
    assert sorted(preprocessor.tokenizers) == ["en", "text"]
    loaded_model = Translate.restore(settings, preprocessor)
    loaded_model.load_state_dict(model.state_dict())
    options = InferenceOptions(BeamSearchOptions(beam=2, n_best=2))
    expected, actual = (
        [each.values for each in Translate.predict(bundle, ["1 4 2", "5"], options)]
        for bundle in (task.bundle(model, settings), ModelBundle(loaded_model, settings, preprocessor))
    )
    assert actual == expected


# decoders: a decoder for each language; token: one decoder whose first token names the language
@pytest.mark.parametrize("targets", ["decoders", pytest.param("token", marks=pytest.mark.slow)])
def test_one_encoder_serves_several_targets(folder: Path, targets: str, monkeypatch: pytest.MonkeyPatch):
    translate = {"attention": "general", "targets": targets, "vocabulary": "separate"}
    task, model, settings, _ = train(folder, "30k-tokens", columns="num,en,de", translate=translate)
    assert len(model.decoders) == (2 if targets == "decoders" else 1)
    encode_calls = []
    monkeypatch.setattr(model, "encode", lambda *args, encode=model.encode: encode_calls.append(1) or encode(*args))
    (both_languages,) = Translate.predict(
        task.bundle(model, settings), ["2 1 3"], InferenceOptions(BeamSearchOptions(), target="de,en")
    )
    assert both_languages.text == "de: zwei eins drei\nen: two one three"
    assert len(encode_calls) == 1
    assert both_languages.values["de"]["translation"] == "zwei eins drei"
    (german,) = Translate.predict(
        task.bundle(model, settings), ["2 1 3"], InferenceOptions(BeamSearchOptions(), target="de")
    )
    assert german.text == "zwei eins drei"
    evaluation = Translate.evaluate(
        task.bundle(model, settings), str(folder), None, InferenceOptions(BeamSearchOptions(beam=2))
    )
    assert set(evaluation.tables[0].rows) == {"en", "de"}
    assert evaluation.metrics["chrf"] == pytest.approx(sum(row[1] for row in evaluation.tables[0].rows.values()) / 2)
    german_evaluation = Translate.evaluate(
        task.bundle(model, settings), str(folder), None, InferenceOptions(BeamSearchOptions(beam=2), target="de")
    )
    assert german_evaluation.metrics["chrf"] == pytest.approx(evaluation.tables[0].rows["de"][1])
    with pytest.raises(UsageError, match="the run does not translate into 'fr'; its targets are en, de"):
        list(Translate.predict(task.bundle(model, settings), ["1"], InferenceOptions(target="fr")))


def test_preparing_logs_the_data_and_fills_in_settings(folder: Path):
    messages: list[str] = []
    settings = make_settings(target="de", columns="num,de", text={})
    task = Translate.prepare(str(folder), settings, log=messages.append)
    assert messages[0].startswith("tokeniser: characters")
    assert messages[1].startswith("pairs: train ")
    assert "valid 30, test 30; num → de; vocabulary" in messages[1]
    assert (settings.text.tokenizer, settings.translate.vocabulary) == ("characters", "separate")
    assert settings.data.max_length == max(len(line) for line in (folder / "train.de").read_text("utf-8").splitlines())
    size = task.size()
    assert (size.num_examples, size.max_length) == (len(task.token_ids["train"][0]), settings.data.max_length)
    assert list(task.count_data()["test"]) == ["pairs", "num tokens", "de tokens", "longest", "unknown"]
    assert task.count_data()["test"]["pairs"] == 30


def test_long_texts_are_truncated_and_counted(folder: Path):
    messages: list[str] = []
    settings = make_settings(columns="num,de", data={"max_length": 2})
    task = Translate.prepare(str(folder), settings, log=messages.append)
    assert "texts of more than 2 tokens, which are truncated (--data.max-length)" in messages[-1]
    assert max(batch.length for batch in task.batches(settings).epoch(0)) == 3  # two tokens and the end token


def test_every_pair_is_in_one_batch_of_at_most_max_tokens(folder: Path):
    settings = make_settings(columns="num,de", data={"max_tokens": 60})
    task = Translate.prepare(str(folder), settings)
    batches = list(task.batches(settings).epoch(0))
    assert sorted(int(index) for batch in batches for index in batch.positions) == list(
        range(len(task.token_ids["train"][0]))
    )
    assert all(batch.num_sequences * batch.length <= 60 for batch in batches)


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
    settings = make_settings(columns="num,de", **change)
    task = Translate.prepare(str(folder), settings)
    with pytest.raises(UsageError, match=fragment):
        task.check(ResolvedSettings.from_settings(settings))


def test_scheduled_sampling_follows_the_budget_and_is_repeatable(folder: Path):
    translate = {"attention": "general", "teacher_forcing": 0.5}
    _, model, _, losses = train(folder, "1k-tokens", columns="num,de", translate=translate)
    assert 0.5 < model.progress < 1  # the fraction of the budget at the last update
    *_, repeated_losses = train(folder, "1k-tokens", columns="num,de", translate=translate)
    assert losses == repeated_losses
