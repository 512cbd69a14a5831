"""`--vectors FILE`: which embedding rows are initialised from the file, which are frozen, and what is logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import seqwise
from seqwise.cli.main import main
from seqwise.config import parse_settings
from seqwise.errors import RunError, UsageError
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.create import create_run
from seqwise.training.run import Run
from seqwise.training.training_run import open_training
from seqwise.training.word_vectors import INITIAL_NORM, WordVectors
from seqwise.vectors.keyed import KeyedVectors, Subwords

DIM = 6
KNOWN = ["the", "a", "small", "old", "model", "reads", "word", "der", "alte", "red"]
SMALL: dict[str, Any] = {
    "budget": "600-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 1},
    "training": {"batch_size": 4, "validate_every": 1000},
}


@pytest.fixture(scope="module")
def keyed() -> KeyedVectors:
    rows = np.random.default_rng(0).normal(3.0, 2.0, (len(KNOWN), DIM)).astype(np.float32)
    return KeyedVectors(KNOWN, rows)


@pytest.fixture(scope="module")
def file(keyed: KeyedVectors, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("vectors") / "words.vec"
    lines = [" ".join([word, *map(str, row)]) for word, row in zip(keyed.words, keyed.matrix.tolist())]
    path.write_text(f"{len(keyed)} {DIM}\n" + "\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def data(book: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small data of each task that reads words."""
    folder = tmp_path_factory.mktemp("data")
    rows = [f"The {'old' if n % 2 else 'small'} model reads {n % 7}.,{n % 2}" for n in range(60)]
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (folder / "rows.conll").write_text("The O\nold B-X\nmodel O\nreads O\n\nevery O\nsmall B-X\nword O\n\n" * 20)
    pairs = [f"The old word {n % 9}\tder alte Wort {n % 9}" for n in range(60)]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "\n".join(pairs) + "\n")
    lines = []
    for number in range(40):
        red = number % 2
        Image.new("RGB", (16, 16), (255, 0, 0) if red else (0, 0, 255)).save(folder / f"{number}.png")
        lines.append(f"{number}.png,a small {'red' if red else 'blue'} picture")
    (folder / "captions.csv").write_text("image,caption\n" + "\n".join(lines) + "\n")
    texts = dict.fromkeys(("language", "masked"), str(book))
    return texts | {
        "classify": str(folder / "rows.csv"),
        "tag": str(folder / "rows.conll"),
        "translate": str(folder / "pairs.tsv"),
        "caption": str(folder / "captions.csv"),
    }


def start_run(source: str, out: Path, **values: Any) -> tuple[Run, Any, Any, list[str]]:
    """Creates a run without training it; returns the run, its training, its task and the log messages."""
    messages: list[str] = []
    values = SMALL | values | {"network": SMALL["network"] | values.get("network", {})}
    run, task = create_run(source, parse_settings(values), out, log=messages.append)
    return run, open_training(run, task=task, log=messages.append), task, messages


def find_ids_with_vectors(tokenizer: Tokenizer) -> dict[int, str]:
    """Returns the token ids that have a vector, each with its word."""
    words = {number: tokenizer.token(number) for number in range(len(tokenizer))}
    return {number: lowercased for number, word in words.items() if (lowercased := word.lower()) in KNOWN}


CASES = [
    ("language", "lstm"),
    ("language", "transformer"),
    ("language", "feedforward"),
    ("masked", "gru"),
    ("masked", "transformer"),
    ("classify", "lstm"),
    ("classify", "transformer"),
    ("tag", "attentive-rnn"),
    ("tag", "feedforward"),
    ("translate", "gru"),
    ("translate", "transformer"),
    ("translate", "attentive-rnn"),
    ("caption", "lstm"),
    ("caption", "transformer"),
]


