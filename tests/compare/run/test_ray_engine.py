"""Trials on a Ray cluster of several nodes, all of them on this machine, and what the loss of a part of it costs."""

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
from typing import Any

import pytest

from seqwise import environment
from seqwise.compare.plan.create import make_plan
from seqwise.compare.plan.options import Question
from seqwise.compare.plan.plan import AT_ONCE, BESIDE, Plan
from seqwise.compare.run import ray_cluster as cluster
from seqwise.compare.run import ray_engine as engine_module
from seqwise.compare.run.engine import DEATHS, Event
from seqwise.compare.run.execute import Interrupted, Lost
from seqwise.compare.run.jobs import Job, Outcome
from seqwise.compare.run.local_engine import Local
from seqwise.compare.run.ray_cluster import Node, Report, in_words, places_on, unfit
from seqwise.compare.run.ray_engine import Ray
from seqwise.compare.run.stages import carry_out
from seqwise.config import Settings
from seqwise.errors import SeqwiseError, UsageError

BIG, SMALL, CPU = Node("a", "big", 8, 4), Node("b", "small", 4, 2), Node("c", "plain", 6, 0)


# Places: no cluster is needed to know them


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
        ([BIG, CPU], 2, 1, False, [("a", 6, 0, 6), ("c", 6, 0, 6)]),  # GPUs are not wanted
        ([BIG, SMALL], None, 2, True, [("a", 4, 2, 4), ("b", 4, 2, 4), ("a", 4, 2, 4)]),  # two GPUs for two processes
        ([BIG, SMALL], 8, 4, True, [("a", 8, 4, 8)]),  # groups are not halved
        ([SMALL], 4, 1, True, [("b", 1, 0.5, 1)] * 4),
        ([CPU], 4, 1, True, [("c", 1, 0, 1)] * 4),
        ([Node("e", "tiny", 2, 0)], 3, 1, True, [("e", 0.6666, 0, 1)] * 3),
        ([Node("h", "head", 0, 0)], None, 1, True, []),
    ],
)  # fmt: skip
def test_there_is_a_place_for_each_device(nodes, workers, processes, gpus, expected):
    places = places_on(nodes, workers, processes, gpus)
    assert [(place.node.id, place.cores, place.gpus, place.threads) for place in places] == expected
    assert len(set(places)) == len(places)
    wanted = max(sum(place.gpus for place in places if place.node == node) for node in nodes) if places else 0
    assert wanted <= max(node.gpus for node in nodes)


@pytest.mark.parametrize(
    ("nodes", "workers", "beside"),
    [([CPU], None, 1), ([CPU], 4, 4), ([SMALL], 4, 2), ([SMALL], 2, 1), ([BIG, SMALL], 8, 2)],
)
def test_places_know_who_shares_their_device(nodes, workers, beside):
    assert {place.beside for place in places_on(nodes, workers, 1, True)} == {beside}


FINE = Report(folder=True, data=True, seqwise=environment.version(), cpu="EPYC")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (None, "1 of 2 nodes of the cluster did not answer within 60 s: small."),
        (Report(True, True, "", ""), "cannot import seqwise: small"),
        (Report(True, True, "0.0.1", "EPYC"), f"have another Seqwise than {environment.version()}: small"),
        (Report(False, True, FINE.seqwise, "EPYC"), "cannot read and write the folder somewhere: small"),
        (Report(True, False, FINE.seqwise, "EPYC"), "do not see the data book.txt: small"),
    ],
)
def test_nodes_that_cannot_take_part_are_named(report: Report | None, words: str):
    problem = unfit({BIG: FINE, SMALL: report}, Path("somewhere"), "book.txt")
    assert words in str(problem)
    assert "big" not in str(problem)
    assert problem.repair  # type: ignore[union-attr]


def test_nodes_that_can_take_part_are_described():
    assert unfit({BIG: FINE, SMALL: FINE}, Path("somewhere"), "book.txt") is None
    assert in_words({BIG: FINE}) == "a Ray cluster of 1 node with EPYC, 8 cores, 4 GPUs"
    twins = {CPU: FINE, Node("d", "other", 6, 0): FINE}
    assert in_words(twins) == "a Ray cluster of 2 nodes, each with EPYC, 6 cores, no GPU"
    assert in_words({CPU: FINE, Node("t", "tiny", 1, 1): FINE}).endswith(
        "EPYC, 6 cores, no GPU; 1 with EPYC, 1 core, 1 GPU"
    )


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'seqwise\[ray\]'"):
        Ray(tmp_path)


