"""The public functions: train, load, evaluate, predict."""

from __future__ import annotations

import ast
import re
import shutil
import signal

import pytest
import torch

import seqwise
from seqwise import families
from seqwise.config import Settings, parse_settings
from seqwise.data.reading import TextFile
from seqwise.decoding.options import SamplingOptions
from seqwise.errors import RunError, SeqwiseError, UsageError
from seqwise.recipe_files import find_recipe, read_recipe
from seqwise.recipe_results import describe_gpu
from seqwise.tasks import get_task
from seqwise.tasks.task import InferenceOptions
from seqwise.training.card import build_model_card
from seqwise.training.run import Run
from seqwise.training.step import TrainerState

SMALL = {
    "budget": "1k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 1},
    "data": {"window": 16},
    "training": {"batch_size": 4, "validate_every": 1000},
}


class Convolution(torch.nn.Module):
    def __init__(self, inputs, settings):
        super().__init__()
        self.convolution = torch.nn.Conv1d(inputs, settings.network.width, 1)

    def forward(self, vectors):
        return self.convolution(vectors.mT).mT


@pytest.fixture(scope="module")
def trained_model(book, tmp_path_factory):
    return seqwise.train(book, out=tmp_path_factory.mktemp("run") / "a", settings=SMALL, model="gru")


def test_a_trained_run_evaluates_and_predicts_as_it_does_when_it_is_loaded(trained_model, book):
    loaded = seqwise.load(trained_model.run.folder, device="cpu")
    assert loaded.settings == trained_model.settings
    assert loaded.evaluate(book).as_dict() == trained_model.evaluate(book).as_dict()
    assert "".join(loaded.predict("the", seed=3)) == "".join(trained_model.predict("the", seed=3))


def test_the_callback_gets_every_step(book, tmp_path):
    numbers: list[int] = []
    seqwise.train(book, out=tmp_path / "run", settings=SMALL, on_step=lambda step: numbers.append(step.number))
    assert numbers == list(range(1, 17))  # 1,000 tokens in updates of 4 × 16


def test_the_log_function_gets_the_chosen_settings(book, tmp_path, capsys):
    messages: list[str] = []
    seqwise.train(book, out=tmp_path / "run", settings=SMALL, log=messages.append)
    assert any(message.startswith("chosen by rule: ") for message in messages)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("lr", 0.1, 'lr is training.learning_rate here: training={"learning_rate": 0.1}'),
        ("epochs", 3, "epochs is budget here: budget='3-epochs'"),
        ("batch_size", 8, 'batch_size is training.batch_size here: training={"batch_size": 8}'),
        ("seq_len", 35, 'seq_len is data.window here: settings={"data.window": 35}'),
        ("output_dir", "a", "output_dir is out here: out='a'"),
        ("training", {"lr": 1}, 'training.lr is training.learning_rate here: training={"learning_rate": 1}'),
        ("batch_sise", 8, "batch_sise: no such setting. Choose from: task, model"),
    ],
)
def test_names_of_other_tools_are_answered_with_ours(book, tmp_path, name, value, answer):
    for function in (seqwise.train, seqwise.compare):
        with pytest.raises(UsageError) as excinfo:
            function(book, out=tmp_path / "run", **{name: value})
        assert str(excinfo.value).startswith(answer)
    assert not (tmp_path / "run").exists()


def test_an_error_in_the_callback_reaches_the_caller(book, tmp_path):
    def stop(step) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        seqwise.train(book, out=tmp_path / "run", settings=SMALL, on_step=stop)


@pytest.mark.parametrize("convert", [dict, parse_settings])
def test_keywords_override_the_settings_section_by_section(book, tmp_path, convert):
    values = SMALL | {"network": {"width": 16, "depth": 3}}
    run = seqwise.train(book, out=tmp_path / "run", settings=convert(values), model="rnn", network={"width": 8}).run
    assert run.settings.model == "rnn"
    assert (run.settings.network.width, run.settings.network.depth) == (8, 3)
    assert values["network"] == {"width": 16, "depth": 3}