@pytest.mark.parametrize(("task", "model"), CASES)
def test_known_words_are_initialised_from_the_file_and_others_randomly(
    task: str, model: str, data: dict[str, str], keyed: KeyedVectors, file: str, tmp_path: Path
):
    """The embedding is not as wide as the network; the model trains nevertheless."""
    run, training_run, prepared_task, messages = start_run(
        data[task], tmp_path / "run", task=task, model=model, vectors=file
    )
    assert run.settings.network.embedding == DIM
    assert run.settings.text.tokenizer in ("words", "spaces")
    without_vectors = start_run(data[task], tmp_path / "plain", task=task, model=model, network={"embedding": DIM},
                  text={"tokenizer": "words", "min_count": run.settings.text.min_count})[1:3]  # fmt: skip
    layers, random_layers = (
        prepared_task.embeddings(training_run.model),
        without_vectors[1].embeddings(without_vectors[0].model),
    )
    assert len(layers) == (2 if task == "translate" else 1)
    for name, layer in layers.items():
        matches = find_ids_with_vectors(run.preprocessor.tokenizers[name])
        assert matches
        rows = np.stack([keyed[word] for word in matches.values()])
        random_rows = random_layers[name].weight.detach()
        factor = INITIAL_NORM / float(np.sqrt((rows**2).sum(1).mean()))
        torch.testing.assert_close(layer.weight.detach()[list(matches)], torch.from_numpy(rows * factor))
        others = [number for number in range(layer.vocabulary) if number not in matches]
        assert torch.equal(layer.weight.detach()[others], random_rows[others])
    assert sum("vocabulary words" in each for each in messages) == len(layers)
    assert any("network.embedding 6" in each for each in messages)
    assert sum(1 for _ in training_run.steps()) > 1
    assert seqwise.load(run.folder).model is not None


@pytest.mark.parametrize(
    ("values", "adds_positions"),
    [
        ({"model": "gru"}, False),
        ({"model": "transformer"}, False),
        ({"model": "transformer", "transformer": {"positions": "sinusoidal"}}, True),
        ({"model": "transformer", "transformer": {"positions": "learned"}}, True),
    ],
)
def test_rows_with_added_positions_have_the_norm_of_random_rows(
    values: dict, adds_positions: bool, data: dict[str, str], file: str, tmp_path: Path
):
    run, training_run, _, _ = start_run(data["language"], tmp_path / "run", task="language", vectors=file, **values)
    weight, matches = (
        training_run.model.embedding.weight.detach(),
        list(find_ids_with_vectors(run.preprocessor.tokenizer)),
    )
    others = [number for number in range(len(weight)) if number not in matches]
    norms = [float(weight[ids].square().sum(1).mean().sqrt()) for ids in (matches, others)]
    assert norms[0] == pytest.approx(norms[1], rel=0.3) if adds_positions else norms[0] == pytest.approx(INITIAL_NORM)


# Frozen rows


def split_rows(run: Run, name: str = "embedding.weight") -> tuple[torch.Tensor, list[int], list[int]]:
    """Returns the matrix of the run, the ids with a vector, and the others."""
    matches = find_ids_with_vectors(run.preprocessor.tokenizer)
    return (
        run.read_weights()[name],
        list(matches),
        [n for n in range(len(run.preprocessor.tokenizer)) if n not in matches],
    )


OPTIMISERS = [
    {"optimizer": "adamw", "weight_decay": 0.5, "ema": 0.9, "learning_rate": 0.05},
    {"optimizer": "adamw", "weight_decay": 0.5, "learning_rate": 0.05, "clip": "value"},
    {"optimizer": "sgd", "weight_decay": 0.1, "learning_rate": 0.5},
    {"optimizer": "asgd", "weight_decay": 0.1, "learning_rate": 20.0, "schedule": "constant", "validate_every": 2},
]


@pytest.mark.parametrize("training", OPTIMISERS, ids=lambda each: f"{each['optimizer']}-{each.get('ema', 0)}")
def test_frozen_rows_do_not_change_in_training(training: dict, data: dict[str, str], file: str, tmp_path: Path):
    """In a language model the matrix is also the output: its rows would get a gradient at every step."""
    run, training_run, _, _ = start_run(
        data["language"], tmp_path / "run", model="gru", vectors=file, budget="3k-tokens",
        network={"freeze_embedding": True},
        data={"window": 16}, training={"batch_size": 4, "validate_every": 10, **training},
    )  # fmt: skip
    before = training_run.model.embedding.weight.detach().clone()
    notes = [note for step in training_run.steps() for note in step.notes]
    assert any("weights are averaged" in note for note in notes) is (training["optimizer"] == "asgd")
    weight, matches, others = split_rows(run)
    assert torch.equal(weight[matches], before[matches])
    assert not torch.equal(weight[others], before[others])
    assert torch.equal(training_run.model.embedding.weight.detach()[matches], before[matches])


