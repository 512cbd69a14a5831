"""A Ray cluster: its nodes, whether they can take part in a comparison, and the slots for jobs.

It knows nothing of jobs. Ray is imported when it is needed, and sends no usage statistics.
"""

from __future__ import annotations

import importlib
import ipaddress
import math
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwise import environment
from seqwise.errors import UsageError
from seqwise.files import remove
from seqwise.signals import handle_signals, raise_interrupt

OBJECT_STORE_BYTES = 80 * 2**20  # for Ray's objects on a local cluster: nothing large is passed around
PING_SECONDS = 10.0  # for the head of a cluster to answer
PROBE_SECONDS = 60.0  # for all nodes to answer the probe
SYNC_SECONDS = 10.0  # until a file written on one machine appears on another: network file systems cache


def import_ray() -> Any:
    """Returns the package `ray`; if it is missing, the error names the extra that installs it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when Ray starts something
    # Ray prints lost nodes to standard output, where only results belong. This is read when Ray is imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        return importlib.import_module("ray")
    except ImportError:
        problem = "--engine ray needs the package ray, which is not installed here."
        raise UsageError(problem, fix="Install it with: pip install 'seqwise[ray]'") from None


def connect() -> bool:
    """Joins the existing cluster, or starts one on this machine; returns False if already connected."""
    ray = import_ray()
    if ray.is_initialized():
        return False
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    requested = os.environ.get("RAY_ADDRESS", "")
    address = requested or _read_local_address()
    with handle_signals(raise_interrupt):  # restores the handler of SIGTERM, which Ray replaces
        try:
            if address not in ("", "local"):
                host, _, port = address.rpartition("//")[2].rpartition(":")
                # Ray itself would try for minutes to reach an address where nothing answers.
                socket.create_connection((host.strip("[]"), int(port)), timeout=PING_SECONDS).close()
                ray.init(address, **quiet)
                return True
        except (OSError, RuntimeError, ValueError) as error:
            if requested or not isinstance(error, OSError):
                problem = f"the Ray cluster at {address} cannot be joined: {_get_first_line(error)}"
                fix = "Start one with: ray start --head. Without RAY_ADDRESS this machine is used."
                raise UsageError(problem, fix=fix) from None
        _start_local_cluster(ray, quiet)
    return True


def _start_local_cluster(ray: Any, options: dict[str, Any]) -> None:
    """Starts a cluster of this machine alone, whose servers listen on the loopback interface only."""
    cores = environment.count_cpus()
    options = {"num_cpus": cores, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False, **options}
    try:
        with _use_loopback():
            ray.init("local", **options)
        addresses = {row["NodeManagerAddress"] for row in ray.nodes()}
        if not all(ipaddress.ip_address(address).is_loopback for address in addresses):
            ray.shutdown()
            listed = ", ".join(sorted(addresses))
            problem = f"Ray {ray.__version__} listens on {listed}: other machines could run programs here."
            raise UsageError(problem, fix="Use --engine local, or join a protected cluster (docs/compare-cluster.md).")
    except (OSError, RuntimeError, ValueError) as error:
        fix = "Perhaps RAY_TMPDIR, a short path to a folder with room, helps. Or use --engine local."
        raise UsageError(f"Ray cannot be started here: {_get_first_line(error)}", fix=fix) from None


@contextmanager
def _use_loopback() -> Iterator[None]:
    """Makes Ray use the loopback address of this machine, as it does by default on macOS.

    `ray.init` has no option for it: it replaces 127.0.0.1 by the address in the network. Its processes inherit the
    variable; in this process Ray has already read it.
    """
    constants = importlib.import_module("ray._private.ray_constants")
    variable, name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "ENABLE_RAY_CLUSTER"
    before, is_enabled = os.environ.get(variable), getattr(constants, name, True)
    os.environ[variable] = "0"
    setattr(constants, name, False)
    try:
        yield
    finally:
        setattr(constants, name, is_enabled)
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def _get_first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _read_local_address() -> str:
    """Returns the address that `ray start` has saved on this machine; the file may outlive its cluster."""
    base = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(base) / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# Nodes


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, with the resources that Ray offers."""

    id: str
    name: str
    cores: int
    gpus: int


