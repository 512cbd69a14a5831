"""Comparisons that are killed or interrupted and resumed run each trial once and have bit-identical results.

Processes are killed at random moments. How an engine handles workers that die is also tested with fake workers.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_comparison import finish, make_plan, run_with, tiny, write_text

from seqwise import environment
from seqwise.compare.plan.plan import DEVICE_WORKERS_VARIABLE, WORKERS_VARIABLE, Plan
from seqwise.compare.run import execute, worker
from seqwise.compare.run.engine import MAX_LOST_PROCESSES
from seqwise.compare.run.execute import LostJobProcess
from seqwise.compare.run.jobs import Job, Outcome, load_test, load_training
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.training import launcher

SECONDS = 600  # long, because the machine may be busy
FAMILIES = ["rnn", "gru", "feedforward", "transformer"]
BUDGET = "3846-tokens"  # with 2 lr_trials and 3 seeds, a learning-rate trial gets 1,282 tokens and a training run 2,991


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("kills") / "small.txt", lines=120)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as in this process, since the order of summation depends on their number.

    Two workers share the cores of the machine: with more than two cores, each would have several threads.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(environment, "count_cpus", lambda: 2)


def results(folder: Path) -> dict[str, Any]:
    """Returns what must be bit-identical, whichever process was killed."""
    by_trial: dict[str, Any] = {}
    for trial in Plan.open(folder).list_trials():
        run = folder / "trials" / trial.name
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        outcome, test = load_training(folder, trial), load_test(folder, trial)
        assert outcome is not None
        assert outcome.result is not None, outcome.reason
        by_trial[trial.name] = {
            "metrics": [(row["step"], row["tokens"], row["loss"], row["validation"], row["best"]) for row in rows],
            "ended": rows[-1]["ended"],
            "weights": (run / "model.safetensors").read_bytes(),
            "outcome": replace(
                outcome.result, seconds=0.0, memory=None, waiting_share=None, device_workers=1, workers=1
            ),
            "test": None if test is None or test.result is None else test.result.metrics,
            "scores": _bytes(Job("test", trial.name).get_scores_folder(folder) / "scores.safetensors"),
        }
    return by_trial


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def saved_step(run: Path) -> int:
    """The step of the newest checkpoint of a run."""
    names = os.listdir(run / "checkpoints") if (run / "checkpoints").is_dir() else []
    return max((int(match[1]) for name in names if (match := re.fullmatch(r"step-(\d+)", name))), default=0)


# Workers


class Killer:
    """Receives the events of a comparison and kills the workers of some trials, each once, at a random moment.

    A trial that ends before its kill is replaced by the next one that begins.
    """

    def __init__(self, folder: Path, victims: list[str], generator: random.Random):
        self.folder, self.generator = folder, generator
        self.victims, self.num_missed = set(victims), 0
        self.events: list[dict[str, Any]] = []
        self.outcome_times: dict[str, int] = {}  # outcome file → its modification time at the end of the job
        self.threads: list[threading.Thread] = []

    def __call__(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        name = event["name"]
        if event["event"] == "begin" and event["kind"] == "train" and (name in self.victims or self.num_missed):
            self.num_missed -= name not in self.victims
            self.victims.discard(name)
            updates, sleep = self.generator.choice([-1, 0, 3, 6]), self.generator.uniform(0, 0.03)
            self.threads.append(threading.Thread(target=self._kill, args=(name, event["pid"], updates, sleep)))
            self.threads[-1].start()
        if event["event"] == "end":
            path = Job(event["kind"], name).get_file(self.folder)
            self.outcome_times[str(path)] = path.stat().st_mtime_ns

    def _kill(self, name: str, pid: int, updates: int, sleep: float) -> None:
        """Kill the process shortly after `updates` updates of the trial are saved."""
        deadline = time.monotonic() + SECONDS
        while saved_step(self.folder / "trials" / name) <= updates and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(sleep)
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:  # the trial has ended, and the worker was killed in its next one
            self.num_missed += 1
            return
        has_outcome = Job("train", name).get_file(self.folder).exists()
        self.num_missed += has_outcome
        os.kill(pid, signal.SIGCONT if has_outcome else signal.SIGKILL)

    def names(self, event: str, kind: str = "train") -> Counter[str]:
        return Counter(each["name"] for each in self.events if each["event"] == event and each["kind"] == kind)


@pytest.mark.slow
def test_killing_eight_of_twenty_workers_changes_no_result(text: Path, tmp_path: Path):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed of the random kills is {seed}")  # noqa: T201 - to reproduce it
    generator = random.Random(seed)
    base = tiny(training={"save_every": 3})
    options = {"models": FAMILIES, "budget": BUDGET, "seeds": 3}
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    finish(uninterrupted, make_plan(uninterrupted, text, base, **options))
    plan = make_plan(interrupted, text, base, **options)
    names = [trial.name for trial in plan.list_trials()]
    assert len(names) == 20
    killer = Killer(interrupted, generator.sample(names[:-4], 8), generator)  # the last ones can replace others
    run_with(interrupted, plan, LocalEngine(interrupted, workers=2), on_event=killer)

    plan = Plan.open(interrupted)  # the learning-rate search may have been extended
    names = [trial.name for trial in plan.list_trials()]
    assert killer.names("lost").total() == 8
    assert set(killer.names("lost").values()) == {1}
    assert killer.names("end") == Counter(names)
    assert killer.names("begin").total() == len(names) + 8
    for path, when in killer.outcome_times.items():
        assert Path(path).stat().st_mtime_ns == when, f"{path} was written again"
    assert {trial.name: load_training(interrupted, trial).result.tokens for trial in plan.list_trials()} == {  # type: ignore
        trial.name: 1282 if trial.kind == "lr" else 2991 for trial in plan.list_trials()
    }
    actual, expected = results(interrupted), results(uninterrupted)
    for name in names:
        assert actual[name] == expected[name], name
    reports = [json.loads((folder / "report.json").read_text()) for folder in (uninterrupted, interrupted)]
    assert [family["values"] for family in reports[0]["families"]] == [
        family["values"] for family in reports[1]["families"]
    ]
    assert reports[0]["pairs"] == reports[1]["pairs"]
    assert not list(interrupted.rglob("*.writing"))


# The command


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "seqwise", "compare", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Returns exit status, standard output and standard error."""
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"still running after {SECONDS} s: {process.communicate()[1]}") from None
    return process.returncode, output, errors


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process is None or process.poll() is None, f"ended early: {process.communicate()[1]}"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.002)


