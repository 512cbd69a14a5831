"""Two processes are one: the same result up to rounding, and the same care with signals, kills and errors.

As in test_survival.py, real processes play the scenes, two scenes at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from live_runs import SMALL, finish, logged_step, outcome, run, saved_step, start, wait_until
from safetensors.torch import load_file

from seqwise.cli.main import main

STEPS = 120
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seqwise"]
TWO = ["--nproc", "2"]


def fresh(book: Path, family: str, folder: Path, dropout: float = 0.0) -> list[str]:
    often = ["--training.save-every", "5", "--training.validate-every", "40", "--budget", f"{64 * STEPS}-tokens"]
    drops = ["--network.dropout", str(dropout), "--recurrent.weight-dropout", str(dropout)]
    return ["train", str(book), "--model", family, *SMALL, *drops, *often, "--out", str(folder)]


def whole(words: list[str], before: list[str] | None = None) -> tuple[int, str]:
    return run(*words, *TWO) if before is None else run(*words, before=before)


def end_early(words: list[str], folder: Path, target: int, number: int) -> tuple[int, str, int]:
    """Signal the launcher's process group, as a terminal does, once some steps are done."""
    process = start(*words, *TWO, start_new_session=True)
    wait_until(lambda: saved_step(folder) >= target, process)
    os.killpg(process.pid, number)
    return *finish(process), saved_step(folder)


def early(book: Path, folder: Path) -> list[tuple]:
    """SIGINT, resumed, SIGKILL, resumed to the end."""
    resume = ["train", "--resume", str(folder)]
    seen: list[tuple] = [end_early(fresh(book, "lstm", folder, 0.3), folder, 20, signal.SIGINT)]
    seen.append(end_early(resume, folder, 60, signal.SIGKILL))
    seen.append(run(*resume, *TWO))
    return seen


def lose_a_worker(book: Path, folder: Path) -> tuple[int, str]:
    """SIGKILL for the second process alone, as the kernel does when memory is short."""
    process = start(*fresh(book, "lstm", folder), "--budget", "10m", *TWO)
    wait_until(lambda: logged_step(folder) >= 10, process)
    os.kill(workers_of(process.pid)[1], signal.SIGKILL)
    return finish(process)


# The second process would begin with weights of its own, were it not given those of the first.
UNLIKE = """
import os, runpy, torch
from seqwise.tasks.language.task import Language

build = Language.build

def built(self, settings):
    if os.environ["RANK"] == "1":
        torch.manual_seed(1)
    return build(self, settings)

Language.build = built
runpy.run_module("seqwise", run_name="__main__")
"""


def rare_words(folder: Path) -> Path:
    """Words of the two later clusters of an adaptive softmax stand in a few lines of the first half only."""
    lines = ["the old gate . " * 4] * 600
    for number in range(40):
        lines[7 * number] += f"rare{number}"
    (folder / "rare.txt").write_text("\n".join(lines) + "\n")
    return folder / "rare.txt"


def adaptive(stage: Path, folder: Path) -> list[str]:
    return [*fresh(stage / "rare.txt", "lstm", folder), "--text.tokenizer", "words", "--network.output", "adaptive"]


def play_unlike(stage: Path) -> tuple[int, str]:
    (stage / "unlike.py").write_text(UNLIKE)
    rare_words(stage)
    return run(*adaptive(stage, stage / "adaptive"), before=[*TORCHRUN[:-2], str(stage / "unlike.py")])


def workers_of(launcher: int) -> list[int]:
    """Children of the launcher, in the order in which they were started."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


@pytest.fixture(scope="module")
def scenes(book, tmp_path_factory):
    stage = tmp_path_factory.mktemp("scenes")

    def words(family: str, name: str, dropout: float = 0.0) -> list[str]:
        return fresh(book, family, stage / name, dropout)

    with ThreadPoolExecutor(2) as pool:
        played: dict[str, Future] = {
            "early": pool.submit(early, book, stage / "early"),
            "lstm": pool.submit(whole, words("lstm", "lstm")),
            "transformer": pool.submit(whole, words("transformer", "transformer"), TORCHRUN),
            "dropout": pool.submit(whole, words("lstm", "dropout", 0.3)),
            "lost": pool.submit(lose_a_worker, book, stage / "lost"),
            "time": pool.submit(whole, [*words("lstm", "time"), "--budget", "2s"]),
            "missing": pool.submit(whole, ["train", str(stage / "igloo.txt"), "--out", str(stage / "missing")]),
            "adaptive": pool.submit(play_unlike, stage),
            "ngram": pool.submit(whole, ["train", str(book), "--model", "ngram", "--out", str(stage / "ngram")]),
        }
        yield stage, played


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / f"checkpoints/step-{saved_step(folder)}/tensors.safetensors")


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def agree(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=10 * tolerance, atol=tolerance, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_two_processes_train_as_one_process_with_the_same_global_batch(scenes, book, tmp_path, family):
    """The LSTM by --nproc 2 on streams, the Transformer by torchrun around the same command on shuffled windows."""
    stage, played = scenes
    status, said = played[family].result()
    assert status == 0, said
    assert said.count("done: the budget is spent.") == 1
    assert said.count("chosen by rule") == 1
    assert main(fresh(book, family, tmp_path / "one")) == 0
    assert saved_step(stage / family) == STEPS
    agree(tensors(stage / family), tensors(tmp_path / "one"), 1e-4)
    assert losses(stage / family) == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.slow
def test_processes_with_other_initial_weights_and_missing_gradients_train_as_one_process(scenes, tmp_path):
    """The initial weights are the first process's, and clusters without a target have gradients of zero."""
    stage, played = scenes
    status, said = played["adaptive"].result()
    assert status == 0, said
    assert main(adaptive(stage, tmp_path / "one")) == 0
    ours, theirs = tensors(stage / "adaptive"), tensors(tmp_path / "one")
    assert "optimizer.head.output.softmax.tail.1.0.weight.exp_avg" in ours
    agree(ours, theirs, 1e-4)
    assert losses(stage / "adaptive") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.slow