def test_without_freezing_all_rows_are_trained(data: dict[str, str], file: str, tmp_path: Path):
    run, training_run, _, _ = start_run(data["language"], tmp_path / "run", model="gru", vectors=file)
    before = training_run.model.embedding.weight.detach().clone()
    list(training_run.steps())
    weight, matches, _ = split_rows(run)
    assert (weight[matches] != before[matches]).any(dim=1).all()


@pytest.mark.parametrize(("task", "layer"), [("translate", "decoders.0.embedding.weight"), ("tag", "embedding.weight")])
def test_every_vocabulary_of_a_task_is_frozen(task: str, layer: str, data, file: str, tmp_path: Path):
    run, training_run, prepared_task, _ = start_run(
        data[task], tmp_path / "run", task=task, model="gru", vectors=file, network={"freeze_embedding": True}
    )
    name = "target" if task == "translate" else "text"
    matches = list(find_ids_with_vectors(run.preprocessor.tokenizers[name]))
    before = prepared_task.embeddings(training_run.model)[name].weight.detach()[matches].clone()
    list(training_run.steps())
    assert torch.equal(run.read_weights()[layer][matches], before)


def test_a_run_resumes_without_the_file_and_its_rows_stay_frozen(data, file: str, tmp_path: Path):
    copy = tmp_path / "copy.vec"
    copy.write_bytes(Path(file).read_bytes())
    uninterrupted = start_run(
        data["classify"], tmp_path / "whole", task="classify", vectors=str(copy), network={"freeze_embedding": True}
    )
    list(uninterrupted[1].steps())
    run, training_run, _, _ = start_run(
        data["classify"], tmp_path / "run", task="classify", vectors=str(copy), network={"freeze_embedding": True}
    )
    before = training_run.model.embedding.weight.detach().clone()
    copy.unlink()
    for step in training_run.steps(lambda: True):  # stop and save after the first step
        assert step.number == 1
    list(open_training(Run.open(run.folder)).steps())
    weight, matches, others = split_rows(run)
    assert torch.equal(weight[matches], before[matches])
    assert not torch.equal(weight[others], before[others])
    expected = uninterrupted[0].read_weights()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in run.read_weights().items())


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_the_same_rows(data, file: str, tmp_path: Path):
    copy = tmp_path / "copy.vec"
    copy.write_bytes(Path(file).read_bytes())
    run, training_run, _, _ = start_run(data["classify"], tmp_path / "run", task="classify", vectors=str(copy))
    copy.unlink()
    resumed_model = open_training(Run.open(run.folder)).model  # type: ignore[union-attr]
    assert torch.equal(resumed_model.embedding.weight, training_run.model.embedding.weight)
    (run.folder / "start.safetensors").unlink()
    with pytest.raises(RunError, match="the initial token vectors cannot be read"):
        open_training(Run.open(run.folder))


def test_the_run_records_its_vectors_and_predicts_without_the_file(data, file: str, tmp_path: Path):
    copy = tmp_path / "copy.vec"
    copy.write_bytes(Path(file).read_bytes())
    trained_model = seqwise.train(
        data["classify"], out=tmp_path / "run", settings=SMALL, task="classify", vectors=str(copy)
    )
    copy.unlink()
    about = trained_model.run.preprocessor.attributes["vectors"]
    assert len(about["fingerprint"]) == 32
    card = (tmp_path / "run/README.md").read_text()
    assert f"- word vectors: `{copy}` (fingerprint `{about['fingerprint']}`): 5 of 13 vocabulary words" in card
    assert "trained further" in card
    assert f"vectors: {copy}" in (tmp_path / "run/config.yaml").read_text()
    assert seqwise.load(tmp_path / "run").predict("the old model").values["label"] in ("0", "1")