def find_workers(folder: Path) -> list[int]:
    """Returns the process ids of all workers of a comparison."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended
        if b"seqwise.compare.run.worker" in arguments and str(folder).encode() in arguments:
            pids.append(int(path.parent.name))
    return pids


def read_finished_files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Returns modification time and content of the outcomes and weights of finished trials."""
    files = [
        path
        for path in folder.glob("trials/*/*.json")
        if path.stem.partition(".")[0] == path.stem and path.stem != "speed"
    ]
    files += [folder / "trials" / path.parent.name / path.stem / "model.safetensors" for path in files]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.slow
def test_a_killed_and_interrupted_command_resumes_with_the_same_results(text: Path, tmp_path: Path):
    folder, uninterrupted = tmp_path / "out", tmp_path / "uninterrupted"
    settings = [
        "--text.tokenizer",
        "characters",
        "--data.window",
        "16",
        "--network.width",
        "12",
        "--network.depth",
        "1",
    ]
    settings += [
        "--network.dropout",
        "0.2",
        "--training.batch-size",
        "4",
        "--training.save-every",
        "3",
        "--device",
        "cpu",
    ]
    options = [
        "--models",
        "rnn,gru",
        "--budget",
        "10240-tokens",
        "--seeds",
        "1",
        "--lr-trials",
        "2",
        "--examples",
        "3",
    ]
    arguments = [text, "--task", "language", *settings, *options, "--out", folder]
    run = folder / "trials"

    process = start(*arguments)
    wait_until(lambda: saved_step(run / "rnn/seed-0") >= 15, process)
    orphans = find_workers(folder)
    process.kill()
    assert wait_for_end(process)[0] == -signal.SIGKILL
    assert len(orphans) == 1
    wait_until(lambda: not find_workers(folder))  # the orphan saves its state and ends
    before = read_finished_files(folder)
    searched = {f"{trial.name}.json" for trial in Plan.open(folder).list_lr_trials()}
    assert {"rnn/lr-1.json", "rnn/lr-2.json", "gru/lr-1.json", "gru/lr-2.json"} <= searched
    assert {str(path.relative_to(run)) for path in before if path.suffix == ".json"} == searched
    step_at_kill = saved_step(run / "rnn/seed-0")
    assert step_at_kill >= 15

    process = start("--resume", folder)
    wait_until(lambda: saved_step(run / "gru/seed-0") >= 15, process)
    first = json.loads((run / "rnn/seed-0/metrics.jsonl").read_text().splitlines()[0])
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    status, output, errors = wait_for_end(process)
    assert status == 130, errors
    assert output == ""
    assert errors.rstrip().splitlines()[-1] == f"stopped and saved. Resume with: seqwise compare --resume {folder}"
    assert "measuring the speed" not in errors
    assert "learning-rate search" not in errors
    assert not find_workers(folder)
    assert read_finished_files(folder).items() >= before.items(), "a finished trial was trained again"
    assert first["step"] == 1
    before = read_finished_files(folder)

    process = start("--resume", folder, "--json")
    status, output, errors = wait_for_end(process)
    assert status == 0, errors
    assert json.loads(output) == json.loads((folder / "report.json").read_text())
    assert read_finished_files(folder).items() >= before.items()
    finish(
        uninterrupted, make_plan(uninterrupted, text, tiny(training={"save_every": 3}), budget="10240-tokens", seeds=1)
    )
    actual, expected = results(folder), results(uninterrupted)
    for name in expected:
        assert actual[name] == expected[name], name


