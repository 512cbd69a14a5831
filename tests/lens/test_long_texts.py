"""Long texts: the attention of 2,000 tokens × 12 layers × 12 heads, and the gates of 10,000 tokens of a 512-unit LSTM.

The limits are for an idle machine, and other load must not fail these tests. Views are limited in the processor time of
one thread. Opening a page takes no longer on an idle machine than it takes here, and hardly longer than the processor
time of all processes of the browser, so the smallest of both, over a few attempts, is an upper bound.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chromium import launch_chromium, open_file

MAX_ATTEMPTS = 4  # to open a page
SCRIPT = """
import json, sys, time
from pathlib import Path
import torch
from seqwise.layers.cells import LSTMCell
from seqwise.layers.recurrent import Recurrent
from seqwise.layers.transformer import Encoder, PreNormEncoderLayer
from seqwise.lens import attention, gates

def read_status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024

torch.set_num_threads(1)
view, model, x = {
    "attention": lambda: (attention, Encoder([PreNormEncoderLayer(96, 12, 384, "gelu") for _ in range(12)]),
                          torch.randn(1, 2_000, 96)),
    "gates": lambda: (gates, Recurrent(LSTMCell(512, 512)), torch.randn(1, 10_000, 512)),
}[sys.argv[1]]()
view(model, x[:, :32])  # imports and warms up
before = read_status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
seconds = time.process_time()
result = view(model, x)
seconds = time.process_time() - seconds
peak = read_status("VmHWM")
result.save(sys.argv[2])
print(json.dumps({"seconds": seconds, "megabytes": peak - before}))
"""


class Measured(NamedTuple):
    seconds: float
    megabytes: float
    page: Path


def measure(view: str, path: Path) -> Measured:
    """Computes a view in a new process and writes its page."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, view, str(path)]
    finished = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return Measured(**json.loads(finished.stdout), page=path)


needs_proc = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak of memory is read from /proc"
)


@pytest.fixture(scope="module")
def attention_of_2000_tokens(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure("attention", tmp_path_factory.mktemp("attention") / "attention.html")


@pytest.fixture(scope="module")
def gates_of_10000_tokens(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure("gates", tmp_path_factory.mktemp("gates") / "gates.html")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launch_chromium() as browser:
        yield browser


@needs_proc
@pytest.mark.slow
def test_the_attention_of_144_heads_over_2000_tokens_takes_20_seconds_and_1_gb_at_most(
    attention_of_2000_tokens: Measured,
):
    assert attention_of_2000_tokens.megabytes < 1000
    assert attention_of_2000_tokens.seconds < 20


@needs_proc
@pytest.mark.slow
def test_the_gates_of_10000_tokens_of_an_lstm_take_5_seconds_at_most(gates_of_10000_tokens: Measured, tmp_path: Path):
    seconds = gates_of_10000_tokens.seconds
    if seconds >= 5:  # caches and processors shared with other processes also cost processor time
        seconds = min(seconds, measure("gates", tmp_path / "gates.html").seconds)
    assert seconds < 5


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["attention_of_2000_tokens", "gates_of_10000_tokens"])
def test_their_pages_open_in_two_seconds(request: pytest.FixtureRequest, chromium: Any, name: str, width: int):
    path = request.getfixturevalue(name).page
    bounds: list[float] = []
    while len(bounds) < MAX_ATTEMPTS and min(bounds, default=2.0) >= 2.0:
        bounds.append(bound_opening_seconds(chromium, path, width))
    assert min(bounds) < 2, bounds


def bound_opening_seconds(chromium: Any, path: Path, width: int) -> float:
    """Opens a page; returns the time until it is drawn or the processor time, whichever is smaller."""
    session = chromium.new_browser_cdp_session()
    before, started_at = read_cpu_seconds(session), time.perf_counter()
    page = open_file(chromium, path, width)
    page.tab.wait_for_selector("html[data-ready=true]", state="attached")
    page.tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    elapsed = time.perf_counter() - started_at
    cpu_seconds = sum(value - before.get(key, 0.0) for key, value in read_cpu_seconds(session).items())
    assert page.tab.locator("figure").count() >= 2
    assert page.errors == []
    assert page.requests == [page.address]
    page.tab.close()
    session.detach()
    return min(elapsed, cpu_seconds)


def read_cpu_seconds(session: Any) -> dict[tuple[str, int], float]:
    """Returns the processor time of each process of the browser."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return {(process["type"], process["id"]): process["cpuTime"] for process in processes}
