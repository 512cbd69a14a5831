"""Two processes train as one does: the same result up to rounding, the same handling of signals, kills and errors.

The scenarios run in processes of their own, two scenarios at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from live_runs import SMALL, finish, get_logged_step, get_saved_step, read_outcome, run, start, wait_until
from safetensors.torch import load_file

from seqwise.cli.main import main
from seqwise.config import parse_settings
from seqwise.errors import UsageError
from seqwise.training import launcher, loopback
from seqwise.training.create import create_run
from seqwise.training.heartbeat import Heartbeats, Row
from seqwise.training.launcher import LostProcessError

STEPS = 120
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seqwise"]
TWO = ["--nproc", "2"]


def train_command(book: Path, family: str, folder: Path, dropout: float = 0.0) -> list[str]:
    intervals = ["--training.save-every", "5", "--training.validate-every", "40", "--budget", f"{64 * STEPS}-tokens"]
    dropout_options = ["--network.dropout", str(dropout)]
    if family != "transformer":
        dropout_options += ["--recurrent.weight-dropout", str(dropout)]
    return ["train", str(book), "--model", family, *SMALL, *dropout_options, *intervals, "--out", str(folder)]


def run_two(arguments: list[str], program: list[str] | None = None) -> tuple[int, str]:
    """Runs two processes: by --nproc, or by a launcher such as torchrun."""
    return run(*arguments, *TWO) if program is None else run(*arguments, program=program)


def end_early(arguments: list[str], folder: Path, target: int, signal_number: int) -> tuple[int, str, int]:
    """Signals the launcher's process group, as a terminal does, once some steps are done."""
    process = start(*arguments, *TWO, start_new_session=True)
    wait_until(lambda: get_saved_step(folder) >= target, process)
    os.killpg(process.pid, signal_number)
    return *finish(process), get_saved_step(folder)


def stop_and_resume(book: Path, folder: Path) -> list[tuple]:
    """Interrupts by SIGINT, resumes, kills by SIGKILL, resumes to the end."""
    resume = ["train", "--resume", str(folder)]
    results: list[tuple] = [end_early(train_command(book, "lstm", folder, 0.3), folder, 20, signal.SIGINT)]
    results.append(end_early(resume, folder, 60, signal.SIGKILL))
    results.append(run(*resume, *TWO))
    return results


def lose_a_worker(book: Path, folder: Path) -> tuple[int, str]:
    """Sends SIGKILL to the second process alone, as the kernel does when memory is short."""
    process = start(*train_command(book, "lstm", folder), "--budget", "10m", *TWO)
    wait_until(lambda: get_logged_step(folder) >= 10, process)
    os.kill(list_workers(process.pid)[1], signal.SIGKILL)
    return finish(process)


# The second process initialises other weights, which those of the first must replace.
DIFFERENT_WEIGHTS = """
import os, runpy, torch
from seqwise.tasks.language.task import Language

build = Language.build

def build_differently(self, settings):
    if os.environ["RANK"] == "1":
        torch.manual_seed(1)
    return build(self, settings)

Language.build = build_differently
runpy.run_module("seqwise", run_name="__main__")
"""


def write_rare_words(folder: Path) -> Path:
    """Writes a text whose words of the last two clusters of an adaptive softmax occur only in its first half."""
    lines = ["the old gate . " * 4] * 600
    for number in range(40):
        lines[7 * number] += f"rare{number}"
    (folder / "rare.txt").write_text("\n".join(lines) + "\n")
    return folder / "rare.txt"


def build_adaptive_command(root: Path, folder: Path) -> list[str]:
    return [
        *train_command(root / "rare.txt", "lstm", folder),
        "--text.tokenizer",
        "words",
        "--network.output",
        "adaptive",
    ]


def run_with_different_weights(root: Path) -> tuple[int, str]:
    (root / "different_weights.py").write_text(DIFFERENT_WEIGHTS)
    write_rare_words(root)
    return run(
        *build_adaptive_command(root, root / "adaptive"), program=[*TORCHRUN[:-2], str(root / "different_weights.py")]
    )