def test_settings_and_keywords_override_a_recipe(book, tmp_path):
    messages = []
    sizes = {"network.embedding": 8, "recurrent.last_width": 8, "network": {"depth": 2}}
    settings = {key: value for key, value in SMALL.items() if key != "network"} | sizes
    out, network = tmp_path / "run", {"width": 12}
    run = seqwise.train(
        book, out=out, recipe="ptb-characters", settings=settings, network=network, log=messages.append
    ).run
    recipe = read_recipe("ptb-characters").settings
    assert (run.settings.network.width, run.settings.network.depth, run.settings.budget) == (12, 2, "1k-tokens")
    assert run.settings.network.dropout == recipe.network.dropout
    assert run.settings.training.learning_rate == recipe.training.learning_rate
    assert any(each.startswith("warning: this is not the data of the recipe ptb-characters") for each in messages)
    assert f"seqwise evaluate {out} {book} --split test\n" in (out / "README.md").read_text()
    own = tmp_path / "own.yaml"
    own.write_text(find_recipe("ptb-characters").read_text())
    run = seqwise.train(book, out=tmp_path / "own", recipe=own, settings=settings, network=network).run
    assert f"  recipe: {own}\n" in (tmp_path / "own/config.yaml").read_text()
    call = run.metadata.command
    assert call.startswith(f"seqwise.train({str(book)!r}, recipe={str(own)!r}, settings={{")
    assert call.endswith("})  # in Python")
    overrides = ast.literal_eval(call[call.index("{") : call.rindex("}") + 1])
    assert (overrides["network.width"], overrides["network.depth"], overrides["network.embedding"]) == (12, 2, 8)
    assert "network.dropout" not in overrides
    assert run.metadata.overrides == tuple(sorted(overrides.keys() - {"device"}))
    again = seqwise.train(book, recipe=own, settings=overrides, out=tmp_path / "again").run
    assert again.settings == run.settings
    run.change_budget("2k-tokens", "seqwise train --resume own --budget 2k-tokens")
    assert Run.open(tmp_path / "own").metadata == run.metadata
    card = build_model_card(run, get_task("language"), "", TrainerState(step=1))
    assert f"{call}\nseqwise train --resume own --budget 2k-tokens\n" in card
    assert f"- recipe: `{own}`, with other values of `budget`, `data.window`, `network.depth`, " in card
    with pytest.raises(UsageError, match="recipe: expected the name or the file of a recipe"):
        seqwise.train(book, recipe=3)
    with pytest.raises(UsageError, match="Perhaps you meant 'sst2'"):
        seqwise.train(book, recipe="sst3")
    with pytest.raises(UsageError, match="so a recipe has no effect beside them"):
        seqwise.train(book, recipe="ptb-characters", settings=run.settings)


def test_settings_as_an_object_override_a_recipe_as_a_dictionary_does(book, tmp_path):
    sizes = {"network": {"width": 12, "depth": 2, "embedding": 8}, "recurrent": {"last_width": 8}}
    values = {key: value for key, value in SMALL.items() if key != "network"} | sizes
    as_object = parse_settings(values)
    as_object.network.tie_weights = True  # the value of the recipe, and the default
    runs = [
        seqwise.train(book, out=tmp_path / name, recipe="ptb-characters", settings=settings, seed=3).run
        for name, settings in (("dictionary", values), ("object", as_object))
    ]
    assert runs[0].settings == runs[1].settings
    assert runs[0].metadata == runs[1].metadata
    assert "seed" not in runs[0].metadata.overrides
    assert "'seed': 3" in runs[0].metadata.command
    assert runs[0].settings.recurrent.weight_dropout == read_recipe("ptb-characters").settings.recurrent.weight_dropout


def test_the_card_has_the_call_from_python(trained_model, book):
    call = trained_model.run.metadata.command
    assert call.startswith(f"seqwise.train({str(book)!r}, settings={{'model': 'gru', 'budget': '1k-tokens', ")
    assert f"\n{call}\n" in (trained_model.run.folder / "README.md").read_text()