# One process, without Ray


class Blocked:
    """A job that takes as long as the test wants, and that notices when it should stop, or does not."""

    def __init__(self, heeds: bool):
        self.heeds, self.over, self.begun = heeds, threading.Event(), 0

    def __call__(self, folder: Path, job: Job, tell: Callable[[Event], None], stop: Callable[[], bool]) -> Outcome:
        self.begun += 1
        tell({"progress": 0.5})
        while not self.over.wait(0.01):
            if self.heeds and stop():
                raise Interrupted
        return Outcome("done")


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float, Blocked], Any]:
    def make(lease: float, job: Blocked) -> Any:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(engine_module, "execute", job)
        neighbours = {BESIDE: "3", AT_ONCE: "6"}
        for name in neighbours:
            monkeypatch.setenv(name, "1")
        return engine_module._Process(str(tmp_path), str(tmp_path), 1, 1, lease, neighbours)

    return make


def until(reached: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def test_a_question_asked_twice_starts_the_job_once(process):
    job = Blocked(heeds=True)
    worker = process(60.0, job)
    assert worker.work(0, "", "", False)["result"] is None
    worker.work(1, "train", "gru/seed-0", False)
    until(lambda: worker.work(1, "train", "gru/seed-0", False)["progress"] == {"progress": 0.5})
    job.over.set()
    until(lambda: worker.work(1, "train", "gru/seed-0", False)["result"] is not None)
    assert worker.work(1, "train", "gru/seed-0", False)["result"] == {"event": "end", "status": "done", "reason": ""}
    assert job.begun == 1
    assert (os.environ[BESIDE], os.environ[AT_ONCE]) == ("3", "6")


def test_a_process_that_a_job_has_lost_is_a_death_of_the_job(process, monkeypatch: pytest.MonkeyPatch):
    def lose(*words: object) -> Outcome:
        raise Lost("when process 2 of 2 was ended by SIGKILL")

    worker = process(60.0, Blocked(heeds=True))
    monkeypatch.setattr(engine_module, "execute", lose)
    worker.work(1, "train", "gru/seed-0", False)
    until(lambda: worker.result is not None)
    assert worker.result == {"event": "broken", "reason": "when process 2 of 2 was ended by SIGKILL"}


def test_a_cluster_that_gives_no_process_is_told_once_and_left_in_the_end(tmp_path: Path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(engine_module.time, "monotonic", lambda: now)
    heard = Recorder()
    alone, hands = engine_module._Alone(heard), {
        place: engine_module._Hand(place, None) for place in places_on([BIG, SMALL], None, 1, True)
    }  # fmt: skip
    for now in (5.0, 6.0, engine_module.TELL, engine_module.TELL + 6, engine_module.TELL + 20):  # noqa: B007
        alone.check(hands, tmp_path)
    assert [event["event"] for event in heard.events] == ["waiting"]
    assert "a job needs 2 cores and 1 GPU on one of 2 nodes. Perhaps it is busy" in heard.events[0]["reason"]
    assert "It has 10 minutes" in heard.events[0]["reason"]
    next(iter(hands.values())).heard = 1.0
    alone.check(hands, tmp_path)  # the time begins anew
    next(iter(hands.values())).heard = 0.0
    alone.check(hands, tmp_path)
    now += engine_module.PATIENCE - 1
    alone.check(hands, tmp_path)
    now += 2
    with pytest.raises(SeqwiseError, match=r"no process within 10 minutes(.|\n)*ray status(.|\n)*compare --resume"):
        alone.check(hands, tmp_path)
    assert len(heard.events) == 2


def test_a_process_that_nobody_asks_stops_its_job(process):
    worker = process(0.3, Blocked(heeds=True))
    worker.work(1, "train", "gru/seed-0", False)
    until(lambda: worker.result is not None)
    assert worker.work(1, "train", "gru/seed-0", False)["result"] == {"event": "stopped"}


def test_a_process_that_cannot_stop_its_job_ends(process, monkeypatch: pytest.MonkeyPatch):
    job, ended = Blocked(heeds=False), threading.Event()
    monkeypatch.setattr(os, "_exit", lambda status: ended.set())
    worker = process(0.1, job)
    worker.work(1, "train", "gru/seed-0", False)
    assert ended.wait(20)
    job.over.set()
    until(lambda: worker.result is not None)


# A cluster


def with_ray() -> Any:
    """Imported as the engine does it, which keeps it quiet."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'seqwise[ray]'")
    return cluster.library()


@pytest.fixture(scope="module")
def reference(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small comparison, carried out by the local engine."""
    folder = tmp_path_factory.mktemp("reference") / "compare"
    base = Settings(task="language", device="cpu")
    base.text.tokenizer, base.network.width, base.network.depth, base.network.dropout = "characters", 16, 1, 0.2
    base.data.window, base.training.batch_size, base.training.save_every = 16, 4, 10
    question = Question(models=("rnn", "gru"), budget="12k-tokens", match="tokens", seeds=1, tries=2)
    plan = make_plan(folder, str(book), question, base)
    engine = Local(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        try:
            assert carry_out(folder, plan, engine, lambda event: None)
        finally:
            engine.close()
    return folder


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A head that has no processor for jobs, and two nodes with one core each."""
    with_ray()
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        head = {"num_cpus": 0, "object_store_memory": cluster.STORE, "include_dashboard": False}
        head["_system_config"] = {"health_check_period_ms": 1000}  # a lost node is noticed after five of them
        there = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", there.address)
        for _ in range(2):
            there.add_node(num_cpus=1, object_store_memory=cluster.STORE)
        yield there
        there.shutdown()


@pytest.fixture
def engine_on(ray_cluster) -> Iterator[Callable[..., Ray]]:
    engines: list[Ray] = []

    def make(folder: Path, workers: int | None = None) -> Ray:
        engines.append(Ray(folder, workers))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def fresh(reference: Path, tmp_path: Path) -> Path:
    """The same comparison, before its trainings."""
    folder = tmp_path / "compare"
    shutil.copytree(reference, folder)
    for path in folder.glob("trials/*/seed-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


TRAININGS = [Job("train", "rnn/seed-0"), Job("train", "gru/seed-0")]
TESTS = [Job("test", job.name) for job in TRAININGS]


class Recorder:
    """What an engine tells; `react` may do something about it."""

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


def same_results(folder: Path, reference: Path, jobs: list[Job]) -> None:
    """Everything but times and memory, the weights to the bit."""
    for job in jobs:
        found, expected = (json.loads(job.file(each).read_text()) for each in (folder, reference))
        assert found["status"] == "done", found["reason"]
        for key in ("rate", "tokens", "updates", "goal", "validation", "metrics"):
            assert found["values"].get(key) == expected["values"].get(key), (job.name, key)
        if job.kind == "train":
            weights = [(job.run(each) / "model.safetensors").read_bytes() for each in (folder, reference)]
            assert weights[0] == weights[1]


def test_a_cluster_finds_what_this_machine_finds(reference: Path, tmp_path: Path, engine_on):
    folder = tmp_path / "compare"
    shutil.copytree(reference, folder, ignore=shutil.ignore_patterns("trials"))
    plan, heard = Plan.open(folder), Recorder()
    assert carry_out(folder, plan, engine_on(folder), heard)
    trained = [Job("train", trial.name) for trial in plan.trials()]
    tested = [Job("test", trial.name) for trial in plan.trainings()]
    same_results(folder, reference, [*trained, *tested])
    assert sorted(heard.names("end")) == sorted(["rnn", "gru", "all", *(job.name for job in [*trained, *tested])])
    assert heard.names("lost") == []
    assert len({event["pid"] for event in heard.events if event["event"] == "begin"}) == 2  # kept from job to job
    assert max(event.get("progress", 0) for event in heard.events) == 1.0
    assert list(folder.glob(".seen-*")) == []
    values = json.loads(trained[0].file(folder).read_text())["values"]
    assert (values["beside"], values["at_once"]) == (1, 2)
    assert json.loads((folder / "env.json").read_text())["in_words"].startswith("a Ray cluster of 2 nodes")


def test_a_busy_cluster_is_waited_for_but_not_for_ever(fresh: Path, engine_on, monkeypatch):
    ray = with_ray()
    monkeypatch.setattr(engine_module, "TELL", 0.5)
    monkeypatch.setattr(engine_module, "PATIENCE", 3.0)
    engine, heard = engine_on(fresh), Recorder()
    engine._join()
    assert engine.places == 2

    class Other:
        def here(self) -> None: ...

    others = [ray.remote(Other).options(num_cpus=1).remote() for _ in range(2)]  # somebody else's work
    ray.get([other.here.remote() for other in others])
    try:
        with pytest.raises(SeqwiseError, match=r"started no process within 0.05 minutes: a job needs 1 core on"):
            engine.run(TRAININGS, heard, lambda: False)
    finally:
        for other in others:
            ray.kill(other)
    assert [event["event"] for event in heard.events] == ["waiting"]
    assert not any(job.file(fresh).exists() for job in TRAININGS)


def test_a_killed_process_costs_nothing(reference: Path, fresh: Path, engine_on):
    def kill(event: Event, heard: Recorder) -> None:
        if event.get("name") == "gru/seed-0" and event.get("progress", 0) > 0.3 and not heard.names("lost"):
            os.kill(heard.pid(event["name"]), signal.SIGKILL)
            until(lambda: not alive(heard.pid(event["name"])))

    heard = Recorder(kill)
    engine_on(fresh).run(TRAININGS, heard, lambda: False)
    assert heard.names("lost") == ["gru/seed-0"]
    assert sorted(heard.names("end")) == sorted(job.name for job in TRAININGS)
    same_results(fresh, reference, TRAININGS)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_whose_process_always_dies_fails_alone(reference: Path, fresh: Path, engine_on):
    def kill(event: Event, heard: Recorder) -> None:
        if event.get("name") == "rnn/seed-0" and event["event"] == "begin":
            os.kill(event["pid"], signal.SIGKILL)

    heard, jobs = Recorder(kill), TRAININGS
    engine_on(fresh).run(jobs, heard, lambda: False)
    assert heard.names("lost") == ["rnn/seed-0"] * DEATHS
    outcome = Outcome.load(jobs[0].file(fresh))
    assert outcome is not None
    assert outcome.status == "failed"
    assert f"lost {DEATHS} times" in outcome.reason
    assert sorted(heard.names("end")) == ["gru/seed-0", "rnn/seed-0"]
    same_results(fresh, reference, jobs[1:])


def test_a_lost_node_costs_nothing_and_a_new_one_joins(
    reference: Path, fresh: Path, engine_on, ray_cluster, monkeypatch, capfd
):
    monkeypatch.setattr(engine_module, "LEASE", 2.0)
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in ray_cluster.worker_nodes}
    removals: list[threading.Thread] = []

    def remove(event: Event, heard: Recorder) -> None:
        if event.get("name") == "gru/seed-0" and event.get("progress", 0) > 0.3 and not removals:
            node = raylets[parent(heard.pid("gru/seed-0"))]
            removals.append(threading.Thread(target=ray_cluster.remove_node, args=(node, False)))
            removals[0].start()

    engine, heard = engine_on(fresh), Recorder(remove)
    try:
        engine.run(TRAININGS, heard, lambda: False)
    finally:
        removals[0].join()
        new = ray_cluster.add_node(num_cpus=1, object_store_memory=cluster.STORE)
    assert [(event["name"], event["reason"][:13]) for event in heard.events if event["event"] == "lost"] == [
        ("gru/seed-0", "with its node")
    ]
    assert sorted(heard.names("end")) == sorted(job.name for job in TRAININGS)
    same_results(fresh, reference, TRAININGS)
    heard = Recorder()
    engine.run(TESTS, heard, lambda: False)
    same_results(fresh, reference, TESTS)
    assert capfd.readouterr().out == ""  # Ray wants to say much about a lost node
    assert new.node_id in {place.node.id for place in engine._hands}


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_jobs_that_are_stopped_go_on_later(reference: Path, fresh: Path, engine_on):
    heard = Recorder()

    def stop() -> bool:
        return any(event.get("progress", 0) > 0.3 for event in heard.events)

    engine = engine_on(fresh, 1)
    engine.run(TRAININGS, heard, stop)
    assert heard.names("begin") == ["rnn/seed-0"]
    assert heard.names("end") == heard.names("lost") == []
    assert not TRAININGS[0].file(fresh).exists()
    engine.run(TRAININGS, heard, lambda: False)
    again = [event["progress"] for event in heard.events if event["event"] == "progress"]
    assert all(later > 0.3 for later in again[again.index(next(each for each in again if each > 0.3)) :][:2])
    same_results(fresh, reference, TRAININGS)


@pytest.mark.slow
def test_jobs_wait_for_a_driver_that_was_silent(reference: Path, fresh: Path, engine_on, monkeypatch):
    monkeypatch.setattr(engine_module, "LEASE", 1.0)
    slept: list[str] = []

    def sleep(event: Event, heard: Recorder) -> None:
        if event["event"] == "progress" and not slept:
            slept.append(event["name"])
            time.sleep(2.5)

    heard = Recorder(sleep)
    engine_on(fresh, 1).run(TRAININGS[1:2], heard, lambda: False)
    assert len(heard.names("begin")) > 1
    assert heard.names("lost") == []
    assert heard.names("end") == [TRAININGS[1].name]
    same_results(fresh, reference, TRAININGS[1:2])


def test_a_node_that_does_not_see_the_folder_is_named(fresh: Path, engine_on, ray_cluster, monkeypatch):
    monkeypatch.setattr(cluster, "SETTLING", 1.0)
    apart = ["unshare", "--map-root-user", "--mount", "--uts"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a process have mounts of its own")
    start = f"{Path(sys.executable).parent}/ray start --address {ray_cluster.address} --num-cpus 1 --block"
    script = f"hostname far && mount -t tmpfs none '{fresh}' && exec {start} --object-store-memory {cluster.STORE}"
    node = subprocess.Popen([*apart, "sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: node.poll() is not None or len(ray_cluster.global_state._live_node_ids()) > 3)
        engine = engine_on(fresh)
        with pytest.raises(UsageError, match=r"1 of 3 nodes .* cannot read and write the folder .*: far \("):
            engine.run(TRAININGS[:1], Recorder(), lambda: False)
    finally:
        node.terminate()
        node.wait()


def test_processes_that_cannot_start_end_the_comparison(fresh: Path, engine_on, monkeypatch):
    class Unwilling:  # an inner class is sent as code: a node cannot import this file
        def __init__(self, *words: object):
            raise ImportError("no such library")

        def work(self, *words: object) -> None: ...

    monkeypatch.setattr(engine_module, "_Process", Unwilling)
    with pytest.raises(SeqwiseError, match=r"no node left .*no such library(.|\n)*seqwise compare --resume"):
        engine_on(fresh, 1).run(TRAININGS[:1], Recorder(), lambda: False)
    assert Outcome.load(TRAININGS[0].file(fresh)) is None  # it is no fault of the trial


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_an_address_where_nobody_answers_is_an_error(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with_ray()
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=f"at {address} cannot be joined"):
        Ray(tmp_path).run(TRAININGS, Recorder(), lambda: False)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Ray's sockets lie deep in it, and the path to a socket has at most some hundred characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_without_a_cluster_this_machine_is_one(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    ray = with_ray()
    (short_folder / "ray").mkdir()
    (short_folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # of a cluster that is no more
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("TMPDIR", str(short_folder))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert cluster.connect()
        assert not cluster.connect()  # once is enough
        assert [node.cores for node in cluster.nodes()] == [environment.cpu_count()]
        assert signal.getsignal(signal.SIGTERM) == handler
    finally:
        ray.shutdown()


def test_where_ray_cannot_start_its_reason_is_said(short_folder: Path, monkeypatch: pytest.MonkeyPatch):
    with_ray()
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("TMPDIR", str(short_folder / ("deep" * 20)))
    with pytest.raises(UsageError, match=r"Ray cannot be started here: .*path length"):
        cluster.connect()
