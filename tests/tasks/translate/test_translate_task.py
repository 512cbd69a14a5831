"""The task translate from files to translations: learning, splits, several targets, evaluation, prediction, refusal."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

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


class Alone:
    """One process."""

    rank, size = 0, 1

    def sum(self, *numbers: float) -> list[float]:
        return [float(number) for number in numbers]


def settings(**more) -> Settings:
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
    return Settings.model_validate(values | more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Digits, and their names in two languages."""
    path, draw = tmp_path_factory.mktemp("digits"), random.Random(0)
    seen = {tuple(draw.randrange(6) for _ in range(draw.randint(1, 3))) for _ in range(500)}
    lines = sorted(seen, key=lambda digits: draw.random())
    for split, part in (("train", lines[:-60]), ("val", lines[-60:-30]), ("test", lines[-30:])):
        (path / f"{split}.num").write_text("".join(" ".join(map(str, line)) + "\n" for line in part))
        for name, words in NAMES.items():
            text = "".join(" ".join(words[digit] for digit in line) + "\n" for line in part)
            (path / f"{split}.{name}").write_text(text, encoding="utf-8")
    return path


def trained(folder: Path, budget: str = "20k-tokens", **more):
    chosen = settings(**more)
    task = Translate.prepare(str(folder), chosen)
    task.check(chosen)
    torch.manual_seed(0)
    model = task.build(chosen)
    trainer = Trainer(model, task.batches(chosen), chosen.training, Budget.parse(budget), None, 0)
    losses = [step.loss for step in trainer.steps()]
    return task, model, chosen, losses


@pytest.fixture(scope="module")
def english(folder: Path):
    """A model that has learned the English names."""
    return trained(folder, columns="num,en", translate={"attention": "additive"})


def test_it_learns_to_translate(english):
    task, model, chosen, losses = english
    assert losses[-1] < 0.1 < 1 < losses[0]
    found = task.validate(model, chosen, Alone())
    assert found["exact_match"] > 0.7
    assert found["bleu"] == 0.0  # three words have no run of four
    assert found["loss"] < 0.5


def test_validation_adds_up_over_processes(english, monkeypatch: pytest.MonkeyPatch):
    task, model, chosen, _ = english
    monkeypatch.setattr(
        "seqwise.tasks.translate.task.EVALUATION_ROWS", 4
    )  # else all pairs are one batch of one process
    monkeypatch.setattr("seqwise.tasks.translate.generation.SEARCH_ROWS", {"cpu": 4})

    class Part(Alone):
        def __init__(self, rank: int):
            self.rank, self.size, self.seen = rank, 2, ()

        def sum(self, *numbers: float) -> list[float]:
            self.seen = numbers
            return [float(number) for number in numbers]

    parts = [Part(0), Part(1)]
    for part in parts:
        task.validate(model, chosen, part)
    assert all(number > 0 for part in parts for number in part.seen[:4])
    sums = [sum(numbers) for numbers in zip(*(part.seen for part in parts))]

    class Whole(Alone):
        def sum(self, *numbers: float) -> list[float]:
            assert list(numbers) == pytest.approx(sums)
            return super().sum(*numbers)

    task.validate(model, chosen, Whole())


def test_evaluation_names_every_metric_with_its_definition(english, folder: Path, tmp_path: Path):
    task, model, chosen, _ = english
    out = tmp_path / "answers.txt"
    options = InferenceOptions(BeamSearchOptions(beam=3), out=out)
    found = Translate.evaluate(task.bundle(model, chosen), str(folder), None, options)
    assert found.on == f"{folder}, the test split"
    assert found.how == "beam 3, length penalty 1; gru, additive attention"
    assert found.metrics["exact_match"] > 0.6
    assert found.metrics["pairs"] == 30
    assert set(found.metrics) == {"bleu", "chrf", "exact_match", "rouge_1", "rouge_2", "rouge_l", "pairs"}
    assert set(found.definitions) == set(found.metrics)
    assert found.warnings == ("BLEU counts 4-grams; most of these texts are shorter.",)
    assert "tok:13a" in found.as_dict()["definitions"]["bleu"]
    answers, references = out.read_text().splitlines(), (folder / "test.en").read_text().splitlines()
    right = sum(answer == reference for answer, reference in zip(answers, references, strict=True))
    assert right / 30 == pytest.approx(found.metrics["exact_match"])