# How the engine handles workers that die: the fake workers do what the name of their job says

WORKER = """
    import json, os, sys, time
    from pathlib import Path

    folder = Path(sys.argv[-1])
    for line in sys.stdin:
        job = json.loads(line)
        about = {"kind": job["kind"], "name": job["name"]}
        with (folder / "starts.txt").open("a") as file:
            file.write(f"{job['name']} {os.getpid()}\\n")
        print(json.dumps({"event": "begin", **about, "pid": os.getpid()}), flush=True)
        print("this is no event", flush=True)
        if "dies" in job["name"]:
            print('{"event": "progr', end="", flush=True)
            os.kill(os.getpid(), 9)
        if "leaves" in job["name"]:
            print("the last straw", file=sys.stderr)
            sys.exit(3)
        if "loses" in job["name"]:  # a process that it has started
            reason = "when process 2 of 2 was ended by SIGKILL"
            print(json.dumps({"event": "lost", **about, "reason": reason}), flush=True)
            continue
        if "chatters" in job["name"]:
            os.set_blocking(0, False)
            while not _input_ended():
                print(json.dumps({"event": "progress", **about, "progress": 0.5}), flush=True)
                time.sleep(0.01)
            sys.exit(130)
        path = folder / "trials" / (job["name"] + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"status": "done", "reason": "", "result": None}))
        times = (folder / "starts.txt").read_text().count(job["name"])
        if "forgets" in job["name"] and (times == 1 or "always" in job["name"]):
            os.kill(os.getpid(), 9)
        print(json.dumps({"event": "end", **about, "status": "done", "reason": ""}), flush=True)
"""
INPUT_ENDED = """
    def _input_ended():
        try:
            return os.read(0, 1) == b""
        except BlockingIOError:
            return False
"""


@pytest.fixture
def make_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalEngine]:
    script = tmp_path / "worker"
    body = textwrap.dedent(WORKER).replace("folder = Path", textwrap.dedent(INPUT_ENDED) + "\nfolder = Path", 1)
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))

    def make(workers: int = 1) -> LocalEngine:
        return LocalEngine(tmp_path, workers)

    return make


