"""`--init RUN`: a new run gets the settings, the vocabulary and exactly the weights of another run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from used_settings import keep_used

import seqwise
from seqwise.config import parse_settings
from seqwise.errors import RunError, SeqwiseError, UsageError
from seqwise.tasks.init_from_run import copy_weights, inherit_settings
from seqwise.training.create import create_run
from seqwise.training.run import Run
from seqwise.training.training_run import open_training

SMALL = {
    "budget": "1k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 2},
    "data": {"window": 16},
    "text": {"tokenizer": "words"},
    "training": {"batch_size": 4, "validate_every": 1000},
}


@pytest.fixture(scope="module")
def get_run(book: Path, tmp_path_factory: pytest.TempPathFactory):
    """A function that returns the folder of a run of a task and family, trained once for a few steps."""
    folders: dict[tuple[str, ...], Path] = {}

    def get(task: str, model: str, positions: str = "rotary") -> Path:
        key = (task, model, positions)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("runs") / "-".join(key)
            values = {"task": task, "model": model, "transformer": {"positions": positions}}
            seqwise.train(book, out=folders[key], settings=keep_used(SMALL, **values))
        return folders[key]

    return get


@pytest.fixture
def labelled_data(tmp_path: Path) -> str:
    rows = [f"the {'old' if n % 2 else 'small'} model reads {n % 7},{'old' if n % 2 else 'small'}" for n in range(60)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return str(tmp_path / "rows.csv")


@pytest.fixture
def tagged_data(tmp_path: Path) -> str:
    lines = "the O\nold B-X\nmodel O\nreads O\n\nevery O\nsmall B-X\nword O\n\n" * 20
    (tmp_path / "rows.conll").write_text(lines)
    return str(tmp_path / "rows.conll")


def initialise(data: str, init: Path, out: Path, task: str, **values: object) -> tuple[Run, torch.nn.Module, list[str]]:
    """Returns a run before its first step, its model, and the log messages."""
    messages: list[str] = []
    settings = parse_settings({"task": task, "init": str(init), "budget": "2k-tokens", "device": "cpu", **values})
    run, prepared_task = create_run(data, settings, out, log=messages.append)
    return run, open_training(run, task=prepared_task, log=messages.append).model, messages  # type: ignore[union-attr]


SOURCES = [
    ("masked", "transformer"),
    ("masked", "lstm"),
    ("masked", "attentive-rnn"),
    ("masked", "feedforward"),
    ("language", "gru"),
    ("language", "transformer"),
]


@pytest.mark.parametrize(("task", "model"), SOURCES)
def test_a_classifier_starts_with_the_weights_of_the_run(
    task: str, model: str, get_run, labelled_data: str, tmp_path: Path
):
    source = Run.open(get_run(task, model))
    run, classifier, messages = initialise(labelled_data, source.folder, tmp_path / "out", "classify")
    weights = source.read_weights()
    num_copied = 0
    for name, parameter in classifier.named_parameters():
        if name.startswith(("embedding.", "encoder.")):
            source_name = name if name in weights else name.replace("encoder.", "backbone.", 1)
            assert torch.equal(parameter, weights[source_name]), name
            num_copied += parameter.numel()
    assert run.settings.model == model
    assert run.tokenizer.fingerprint == source.tokenizer.fingerprint
    assert run.settings.network.width == 16
    assert any(
        f"{num_copied:,} weights of embedding and encoder are copied from {source.folder}" in message
        for message in messages
    )
    assert any(
        message.startswith(f"from {source.folder}: its vocabulary of {len(source.tokenizer)}") for message in messages
    )


def test_a_tagger_starts_with_the_weights_of_the_run(get_run, tagged_data: str, tmp_path: Path):
    source = Run.open(get_run("masked", "lstm"))
    run, tagger, _ = initialise(tagged_data, source.folder, tmp_path / "out", "tag")
    weights = source.read_weights()
    assert all(
        torch.equal(parameter, weights[name])
        for name, parameter in tagger.named_parameters()
        if name.startswith(("embedding.", "encoder."))
    )
    assert run.settings.tag.characters == 0


def test_the_copied_encoder_is_fine_tuned(get_run, labelled_data: str, tmp_path: Path):
    """Training changes both directions of the encoder, and the new run can be loaded by itself."""
    source = get_run("masked", "lstm")
    trained = seqwise.train(
        labelled_data, out=tmp_path / "out", task="classify", init=str(source), budget="4k-tokens", device="cpu"
    )
    before, after = Run.open(source).read_weights(), trained.run.read_weights()
    changed = [name for name in before if name in after and not torch.equal(before[name], after[name])]
    assert any(name.startswith("encoder.forward_layer") for name in changed)
    assert any(name.startswith("encoder.backward_layer") for name in changed)
    assert trained.predict("the old model reads").values["label"] in ("old", "small")
    loaded_evaluation = seqwise.load(tmp_path / "out").evaluate(labelled_data)
    assert loaded_evaluation.metrics == trained.evaluate(labelled_data).metrics
    assert f" tokens, of the run `{source}`\n" in (tmp_path / "out" / "README.md").read_text()


def test_learned_positions_determine_the_maximum_length(get_run, labelled_data: str, tmp_path: Path):
    source = get_run("masked", "transformer", "learned")
    run, classifier, _ = initialise(labelled_data, source, tmp_path / "out", "classify")
    assert run.settings.data.max_length == 16
    assert torch.equal(classifier.encoder.positions.weight, Run.open(source).read_weights()["encoder.positions.weight"])


def test_settings_left_open_are_inherited_and_listed():
    source = parse_settings(
        {"task": "masked", "model": "gru", "network": {"width": 32, "depth": 2, "embedding": 16, "dropout": 0.3},
         "recurrent": {"update": "replaces", "bidirectional": True, "concat_directions": False}}
    )  # fmt: skip
    user_settings = parse_settings({"task": "classify", "network": {"width": 32}})
    settings, inherited_names = inherit_settings(user_settings, source, "runs/a")
    assert (settings.model, settings.network.depth, settings.recurrent.update) == ("gru", 2, "replaces")
    assert settings.network.dropout is None  # regularisation is not inherited
    assert set(inherited_names) == {
        *("model", "network.depth", "network.embedding"),
        *("recurrent.update", "recurrent.bidirectional", "recurrent.concat_directions"),
    }
    assert user_settings.model == "lstm"


@pytest.mark.parametrize(
    ("values", "source_values", "fragments"),
    [
        ({"network": {"width": 8}}, {}, ["--network.width is 8, but runs/a has 16", "Leave these out"]),
        ({"model": "gru", "network": {"depth": 3}}, {}, ["--model is gru", "has transformer", "--network.depth is 3"]),
        ({"text": {"tokenizer": "bpe"}}, {}, ["--text.tokenizer is bpe, but runs/a has words"]),
        ({"recurrent": {"bidirectional": True}}, {"task": "language", "model": "gru"}, ["--recurrent.bidirectional"]),
        ({"task": "tag", "tag": {"characters": 20}}, {}, ["--tag.characters is 20"]),
        ({"task": "translate"}, {}, ["classify or tag", "--task translate"]),
        ({}, {"task": "language", "model": "ngram"}, ["runs/a has the model ngram", "no text encoder"]),
        ({}, {"task": "language", "model": "feedforward"}, ["feedforward of the task language", "masked"]),
        ({}, {"task": "classify"}, ["of the task classify", "no text encoder"]),
    ],
)
def test_incompatible_settings_are_rejected(values: dict, source_values: dict, fragments: list[str]):
    source = {"task": "masked", "model": "transformer", "network": {"width": 16, "depth": 2, "embedding": 16}}
    source |= {"text": {"tokenizer": "words", "vocabulary": 30}} | source_values
    with pytest.raises(UsageError) as caught:
        inherit_settings(parse_settings({"task": "classify"} | values), parse_settings(source), "runs/a")
    assert [part for part in fragments if part not in str(caught.value)] == []


def test_no_weight_is_copied_if_one_does_not_fit():
    model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(3, 2), "encoder": torch.nn.Linear(2, 2)})
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    weights = {
        "embedding.weight": torch.zeros(3, 2),
        "encoder.weight": torch.zeros(2, 5),
        "encoder.bias": torch.zeros(2),
    }
    with pytest.raises(RunError, match=r"encoder.weight has shape \(2, 5\) in runs/a, the model needs \(2, 2\)"):
        copy_weights(model, weights, "runs/a")
    del weights["encoder.weight"]
    with pytest.raises(RunError, match=r"runs/a has no encoder.weight"):
        copy_weights(model, weights, "runs/a")
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


def test_a_vocabulary_that_splits_words_cannot_tag(book: Path, tagged_data: str, tmp_path: Path):
    seqwise.train(
        book, out=tmp_path / "pieces", settings=SMALL, task="masked", model="gru", text={"tokenizer": "characters"}
    )
    with pytest.raises(SeqwiseError, match="one token per word"):
        initialise(tagged_data, tmp_path / "pieces", tmp_path / "out", "tag")


def test_a_folder_that_is_not_a_run_is_rejected(labelled_data: str, tmp_path: Path):
    with pytest.raises(RunError, match="is not a run"):
        initialise(labelled_data, tmp_path / "nothing", tmp_path / "out", "classify")
    assert not (tmp_path / "out").exists()


def test_a_resumed_run_does_not_need_the_initial_run(get_run, labelled_data: str, tmp_path: Path):
    source = tmp_path / "source"
    shutil.copytree(get_run("masked", "lstm"), source)
    settings = parse_settings({"task": "classify", "init": str(source), "budget": "5k-tokens", "device": "cpu"})
    run, task = create_run(labelled_data, settings, tmp_path / "out")
    first = open_training(run, task=task)
    list(first.steps(stop=lambda: True))
    shutil.rmtree(source)
    messages: list[str] = []
    second = open_training(Run.open(tmp_path / "out"), log=messages.append)
    for (name, before), (_, after) in zip(first.model.named_parameters(), second.model.named_parameters()):  # type: ignore[union-attr]
        assert torch.equal(before, after), name
    assert "resuming at step 1." in messages
    assert not any("are copied from" in message for message in messages)


def test_settings_that_change_the_network_are_inherited():
    recurrent = {"cap_input_gate": True, "sum_layers": True, "last_width": 7}
    source = parse_settings({"task": "masked", "model": "lstm", "recurrent": recurrent})
    settings, _ = inherit_settings(parse_settings({"task": "classify"}), source, "runs/a")
    assert {name: getattr(settings.recurrent, name) for name in recurrent} == recurrent
