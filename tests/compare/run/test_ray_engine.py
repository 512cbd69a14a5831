"""Trials on a Ray cluster of several nodes, all on this machine, and the loss of processes and nodes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from listeners import find_public, list_descendants, list_listeners
from small_comparison import create_comparison

from seqwise import environment
from seqwise.compare.plan.create import Request
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import DEVICE_WORKERS_VARIABLE, WORKERS_VARIABLE, Plan
from seqwise.compare.run import execute
from seqwise.compare.run import ray_cluster as cluster
from seqwise.compare.run import ray_engine as engine_module
from seqwise.compare.run.engine import MAX_LOST_PROCESSES
from seqwise.compare.run.execute import InterruptedJob, LostJobProcess
from seqwise.compare.run.jobs import LATENCY_JOB, SPEED_JOB, Event, Job, Outcome
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.compare.run.ray_cluster import Node, Probe, allocate_slots, describe_cluster, find_node_error
from seqwise.compare.run.ray_engine import RayEngine
from seqwise.compare.run.stages import run_stages
from seqwise.config import Settings
from seqwise.errors import SeqwiseError, UsageError

BIG, SMALL, CPU = Node("a", "big", 8, 4), Node("b", "small", 4, 2), Node("c", "plain", 6, 0)


# Slots, without a cluster


@pytest.mark.parametrize(
    ("nodes", "workers", "processes", "gpus", "expected"),
    [
        # Without GPUs: all cores of a node, as many as the smallest has.
        ([CPU, Node("d", "other", 4, 0)], None, 1, True, [("c", 4, 0, 4), ("d", 4, 0, 4)]),
        # One for each GPU; nodes take turns; the node without GPUs is left out.
        (
            [BIG, SMALL, CPU], None, 1, True,
            [("a", 2, 1, 2), ("b", 2, 1, 2), ("a", 2, 1, 2), ("b", 2, 1, 2), ("a", 2, 1, 2), ("a", 2, 1, 2)],
        ),
        ([BIG, CPU], 2, 1, False, [("a", 6, 0, 6), ("c", 6, 0, 6)]),  # without GPUs
        ([BIG, SMALL], None, 2, True, [("a", 4, 2, 4), ("b", 4, 2, 4), ("a", 4, 2, 4)]),  # two GPUs for two processes
        ([BIG, SMALL], 8, 4, True, [("a", 8, 4, 8)]),  # groups are not halved
        ([SMALL], 4, 1, True, [("b", 1, 0.5, 1)] * 4),
        ([CPU], 4, 1, True, [("c", 1, 0, 1)] * 4),
        ([Node("e", "tiny", 2, 0)], 3, 1, True, [("e", 0.6666, 0, 1)] * 3),
        ([Node("h", "head", 0, 0)], None, 1, True, []),
    ],
)  # fmt: skip
def test_slots_are_allocated_by_gpu_or_by_node(nodes, workers, processes, gpus, expected):
    slots = allocate_slots(nodes, workers, processes, gpus)
    assert [(slot.node.id, slot.cores, slot.gpus, slot.threads) for slot in slots] == expected
    assert len(set(slots)) == len(slots)
    reserved = max(sum(slot.gpus for slot in slots if slot.node == node) for node in nodes) if slots else 0
    assert reserved <= max(node.gpus for node in nodes)


@pytest.mark.parametrize(
    ("nodes", "workers", "device_workers"),
    [([CPU], None, 1), ([CPU], 4, 4), ([SMALL], 4, 2), ([SMALL], 2, 1), ([BIG, SMALL], 8, 2)],
)
def test_slots_count_the_workers_on_their_device(nodes, workers, device_workers):
    assert {slot.device_workers for slot in allocate_slots(nodes, workers, 1, True)} == {device_workers}


PASSING_PROBE = Probe(has_folder=True, has_data=True, version=environment.get_version(), cpu="EPYC")


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (None, "1 of 2 nodes of the cluster did not answer within 60 s: small."),
        (Probe(True, True, "", ""), "cannot import seqwise: small"),
        (
            Probe(True, True, "0.0.1", "EPYC"),
            f"have another version of Seqwise than {environment.get_version()}: small",
        ),
        (Probe(False, True, PASSING_PROBE.version, "EPYC"), "cannot read and write the folder somewhere: small"),
        (Probe(True, False, PASSING_PROBE.version, "EPYC"), "cannot read the data book.txt: small"),
    ],
)
def test_unsuitable_nodes_are_named(probe: Probe | None, words: str):
    problem = find_node_error({BIG: PASSING_PROBE, SMALL: probe}, Path("somewhere"), "book.txt")
    assert words in str(problem)
    assert "big" not in str(problem)
    assert problem.fix  # type: ignore[union-attr]


def test_suitable_nodes_are_described():
    assert find_node_error({BIG: PASSING_PROBE, SMALL: PASSING_PROBE}, Path("somewhere"), "book.txt") is None
    assert describe_cluster({BIG: PASSING_PROBE}) == "a Ray cluster of 1 node with EPYC, 8 cores, 4 GPUs"
    twins = {CPU: PASSING_PROBE, Node("d", "other", 6, 0): PASSING_PROBE}
    assert describe_cluster(twins) == "a Ray cluster of 2 nodes, each with EPYC, 6 cores, no GPU"
    assert describe_cluster({CPU: PASSING_PROBE, Node("t", "tiny", 1, 1): PASSING_PROBE}).endswith(
        "EPYC, 6 cores, no GPU; 1 with EPYC, 1 core, 1 GPU"
    )


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'seqwise\[ray\]'"):
        RayEngine(tmp_path)


# One process, without Ray


JOB = Job("train", "gru/seed-0")


class BlockedJob:
    """A job that lasts until `finish` is set, or until it should stop if it `can_stop`."""

    def __init__(self, can_stop: bool):
        self.can_stop, self.finish, self.num_starts = can_stop, threading.Event(), 0

    def __call__(self, folder: Path, job: Job, on_event: Callable[[Event], None], stop: Callable[[], bool]) -> Outcome:
        self.num_starts += 1
        on_event({"progress": 0.5})
        while not self.finish.wait(0.01):
            if self.can_stop and stop():
                raise InterruptedJob
        return Outcome("done")


@pytest.fixture
def make_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float, BlockedJob], Any]:
    def make(lease: float, job: BlockedJob) -> Any:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(execute, "execute", job)
        variables = {DEVICE_WORKERS_VARIABLE: "3", WORKERS_VARIABLE: "6"}
        for name in variables:
            monkeypatch.setenv(name, "1")
        return engine_module._WorkerProcess(str(tmp_path), str(tmp_path), 1, 1, lease, variables)

    return make


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def test_a_repeated_poll_starts_the_job_once(make_process):
    job = BlockedJob(can_stop=True)
    worker = make_process(60.0, job)
    assert worker.poll(0, None, False)["result"] is None
    worker.poll(1, JOB, False)
    wait_until(lambda: worker.poll(1, JOB, False)["progress"] == {"progress": 0.5})
    job.finish.set()
    wait_until(lambda: worker.poll(1, JOB, False)["result"] is not None)
    assert worker.poll(1, JOB, False)["result"] == {"event": "end", "status": "done", "reason": ""}
    assert job.num_starts == 1
    assert (os.environ[DEVICE_WORKERS_VARIABLE], os.environ[WORKERS_VARIABLE]) == ("3", "6")


def test_a_job_that_loses_a_process_is_lost(make_process, monkeypatch: pytest.MonkeyPatch):
    def lose(*args: object) -> Outcome:
        raise LostJobProcess("when process 2 of 2 was ended by SIGKILL")

    worker = make_process(60.0, BlockedJob(can_stop=True))
    monkeypatch.setattr(execute, "execute", lose)
    worker.poll(1, JOB, False)
    wait_until(lambda: worker.result is not None)
    assert worker.result == {"event": "lost", "reason": "when process 2 of 2 was ended by SIGKILL"}


@pytest.mark.parametrize("setting", ["GOMP_SPINCOUNT=1000", "OMP_WAIT_POLICY=passive"])
def test_threads_wait_as_in_local_workers(monkeypatch: pytest.MonkeyPatch, setting: str):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    name, _, value = setting.partition("=")
    if name != "GOMP_SPINCOUNT":  # the default
        monkeypatch.setenv(name, value)
    assert engine_module._make_runtime_env() == {"env_vars": {name: value}}


def test_a_busy_cluster_gives_one_warning_per_wait_and_then_an_error(tmp_path: Path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(engine_module.time, "monotonic", lambda: now)
    recorder = Recorder()
    timeout, workers = engine_module._StartTimeout(recorder), {
        slot: engine_module._RayWorker(slot, None) for slot in allocate_slots([BIG, SMALL], None, 1, True)
    }  # fmt: skip
    warn = engine_module.WARN_SECONDS
    for now in (5.0, 6.0, warn, warn + 6, warn + 20):  # noqa: B007
        timeout.check(workers, tmp_path)
    assert [event["event"] for event in recorder.events] == ["waiting"]
    assert "a job needs 2 cores and 1 GPU on one of 2 nodes. Perhaps it is busy" in recorder.events[0]["reason"]
    assert "waits for 10 minutes" in recorder.events[0]["reason"]
    next(iter(workers.values())).last_answer = 1.0
    timeout.check(workers, tmp_path)  # the timeout starts again
    next(iter(workers.values())).last_answer = 0.0
    timeout.check(workers, tmp_path)
    now += engine_module.GIVE_UP_SECONDS - 1
    timeout.check(workers, tmp_path)
    now += 2
    with pytest.raises(SeqwiseError, match=r"no process within 10 minutes(.|\n)*ray status(.|\n)*compare --resume"):
        timeout.check(workers, tmp_path)
    assert len(recorder.events) == 2


def test_a_process_that_is_not_polled_stops_its_job(make_process):
    worker = make_process(0.3, BlockedJob(can_stop=True))
    worker.poll(1, JOB, False)
    wait_until(lambda: worker.result is not None)
    assert worker.poll(1, JOB, False)["result"] == {"event": "stopped"}


def test_a_process_that_cannot_stop_its_job_exits(make_process, monkeypatch: pytest.MonkeyPatch):
    job = BlockedJob(can_stop=False)
    has_exited = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda status: has_exited.set())
    worker = make_process(0.1, job)
    worker.poll(1, JOB, False)
    assert has_exited.wait(20)
    job.finish.set()
    wait_until(lambda: worker.result is not None)


# A cluster


def import_ray_or_skip() -> Any:
    """Imports Ray as the engine does, which limits its logging."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'seqwise[ray]'")
    return cluster.import_ray()