def test_a_classifier_with_trainable_vectors_has_a_smaller_learning_rate(data, file: str, tmp_path: Path):
    rates = [
        start_run(
            data["classify"],
            tmp_path / str(frozen),
            task="classify",
            vectors=file,
            network={"freeze_embedding": frozen},
        )[0]
        for frozen in (False, True)
    ]
    assert [run.settings.training.learning_rate for run in rates] == [3e-3, 1e-2]


# Which words are found


def make_word_vectors(keyed: KeyedVectors) -> WordVectors:
    return WordVectors("words.vec", keyed, "0" * 32)


def test_a_token_is_looked_up_as_it_is_and_then_in_lower_case():
    keyed = KeyedVectors(["Old", "old", "the"], np.array([[1.0, 0], [2, 0], [3, 0]]))
    tokenizer = Tokenizer.train("words", ["Old old OLD The <unk>\n"])
    matches = make_word_vectors(keyed).match_vocabulary(tokenizer)
    values_by_token = {tokenizer.token(number): float(row[0]) for number, row in zip(matches.ids, matches.vectors)}
    assert values_by_token == {"Old": 1, "old": 2, "OLD": 2, "The": 3}
    assert (matches.num_words, matches.num_composed, matches.token_coverage) == (4, 0, None)


def test_only_bpe_tokens_that_begin_a_word_have_a_vector():
    keyed = KeyedVectors(["king", "the", "making", "été", "ing"], np.arange(10.0).reshape(5, 2))
    tokenizer = Tokenizer.train("bpe", ["is making the king été is making the king été\n"] * 50, size=310)
    matches = make_word_vectors(keyed).match_vocabulary(tokenizer)
    values_by_token = {tokenizer.decode([number]): float(row[0]) for number, row in zip(matches.ids, matches.vectors)}
    assert tokenizer.id("king") > 0
    assert values_by_token == {" king": 0, " the": 2, " making": 4, " été": 6}


def test_wordpiece_continuations_have_no_vector():
    tokenizer = Tokenizer.train("wordpiece", ["the king is making the taking of baking\n"] * 50, size=40)
    continuations = [token for token in tokenizer.tokens(range(len(tokenizer))) if token.startswith("##")]
    keyed = KeyedVectors(["king", "the", *continuations], np.ones((len(continuations) + 2, 2)))
    matches = make_word_vectors(keyed).match_vocabulary(tokenizer)
    assert continuations
    assert sorted(tokenizer.token(number) for number in matches.ids) == ["king", "the"]


def test_special_tokens_keep_their_random_rows():
    keyed = KeyedVectors(["<unk>", "<eos>", "<pad>", "a"], np.ones((4, 2)))
    tokenizer = Tokenizer.train("words", ["a b\nb a\n"], specials=("<pad>",))
    assert [tokenizer.token(number) for number in make_word_vectors(keyed).match_vocabulary(tokenizer).ids] == ["a"]


def test_the_share_of_the_training_tokens_counts_unknown_words_but_no_ends_of_lines():
    keyed = KeyedVectors(["a"], np.ones((1, 2)))
    tokenizer = Tokenizer.train("words", ["a a a a a b b c\n"], min_count=2)
    counts = torch.zeros(len(tokenizer), dtype=torch.int64)
    for token, count in (("a", 5), ("b", 2), ("<unk>", 1), ("<eos>", 1)):
        counts[tokenizer.id(token)] = count
    matches = make_word_vectors(keyed).match_vocabulary(tokenizer, counts)
    assert matches.token_coverage == 5 / 8
    assert str(matches) == "1 of 2 vocabulary words (50.0%), 62.5% of the training tokens"