def test_one_process_counts_n_grams_and_both_succeed(scenes):
    status, said = scenes[1]["ngram"].result()
    assert status == 0, said
    assert said.count("done: all n-grams are counted.") == 1
    assert said.count("valid ppl") == 1


@pytest.mark.slow
def test_ctrl_c_stops_both_processes_at_the_same_step(scenes):
    stage, played = scenes
    status, said, saved = played["early"].result()[0]
    assert status == 130
    assert said.rstrip().splitlines()[-1] == f"stopped and saved. Resume with: seqwise train --resume {stage / 'early'}"
    assert said.count("stopped") == 1
    assert f"resuming at step {saved}." in played["early"].result()[1][1]


@pytest.mark.slow
def test_killing_the_launcher_ends_its_workers_and_the_resumed_run_has_the_same_bits(scenes):
    stage, played = scenes
    _, killed, finished = played["early"].result()
    assert killed[0] == -signal.SIGKILL
    assert finished[0] == 0, finished[1]
    assert played["dropout"].result()[0] == 0
    assert outcome(stage / "early") == outcome(stage / "dropout")


@pytest.mark.slow
def test_a_run_of_two_processes_is_resumed_in_one(scenes, tmp_path):
    """From the last checkpoint but one, alone: weights, optimiser and all rows of the carried state agree again."""
    stage, played = scenes
    played["lstm"].result()
    shutil.copytree(stage / "lstm", tmp_path / "alone")
    shutil.rmtree(tmp_path / f"alone/checkpoints/step-{STEPS}")
    assert main(["train", "--resume", str(tmp_path / "alone")]) == 0
    assert saved_step(tmp_path / "alone") == STEPS
    agree(tensors(tmp_path / "alone"), tensors(stage / "lstm"), 1e-5)
    assert losses(tmp_path / "alone") == pytest.approx(losses(stage / "lstm"), rel=1e-6)


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_run_with_one_message(scenes):
    status, said = scenes[1]["lost"].result()
    assert status == 1
    assert [line for line in said.splitlines() if line.startswith("error")] == [
        "error: process 2 of 2 was ended by SIGKILL."
    ]
    assert f"What was saved before is complete. Resume with: seqwise train --resume {scenes[0] / 'lost'}" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_budget_in_seconds_ends_for_both(scenes):
    status, said = scenes[1]["time"].result()
    assert status == 0, said
    rows = [json.loads(line) for line in (scenes[0] / "time/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["ended"] == "the budget is spent"
    assert rows[-1]["seconds"] >= 2


@pytest.mark.slow
def test_a_usage_error_in_a_worker_is_reported_once(scenes):
    """The name of the file holds that of the library whose errors mean that the others have gone."""
    stage, played = scenes
    status, said = played["missing"].result()
    assert status == 2
    assert said.splitlines()[0] == f"error: {stage / 'igloo.txt'}: there is no such file or folder."
    assert said.count("error") == 1
    assert len(said.splitlines()) <= 2
    assert not (stage / "missing").exists()


@pytest.mark.slow
def test_a_process_that_breaks_after_all_are_done_changes_no_result(tmp_path):
    from torch.distributed import TCPStore

    from seqwise.errors import SeqwiseError
    from seqwise.training import distribution

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.add(distribution.DONE, 1)
    with pytest.raises(SeqwiseError, match="process 2 of 2 was ended by SIGABRT"):
        distribution._status([0, -signal.SIGABRT], store, tmp_path)
    store.add(distribution.DONE, 1)
    assert distribution._status([0, -signal.SIGABRT], store, tmp_path) == 0
    assert distribution._status([130, -signal.SIGABRT], store, tmp_path) == 130


def test_more_processes_than_gpus_are_refused_before_any_is_started(monkeypatch, tmp_path):
    from seqwise.errors import UsageError
    from seqwise.training import distribution

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(distribution, "_start", lambda *args: pytest.fail("started"))
    with pytest.raises(UsageError, match="--nproc: expected at most 2, one process for each GPU; received 3"):
        distribution.launch(3, torch.device("cuda"), ["train"], tmp_path)


def test_the_launcher_chooses_the_folder_of_a_run_of_several_processes(monkeypatch, tmp_path, book):
    """So that it can say how to go on with it."""
    from seqwise.training import distribution

    seen: list[tuple] = []

    def launch(*args) -> int:
        seen.append(args)
        return 0

    monkeypatch.setattr(distribution, "launch", launch)
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(book), "--device", "cpu", *TWO]) == 0
    folder = Path("runs/language-lstm-1")
    words = ["train", "--out", str(folder), str(book), "--device", "cpu", *TWO]
    assert seen == [(2, torch.device("cpu"), words, folder)]


def test_rows_that_cannot_be_divided_are_refused_before_the_run_is_made(book, tmp_path):
    from seqwise.config import parse_settings
    from seqwise.errors import UsageError
    from seqwise.training.training_run import create_run

    settings = parse_settings({"model": "lstm", "training": {"batch_size": 3}, "text": {"tokenizer": "characters"}})
    with pytest.raises(UsageError, match="3 rows cannot be divided among 2 processes"):
        create_run(str(book), settings, tmp_path / "run", processes=2)
    assert not (tmp_path / "run").exists()