def test_a_run_is_measured_on_a_table_with_plain_names_too(english, tmp_path: Path):
    task, model, chosen, _ = english
    (tmp_path / "more.csv").write_text("source,target\n1 2,one two\n3,three\n")
    found = Translate.evaluate(task.bundle(model, chosen), str(tmp_path / "more.csv"), None, BEAM)
    assert (found.on, found.metrics["pairs"]) == (f"{tmp_path / 'more.csv'}, all of it", 2)


def test_answers_come_in_the_order_of_the_inputs(english):
    task, model, chosen, _ = english
    inputs = ["1 0", "2 3 4", "", "5 5", "  4   1 "]
    found = list(Translate.predict(task.bundle(model, chosen), inputs, BEAM))
    alone = [next(Translate.predict(task.bundle(model, chosen), [text], BEAM)) for text in inputs]
    assert [each.text for each in found] == [each.text for each in alone]
    assert [each.text for each in found] == ["one zero", "two three four", "", "five five", "four one"]
    assert [each.values["source"] for each in found] == inputs
    assert found[0].values["hypotheses"][0]["ended"]


def test_searching_answers_to_wishes(english):
    task, model, chosen, _ = english

    def ask(text: str, **how) -> str:
        options = InferenceOptions(replace(BeamSearchOptions(beam=4), **how))
        return next(Translate.predict(task.bundle(model, chosen), [text], options)).text

    assert ask("1 2", start="five").startswith("five")
    assert len(ask("1 2", n_best=3).splitlines()) == 3
    assert len(ask("1", min_length=3).split()) >= 3
    short = InferenceOptions(BeamSearchOptions(beam=2), max_length=1)
    assert next(Translate.predict(task.bundle(model, chosen), ["1 2 3"], short)).text == "one"
    drawn = InferenceOptions(sampling=SamplingOptions(temperature=0.01), seed=5)
    assert next(Translate.predict(task.bundle(model, chosen), ["3 2"], drawn)).text == "three two"


def test_save_and_load_give_the_same_translations(english, tmp_path: Path):
    task, model, chosen, _ = english
    task.preprocessor.save(tmp_path)
    preprocessor = Preprocessor.load(tmp_path)
    assert sorted(preprocessor.tokenizers) == ["en", "text"]
    copy = Translate.restore(chosen, preprocessor)
    copy.load_state_dict(model.state_dict())
    options = InferenceOptions(BeamSearchOptions(beam=2, n_best=2))
    first, second = (
        [each.values for each in Translate.predict(bundle, ["1 4 2", "5"], options)]
        for bundle in (task.bundle(model, chosen), ModelBundle(copy, chosen, preprocessor))
    )
    assert first == second