def count_job_starts(folder: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (folder / "starts.txt").read_text().splitlines())


def make_jobs(*names: str) -> list[Job]:
    return [Job("train", f"gru/{name}") for name in names]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_killed_three_times_fails_only_its_job(make_engine, tmp_path: Path, workers: int):
    events: list[dict[str, Any]] = []
    jobs = make_jobs("one", "dies", "two", "leaves", "three")
    engine = make_engine(workers)
    engine.run(jobs, events.append, lambda: False)
    engine.close()
    for job in jobs:
        outcome = job.load(tmp_path)
        assert outcome is not None
        if job.name == "gru/dies":
            assert outcome == Outcome(
                "failed", "its process was lost 3 times, the last time by SIGKILL. Perhaps memory ran out."
            )
        elif job.name == "gru/leaves":
            assert outcome.reason == (
                "its process was lost 3 times, the last time with exit status 3. "
                f"{tmp_path}/workers.log ends with: the last straw"
            )
        else:
            assert outcome.status == "done"
    assert count_job_starts(tmp_path) == {
        **{job.name: 1 for job in jobs},
        "gru/dies": MAX_LOST_PROCESSES,
        "gru/leaves": MAX_LOST_PROCESSES,
    }
    ends = Counter(event["name"] for event in events if event["event"] == "end")
    assert ends == {job.name: 1 for job in jobs}
    lost = Counter(event["name"] for event in events if event["event"] == "lost")
    assert lost == {"gru/dies": MAX_LOST_PROCESSES, "gru/leaves": MAX_LOST_PROCESSES}


def test_a_worker_is_reused_for_the_next_job(make_engine, tmp_path: Path):
    engine = make_engine()
    engine.run(make_jobs("one", "two"), lambda event: None, lambda: False)
    engine.run(make_jobs("three"), lambda event: None, lambda: False)
    engine.close()
    assert len({line.split()[1] for line in (tmp_path / "starts.txt").read_text().splitlines()}) == 1


def test_an_outcome_saved_before_a_kill_counts(make_engine, tmp_path: Path):
    events: list[dict[str, Any]] = []
    engine = make_engine()
    engine.run(make_jobs("forgets"), events.append, lambda: False)
    engine.close()
    assert [event["event"] for event in events if event["event"] in ("lost", "end")] == ["lost", "end"]
    assert make_jobs("forgets")[0].load(tmp_path) == Outcome("done")


def test_the_end_is_reported_once_when_the_last_kill_came_after_the_outcome(make_engine, tmp_path: Path):
    events: list[dict[str, Any]] = []
    engine = make_engine()
    engine.run(make_jobs("forgets-always"), events.append, lambda: False)
    engine.close()
    statuses = [(event["event"], event.get("status")) for event in events if event["event"] in ("lost", "end")]
    assert statuses == [("lost", None)] * MAX_LOST_PROCESSES + [("end", "done")]


def test_a_worker_that_loses_a_process_is_reused(make_engine, tmp_path: Path):
    events: list[dict[str, Any]] = []
    engine = make_engine()
    engine.run(make_jobs("loses", "one"), events.append, lambda: False)
    engine.close()
    assert count_job_starts(tmp_path) == {"gru/loses": MAX_LOST_PROCESSES, "gru/one": 1}
    assert len({line.split()[1] for line in (tmp_path / "starts.txt").read_text().splitlines()}) == 1
    assert Counter(event["name"] for event in events if event["event"] == "lost") == {"gru/loses": MAX_LOST_PROCESSES}
    assert make_jobs("loses")[0].load(tmp_path) == Outcome(
        "failed",
        "its process was lost 3 times, the last time when process 2 of 2 was ended by SIGKILL. Perhaps memory ran out.",
    )