def test_vectors_of_n_grams_give_one_to_every_word():
    parts = Subwords(3, 4, np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32))
    keyed = KeyedVectors(["old"], np.ones((1, 2)), subwords=parts)
    tokenizer = Tokenizer.train("words", ["old older a\n"])
    matches = make_word_vectors(keyed).match_vocabulary(tokenizer)
    values_by_token = {tokenizer.token(number): row for number, row in zip(matches.ids, matches.vectors)}
    assert set(values_by_token) == {"old", "older", "a"}
    np.testing.assert_array_equal(values_by_token["older"], keyed.vector("older"))
    assert matches.num_composed == 2
    assert "2 of them from their n-grams" in str(matches)


def test_characters_have_no_vectors_although_some_are_words(data, file: str, tmp_path: Path):
    with pytest.raises(UsageError, match="no token of the vocabulary is a word of the file"):
        start_run(data["language"], tmp_path / "run", vectors=file, text={"tokenizer": "characters"})


def test_text_that_is_already_tokenised_is_left_as_it_is(file: str, tmp_path: Path):
    (tmp_path / "text.txt").write_text("the old <unk> reads a word\n" * 400)
    run, _, _, messages = start_run(str(tmp_path / "text.txt"), tmp_path / "run", task="language", vectors=file)
    assert run.settings.text.tokenizer == "spaces"
    assert not any(each.startswith("note") for each in messages)


def test_a_file_without_matching_words_raises_an_error(data, tmp_path: Path):
    (tmp_path / "other.vec").write_text("2 2\nun 1 2\ndeux 3 4\n")
    with pytest.raises(UsageError, match="no token of the vocabulary is a word of the file"):
        start_run(data["language"], tmp_path / "run", vectors=str(tmp_path / "other.vec"))
    assert not (tmp_path / "run").exists()


# More words than the training split has


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_words_of_the_file_extend_the_vocabulary(task: str, data, keyed: KeyedVectors, file: str, tmp_path: Path):
    """`alte` and `red` occur in no training text; a word of two tokens could never be read and is not added."""
    run, training_run, _, messages = start_run(
        data[task], tmp_path / "run", task=task, vectors=file, text={"extend_vocabulary": len(KNOWN)}
    )
    tokenizer = run.preprocessor.tokenizer
    for word in ("alte", "red"):
        number = tokenizer.id(word)
        assert number != tokenizer.unknown
        ratio = training_run.model.embedding.weight.detach()[number] / torch.from_numpy(keyed[word].copy())
        torch.testing.assert_close(ratio, ratio[:1].expand(DIM))
    assert len(tokenizer) == run.settings.text.vocabulary
    list(training_run.steps())
    seqwise.load(run.folder).predict("red alte")
    # Both training splits have `old`, `small`, `model` and `reads`; that of tagging also `the` and `word`.
    num_added = {"classify": 6, "tag": 4}[task]
    card = (run.folder / "README.md").read_text()
    assert f"learned from the training split, with {num_added} words of the word vectors" in card
    assert f"{file}: {num_added} of its words were added to the vocabulary" in messages


def test_a_vocabulary_that_cannot_be_extended_is_reported(data, file: str, tmp_path: Path):
    values = {"task": "tag", "vectors": file, "text": {"extend_vocabulary": 1}}  # `the` is there already
    run, training_run, _, messages = start_run(data["tag"], tmp_path / "run", **values)
    assert any(each.startswith("note: --text.extend-vocabulary: no words were added") for each in messages)
    list(training_run.steps())
    assert "of the word vectors\n" not in (run.folder / "README.md").read_text()