@pytest.mark.parametrize("targets", ["decoders", pytest.param("token", marks=pytest.mark.slow)])
def test_one_encoder_serves_several_targets(folder: Path, targets: str, monkeypatch: pytest.MonkeyPatch):
    wish = {"attention": "general", "targets": targets, "vocabulary": "separate"}
    task, model, chosen, _ = trained(folder, "30k-tokens", columns="num,en,de", translate=wish)
    assert len(model.writers) == (2 if targets == "decoders" else 1)
    reads = []
    monkeypatch.setattr(model, "encode", lambda *given, encode=model.encode: reads.append(1) or encode(*given))
    (both,) = Translate.predict(
        task.bundle(model, chosen), ["2 1 3"], InferenceOptions(BeamSearchOptions(), target="de,en")
    )
    assert both.text == "de: zwei eins drei\nen: two one three"
    assert len(reads) == 1
    assert both.values["de"]["translation"] == "zwei eins drei"
    (one,) = Translate.predict(
        task.bundle(model, chosen), ["2 1 3"], InferenceOptions(BeamSearchOptions(), target="de")
    )
    assert one.text == "zwei eins drei"
    found = Translate.evaluate(
        task.bundle(model, chosen), str(folder), None, InferenceOptions(BeamSearchOptions(beam=2))
    )
    assert set(found.tables[0].rows) == {"en", "de"}
    assert found.metrics["chrf"] == pytest.approx(sum(row[1] for row in found.tables[0].rows.values()) / 2)
    only = Translate.evaluate(
        task.bundle(model, chosen), str(folder), None, InferenceOptions(BeamSearchOptions(beam=2), target="de")
    )
    assert only.metrics["chrf"] == pytest.approx(found.tables[0].rows["de"][1])
    with pytest.raises(UsageError, match="the run does not write 'fr'; it writes en, de"):
        list(Translate.predict(task.bundle(model, chosen), ["1"], InferenceOptions(target="fr")))


def test_preparing_says_what_is_there_and_fills_the_settings(folder: Path):
    said: list[str] = []
    chosen = settings(target="de", columns="num,de", text={})
    task = Translate.prepare(str(folder), chosen, log=said.append)
    assert said[0].startswith("tokeniser: characters")
    assert said[1].startswith("pairs: train ")
    assert "valid 30, test 30; num → de; vocabulary" in said[1]
    assert (chosen.text.tokenizer, chosen.translate.vocabulary) == ("characters", "separate")
    assert chosen.data.max_length == max(len(line) for line in (folder / "train.de").read_text("utf-8").splitlines())
    size = task.size()
    assert (size.examples, size.outputs, size.max_length) == (len(task.sides["train"][0]), 1, chosen.data.max_length)
    report = task.report()
    assert report.columns == ("pairs", "num tokens", "de tokens", "longest", "unknown")
    assert report.rows["test"][0] == 30


def test_what_is_too_long_is_cut_and_counted(folder: Path):
    said: list[str] = []
    chosen = settings(columns="num,de", data={"max_length": 2})
    task = Translate.prepare(str(folder), chosen, log=said.append)
    assert "texts of more than 2 tokens, which are truncated (--data.max-length)" in said[-1]
    assert max(batch.length for batch in task.batches(chosen).epoch(0)) == 3


def test_every_pair_is_in_one_batch_of_an_epoch_within_the_budget_of_tokens(folder: Path):
    chosen = settings(columns="num,de", data={"max_tokens": 60})
    task = Translate.prepare(str(folder), chosen)
    batches = list(task.batches(chosen).epoch(0))
    assert sorted(int(at) for batch in batches for at in batch.positions) == list(range(len(task.sides["train"][0])))
    assert all(batch.rows * batch.length <= 60 for batch in batches)


def test_the_share_of_exact_answers_is_shown_where_targets_are_single_words():
    assert Translate.prepare("builtin:dates", Settings()).primary_metric[0] == "exact_match"
    assert Translate.primary_metric[0] == "bleu"


@pytest.mark.parametrize(
    ("change", "says"),
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
def test_settings_that_cannot_work_are_refused(folder: Path, change: dict, says: str):
    chosen = settings(columns="num,de", **change)
    task = Translate.prepare(str(folder), chosen)
    with pytest.raises(UsageError, match=says):
        task.check(ResolvedSettings.from_settings(chosen))


def test_the_loop_tells_the_model_how_far_it_is(folder: Path):
    wish = {"attention": "general", "teacher_forcing": 0.5}
    _, model, _, losses = trained(folder, "1k-tokens", columns="num,de", translate=wish)
    assert 0.5 < model.progress < 1
    again = trained(folder, "1k-tokens", columns="num,de", translate=wish)[3]
    assert losses == again