def list_nodes() -> list[Node]:
    """Returns the machines that are alive."""
    nodes = []
    for row in (row for row in import_ray().nodes() if row["Alive"]):
        cores, gpus = (int(row["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        nodes.append(Node(row["NodeID"], f"{row['NodeManagerHostname']} ({row['NodeManagerAddress']})", cores, gpus))
    return sorted(nodes, key=lambda node: (node.name, node.id))


def pin_to_node(node: Node) -> Any:
    """Returns the scheduling strategy of Ray that allows only this node."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)


# Slots


@dataclass(frozen=True)
class Slot:
    """Resources for one job at a time. `cores` and `gpus` are what Ray reserves; they may be fractions."""

    node: Node
    number: int  # on its node
    cores: float
    gpus: float
    threads: int
    device_workers: int = 1  # slots that share its device, this one included


def allocate_slots(nodes: Sequence[Node], workers: int | None, processes: int, use_gpus: bool) -> list[Slot]:
    """Returns a slot for each GPU, or for each group of GPUs of a job of several processes; else one for each node.

    All have the same number of cores, that of the smallest device, so that equal times are equal work on machines of
    one kind. `workers` is another number of slots; they share devices where there are more of them than devices.
    """
    per_node = {node: node.gpus // processes if use_gpus else 0 for node in nodes}
    on_gpus = any(per_node.values())
    if not on_gpus:
        per_node = {node: min(1, node.cores) for node in nodes}
    rounds = range(max(per_node.values(), default=0))
    devices = [node for number in rounds for node in nodes if per_node[node] > number]  # alternating between nodes
    if not devices:
        return []
    count = workers or len(devices)
    if on_gpus and processes > 1:
        count = min(count, len(devices))  # a job of several processes needs a whole group of GPUs
    workers_per_device = math.ceil(count / len(devices))
    cores = min(node.cores // per_node[node] for node in devices)
    slots: list[Slot] = []
    for node in (devices[index % len(devices)] for index in range(count)):
        number = sum(slot.node == node for slot in slots)
        gpus = processes if on_gpus else 0
        slots.append(
            Slot(
                node,
                number,
                cores=_divide(cores, workers_per_device),
                gpus=_divide(gpus, workers_per_device),
                threads=max(1, cores // workers_per_device),
                device_workers=workers_per_device,
            )
        )
    return slots


def _divide(amount: int, parts: int) -> float:
    """Returns a whole number if it is at least one; else a fraction rounded down, so that all parts fit."""
    return amount // parts if amount >= parts else math.floor(1e4 * amount / parts) / 1e4


# Whether nodes can take part


@dataclass(frozen=True)
class Probe:
    """The answer of a node to the probe; None in its place means that the node did not answer."""

    has_folder: bool  # it can read and write the folder of the comparison
    has_data: bool  # it can read the data
    version: str  # of Seqwise; empty: it cannot be imported
    cpu: str


def probe_nodes(folder: Path, data: str, nodes: Sequence[Node]) -> dict[Node, Probe | None]:
    """Runs a probe on every node at the same time."""

    def probe(marker: str, answer: str, data: str, wait_seconds: float) -> dict[str, Any]:
        # Ray sends the code of an inner function, so that it runs without seqwise.
        import time
        from pathlib import Path

        deadline = time.monotonic() + wait_seconds
        while not (has_folder := Path(marker).exists()) and time.monotonic() < deadline:
            time.sleep(0.2)
        try:
            if has_folder:
                Path(answer).touch()
        except OSError:
            has_folder = False
        try:
            from seqwise import environment

            version, cpu = environment.get_version(), environment.get_cpu_name()
        except ImportError:
            version = cpu = ""
        has_data = not data or Path(data).exists()
        return {"has_folder": has_folder, "has_data": has_data, "version": version, "cpu": cpu}

    ray = import_ray()
    results: dict[Node, Probe | None] = dict.fromkeys(nodes)
    marker = folder / f".probe-{uuid.uuid4().hex}"
    marker.touch()
    data_path = str(Path(data).resolve()) if Path(data).exists() else ""
    remote = ray.remote(probe)
    probes = {}
    for node in nodes:
        task = remote.options(num_cpus=0, max_retries=0, scheduling_strategy=pin_to_node(node))
        probes[task.remote(str(marker), f"{marker}-{node.id}", data_path, SYNC_SECONDS)] = node
    try:
        answered, _ = ray.wait(list(probes), num_returns=len(probes), timeout=PROBE_SECONDS) if probes else ([], [])
        for reference in answered:
            with suppress(ray.exceptions.RayError):
                values, node = ray.get(reference), probes[reference]
                is_shared = values["has_folder"] and _wait_for_file(Path(f"{marker}-{node.id}"))
                results[node] = Probe(**values | {"has_folder": is_shared})
        return results
    finally:
        for path in folder.glob(f"{marker.name}*"):
            remove(path, folder)


def _wait_for_file(path: Path) -> bool:
    deadline = time.monotonic() + SYNC_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return path.exists()


def find_node_error(probes: dict[Node, Probe | None], folder: Path, data: str) -> UsageError | None:
    """Returns why the comparison cannot start on these nodes, with their names; None if it can."""
    version = environment.get_version()
    install = f"Install it there with: pip install 'seqwise[ray]=={version}'"
    share_folder = "Name a folder with --out that all nodes share."
    share_data = "Put it on a path that all nodes share."
    checks: list[tuple[str, Callable[[Any], bool], str]] = [
        (f"did not answer within {PROBE_SECONDS:.0f} s", lambda probe: probe is not None, "See: ray status"),
        ("cannot import seqwise", lambda probe: probe.version, install),
        (f"have another version of Seqwise than {version}", lambda probe: probe.version == version, install),
        (f"cannot read and write the folder {folder}", lambda probe: probe.has_folder, share_folder),
        (f"cannot read the data {data}", lambda probe: probe.has_data, share_data),
    ]
    for problem, is_suitable, fix in checks:
        names = [node.name for node, probe in probes.items() if not is_suitable(probe)]
        if names:
            problem = f"{len(names)} of {len(probes)} nodes of the cluster {problem}: {', '.join(names)}."
            return UsageError(problem, fix=fix)
    return None


def describe_cluster(probes: dict[Node, Probe | None]) -> str:
    """Returns `a Ray cluster of 2 nodes, each with AMD EPYC, 8 cores, 1 GPU`; different nodes are listed by kind."""
    kinds = [
        ", ".join(
            [probe.cpu if probe else "unknown", _format_count(node.cores, "core"), _format_count(node.gpus, "GPU")]
        )
        for node, probe in probes.items()
    ]
    start = f"a Ray cluster of {_format_count(len(kinds), 'node')}"
    if len(set(kinds)) == 1:
        return f"{start}{', each' if len(kinds) > 1 else ''} with {kinds[0]}"
    return f"{start}: " + "; ".join(f"{kinds.count(kind)} with {kind}" for kind in dict.fromkeys(kinds))


def _format_count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'s' if number > 1 else ''}"
