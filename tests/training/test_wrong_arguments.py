"""Arguments of a wrong type raise an error of Seqwise that names the argument, never one from deep inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import seqwise
from seqwise.config import SettingKeywords, Settings
from seqwise.errors import UsageError

ACCEPTED = (
    "expected a path, a DataFrame, an array, a list of rows or texts, or a dictionary of these by split; received "
)


@pytest.fixture(scope="module")
def trained_model(book, tmp_path_factory):
    settings = {"device": "cpu", "network.width": 8, "data.window": 16, "training.batch_size": 4}
    out = tmp_path_factory.mktemp("run") / "a"
    return seqwise.train(book, out=out, task="language", model="gru", budget="500-tokens", settings=settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: seqwise.train(None), f"data: {ACCEPTED}None"),
        (lambda: seqwise.train(3), f"data: {ACCEPTED}int 3"),
        (lambda: seqwise.train(b"a.txt"), f"data: {ACCEPTED}bytes"),
        (
            lambda: seqwise.train("a.txt", budget=5),
            "budget: expected a text with a unit, such as '5m'",
        ),
        (lambda: seqwise.train("a.txt", model=5), "model: expected a name, a class or a function; received 5"),
        (lambda: seqwise.train("a.txt", task=5), "task: input should be a valid string; received 5"),
        (lambda: seqwise.train("a.txt", settings=5), "settings: expected a dictionary or Settings; received int 5"),
        (lambda: seqwise.train("a.txt", network=5), "network: input should be a valid dictionary; received 5"),
        (lambda: seqwise.train("a.txt", out=5), "out: expected the path of a folder; received int 5"),
        (lambda: seqwise.train("a.txt", on_step=5), "on_step: expected a function; received int 5"),
        (lambda: seqwise.train("a.txt", modle="gru"), "modle: no such setting. Perhaps you meant 'model'."),
        (lambda: seqwise.train("a.txt", settings={"network.widht": 5}), "network.widht: no such setting. Perhaps"),
        (lambda: seqwise.train("a.txt", lr=0.1), "lr is training.learning_rate here: "),
        (lambda: seqwise.load(3), "folder: expected the path of a run folder; received int 3"),
        (lambda: seqwise.load(None), "folder: expected the path of a run folder; received None"),
        (lambda: seqwise.compare(3), f"data: {ACCEPTED}int 3"),
        (lambda: seqwise.compare("a.txt", models=3), "models: expected names of families, such as "),
        (lambda: seqwise.compare("a.txt", models=[3]), "model: expected a name, a class or a function; received 3"),
        (
            lambda: seqwise.compare("a.txt", variants=3),
            "variants: expected a dictionary or a YAML file",
        ),
        (
            lambda: seqwise.compare("a.txt", seeds="3"),
            "seeds: expected a number of trainings per family",
        ),
        (lambda: seqwise.compare("a.txt", budget=5), "budget: expected a text with a unit"),
        (
            lambda: seqwise.compare("a.txt", workers="2"),
            "workers: expected a number of worker processes",
        ),
        (lambda: seqwise.compare("a.txt", engine=2), "there is no engine 2."),
        (lambda: seqwise.compare("a.txt", out=2), "out: expected the path of a folder; received int 2"),
        (lambda: seqwise.compare("a.txt", lr_trials="3"), "lr_trials: expected a number; received str 3"),
        (lambda: seqwise.compare("a.txt", modles="gru"), "modles: no such setting. Perhaps you meant 'model'"),
        (lambda: seqwise.compare(resume=2), "resume: expected the path of a folder; received int 2"),
        (lambda: seqwise.train_vectors(3), f"data: {ACCEPTED}int 3"),
        (lambda: seqwise.train_vectors(None), f"data: {ACCEPTED}None"),
        (lambda: seqwise.train_vectors([3, 4]), "row 0 of the list: expected texts; received int 3"),
        (lambda: seqwise.load_vectors(3), "path: expected the path of a file of vectors; received int 3"),
        (lambda: seqwise.record(3).__enter__(), "model: expected a torch.nn.Module"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], message: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as excinfo:
        call()
    assert str(excinfo.value).startswith(message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.predict(3), "inputs: expected a text or several; received int 3"),
        (lambda model: model.predict(None), "inputs: expected a text or several; received None"),
        (lambda model: model.predict(["a", 3]), "input 2: expected a text; received int 3"),
        (lambda model: model.predict("a", options=3), "options: expected InferenceOptions; received int 3"),
        (lambda model: model.predict("a", topk=3), "there is no option 'topk'"),
        (lambda model: model.evaluate(None), f"data: {ACCEPTED}None"),
        (lambda model: model.evaluate(3), f"data: {ACCEPTED}int 3"),
        (lambda model: model.evaluate("a.txt", split=3), "split: expected the name of a split; received int 3"),
        (lambda model: model.embed(3), "texts: expected a text or several; received int 3"),
        (lambda model: model.embed([3]), "text 1: expected a text; received int 3"),
    ],
)
def test_a_wrong_argument_of_a_model_is_named(trained_model, call: Callable[[Any], Any], message: str):
    with pytest.raises(UsageError) as excinfo:
        call(trained_model)
    assert str(excinfo.value).startswith(message)


def test_the_typed_keywords_of_train_and_compare_are_the_settings():
    explicit = set(inspect.signature(seqwise.train).parameters)
    assert explicit | set(get_type_hints(SettingKeywords)) >= set(Settings.model_fields)
    assert set(get_type_hints(SettingKeywords)) < set(Settings.model_fields)


def test_the_signature_of_compare_lists_its_options_for_completion_in_notebooks():
    parameters = inspect.signature(seqwise.compare).parameters
    assert {"data", "models", "budget", "seeds", "lr_trials", "match", "workers", "settings"} <= set(parameters)


def test_the_repr_of_public_objects_describes_them(trained_model):
    folder = trained_model.run.folder
    assert repr(trained_model).startswith(f"<TrainedModel {folder}: language, gru, width 8, depth 1, cpu; ")
    evaluation = trained_model.evaluate(trained_model.run.metadata.data)
    perplexity = evaluation.metrics["perplexity"]
    assert repr(evaluation).startswith(f"<Evaluation perplexity {perplexity:.4g}, word_perplexity ")
    assert repr(evaluation).endswith(", the test split>")
    tokenizer = trained_model.run.tokenizer
    assert repr(tokenizer).startswith(f"<Tokenizer {tokenizer.kind}, {len(tokenizer):,} tokens: ' ', ")
