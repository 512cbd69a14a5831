"""`seqwise doctor`: reports the software and hardware of this machine, and what is missing. It changes nothing."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from seqwise import environment
from seqwise.cli import console
from seqwise.cli.options import parse

# Backend in the report → its description.
RECURRENT_BACKENDS = {
    "triton": "Triton kernels",
    "cudnn": "cuDNN",
    "compiled": "compiled CPU loops",
    "aten": "PyTorch (ATen)",
}
LOSS_BACKENDS = {
    "triton": "fused with the output layer: Triton kernel",
    "cpu": "fused with the output layer: CPU implementation, in chunks that save memory",
    "plain": "fused with the output layer: PyTorch operations, in chunks that save memory",
}


@dataclass
class Doctor:
    """Report versions, device, bfloat16 support of the CPU, memory, disk and optional packages."""

    json: bool = False
    """Print the result as one JSON document on standard output."""


@dataclass(frozen=True)
class Requirement:
    """One line of the package's requirements, such as `torch>=2.10,<3; extra == "x"`."""

    text: str  # the argument for pip
    name: str
    extra: str | None  # that needs the package; None: Seqwise itself
    minimum: str | None  # version

    @classmethod
    def parse(cls, line: str) -> Requirement:
        text, _, marker = (part.strip() for part in line.partition(";"))
        patterns = ((r"[\w.-]+", text), (r"""(?<=extra == ["'])[^"']+""", marker), (r"(?<=>=)[0-9.]+", text))
        name, extra, minimum = (match[0] if (match := re.search(*each)) else None for each in patterns)
        return cls(text, name or text, extra, minimum)

    @property
    def installed_version(self) -> str | None:
        return environment.get_package_version(self.name)

    @property
    def is_satisfied(self) -> bool:
        installed = self.installed_version
        return installed is not None and _parse_version(installed) >= _parse_version(self.minimum or "")


def main(argv: Sequence[str]) -> int:
    args = parse(Doctor, argv, prog="seqwise doctor", example="seqwise doctor --json")
    report = examine()
    if args.json:
        console.print_json(report)
    else:
        for line in console.align(_list_rows(report), num_left=2):
            console.write(line)
        problem = f"not ready. Install the missing packages:\n  {report['install']}"
        console.write("\nready." if report["ready"] else f"\n{problem}", style="green" if report["ready"] else "red")
    return 0 if report["ready"] else 1


def examine() -> dict[str, Any]:
    """Returns everything `seqwise doctor` reports, as plain values. Sizes are in bytes."""
    requirements = list_requirements()
    missing = [each.text for each in requirements if each.extra is None and not each.is_satisfied]
    report = environment.describe()
    is_ready = not missing and report["cpu"]["threads"] is not None
    if not is_ready and not missing:
        missing = [each.text for each in requirements if each.name == "torch"]  # installed, but it does not load
    cache = environment.get_cache_folder()
    cache_size = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    return {
        **report,
        "device": "cuda" if report["gpu"] else "cpu",
        "spinning": environment.get_spin_setting(),
        # The probe and the backends need a working PyTorch.
        "cpu_bfloat16": environment.probe_cpu_bfloat16() if is_ready else None,
        **(_describe_backends(report) if is_ready else {"recurrent_backend": None, "loss_backend": None}),
        "disk": {"folder": str(Path.cwd()), "free": shutil.disk_usage(Path.cwd()).free},
        "cache": {"folder": str(cache), "size": cache_size},
        "extras": _describe_extras(requirements),
        "missing": missing,
        "install": shlex.join([sys.executable, "-m", "pip", "install", *missing]) if missing else None,
        "ready": is_ready,
    }


def _describe_backends(report: dict[str, Any]) -> dict[str, str]:
    """Returns the backends of recurrent layers and of the loss, with the reason if our kernels cannot run."""
    import torch

    from seqwise.kernels import loss
    from seqwise.kernels.recurrence.availability import describe_backend

    device = torch.device("cuda", 0) if report["gpu"] else torch.device("cpu")
    return {"recurrent_backend": describe_backend(device), "loss_backend": loss.describe_backend(device)}


def list_requirements() -> list[Requirement]:
    """Returns the requirements of the package and of its extras."""
    try:
        lines = metadata.requires("seqwise") or []
    except metadata.PackageNotFoundError:  # run from the source tree
        project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        lines = project["dependencies"]
        for extra, optional in project.get("optional-dependencies", {}).items():
            lines += [f"{line.partition(';')[0]}; extra == '{extra}'" for line in optional]
    return list(map(Requirement.parse, lines))


def _describe_extras(requirements: list[Requirement]) -> dict[str, dict[str, Any]]:
    extras: dict[str, dict[str, Any]] = {}
    for each in requirements:
        if each.extra is not None:
            entry = extras.setdefault(each.extra, {"installed": True, "packages": {}})
            entry["packages"][each.name] = each.installed_version
            entry["installed"] = entry["installed"] and each.is_satisfied
    return extras


def _list_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the lines of the report: a name and a text each."""
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in report["packages"].items())
    cpu, memory, gpu = report["cpu"], report["memory"], report["gpu"]
    bfloat16 = {True: "works", False: "crashes; float32 is used", None: "not tested"}[report["cpu_bfloat16"]]
    rows = [
        ("seqwise", f"{report['seqwise']}, Python {report['python']}, {report['platform']}"),
        ("packages", packages),
        ("cpu", f"{cpu['name']}, {cpu['count']} usable, {cpu['threads'] or 'no'} threads"),
        ("waiting threads", report["spinning"] or "spin, and may starve other processes; set GOMP_SPINCOUNT=1000"),
        ("cpu bfloat16", f"{bfloat16} (tested in a child process)"),
        (
            "gpu",
            f"{gpu['name']}, {_format_size(gpu['memory'])}, Triton {gpu['triton'] or 'missing'}" if gpu else "none",
        ),
        ("recurrent layers", _describe_backend(report["recurrent_backend"], RECURRENT_BACKENDS)),
        ("cross-entropy", _describe_backend(report["loss_backend"], LOSS_BACKENDS)),
        ("memory", f"{_format_size(memory['free'])} free of {_format_size(memory['total'])}"),
        ("disk", f"{_format_size(report['disk']['free'])} free at {report['disk']['folder']}"),
        ("cache", f"{_format_size(report['cache']['size'])} in {report['cache']['folder']}"),
    ]
    for name, extra in report["extras"].items():
        absent = ", ".join(package for package, version in extra["packages"].items() if version is None) or "too old"
        problem = f"not installed ({absent}); pip install 'seqwise[{name}]'"
        rows.append((f"extra [{name}]", "installed" if extra["installed"] else problem))
    return rows


def _describe_backend(backend: str | None, descriptions: Mapping[str, str]) -> str:
    """Returns the description of a backend, which the report may follow by a reason in brackets."""
    name, _, reason = (backend or "unknown").partition(" ")
    return f"{descriptions.get(name, name)} {reason}".rstrip()


def _format_size(size: int | None) -> str:
    """Returns a number of bytes in the largest unit of which there is at least one."""
    if size is None:
        return "unknown"
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    return next((f"{size / unit:.1f} {name}" for name, unit in units if size >= unit), f"{size} bytes")


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])