def test_a_recipe_for_a_gpu_warns_on_a_cpu(book, tmp_path):
    recipe, name = read_recipe("ptb-characters"), "ptb-characters"
    warning = describe_gpu(name, recipe, str(recipe.settings.budget))
    assert re.fullmatch(
        r"this recipe was measured on a GPU, where training took \d+\.\d minutes on NVIDIA .*\.", warning
    )
    assert describe_gpu(name, recipe, "2-epochs") == describe_gpu(name, recipe, "60s") == ""
    changed = recipe.model_copy(update={"settings": Settings(budget=recipe.settings.budget)})
    assert describe_gpu(name, changed, str(recipe.settings.budget)) == ""
    sst2 = read_recipe("sst2")
    assert describe_gpu("sst2", sst2, str(sst2.settings.budget)) == "", "it was measured on a CPU"
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "own.json").write_text("[1, 2]")
    own = tmp_path / "own.yaml"
    own.write_text(find_recipe(name).read_text())
    assert describe_gpu(str(own), read_recipe(str(own)), str(recipe.settings.budget)) == ""


def test_an_error_about_a_setting_of_a_recipe_names_the_recipe(book, tmp_path):
    own = tmp_path / "own.yaml"
    text = find_recipe("ptb-characters").read_text()
    own.write_text(text.replace("\n  training:", "\n  transformer: {heads: 7}\n  training:"))
    assert own.read_text() != text
    for options in ({"model": "transformer", "recurrent": {"last_width": None}}, {}):
        with pytest.raises(UsageError) as excinfo:
            seqwise.train(book, out=tmp_path / "run", recipe=own, **options)
        assert f"The recipe {own} sets " in excinfo.value.fix
        assert f'from a copy of {own}, and pass recipe="COPY.yaml"' in excinfo.value.fix
        assert "--" not in excinfo.value.fix
    assert "transformer.heads" in excinfo.value.fix
    own.write_text(text.replace("metric: bits_per_character", "metric: bits"))
    with pytest.raises(UsageError, match="metric: expected a metric of the task language"):
        seqwise.train(book, out=tmp_path / "run", recipe=own)
    with pytest.raises(UsageError) as excinfo:
        seqwise.train(book, out=tmp_path / "run", recipe="ptb-characters", transformer={"heads": 7})
    assert "The recipe" not in str(excinfo.value), "it does not set that"
    assert not (tmp_path / "run").exists()


def test_the_settings_argument_is_not_modified(book, tmp_path):
    settings = Settings(model="ngram")
    seqwise.train(book, out=tmp_path / "run", settings=settings)
    assert settings == Settings(model="ngram")


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"modle": "gru"}, "modle: no such setting. Perhaps you meant 'model'."),
        ({"network": {"widht": 3}}, "network.widht: no such setting. Perhaps you meant 'width'."),
        ({"model": "grru"}, "model: "),
        ({"budget": "soon"}, "the budget 'soon' is not understood."),
    ],
)
def test_an_invalid_keyword_is_named_before_anything_is_read(tmp_path, wrong, expected):
    with pytest.raises(UsageError) as excinfo:
        seqwise.train(tmp_path / "not there.txt", **wrong)
    assert str(excinfo.value).startswith(expected)


def test_an_unknown_device_or_run_is_an_error(trained_model):
    with pytest.raises(UsageError, match="there is no device 'gpu'"):
        seqwise.load(trained_model.run.folder, device="gpu")
    with pytest.raises(RunError, match="is not a run"):
        seqwise.load(trained_model.run.folder.parent / "b")


def test_a_prediction_is_streamed_token_by_token(trained_model):
    pieces = list(trained_model.predict("the old", sampling=SamplingOptions(temperature=0.5), max_length=25))
    assert len(pieces) == 25
    assert all(pieces)


