"""Processes of `--nproc`: where they listen, what they exchange, what happens if one hangs, other numbers of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from listeners import find_public, list_descendants, list_listeners
from live_runs import SMALL, finish, get_logged_step, get_saved_step, run, start, wait_until
from safetensors.torch import load_file

from seqwise.cli.main import main
from seqwise.training import loopback
from seqwise.training.loop import Trainer

HAS_PROC = Path("/proc/net/tcp").exists()
needs_proc = pytest.mark.skipif(not HAS_PROC, reason="the system lists no sockets in /proc")
TWO = ["--nproc", "2"]


def train_command(book: Path, folder: Path, *options: str, model: str = "lstm") -> list[str | Path]:
    return ["train", book, "--model", model, *SMALL, "--network.dropout", "0", *options, "--out", folder]


def list_workers(launcher: int) -> list[int]:
    """Returns the children of the launcher, in the order in which they were started."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def patch_processes(folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, code: str) -> None:
    """Runs code first in every process that has an environment variable."""
    (folder / "sitecustomize.py").write_text(f"import os\nif {variable!r} in os.environ:\n    exec({code!r})\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


# Loopback


@needs_proc
def test_the_store_listens_on_the_loopback_interface():
    before = list_listeners([os.getpid()])
    store = loopback.open_store()
    listeners = list_listeners([os.getpid()]).keys() - before.keys()
    assert listeners == {f"[127.0.0.1]:{store.port}"}
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_the_loopback_interface_is_found_by_its_flag_or_its_name(monkeypatch):
    assert loopback.find_interface() in ("lo", "lo0")
    monkeypatch.setattr(loopback.socket, "if_nameindex", lambda: [(1, "eth0"), (2, "low0"), (3, "lo0")])
    assert loopback.find_interface() == "lo0"
    assert loopback.get_interface_variables() == {"GLOO_SOCKET_IFNAME": "lo0", "NCCL_SOCKET_IFNAME": "=lo0"}


@needs_proc
@pytest.mark.slow
def test_no_process_listens_beyond_this_machine(book, tmp_path):
    process = start(*train_command(book, tmp_path / "run", "--budget", "10m"), *TWO)
    wait_until(lambda: get_logged_step(tmp_path / "run") >= 1, process)
    family = list_descendants(process.pid)
    listeners = list_listeners(family)
    process.send_signal(signal.SIGINT)
    status, stderr = finish(process)
    assert status == 130, stderr
    assert set(list_pids(listeners)) >= {process.pid} | (family - {process.pid}), listeners  # the store, gloo twice
    assert find_public(listeners) == {}


def list_pids(listeners: dict[str, set[int]]) -> list[int]:
    return [pid for pids in listeners.values() for pid in pids]


# What they exchange

EXCHANGE = """
import json, math, pickle, sys
import torch
from seqwise.training.distribution import join_world

def refuse(*args, **kwargs):
    raise AssertionError("a pickle was used")

pickle.loads = pickle.load = pickle.dumps = pickle.dump = pickle.Unpickler = pickle.Pickler = refuse
with join_world(torch.device("cpu")) as world:
    items = [world.rank, 0.1 + world.rank, 2**60, 5e-324, "Grüße \\udcff 😀", ["nested", None, True, {"a": 1}]]
    gathered = world.gather(items if world.rank else items[:2])
    assert gathered == [0, 0.1, 1, 1.1, *items[2:]] or world.rank == 0, gathered
    assert gathered[:4] == [0, 0.1, 1, 1.1], gathered
    assert gathered[4:6] == [2**60, 5e-324]
    assert gathered[6:] == ["Grüße \\udcff 😀", ["nested", None, True, {"a": 1}]]
    special = world.gather([math.nan, math.inf, -math.inf, -0.0])
    assert [str(each) for each in special] == ["nan", "inf", "-inf", "-0.0"] * 2
    assert world.gather([]) == []
    assert world.broadcast_text(f"text of {world.rank}") == "text of 0"
    # Two sequences in the first process, three in the second, as in a batch of five.
    own = torch.arange(10.0).view(5, 2)[slice(0, 2) if world.rank == 0 else slice(2, 5)]
    state = world.gather_state((own, (own.double(), None)))
    assert torch.equal(state[0], torch.arange(10.0).view(5, 2))
    assert state[1][0].dtype == torch.float64 and state[1][1] is None
    assert torch.equal(world.select_own_state(state)[0], own)
"""


@pytest.mark.slow
def test_processes_exchange_json_and_tensors_exactly_and_without_pickles(tmp_path):
    (tmp_path / "exchange.py").write_text(EXCHANGE)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    status, stderr = run(tmp_path / "exchange.py", program=torchrun)
    assert status == 0, stderr


# A process that hangs

# The second process blocks, as in a deadlock, in its twentieth update.
DEADLOCK = """
import os, runpy, sys, threading
from seqwise.training.loop import Trainer

compute_gradients = Trainer.compute_gradients

def block(self, batch):
    if os.environ["RANK"] == "1" and self.state.step == 20:
        threading.Lock().acquire() and threading.Event().wait()
    return compute_gradients(self, batch)

Trainer.compute_gradients = block
"""


@needs_proc
@pytest.mark.slow
def test_a_process_in_a_deadlock_is_named_and_ends_the_run(book, tmp_path, monkeypatch):
    """`tests/faults/test_processes.py` has a process that is stopped by a signal."""
    folder = tmp_path / "run"
    monkeypatch.setenv("SEQWISE_HANG_SECONDS", "10")  # a busy machine may take seconds to schedule a process
    patch_processes(tmp_path, monkeypatch, "RANK", DEADLOCK)
    process = start(*train_command(book, folder, "--budget", "1h", "--training.save-every", "2"), *TWO)
    wait_until(lambda: get_saved_step(folder) >= 4, process)
    workers = list_workers(process.pid)
    status, stderr = finish(process)
    assert status == 1
    assert stderr.splitlines()[-2:] == [
        "error: process 2 of 2 has not responded for 10 s.",
        f"The files that were saved before are complete. Resume with: seqwise train --resume {folder} --nproc 2",
    ]
    assert "Traceback" not in stderr
    for pid in workers:
        assert not Path(f"/proc/{pid}").exists(), "it still runs"


@needs_proc
@pytest.mark.slow
def test_a_launcher_that_was_stopped_with_its_processes_continues(book, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQWISE_HANG_SECONDS", "10")
    folder = tmp_path / "run"
    process = start(*train_command(book, folder, "--budget", "1h"), *TWO)
    wait_until(lambda: get_logged_step(folder) >= 1, process)
    pids = [process.pid, *list_workers(process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(12)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    step = get_logged_step(folder)
    wait_until(lambda: get_logged_step(folder) > step, process)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130


# Other numbers of processes


def read_positions(folder: Path) -> list[list[int]]:
    """Returns the positions of the samples of each update, of all processes."""
    updates: dict[int, list[int]] = {}
    for path in folder.glob("positions-*.jsonl"):
        for line in path.read_text().splitlines():
            step, positions = json.loads(line)
            updates[step] = sorted(updates.get(step, []) + positions)
    return [updates[step] for step in sorted(updates)]


# Writes the positions of the samples of each update.
RECORD = """
import json, os
from seqwise.training.loop import Trainer

apply_update = Trainer.apply_update

def record(self, update):
    path = os.path.join(os.environ["POSITIONS_FOLDER"], f"positions-{self.world.size}-{self.world.rank}.jsonl")
    positions = [update.batch.positions.tolist()[i] for r in update.share.ranges for i in range(r.start, r.stop)]
    with open(path, "a") as file:
        file.write(json.dumps([self.state.step, positions]) + "\\n")
    return apply_update(self, update)

Trainer.apply_update = record
"""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer"])  # `tests/faults/test_processes.py` has other models and tasks
def test_a_run_may_continue_with_any_number_of_processes(book, tmp_path, monkeypatch, model):
    """1 → 2 → 4 → 3 → 1 processes train on the same samples, to the same weights up to rounding.

    The text is short, so that epochs end, with a last batch of windows that has fewer of them than processes.
    """
    text = tmp_path / "text.txt"
    text.write_text("".join(book.read_text().splitlines(keepends=True)[:60]))
    patch_processes(tmp_path, monkeypatch, "POSITIONS_FOLDER", RECORD)
    monkeypatch.setattr(Trainer, "apply_update", Trainer.apply_update)  # restored after the test
    exec(RECORD, {})  # one process is this one
    for name, counts in (("alone", [1] * 5), ("changing", [1, 2, 4, 3, 1])):
        folder = tmp_path / name
        (tmp_path / f"{name}-positions").mkdir()
        monkeypatch.setenv("POSITIONS_FOLDER", str(tmp_path / f"{name}-positions"))
        arguments = train_command(text, folder, "--training.schedule", "constant", model=model)
        for epochs, count in enumerate(counts, start=1):
            options = ["--budget", f"{epochs}-epochs", "--nproc", str(count)]
            if count == 1:
                assert main([*map(str, arguments), *options]) == 0
            else:
                status, stderr = run(*arguments, *options)
                assert status == 0, stderr
            arguments = ["train", "--resume", folder]
    alone, changing = (read_positions(tmp_path / f"{name}-positions") for name in ("alone", "changing"))
    assert len(alone) > 20
    assert changing == alone
    tensors = [
        load_file(tmp_path / name / f"checkpoints/step-{len(alone)}/tensors.safetensors")
        for name in ("alone", "changing")
    ]
    assert tensors[0].keys() == tensors[1].keys()
    for key in tensors[0]:
        torch.testing.assert_close(tensors[1][key], tensors[0][key], rtol=1e-3, atol=1e-4, msg=key)
    shutil.rmtree(tmp_path / "alone")


@pytest.mark.slow
def test_the_advice_for_too_many_processes_is_accepted_by_resume(book, tmp_path):
    folder = tmp_path / "run"
    assert main([*map(str, train_command(book, folder, "--budget", "640-tokens"))]) == 0
    status, stderr = run("train", "--resume", folder, "--nproc", "5", "--budget", "1280-tokens")
    assert status == 2
    message = [
        "error: a batch of 4 cannot be divided among 5 processes.",
        "Use --nproc 4 or fewer. A new run may have a larger --training.batch-size instead: at least 5.",
    ]
    assert "\n".join(message) in stderr  # another process may print what it has read after it
    status, stderr = run("train", "--resume", folder, "--nproc", "4", "--budget", "1280-tokens")
    assert status == 0, stderr