def test_a_classifier_with_vectors_reads_words_even_where_there_are_hardly_any_blanks(file: str, tmp_path: Path):
    rows = [f"old,{'small' * 6}model-{n % 3},{n % 2}" for n in range(60)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(f'"{row[:-2]}",{row[-1]}' for row in rows) + "\n")
    values: dict[str, Any] = {"task": "classify", "vectors": file}
    run, _, _, messages = start_run(str(tmp_path / "rows.csv"), tmp_path / "run", **values)
    assert run.settings.text.tokenizer == "words"
    assert "tokeniser: words, because --vectors has vectors of words." in messages
    without_vectors = start_run(str(tmp_path / "rows.csv"), tmp_path / "plain", task="classify")[0]
    assert without_vectors.settings.text.tokenizer == "characters"


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_rows_of_any_scale_are_scaled_to_the_same_norm(scale: float, data, keyed: KeyedVectors, tmp_path: Path):
    KeyedVectors(KNOWN, keyed.matrix * np.float32(scale)).save(tmp_path / "v.safetensors")
    values = {"task": "classify", "vectors": str(tmp_path / "v.safetensors")}
    run, training_run, _, _ = start_run(data["classify"], tmp_path / "run", **values)
    rows = training_run.model.embedding.weight.detach()[list(find_ids_with_vectors(run.preprocessor.tokenizer))]
    assert float(rows.square().sum(1).mean().sqrt()) == pytest.approx(INITIAL_NORM, rel=1e-5)


def test_only_single_token_words_extend_the_vocabulary():
    extra_words = ["b", "new", "New York", "don't", "x-ray", "b", "Big"]
    case_sensitive = Tokenizer.train("words", ["a b a"], extra_words=extra_words)
    assert [case_sensitive.token(number) for number in range(len(case_sensitive))] == [
        "a",
        "b",
        "<unk>",
        "new",
        "x-ray",
        "Big",
    ]
    lowercased = Tokenizer.train("words", ["a b a"], lowercase=True, extra_words=extra_words)
    assert [lowercased.token(number) for number in range(len(lowercased))] == ["a", "b", "<unk>", "new", "x-ray"]
    assert len(Tokenizer.train("characters", ["a b a"], extra_words=extra_words)) == len(
        Tokenizer.train("characters", ["ab "])
    )


# Errors


@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"vectors": "f.vec", "init": "runs/a"}, "--init and --vectors both initialise"),
        ({"vectors": "f.vec", "task": "forecast"}, "the task forecast reads numbers"),
        ({"vectors": "f.vec", "text": {"extend_vocabulary": 5}}, "--text.extend-vocabulary is for classify and tag"),
        (
            {"vectors": "f.vec", "task": "classify", "text": {"extend_vocabulary": 5, "tokenizer": "bpe"}},
            "--text.extend-vocabulary adds words, but bpe tokens are not words",
        ),
        ({"network": {"freeze_embedding": True}}, "--network.freeze-embedding needs word vectors"),
        ({"text": {"extend_vocabulary": 5}}, "--text.extend-vocabulary needs word vectors"),
    ],
)
def test_unsupported_settings_raise_an_error_before_reading(values: dict, fragment: str, tmp_path: Path):
    with pytest.raises(UsageError, match=fragment):
        start_run("missing.txt", tmp_path / "run", **{"task": "language", **values})


def test_an_ngram_model_has_no_token_vectors(tmp_path: Path):
    with pytest.raises(UsageError, match="the family ngram has no token vectors"):
        create_run("missing.txt", parse_settings({"model": "ngram", "task": "language", "vectors": "f.vec"}), tmp_path)


def test_a_different_embedding_width_raises_an_error(data, file: str, tmp_path: Path):
    with pytest.raises(UsageError, match=r"have 6 numbers each, but --network\.embedding is 7"):
        start_run(data["language"], tmp_path / "run", vectors=file, network={"embedding": 7})
    run = start_run(data["language"], tmp_path / "run", vectors=file, network={"embedding": DIM})[0]
    assert run.settings.network.embedding == DIM


def test_the_command_line_reports_the_coverage(data, file: str, tmp_path: Path, capsys):
    arguments = ["train", data["classify"], "--task", "classify", "--vectors", file, "--network.freeze-embedding"]
    assert main([*arguments, "--budget", "200-tokens", "--network.width", "8", "--out", str(tmp_path / "run")]) == 0
    messages = capsys.readouterr().err
    assert f"{file}: 5 of 13 vocabulary words (38.5%), 66.7% of the training tokens" in messages.replace("\n", "")
    assert main(["train", data["classify"], "--vectors", "missing.vec", "--out", str(tmp_path / "other")]) == 2
    assert "missing.vec" in capsys.readouterr().err