def test_a_worker_reports_a_lost_process_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    events: list[dict[str, Any]] = []

    def work(folder: Path, job: Job, *rest: Any) -> Outcome:
        if job.name == "gru/one":
            raise LostJobProcess("when process 2 of 2 was ended by SIGKILL")
        return Outcome("done")

    monkeypatch.setattr(worker, "_open_event_pipe", lambda: events.append)
    monkeypatch.setattr(execute, "execute", work)
    lines = [json.dumps({"kind": "train", "name": f"gru/{name}"}) + "\n" for name in ("one", "two")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(lines)))
    assert worker.main(tmp_path) == 0
    assert [each["event"] for each in events] == ["begin", "lost", "begin", "end"]
    assert events[1]["reason"] == "when process 2 of 2 was ended by SIGKILL"


def test_an_error_in_a_callback_stops_all_workers(make_engine, tmp_path: Path):
    def fail_at_end(event: dict[str, Any]) -> None:
        if event["event"] == "end":
            raise OSError("no connection")

    engine = make_engine(2)
    began = time.monotonic()
    with pytest.raises(OSError, match="no connection"):
        engine.run(make_jobs("chatters", "one", "two"), fail_at_end, lambda: False)
    assert time.monotonic() - began < 20
    engine.close()
    assert count_job_starts(tmp_path) == {
        "gru/chatters": 1,
        "gru/one": 1,
    }  # the other worker was stopped and not replaced


def test_cores_are_shared_by_workers_and_their_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "count_cpus", lambda: 12)

    def variables(*arguments: int) -> list[dict[str, str]]:
        return LocalEngine(tmp_path, *arguments).variables

    assert [each["OMP_NUM_THREADS"] for each in variables(3, 0, 2)] == ["2"] * 3
    assert [each["OMP_NUM_THREADS"] for each in variables(3, 0, 1)] == ["4"] * 3
    assert variables(8, 0, 4)[0]["OMP_NUM_THREADS"] == "1"
    assert variables(1, 0, 2) == [{DEVICE_WORKERS_VARIABLE: "1", WORKERS_VARIABLE: "1"}]
    assert {(each[DEVICE_WORKERS_VARIABLE], each[WORKERS_VARIABLE]) for each in variables(4, 2)} == {("2", "4")}
    assert LocalEngine(tmp_path, 4, 2).num_workers == 4
    assert LocalEngine(tmp_path).num_workers == 1


@pytest.mark.slow
def test_a_worker_does_not_import_files_of_the_working_folder(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokenizers.py").write_text("raise ImportError('a file of the user')\n")
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1)
    engine = LocalEngine(folder, workers=2)
    engine.run([Job("train", "rnn/seed-0")], lambda event: None, lambda: False)
    engine.close()
    outcome = Job("train", "rnn/seed-0").load(folder)
    assert outcome is not None
    assert outcome.result is not None, outcome.reason
    assert (outcome.result.device_workers, outcome.result.workers) == (2, 2)


def test_a_worker_imports_seqwise_from_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = str(Path(environment.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.chdir(tmp_path)
    assert launcher.build_worker_environment()["PYTHONPATH"] == "mine"
    monkeypatch.chdir(source)  # `python -m seqwise` finds it here, installed or not
    assert launcher.build_worker_environment()["PYTHONPATH"] == f"mine{os.pathsep}{source}"
    monkeypatch.delenv("PYTHONPATH")
    assert launcher.build_worker_environment()["PYTHONPATH"] == source


def test_the_environment_of_a_worker_leaves_that_of_the_caller_unchanged(monkeypatch: pytest.MonkeyPatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    assert launcher.build_worker_environment()["GOMP_SPINCOUNT"] == "1000"
    assert dict(os.environ) == before


def test_a_worker_that_sends_many_events_can_be_stopped(make_engine, tmp_path: Path):
    events: list[dict[str, Any]] = []
    engine = make_engine()
    began = time.monotonic()
    engine.run(make_jobs("chatters", "later"), events.append, lambda: len(events) > 20)
    assert time.monotonic() - began < 20
    engine.close()
    assert count_job_starts(tmp_path) == {"gru/chatters": 1}
    assert make_jobs("chatters")[0].load(tmp_path) is None
    assert not [event for event in events if event["event"] == "lost"]
