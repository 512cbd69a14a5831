"""From a text file to vectors: every method learns which words occur together, is reproducible, and can be stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import seqwise
from seqwise.cli.main import main
from seqwise.errors import DataError, MemoryLimitError, NonFiniteError, UsageError
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.training import VectorTraining, train_vectors

# Words of a group occur together, and never with those of another group.
GROUPS = [["red", "green", "blue", "pink"], ["one", "two", "three", "four"], ["cat", "dog", "cow", "hen"]]
METHODS = [
    {"method": "skipgram"},
    {"method": "cbow"},
    {"method": "cbow", "update": "gensim", "learning_rate": 0.1},
    {"method": "skipgram", "loss": "softmax"},
    {"method": "cbow", "loss": "softmax"},
    {"method": "skipgram", "loss": "hierarchical"},
    {"method": "cbow", "loss": "hierarchical"},
    {"method": "skipgram", "subwords": True, "buckets": 500},
    {"method": "cbow", "subwords": True, "buckets": 500},
    {"method": "glove", "window": 5},
]
SMALL = {"dim": 16, "min_count": 1, "subsample": 0, "epochs": 12, "learning_rate": 0.1, "threads": 1, "device": "cpu"}


def select(changes: dict) -> dict:
    """Returns small settings with `changes`; GloVe drops no words."""
    settings = {key: value for key, value in SMALL.items() if key != "subsample" or changes["method"] != "glove"}
    return {**settings, **changes}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    random = np.random.default_rng(0)
    lines = []
    for number in random.integers(0, len(GROUPS), 1_500):
        words = random.choice(GROUPS[number], 6)
        lines.append(" ".join([*words, f"topic{number}"]))
    path = tmp_path_factory.mktemp("groups") / "groups.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("changes", METHODS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_words_of_a_group_are_neighbours(corpus, changes):
    vectors = train_vectors(corpus, **select(changes))
    assert len(vectors) == 15
    for group in GROUPS:
        for word in group:
            nearest = [neighbour.word for neighbour in vectors.nearest(word, n=3)]
            assert set(nearest) <= {*group, "topic0", "topic1", "topic2"}, (word, nearest)
    losses = vectors.about["losses"]
    assert len(losses) == 12
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("changes", METHODS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_one_thread_and_one_seed_give_the_same_bits(corpus, changes):
    settings = {**select(changes), "epochs": 2}
    first, second = train_vectors(corpus, **settings), train_vectors(corpus, **settings)
    assert np.array_equal(first.matrix, second.matrix)
    assert first.about["losses"] == second.about["losses"]
    other_seed = train_vectors(corpus, **settings, seed=5)
    assert not np.array_equal(first.matrix, other_seed.matrix)


def test_several_threads_reach_the_loss_of_one(corpus):
    loss_of_one_thread = train_vectors(corpus, **SMALL).about["losses"][-1]
    loss_of_four_threads = train_vectors(corpus, **{**SMALL, "threads": 4}).about["losses"][-1]
    assert loss_of_four_threads == pytest.approx(
        loss_of_one_thread, rel=0.15
    )  # four threads on fifteen words lose many updates


def test_the_loss_is_the_mean_per_pair(corpus):
    """With a tiny learning rate the vectors stay near zero, where every term is log 2."""
    for negative in (1, 5, 20):
        losses = train_vectors(corpus, **{**SMALL, "learning_rate": 1e-9, "epochs": 1, "negative": negative}).about[
            "losses"
        ]
        # A negative that is the word itself is left out, one draw in fifteen or so.
        assert np.log(2) * (1 + 0.85 * negative) < losses[0] < np.log(2) * (1 + negative)
    softmax = train_vectors(corpus, **{**SMALL, "learning_rate": 1e-9, "epochs": 1, "loss": "softmax"}).about["losses"]
    assert softmax[0] == pytest.approx(np.log(15), rel=1e-3)


def test_every_epoch_is_reported_once(corpus):
    with VectorTraining(corpus, VectorSettings(**SMALL)) as training:
        steps = list(training.steps())
    assert [step.epoch for step in steps if step.is_epoch_end] == list(range(12))
    assert steps[-1].progress == 1
    assert all(step.loss is not None and step.speed > 0 for step in steps if step.is_epoch_end)


def test_vectors_trained_before_a_stop_are_returned(corpus):
    with VectorTraining(corpus, VectorSettings(**{**SMALL, "epochs": 2_000})) as training:
        for step in training.steps():
            if step.is_epoch_end and step.epoch == 2:
                break
        assert 0 < training.trainer.progress < 1
        vectors = training.export_vectors()
    assert vectors.nearest("cat", n=1)[0].word in {*GROUPS[2], "topic2"}


def test_a_diverging_learning_rate_raises_an_error(corpus):
    with pytest.raises(NonFiniteError, match="smaller --learning-rate"):
        train_vectors(corpus, **{**SMALL, "learning_rate": 1e9})


def test_a_corpus_emptied_by_subsampling_raises_an_error(tmp_path):
    (tmp_path / "tiny.txt").write_text("a b\n")
    with pytest.raises(DataError, match="--subsample 0"):
        train_vectors(tmp_path / "tiny.txt", min_count=1, subsample=1e-12, threads=1, device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"method": "glove", "loss": "softmax"},
            "--loss has an effect with --method skipgram and cbow only",
        ),
        ({"method": "glove", "subwords": True}, "--subwords"),
        ({"method": "skipgram", "update": "gensim"}, "--update has an effect with --method cbow only; it is skipgram"),
        ({"subwords": True, "loss": "softmax"}, "--loss negative"),
        ({"min_n": 5, "max_n": 3}, "--min-n 5"),
    ],
)
def test_contradictory_settings_raise_an_error(corpus, changes, message):
    with pytest.raises(UsageError, match=message):
        train_vectors(corpus, **changes)


def test_old_names_of_settings_are_accepted_with_a_warning():
    old = {"rate": 0.5, "limit": 7.0, "least": 2, "most": 4}
    with pytest.warns(FutureWarning, match="is now called"):
        settings = VectorSettings(**old)
    assert (settings.learning_rate, settings.x_max, settings.min_n, settings.max_n) == (0.5, 7.0, 2, 4)


def test_the_public_package_exports_word_vectors():
    assert seqwise.train_vectors is train_vectors
    assert seqwise.KeyedVectors.__name__ == "KeyedVectors"


# ---- the command


def build_arguments(corpus, out, *options: str) -> list[str]:
    sizes = ["--dim", "16", "--min-count", "1", "--threads", "1", "--device", "cpu"]
    sizes += [] if "glove" in options else ["--subsample", "0"]
    return ["vectors", "train", str(corpus), *sizes, "--out", str(out), *options]


def test_the_command_reports_sizes_losses_and_the_file(corpus, tmp_path, capsys):
    assert main(build_arguments(corpus, tmp_path / "v.safetensors", "--epochs", "2")) == 0
    output = capsys.readouterr()
    assert "10,500 words, 15 distinct" in output.err
    assert "skip-gram: 16 dimensions, window 5, 5 negatives, learning rate 0.025, 2 epochs, 1 thread" in output.err
    assert "epoch 2  loss" in output.err
    assert output.out.strip() == f"{tmp_path / 'v.safetensors'}: 15 vectors of dimension 16"
    vectors = seqwise.load_vectors(tmp_path / "v.safetensors")
    assert vectors.about["settings"]["epochs"] == 2
    assert vectors.counts is not None


def test_old_options_are_accepted_with_a_note(corpus, tmp_path, capsys):
    assert main(build_arguments(corpus, tmp_path / "v.bin", "--epochs", "1", "--rate", "0.05")) == 0
    messages = capsys.readouterr().err
    assert "--rate is now called --learning-rate" in messages
    assert "learning rate 0.05" in messages


def test_json_is_one_document(corpus, tmp_path, capsys):
    assert main(build_arguments(corpus, tmp_path / "v.bin", "--method", "glove", "--epochs", "2", "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["vectors"] == 15
    assert len(report["losses"]) == 2
    assert report["interrupted"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "word2vec"], "--method"),
        (["--dim", "0"], "--dim"),
        (["--learning-rat", "1"], "--learning-rate"),
        (["--loss", "softmax", "--method", "glove"], "--loss has an effect with --method skipgram and cbow only"),
    ],
)
def test_invalid_options_exit_with_status_2(corpus, tmp_path, capsys, options, message):
    assert main(build_arguments(corpus, tmp_path / "v.bin", *options)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("out", "message"), [("v.pickle", "suffix"), ("no/where.bin", "mkdir -p")])
def test_an_unwritable_output_fails_before_training(corpus, tmp_path, capsys, out, message):
    assert main(build_arguments(corpus, tmp_path / out)) == 2
    output = capsys.readouterr().err
    assert message in output
    assert "words" not in output
    assert main(["vectors", "train", str(corpus)]) == 2
    assert "--out is missing" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("method", ["skipgram", "glove"])
def test_ctrl_c_saves_the_vectors_trained_so_far(corpus, tmp_path, method):
    out = tmp_path / "v.safetensors"
    command = [sys.executable, "-m", "seqwise", *build_arguments(corpus, out, "--method", method, "--epochs", "100000")]
    # A test run in the background ignores Ctrl-C, and its child processes would too.
    accept_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=accept_interrupts)
    for line in process.stderr or ():
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGINT)
    _, output = process.communicate()
    assert process.returncode == 130
    assert "interrupted after" in output
    assert len(seqwise.load_vectors(out)) == 15


def test_ctrl_c_ends_training_between_two_steps(corpus, tmp_path, monkeypatch, capsys):
    from seqwise.cli.progress import VectorDisplay

    out, continued = tmp_path / "v.safetensors", []

    def show(display, step):
        if step.stage == "training":
            signal.raise_signal(signal.SIGINT)
            continued.append(step)  # an exception in a step could come between taking a lock and releasing it

    monkeypatch.setattr(VectorDisplay, "show", show)
    arguments = build_arguments(corpus, out, "--method", "glove", "--epochs", "1000")
    assert main(arguments) == 130
    assert len(continued) == 1
    assert "interrupted after" in capsys.readouterr().err
    assert len(seqwise.load_vectors(out)) == 15


def test_ctrl_c_from_python_ends_training_between_two_steps(corpus, monkeypatch):
    from seqwise.vectors.glove.trainer import GloveTrainer

    train_steps, continued = GloveTrainer.steps, []

    def interrupt_and_train(trainer):
        for step in train_steps(trainer):
            signal.raise_signal(signal.SIGINT)
            continued.append(step)
            yield step

    monkeypatch.setattr(GloveTrainer, "steps", interrupt_and_train)
    with pytest.raises(KeyboardInterrupt):
        train_vectors(corpus, **select({"method": "glove"}))
    assert len(continued) == 1


def test_ctrl_c_while_the_loops_are_compiled_leaves_no_file(corpus, tmp_path, monkeypatch, capsys):
    from seqwise.cli.progress import VectorDisplay

    def show(display, step):
        if step.stage == "compiling" and step.progress < 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(VectorDisplay, "show", show)
    assert main(build_arguments(corpus, tmp_path / "v.safetensors", "--epochs", "1000")) == 130
    assert capsys.readouterr().err.endswith("interrupted.\n")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_vectors_are_saved_does_not_lose_them(corpus, tmp_path, monkeypatch):
    from seqwise.vectors import formats

    save, out = formats.save_vectors, tmp_path / "v.safetensors"

    def interrupt_and_save(*arguments):
        signal.raise_signal(signal.SIGINT)
        save(*arguments)

    monkeypatch.setattr(formats, "save_vectors", interrupt_and_save)
    assert main(build_arguments(corpus, out, "--epochs", "1")) == 0
    assert len(seqwise.load_vectors(out)) == 15


# ---- further cases


def test_an_epoch_is_finished_when_all_its_blocks_are_trained(corpus, monkeypatch):
    from seqwise.vectors.word2vec.objective import Objective

    monkeypatch.setattr(Objective, "block_size", 500)
    losses: dict[int, float] = {}
    with VectorTraining(corpus, VectorSettings(**{**SMALL, "threads": 3, "epochs": 4})) as training:
        for step in training.steps():
            if step.is_epoch_end:
                losses[step.epoch] = step.loss
        # Reported too early, a loss would lack the blocks that other threads were still training.
        assert losses == dict(enumerate(training.trainer.losses))


def test_every_file_of_a_folder_is_read(tmp_path):
    for name in ("train", "valid", "more"):
        (tmp_path / f"{name}.txt").write_text(f"{name} a b\n" * 5)
    vectors = train_vectors(tmp_path, **{**SMALL, "epochs": 1})
    assert {"train", "valid", "more"} <= set(vectors.words)


def test_a_zero_character_in_json_is_a_space(tmp_path):
    (tmp_path / "zero.jsonl").write_text('{"text": "e\\u0000f g"}\n' * 3)
    assert set(train_vectors(tmp_path / "zero.jsonl", **{**SMALL, "epochs": 1}).words) == {"e", "f", "g"}


def test_too_little_memory_raises_a_memory_error(corpus, monkeypatch):
    def refuse(*_):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr("seqwise.vectors.training.build_trainer", refuse)
    with pytest.raises(MemoryLimitError, match="--min-count"):
        train_vectors(corpus, **SMALL)


def test_misspelt_settings_raise_a_usage_error(corpus):
    with pytest.raises(UsageError, match="methd"):
        train_vectors(corpus, methd="cbow")
    with pytest.raises(UsageError, match="method: input should be"):
        train_vectors(corpus, method="word2vec")


def test_settings_without_effect_raise_an_error(tmp_path):
    with pytest.raises(UsageError) as excinfo:
        train_vectors(tmp_path / "is not read.txt", method="glove", negative=7, min_n=2)
    assert str(excinfo.value) == (
        "--negative has an effect with --method skipgram and cbow only; it is glove.\n"
        "--min-n has an effect with --subwords only.\nLeave them out."
    )


def test_a_missing_device_raises_an_error_before_reading(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="CUDA"):
        train_vectors(tmp_path / "is not read.txt", device="cuda")


def test_unfinished_vectors_do_not_replace_finished_ones(corpus, tmp_path, monkeypatch, capsys):
    out = tmp_path / "v.safetensors"
    assert main(build_arguments(corpus, out, "--epochs", "1")) == 0
    finished = out.read_bytes()

    def interrupt(self):
        for step in self.trainer.steps():
            if step.is_epoch_end:
                raise KeyboardInterrupt
            yield step

    monkeypatch.setattr(VectorTraining, "steps", interrupt)
    assert main(build_arguments(corpus, out, "--epochs", "500")) == 130
    assert out.read_bytes() == finished
    capsys.readouterr()
    assert main(["vectors", "nearest", str(tmp_path / "v.unfinished.safetensors"), "cat"]) == 0
    assert "was stopped after" in capsys.readouterr().err


def test_the_file_records_the_training_settings(corpus):
    assert train_vectors(corpus, **{**SMALL, "epochs": 1}).about["settings"]["tokenizer"] == "spaces"