def list_workers(launcher: int) -> list[int]:
    """Returns the children of the launcher, in the order in which they were started."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


@pytest.fixture(scope="module")
def scenarios(book, tmp_path_factory):
    root = tmp_path_factory.mktemp("scenarios")

    def command(family: str, name: str, dropout: float = 0.0) -> list[str]:
        return train_command(book, family, root / name, dropout)

    with ThreadPoolExecutor(2) as pool:
        results: dict[str, Future] = {
            "early": pool.submit(stop_and_resume, book, root / "early"),
            "lstm": pool.submit(run_two, command("lstm", "lstm")),
            "transformer": pool.submit(run_two, command("transformer", "transformer"), TORCHRUN),
            "dropout": pool.submit(run_two, command("lstm", "dropout", 0.3)),
            "lost": pool.submit(lose_a_worker, book, root / "lost"),
            "time": pool.submit(run_two, [*command("lstm", "time"), "--budget", "2s"]),
            "missing": pool.submit(run_two, ["train", str(root / "igloo.txt"), "--out", str(root / "missing")]),
            "adaptive": pool.submit(run_with_different_weights, root),
            "ngram": pool.submit(run_two, ["train", str(book), "--model", "ngram", "--out", str(root / "ngram")]),
        }
        yield root, results


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / f"checkpoints/step-{get_saved_step(folder)}/tensors.safetensors")


def read_losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_tensors_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(actual[name], expected[name], rtol=10 * tolerance, atol=tolerance, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_two_processes_train_as_one_process_with_the_same_global_batch(scenarios, book, tmp_path, family):
    """The LSTM by --nproc 2 on streams, the Transformer by torchrun around the same command on shuffled windows."""
    root, results = scenarios
    status, stderr = results[family].result()
    assert status == 0, stderr
    assert stderr.count("done: the budget is spent.") == 1
    assert stderr.count("chosen by rule") == 1
    assert main(train_command(book, family, tmp_path / "one")) == 0
    assert get_saved_step(root / family) == STEPS
    assert_tensors_close(load_tensors(root / family), load_tensors(tmp_path / "one"), 1e-4)
    assert read_losses(root / family) == pytest.approx(read_losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.slow
def test_processes_with_other_initial_weights_and_missing_gradients_train_as_one_process(scenarios, tmp_path):
    """The initial weights are the first process's, and clusters without a target have gradients of zero."""
    root, results = scenarios
    status, stderr = results["adaptive"].result()
    assert status == 0, stderr
    assert main(build_adaptive_command(root, tmp_path / "one")) == 0
    actual, expected = load_tensors(root / "adaptive"), load_tensors(tmp_path / "one")
    assert "optimizer.head.output.softmax.tail.1.0.weight.exp_avg" in actual
    assert_tensors_close(actual, expected, 1e-4)
    assert read_losses(root / "adaptive") == pytest.approx(read_losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.slow
def test_one_process_counts_n_grams_and_both_succeed(scenarios):
    status, stderr = scenarios[1]["ngram"].result()
    assert status == 0, stderr
    assert stderr.count("done: all n-grams are counted.") == 1
    assert stderr.count("valid ppl") == 1


@pytest.mark.slow
def test_ctrl_c_stops_both_processes_at_the_same_step(scenarios):
    root, results = scenarios
    status, stderr, saved = results["early"].result()[0]
    assert status == 130
    command = f"seqwise train --resume {root / 'early'} --nproc 2"
    assert stderr.rstrip().splitlines()[-1] == f"stopped and saved. Resume with: {command}"
    assert stderr.count("stopped") == 1
    assert f"resuming at step {saved}." in results["early"].result()[1][1]


@pytest.mark.slow
def test_killing_the_launcher_ends_its_workers_and_the_resumed_run_has_the_same_bits(scenarios):
    root, results = scenarios
    _, killed, finished = results["early"].result()
    assert killed[0] == -signal.SIGKILL
    assert finished[0] == 0, finished[1]
    assert results["dropout"].result()[0] == 0
    assert read_outcome(root / "early") == read_outcome(root / "dropout")


@pytest.mark.slow
def test_a_run_of_two_processes_is_resumed_in_one(scenarios, tmp_path):
    """From the last checkpoint but one: weights, optimiser and all rows of the recurrent state agree."""
    root, results = scenarios
    results["lstm"].result()
    shutil.copytree(root / "lstm", tmp_path / "alone")
    shutil.rmtree(tmp_path / f"alone/checkpoints/step-{STEPS}")
    assert main(["train", "--resume", str(tmp_path / "alone")]) == 0
    assert get_saved_step(tmp_path / "alone") == STEPS
    assert_tensors_close(load_tensors(tmp_path / "alone"), load_tensors(root / "lstm"), 1e-5)
    assert read_losses(tmp_path / "alone") == pytest.approx(read_losses(root / "lstm"), rel=1e-6)


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_run_with_one_message(scenarios):
    status, stderr = scenarios[1]["lost"].result()
    assert status == 1
    assert [line for line in stderr.splitlines() if line.startswith("error")] == [
        "error: process 2 of 2 was ended by SIGKILL."
    ]
    assert (
        f"The files that were saved before are complete. Resume with: seqwise train --resume {scenarios[0] / 'lost'}"
        in stderr
    )
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_a_budget_in_seconds_ends_for_both(scenarios):
    status, stderr = scenarios[1]["time"].result()
    assert status == 0, stderr
    rows = [json.loads(line) for line in (scenarios[0] / "time/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["ended"] == "the budget is spent"
    assert rows[-1]["seconds"] >= 2


@pytest.mark.slow
def test_a_usage_error_in_a_worker_is_reported_once(scenarios):
    """The file name contains "gloo": errors of that library mean that another process has ended."""
    root, results = scenarios
    status, stderr = results["missing"].result()
    assert status == 2
    assert stderr.splitlines()[0] == f"error: {root / 'igloo.txt'}: there is no such file or folder."
    assert stderr.count("error") == 1
    assert len(stderr.splitlines()) <= 2
    assert not (root / "missing").exists()


@pytest.fixture
def ending(tmp_path):
    """Returns the exit status of the launcher for those of its workers, and for what the store contains."""

    def end(statuses: list[int | None], complete: Sequence[int] = (), **store_content: str) -> int:
        store, heartbeats = loopback.open_store(), Heartbeats.create(len(statuses))
        for key, value in store_content.items():
            store.set(f"seqwise/{key}", value)
        for rank in complete:
            heartbeats.numbers[len(Row._fields) * rank + Row._fields.index("is_done")] = 1
        heartbeats.close()
        return launcher._get_exit_status(statuses, heartbeats, store, tmp_path)

    return end


def test_a_process_that_breaks_after_its_work_is_done_changes_no_result(ending):
    with pytest.raises(LostProcessError, match="process 2 of 2 was ended by SIGABRT"):
        ending([0, -signal.SIGABRT], complete=[0])
    assert ending([0, -signal.SIGABRT], complete=[0, 1]) == 0
    assert ending([130, -signal.SIGABRT], complete=[0, 1]) == 130


def test_the_exit_status_is_that_of_the_first_process_which_reported_an_error(ending):
    assert ending([2, 1], failed="0 2") == 2
    assert ending([1, 2], failed="1 2") == 2
    assert ending([0, 0]) == 0


@pytest.mark.parametrize("failed", ["0 0", "0 256", "1", "", "\xff", "0 -1", "0 1 1", "0 \u0661", "9" * 9999])
def test_what_the_store_says_never_turns_a_failure_into_a_success(ending, failed):
    with pytest.raises(LostProcessError, match="process 2 of 2 was ended by SIGKILL"):
        ending([0, -signal.SIGKILL], failed=failed, done="2", joined="2")
    assert ending([0, 3], failed=failed) == 3
    assert ending([0, None], failed=failed) == 1  # killed by the launcher, because it did not exit


def test_what_the_store_says_never_turns_a_success_into_a_failure(ending):
    assert ending([0, 0], failed="0 1", lost="no contact") == 0


def test_more_processes_than_gpus_are_rejected_before_any_is_started(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(launcher, "_start_worker", lambda *args: pytest.fail("started"))
    with pytest.raises(UsageError, match="--nproc: expected at most 2, one process for each GPU; received 3"):
        launcher.launch(3, torch.device("cuda"), ["train"], tmp_path)


def test_the_launcher_chooses_the_folder_of_a_run_of_several_processes(monkeypatch, tmp_path, book):
    """So that it can print how to resume the run."""
    calls: list[tuple] = []

    def launch(*args) -> int:
        calls.append(args)
        return 0

    monkeypatch.setattr(launcher, "launch", launch)
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(book), "--device", "cpu", *TWO]) == 0
    folder = Path("runs/language-lstm-1")
    arguments = ["train", "--out", str(folder), str(book), "--device", "cpu", *TWO]
    assert calls == [(2, torch.device("cpu"), arguments, folder)]


def test_a_batch_that_cannot_be_divided_is_rejected_before_the_run_is_created(book, tmp_path):
    settings = parse_settings({"model": "lstm", "training": {"batch_size": 3}, "text": {"tokenizer": "characters"}})
    with pytest.raises(UsageError, match="a batch of 3 cannot be divided among 4 processes"):
        create_run(str(book), settings, tmp_path / "run", processes=4)
    assert not (tmp_path / "run").exists()