def test_evaluation_scores_the_test_split_of_training_data_and_all_of_other_data(trained_model, book, tmp_path):
    other_file = tmp_path / "other.txt"
    other_file.write_text("the old gate forgets a word.\n" * 40)
    assert trained_model.evaluate(book).data == f"{book}, the test split"
    assert trained_model.evaluate(other_file).data == f"{other_file}, all of it"
    assert trained_model.evaluate(other_file).metrics["tokens"] == len(other_file.read_text()) - 1
    assert trained_model.evaluate(other_file, split="valid").data == f"{other_file}, the valid split"
    with pytest.raises(UsageError, match=r"there is no split 'vlaid'\.\nPerhaps you meant 'valid'\."):
        trained_model.evaluate(book, split="vlaid")


def test_sampling_options_are_keywords_of_predict(trained_model):
    expected = "".join(
        trained_model.predict(
            "the", options=InferenceOptions(sampling=SamplingOptions(temperature=0.5, top_k=3)), seed=2, max_length=30
        )
    )
    assert "".join(trained_model.predict("the", temperature=0.5, top_k=3, seed=2, max_length=30)) == expected
    combined = trained_model.predict(
        "the", options=InferenceOptions(sampling=SamplingOptions(temperature=0.5)), top_k=3, seed=2, max_length=30
    )
    assert "".join(combined) == expected
    with pytest.raises(UsageError, match=r"there is no option 'topk'\.\nPerhaps you meant 'top_k"):
        trained_model.predict("the", topk=3)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("full", "full softmax over"),
        ("adaptive", "adaptive softmax over"),
        ("sampled", "evaluation uses the full softmax over"),
        ("mixture", "mixture of 2 softmaxes over"),
    ],
)
def test_an_evaluation_says_which_softmax_it_used(book, tmp_path, output, expected):
    network = {"width": 16, "depth": 1, "output": output} | ({"samples": 4} if output == "sampled" else {})
    settings = SMALL | {"network": network, "budget": "100-tokens", "text": {"tokenizer": "characters"}}
    assert expected in seqwise.train(book, out=tmp_path / "run", settings=settings).evaluate(book).method


def test_a_text_is_read_once_for_its_evaluation(trained_model, book, tmp_path, monkeypatch):
    other_file = tmp_path / "other.txt"
    other_file.write_text("the old gate forgets a word.\n" * 40)
    names = []
    original = TextFile.summarize
    monkeypatch.setattr(TextFile, "summarize", lambda self, *rest: names.append(self.name) or original(self, *rest))
    assert trained_model.evaluate(other_file).metrics["tokens"] == len(other_file.read_text()) - 1
    assert names == [str(other_file)]


def test_a_run_is_resumed_from_python(book, tmp_path):
    def interrupt(step):
        if step.number == 3:
            signal.raise_signal(signal.SIGINT)

    folders = tmp_path / "whole", tmp_path / "interrupted"
    ends: list[str] = []
    for folder, on_step in zip(folders, (lambda step: None, interrupt), strict=True):
        messages: list[str] = []
        model = seqwise.train(book, model="gru", out=folder, settings=SMALL, on_step=on_step, log=messages.append)
        ends.append(messages[-1])
    assert ends[0] == f"done: the budget is spent. Saved in {folders[0]}"
    assert ends[1] == f"stopped and saved. Resume with: seqwise.train(resume={str(folders[1])!r})"
    assert repr(model).endswith("; the training is not complete>")
    steps: list[int] = []
    model = seqwise.train(resume=folders[1], on_step=lambda step: steps.append(step.number))
    assert 3 < steps[0] < 16
    weights, expected_weights = (Run.open(folder).read_weights() for folder in folders)
    assert all(torch.equal(expected_weights[name], tensor) for name, tensor in weights.items())
    assert model.run.metadata.command == Run.open(folders[0]).metadata.command

    messages.clear()
    seqwise.train(resume=folders[1], on_step=lambda step: steps.append(step.number), log=messages.append)
    assert messages[-1] == "this run is already complete: the budget is spent."
    assert "not complete" not in repr(model)
    last = steps[-1]
    run = seqwise.train(resume=str(folders[1]), budget="2k-tokens", on_step=lambda step: steps.append(step.number)).run
    assert steps[-1] > last
    assert run.settings.budget == Run.open(folders[1]).settings.budget == "2k-tokens"
    command = run.metadata.command
    assert command.splitlines()[-1] == f"seqwise.train(resume={str(folders[1])!r}, budget='2k-tokens')  # in Python"
    again = seqwise.train(resume=folders[1], budget="2000-tokens", seed=0, settings={"data.max_text_mb": 5}).run
    assert again.metadata.command == Run.open(folders[1]).metadata.command == command  # the same budget and seed