@pytest.fixture(scope="module")
def reference(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small comparison, executed by the local engine."""
    folder = tmp_path_factory.mktemp("reference") / "compare"
    base = Settings(task="language", device="cpu")
    base.text.tokenizer, base.network.width, base.network.depth, base.network.dropout = "characters", 16, 1, 0.2
    base.data.window, base.training.batch_size, base.training.save_every = 16, 4, 10
    options = ComparisonOptions(models=("rnn", "gru"), budget="12k-tokens", match="tokens", seeds=1, lr_trials=2)
    plan = create_comparison(folder, Request(str(book), options, base))
    engine = LocalEngine(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        try:
            assert run_stages(folder, plan, engine, lambda event: None)
        finally:
            engine.close()
    return folder


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A head that has no core for jobs, and two nodes with one core each."""
    import_ray_or_skip()
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        head = {"num_cpus": 0, "object_store_memory": cluster.OBJECT_STORE_BYTES, "include_dashboard": False}
        head["_system_config"] = {"health_check_period_ms": 1000}  # a lost node is noticed after five of them
        test_cluster = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", test_cluster.address)
        for _ in range(2):
            test_cluster.add_node(num_cpus=1, object_store_memory=cluster.OBJECT_STORE_BYTES)
        yield test_cluster
        test_cluster.shutdown()


@pytest.fixture
def make_engine(ray_cluster) -> Iterator[Callable[..., RayEngine]]:
    engines: list[RayEngine] = []

    def make(folder: Path, workers: int | None = None) -> RayEngine:
        engines.append(RayEngine(folder, workers))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def new_folder(reference: Path, tmp_path: Path) -> Path:
    """The same comparison, before its training runs."""
    folder = tmp_path / "compare"
    shutil.copytree(reference, folder)
    for path in folder.glob("trials/*/seed-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


TRAINING_JOBS = [Job("train", "rnn/seed-0"), Job("train", "gru/seed-0")]
TEST_JOBS = [Job("test", job.name) for job in TRAINING_JOBS]


class Recorder:
    """Records the events of an engine; `react` is called with each of them."""

    def __init__(self, react: Callable[[Event, Recorder], None] = lambda event, recorder: None):
        self.events: list[Event] = []
        self.react = react

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.react(event, self)

    def names(self, event: str) -> list[str]:
        return [each["name"] for each in self.events if each["event"] == event]

    def pid(self, name: str) -> int:
        return [each["pid"] for each in self.events if each["event"] == "begin" and each["name"] == name][-1]


def assert_same_results(folder: Path, reference: Path, jobs: list[Job]) -> None:
    """Checks that all results but times and memory are equal, and the weights bit-identical."""
    for job in jobs:
        actual, expected = (json.loads(job.get_file(each).read_text()) for each in (folder, reference))
        assert actual["status"] == "done", actual["reason"]
        for key in ("rate", "tokens", "updates", "objective", "validation", "metrics"):
            assert actual["result"].get(key) == expected["result"].get(key), (job.name, key)
        if job.kind == "train":
            weights = [(job.get_run_folder(each) / "model.safetensors").read_bytes() for each in (folder, reference)]
            assert weights[0] == weights[1]


@pytest.mark.slow
def test_a_cluster_gives_the_results_of_the_local_engine(reference: Path, tmp_path: Path, make_engine):
    folder = tmp_path / "compare"
    shutil.copytree(reference, folder, ignore=shutil.ignore_patterns("trials"))
    plan, recorder = Plan.open(folder), Recorder()
    assert run_stages(folder, plan, make_engine(folder), recorder)
    training_jobs = [Job("train", trial.name) for trial in plan.list_trials()]
    test_jobs = [Job("test", trial.name) for trial in plan.list_training_trials()]
    assert_same_results(folder, reference, [*training_jobs, *test_jobs])
    assert sorted(recorder.names("end")) == sorted(
        [SPEED_JOB.name, LATENCY_JOB.name, *(job.name for job in [*training_jobs, *test_jobs])]
    )
    assert recorder.names("lost") == []
    pids = {event["pid"] for event in recorder.events if event["event"] == "begin"}
    assert len(pids) == 2  # processes are reused
    setting = next(iter(engine_module._make_runtime_env()["env_vars"].items()))
    for pid in pids:
        assert "=".join(setting) in Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert max(event.get("progress", 0) for event in recorder.events) == 1.0
    assert list(folder.glob(".probe-*")) == []
    values = json.loads(training_jobs[0].get_file(folder).read_text())["result"]
    assert (values["device_workers"], values["workers"]) == (1, 2)
    assert json.loads((folder / "env.json").read_text())["in_words"].startswith("a Ray cluster of 2 nodes")


@pytest.mark.slow
def test_waiting_for_a_busy_cluster_has_a_limit(new_folder: Path, make_engine, monkeypatch):
    ray = import_ray_or_skip()
    monkeypatch.setattr(engine_module, "WARN_SECONDS", 0.5)
    monkeypatch.setattr(engine_module, "GIVE_UP_SECONDS", 3.0)
    engine, recorder = make_engine(new_folder), Recorder()
    engine._join()
    assert engine.num_workers == 2

    class Other:
        def here(self) -> None: ...

    others = [ray.remote(Other).options(num_cpus=1).remote() for _ in range(2)]  # jobs of another user
    ray.get([other.here.remote() for other in others])
    try:
        with pytest.raises(SeqwiseError, match=r"started no process within 0.05 minutes: a job needs 1 core on"):
            engine.run(TRAINING_JOBS, recorder, lambda: False)
    finally:
        for other in others:
            ray.kill(other)
    assert [event["event"] for event in recorder.events] == ["waiting"]
    assert not any(job.get_file(new_folder).exists() for job in TRAINING_JOBS)


@pytest.mark.slow
def test_a_killed_process_does_not_change_the_results(reference: Path, new_folder: Path, make_engine):
    def kill(event: Event, recorder: Recorder) -> None:
        if event.get("name") == "gru/seed-0" and event.get("progress", 0) > 0.3 and not recorder.names("lost"):
            os.kill(recorder.pid(event["name"]), signal.SIGKILL)
            wait_until(lambda: not is_alive(recorder.pid(event["name"])))

    recorder = Recorder(kill)
    make_engine(new_folder).run(TRAINING_JOBS, recorder, lambda: False)
    assert recorder.names("lost") == ["gru/seed-0"]
    assert sorted(recorder.names("end")) == sorted(job.name for job in TRAINING_JOBS)
    assert_same_results(new_folder, reference, TRAINING_JOBS)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_job_whose_process_is_always_killed_fails_alone(reference: Path, new_folder: Path, make_engine):
    def kill(event: Event, recorder: Recorder) -> None:
        if event.get("name") == "rnn/seed-0" and event["event"] == "begin":
            os.kill(event["pid"], signal.SIGKILL)

    recorder, jobs = Recorder(kill), TRAINING_JOBS
    make_engine(new_folder).run(jobs, recorder, lambda: False)
    assert recorder.names("lost") == ["rnn/seed-0"] * MAX_LOST_PROCESSES
    outcome = jobs[0].load(new_folder)
    assert outcome is not None
    assert outcome.status == "failed"
    assert f"lost {MAX_LOST_PROCESSES} times" in outcome.reason
    assert sorted(recorder.names("end")) == ["gru/seed-0", "rnn/seed-0"]
    assert_same_results(new_folder, reference, jobs[1:])


@pytest.mark.slow
def test_a_lost_node_does_not_change_the_results_and_a_new_one_joins(
    reference: Path, new_folder: Path, make_engine, ray_cluster, monkeypatch, capfd
):
    monkeypatch.setattr(engine_module, "LEASE_SECONDS", 2.0)
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in ray_cluster.worker_nodes}
    removals: list[threading.Thread] = []

    def remove(event: Event, recorder: Recorder) -> None:
        if event.get("name") == "gru/seed-0" and event.get("progress", 0) > 0.3 and not removals:
            node = raylets[parent(recorder.pid("gru/seed-0"))]
            removals.append(threading.Thread(target=ray_cluster.remove_node, args=(node, False)))
            removals[0].start()

    engine, recorder = make_engine(new_folder), Recorder(remove)
    try:
        engine.run(TRAINING_JOBS, recorder, lambda: False)
    finally:
        removals[0].join()
        new = ray_cluster.add_node(num_cpus=1, object_store_memory=cluster.OBJECT_STORE_BYTES)
    assert [(event["name"], event["reason"][:13]) for event in recorder.events if event["event"] == "lost"] == [
        ("gru/seed-0", "with its node")
    ]
    assert sorted(recorder.names("end")) == sorted(job.name for job in TRAINING_JOBS)
    assert_same_results(new_folder, reference, TRAINING_JOBS)
    recorder = Recorder()
    engine.run(TEST_JOBS, recorder, lambda: False)
    assert_same_results(new_folder, reference, TEST_JOBS)
    assert capfd.readouterr().out == ""  # Ray would log much about a lost node
    assert new.node_id in {slot.node.id for slot in engine._workers}


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.slow
def test_stopped_jobs_resume_later(reference: Path, new_folder: Path, make_engine):
    recorder = Recorder()

    def stop() -> bool:
        return any(event.get("progress", 0) > 0.3 for event in recorder.events)

    engine = make_engine(new_folder, 1)
    engine.run(TRAINING_JOBS, recorder, stop)
    assert recorder.names("begin") == ["rnn/seed-0"]
    assert recorder.names("end") == recorder.names("lost") == []
    assert not TRAINING_JOBS[0].get_file(new_folder).exists()
    engine.run(TRAINING_JOBS, recorder, lambda: False)
    progress = [event["progress"] for event in recorder.events if event["event"] == "progress"]
    assert all(later > 0.3 for later in progress[progress.index(next(each for each in progress if each > 0.3)) :][:2])
    assert_same_results(new_folder, reference, TRAINING_JOBS)


@pytest.mark.slow
def test_jobs_whose_lease_ended_are_resumed(reference: Path, new_folder: Path, make_engine, monkeypatch):
    monkeypatch.setattr(engine_module, "LEASE_SECONDS", 1.0)
    paused: list[str] = []

    def sleep(event: Event, recorder: Recorder) -> None:
        if event["event"] == "progress" and not paused:
            paused.append(event["name"])
            time.sleep(2.5)

    recorder = Recorder(sleep)
    make_engine(new_folder, 1).run(TRAINING_JOBS[1:2], recorder, lambda: False)
    assert len(recorder.names("begin")) > 1
    # Beside other load a job was lost once, for a reason not yet found; the engine starts it again.
    assert len(recorder.names("lost")) <= 1
    assert recorder.names("end") == [TRAINING_JOBS[1].name]
    assert_same_results(new_folder, reference, TRAINING_JOBS[1:2])


@pytest.mark.slow
def test_a_node_without_access_to_the_folder_is_named(new_folder: Path, make_engine, ray_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "SYNC_SECONDS", 1.0)
    unshare = ["unshare", "--map-root-user", "--mount", "--uts"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a process have mounts of its own")
    start = f"{Path(sys.executable).parent}/ray start --address {ray_cluster.address} --num-cpus 1 --block"
    start += f" --object-store-memory {cluster.OBJECT_STORE_BYTES}"
    script = f"hostname far && mount -t tmpfs none '{new_folder}' && exec {start}"
    node = subprocess.Popen([*unshare, "sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: node.poll() is not None or len(ray_cluster.global_state._live_node_ids()) > 3)
        engine = make_engine(new_folder)
        with pytest.raises(UsageError, match=r"1 of 3 nodes .* cannot read and write the folder .*: far \("):
            engine.run(TRAINING_JOBS[:1], Recorder(), lambda: False)
    finally:
        node.terminate()
        node.wait()


@pytest.mark.slow
def test_processes_that_cannot_start_end_the_comparison(new_folder: Path, make_engine, monkeypatch):
    class FailingProcess:  # an inner class is sent as code: a node cannot import this file
        def __init__(self, *args: object):
            raise ImportError("no such library")

        def poll(self, *args: object) -> None: ...

    monkeypatch.setattr(engine_module, "_WorkerProcess", FailingProcess)
    with pytest.raises(SeqwiseError, match=r"no node left .*no such library(.|\n)*seqwise compare --resume"):
        make_engine(new_folder, 1).run(TRAINING_JOBS[:1], Recorder(), lambda: False)
    assert TRAINING_JOBS[0].load(new_folder) is None  # the trial itself did not fail


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
@pytest.mark.slow
def test_an_unreachable_address_is_an_error(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import_ray_or_skip()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=f"at {address} cannot be joined"):
        RayEngine(tmp_path).run(TRAINING_JOBS, Recorder(), lambda: False)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path, since paths of Ray's sockets in it are limited to about 100 characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.slow
def test_without_a_cluster_ray_runs_on_this_machine(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    ray = import_ray_or_skip()
    (short_folder / "ray").mkdir()
    (short_folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # of a cluster that no longer exists
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("TMPDIR", str(short_folder))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert cluster.connect()
        assert not cluster.connect()  # once is enough
        assert [node.cores for node in cluster.list_nodes()] == [environment.count_cpus()]
        assert signal.getsignal(signal.SIGTERM) == handler
    finally:
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system lists no sockets in /proc")
def test_without_a_cluster_no_process_of_ray_listens_beyond_this_machine(monkeypatch: pytest.MonkeyPatch):
    """Head, node, agents, the driver and a process with an environment of its own, as those of jobs are."""
    ray = import_ray_or_skip()
    monkeypatch.setenv("RAY_ADDRESS", "local")
    before, others = dict(os.environ), list_descendants(os.getpid()) - {os.getpid()}  # of the cluster of other tests
    try:
        cluster.connect()

        def get_pid() -> int:
            import os

            return os.getpid()

        task = ray.remote(get_pid).options(runtime_env=engine_module._make_runtime_env())
        pid = ray.get(task.remote())
        listeners = list_listeners(list_descendants(os.getpid()) - others)
        assert {pid, os.getpid()} <= set().union(*listeners.values())
        assert len(listeners) >= 5, listeners
        assert find_public(listeners) == {}
        # A cluster that is joined later in this process is reached by the usual address.
        assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ.keys() - before.keys()
        assert (sys.platform != "darwin") == sys.modules["ray._private.ray_constants"].ENABLE_RAY_CLUSTER
    finally:
        ray.shutdown()


def test_a_ray_that_ignores_the_loopback_address_is_stopped(monkeypatch: pytest.MonkeyPatch):
    calls = []
    fake = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda *args, **options: calls.append("init"),
        nodes=lambda: [{"NodeManagerAddress": "10.0.0.7"}],
        shutdown=lambda: calls.append("shutdown"),
        __version__="9.9",
    )
    monkeypatch.setattr(cluster, "import_ray", lambda: fake)
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", SimpleNamespace())
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UsageError, match=r"Ray 9\.9 listens on 10\.0\.0\.7: other machines could run programs here"):
        cluster.connect()
    assert calls == ["init", "shutdown"]


@pytest.mark.slow
def test_the_reason_why_ray_cannot_start_is_reported(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    import_ray_or_skip()
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("TMPDIR", str(short_folder / ("deep" * 20)))
    with pytest.raises(UsageError, match=r"Ray cannot be started here: .*path length"):
        cluster.connect()
