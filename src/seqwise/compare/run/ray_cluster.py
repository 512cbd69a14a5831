"""A Ray cluster as a comparison sees it: its nodes, whether they can take part, and the places where jobs may run.

It knows nothing of jobs. Ray is imported when it is needed, and sends no statistics about its use.
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwise import environment
from seqwise.errors import UsageError

STORE = 80 * 2**20  # bytes for Ray's objects on a cluster of our own: nothing large is passed around
KNOCK = 10.0  # seconds for the head of a cluster to answer
PATIENCE = 60.0  # seconds for all nodes to look around
SETTLING = 10.0  # seconds until what one machine writes is seen on another: network file systems remember


def library() -> Any:
    """The package `ray`; its absence is said with the extra that brings it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it is read when Ray starts something
    # Ray tells of lost nodes on standard output, where only results belong. This is read when Ray is imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        return importlib.import_module("ray")
    except ImportError:
        problem = "--engine ray needs the package ray, which is not installed here."
        raise UsageError(problem, repair="Install it with: pip install 'seqwise[ray]'") from None


def connect() -> bool:
    """Join the cluster there is, else start one on this machine. False: this process is part of one already."""
    ray = library()
    if ray.is_initialized():
        return False
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    asked = os.environ.get("RAY_ADDRESS", "")
    address = asked or _started()
    with _same_signals():
        try:
            if address not in ("", "local"):
                _knock(address)  # Ray itself would knock for minutes
                ray.init(address, **quiet)
                return True
        except (OSError, RuntimeError, ValueError) as error:
            if asked or not isinstance(error, OSError):
                problem = f"the Ray cluster at {address} cannot be joined: {_line(error)}"
                repair = "Start one with: ray start --head. Without RAY_ADDRESS this machine is used."
                raise UsageError(problem, repair=repair) from None
        cores = environment.cpu_count()
        try:
            ray.init("local", num_cpus=cores, object_store_memory=STORE, include_dashboard=False, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            repair = "Perhaps RAY_TMPDIR, a short path to a folder with room, helps. Or use --engine local."
            raise UsageError(f"Ray cannot be started here: {_line(error)}", repair=repair) from None
    return True


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _started() -> str:
    """Where `ray start` has noted the cluster that this machine is part of. A note may outlive its cluster."""
    base = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(base) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _knock(address: str) -> None:
    """Raises OSError where nobody listens, ValueError where that is no address."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()


@contextmanager
def _same_signals() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM; whoever calls us has one that saves what is being done."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


# Nodes


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, as Ray counts it."""

    id: str
    name: str
    cores: int
    gpus: int


def nodes() -> list[Node]:
    """The machines that are alive."""
    alive = [each for each in library().nodes() if each["Alive"]]
    return sorted((_node(each) for each in alive), key=lambda node: (node.name, node.id))


def _node(row: dict[str, Any]) -> Node:
    cores, gpus = (int(row["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
    return Node(row["NodeID"], f"{row['NodeManagerHostname']} ({row['NodeManagerAddress']})", cores, gpus)


def on_node(node: Node) -> Any:
    """Ray's way to say: here, and nowhere else."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)


# Places


@dataclass(frozen=True)
class TrainerState:
    """Room for one job at a time. `cores` and `gpus` are what Ray reserves; they may be fractions."""

    node: Node
    number: int  # on its node
    cores: float
    gpus: float
    threads: int
    beside: int = 1  # places that share its device, this one included


def places_on(nodes: Sequence[Node], workers: int | None, processes: int, gpus: bool) -> list[TrainerState]:
    """One place for each GPU, or for each group of them that a job of several processes needs; else one for each node.

    All have the same number of cores, that of the smallest, so that equal times are equal work on machines of one
    kind. `workers` asks for another number of places; they share devices where there are more of them.
    """
    per_node = {node: node.gpus // processes if gpus else 0 for node in nodes}
    on_gpus = any(per_node.values())
    if not on_gpus:
        per_node = {node: min(1, node.cores) for node in nodes}
    rounds = range(max(per_node.values(), default=0))
    devices = [node for number in rounds for node in nodes if per_node[node] > number]  # nodes take turns
    if not devices:
        return []
    count = workers or len(devices)
    if on_gpus and processes > 1:
        count = min(count, len(devices))  # half a group of GPUs is of no use to a group of processes
    share = math.ceil(count / len(devices))
    cores = min(node.cores // per_node[node] for node in devices)
    found: list[TrainerState] = []
    for node in (devices[at % len(devices)] for at in range(count)):
        number = sum(place.node == node for place in found)
        size = processes if on_gpus else 0
        found.append(TrainerState(node, number, _part(cores, share), _part(size, share), max(1, cores // share), share))
    return found


def _part(amount: int, share: int) -> float:
    """Whole where it is one or more; else a fraction of which `share` surely fit."""
    return amount // share if amount >= share else math.floor(1e4 * amount / share) / 1e4


# Can they take part?


@dataclass(frozen=True)
class Report:
    """What a node finds when it looks around; None in place of it: the node did not answer."""

    folder: bool  # does it see the folder of the comparison, and can it write there?
    data: bool
    seqwise: str  # version; empty: it cannot be imported
    cpu: str


def look(folder: Path, data: str, nodes: Sequence[Node]) -> dict[Node, Report | None]:
    """Ask every node, all at once, what it sees."""
    if not nodes:
        return {}
    ray = library()
    remote = ray.remote(_looker()).options
    mark = folder / f".seen-{uuid.uuid4().hex}"
    mark.touch()
    wanted = str(Path(data).resolve()) if Path(data).exists() else ""
    options = {"num_cpus": 0, "max_retries": 0}
    asked = {}
    for node in nodes:
        looker = remote(**options, scheduling_strategy=on_node(node))
        asked[looker.remote(str(mark), f"{mark}-{node.id}", wanted, SETTLING)] = node
    try:
        answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
        found: dict[Node, Report | None] = dict.fromkeys(nodes)
        for reference in answered:
            try:
                seen = ray.get(reference)
            except ray.exceptions.RayError:
                continue
            node = asked[reference]
            found[node] = Report(**{**seen, "folder": seen["folder"] and _appears(Path(f"{mark}-{node.id}"))})
        return found
    finally:
        for path in folder.glob(f"{mark.name}*"):
            path.unlink(missing_ok=True)


def _looker() -> Callable[..., dict[str, Any]]:
    """A function that stands alone: Ray sends the code of an inner function, so that it runs where we are missing."""

    def look_around(mark: str, answer: str, data: str, patience: float) -> dict[str, Any]:
        import time
        from pathlib import Path

        deadline = time.monotonic() + patience
        while not (sees := Path(mark).exists()) and time.monotonic() < deadline:
            time.sleep(0.2)
        try:
            if sees:
                Path(answer).touch()
        except OSError:
            sees = False
        try:
            from seqwise import environment

            version, cpu = environment.version(), environment.cpu_name()
        except ImportError:
            version = cpu = ""
        return {"folder": sees, "data": not data or Path(data).exists(), "seqwise": version, "cpu": cpu}

    return look_around


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + SETTLING
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return path.exists()


def unfit(found: dict[Node, Report | None], folder: Path, data: str) -> UsageError | None:
    """Why the comparison cannot begin on these nodes, naming those to blame; None: it can."""
    ours = environment.version()
    install = f"Install it there with: pip install 'seqwise[ray]=={ours}'"
    reports = {node: report for node, report in found.items() if report is not None}
    checks = [
        (f"did not answer within {PATIENCE:.0f} s", [node for node in found if node not in reports], "See: ray status"),
        ("cannot import seqwise", [node for node, it in reports.items() if not it.seqwise], install),
        (f"have another Seqwise than {ours}", [node for node, it in reports.items() if it.seqwise != ours], install),
        (
            f"cannot read and write the folder {folder}",
            [node for node, it in reports.items() if not it.folder],
            "Name a folder with --out that all nodes share.",
        ),
        (
            f"do not see the data {data}",
            [node for node, it in reports.items() if not it.data],
            "Put it where all nodes find it under the same name.",
        ),
    ]
    for what, blamed, repair in checks:
        if blamed:
            names = ", ".join(node.name for node in blamed)
            return UsageError(f"{len(blamed)} of {len(found)} nodes of the cluster {what}: {names}.", repair=repair)
    return None


def in_words(found: dict[Node, Report | None]) -> str:
    """`a Ray cluster of 2 nodes, each with AMD EPYC, 8 cores, 1 GPU`; kinds of nodes are told apart."""
    kinds = [
        ", ".join([report.cpu if report else "unknown", _count(node.cores, "core"), _count(node.gpus, "GPU")])
        for node, report in found.items()
    ]
    start = f"a Ray cluster of {_count(len(kinds), 'node')}"
    if len(set(kinds)) == 1:
        return f"{start}{', each' if len(kinds) > 1 else ''} with {kinds[0]}"
    return f"{start}: " + "; ".join(f"{kinds.count(kind)} with {kind}" for kind in dict.fromkeys(kinds))


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' if number > 1 else ''}"