def test_a_run_on_data_in_memory_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    texts = ["the cat sat on the mat", "the dog sat on the rug"] * 50
    seqwise.train(texts, out=tmp_path / "run", settings=SMALL)
    assert seqwise.train(resume=tmp_path / "run", budget="2k-tokens").run.settings.budget == "2k-tokens"
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(SeqwiseError) as caught:
        seqwise.train(resume=tmp_path / "run", budget="3k-tokens")
    assert str(caught.value).startswith("the data: ")
    assert Run.open(tmp_path / "run").settings.budget == "2k-tokens"


def test_a_run_with_a_model_of_ones_own_is_resumed(book, tmp_path, monkeypatch):
    monkeypatch.setenv(families.FAMILY_FILES, "")
    try:
        seqwise.train(book, model=Convolution, out=tmp_path / "run", settings=SMALL)
        families.MODEL_FAMILIES.pop("Convolution")  # as in another process
        monkeypatch.setenv(families.FAMILY_FILES, "")
        with pytest.raises(SeqwiseError, match="Convolution"):
            seqwise.train(resume=tmp_path / "run")
        model = seqwise.train(resume=tmp_path / "run", model=Convolution, budget="2k-tokens")
        assert model.settings.budget == "2k-tokens"
    finally:
        families.MODEL_FAMILIES.pop("Convolution", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "ptb-lstm"}, "the recipe ptb-lstm is for $SEQWISE_DATA/ptb"),
        ({"resume": "RUN", "model": "lstm"}, "model 'lstm' differs from 'gru'."),
        (
            {"resume": "RUN", "seed": 2, "network": {"width": 8}},
            "Leave out network.width and seed, or start a new run.",
        ),
        ({"resume": "RUN", "data": ["a text"], "recipe": "sst2"}, "Leave out data and recipe."),
        ({"resume": "RUN", "budget": "soon"}, "the budget 'soon' is not understood"),
        ({"resume": "RUN", "budget": 5}, "budget: expected a text with a unit"),
        ({"resume": "RUN", "budget": "500-tokens"}, "budget: this run has already used 500 tokens or more"),
        ({"resume": "RUN", "modle": "gru"}, "modle: no such setting. Perhaps you meant 'model'."),
        ({"resume": "nowhere"}, "nowhere is not a run"),
    ],
)
def test_what_cannot_be_resumed_from_python(trained_model, arguments, message):
    config = (trained_model.run.folder / "config.yaml").read_bytes()
    if arguments.get("resume") == "RUN":
        arguments = {**arguments, "resume": trained_model.run.folder}
    with pytest.raises(SeqwiseError) as caught:
        seqwise.train(**arguments)
    assert message in str(caught.value)
    assert (trained_model.run.folder / "config.yaml").read_bytes() == config


def test_an_ngram_model_is_resumed_only_without_a_budget(book, tmp_path):
    seqwise.train(book, model="ngram", out=tmp_path / "run")
    assert seqwise.train(resume=tmp_path / "run").settings.model == "ngram"
    with pytest.raises(UsageError) as caught:
        seqwise.train(resume=tmp_path / "run", budget="2-epochs")
    assert "Leave out budget" in str(caught.value)
