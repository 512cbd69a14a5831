"""Arguments of a wrong type raise an error of Seqwise that names the argument, never one from deep inside."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import seqwise
from seqwise.config import SettingKeywords, Settings
from seqwise.errors import SeqwiseError, UsageError
from seqwise.lens import VIEWS

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
        (lambda: seqwise.train(resume=3), "resume: expected the path of a run folder; received int 3"),
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


WRONG = {
    "None": None,
    "a number": 123,
    "bytes": b"a",
    "NaN": math.nan,
    "an empty list": [],
    "a list of None": [None],
    "nested lists": [[["a"]]],
    "an object": {"a": object()},
    "a set": {1},
}
FUNCTIONS = ("check", "compare", "load", "load_vectors", "train", "train_vectors")  # of the package, that take data


def assert_refused(call: Callable[[], Any], problem: str) -> None:
    try:
        call()
    except SeqwiseError:
        return
    pytest.fail(problem)


def test_every_public_function_is_in_a_table_of_this_file():
    values = {name: getattr(seqwise, name) for name in seqwise.__all__}
    functions = {name for name, value in values.items() if callable(value) and not isinstance(value, type)}
    assert functions == {*FUNCTIONS, "record"}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_any_value_instead_of_an_argument_raises_an_error_of_seqwise(value: object, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = seqwise.KeyedVectors(["a", "b"], np.eye(2, dtype=np.float32))
    calls = {
        **{name: getattr(seqwise, name) for name in FUNCTIONS},
        "record": lambda value: seqwise.record(value).__enter__(),
        "lab.run": seqwise.lab.run,
        "KeyedVectors": lambda value: seqwise.KeyedVectors(value, value),
        "KeyedVectors.vector": vectors.vector,
        "KeyedVectors.index": vectors.index,
        "KeyedVectors.nearest": vectors.nearest,
        **{f"lens.{name}": getattr(seqwise.lens, name) for name in VIEWS},
    }
    for name, call in calls.items():
        if name == "KeyedVectors" and value == []:
            continue
        assert_refused(partial(call, value), f"{name} accepts {value!r}")


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_any_value_instead_of_an_argument_of_a_model_raises_an_error_of_seqwise(trained_model, value: object):
    for name in ("predict", "evaluate", "embed"):
        if name != "evaluate" and value == []:
            continue  # no inputs: no outputs
        assert_refused(partial(getattr(trained_model, name), value), f"{name} accepts {value!r}")
    for option in ("seed", "temperature", "top_k", "top_p", "repetition_penalty", "max_length"):
        if value == 123 or (value is None and option in ("top_k", "top_p", "max_length")):
            continue
        assert_refused(partial(trained_model.predict, "a", **{option: value}), f"{option} may be {value!r}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": None}, "seed: expected a whole number; received None."),
        ({"seed": True}, "seed: expected a whole number; received True."),
        ({"temperature": "hot"}, "temperature: expected a number; received str hot."),
        ({"max_length": math.nan}, "max_length: expected a whole number; received float nan."),
        ({"max_length": 0}, "the maximum length must be at least 1; received 0."),
    ],
)
def test_a_wrong_option_of_predict_is_named(trained_model, options: dict[str, Any], message: str):
    with pytest.raises(UsageError) as excinfo:
        trained_model.predict("a", **options)
    assert str(excinfo.value) == message


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
