"""`seqwise doctor`: software and hardware of this machine, and what is missing. It installs and changes nothing."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from seqwise import environment
from seqwise.cli import console
from seqwise.cli.options import parse


@dataclass
class Doctor:
    """Report versions, device, bfloat16 support of the CPU, memory, disk and optional packages."""

    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


@dataclass(frozen=True)
class Requirement:
    """One line of the package's requirements, such as `torch>=2.10,<3; extra == "x"`."""

    text: str  # what pip is given
    name: str
    extra: str | None
    minimum: str | None

    @classmethod
    def parse(cls, line: str, extra: str | None = None) -> Requirement:
        text, _, marker = (part.strip() for part in line.partition(";"))
        name = re.match(r"[A-Za-z0-9._-]+", text)
        marked = re.search(r"""extra == ["'](.+?)["']""", marker)
        lowest = re.search(r">=\s*([0-9.]+)", text)
        return cls(text, name[0] if name else text, marked[1] if marked else extra, lowest[1] if lowest else None)

    def installed(self) -> str | None:
        return environment.package_version(self.name)

    def satisfied(self) -> bool:
        found = self.installed()
        return found is not None and (self.minimum is None or _numbers(found) >= _numbers(self.minimum))


def main(argv: Sequence[str]) -> int:
    args = parse(Doctor, argv, prog="seqwise doctor", example="seqwise doctor --json")
    report = examine()
    if args.json:
        console.print_json(report)
    else:
        _show(report)
    return 0 if report["ready"] else 1


def examine() -> dict[str, Any]:
    """Everything `seqwise doctor` reports, as plain values. Sizes are in bytes."""
    needs = requirements()
    missing = [need.text for need in needs if need.extra is None and not need.satisfied()]
    report = environment.describe()
    # The probe needs a working PyTorch.
    works = not missing and report["cpu"]["threads"] is not None
    if not works and not missing:
        missing = [need.text for need in needs if need.name == "torch"]  # installed, but it does not load
    cache = environment.cache_folder()
    return {
        **report,
        "device": "cuda" if report["gpu"] else "cpu",
        "cpu_bfloat16": environment.probe_cpu_bfloat16() if works else None,
        **(_backends(report) if works else {"recurrent_backend": None, "loss_backend": None}),
        "disk": {"folder": str(Path.cwd()), "free": shutil.disk_usage(Path.cwd()).free},
        "cache": {"folder": str(cache), "size": _size(cache)},
        "extras": _extras(needs),
        "missing": missing,
        "install": _command(missing),
        "ready": works,
    }


def _backends(report: dict[str, Any]) -> dict[str, str]:
    """The backends of recurrent layers and of the loss on this machine, with the reason if our kernels cannot run."""
    import torch

    from seqwise.kernels import loss
    from seqwise.kernels.recurrence.availability import describe_backend

    device = torch.device("cuda", 0) if report["gpu"] else torch.device("cpu")
    return {"recurrent_backend": describe_backend(device), "loss_backend": loss.describe_backend(device)}


def requirements() -> list[Requirement]:
    """Requirements of the package and of its extras."""
    try:
        return [Requirement.parse(line) for line in metadata.requires("seqwise") or []]
    except metadata.PackageNotFoundError:  # run from the source tree
        project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [Requirement.parse(line) for line in project["dependencies"]]
    for extra, lines in project.get("optional-dependencies", {}).items():
        needs += [Requirement.parse(line, extra) for line in lines]
    return needs


def _extras(needs: list[Requirement]) -> dict[str, dict[str, Any]]:
    extras: dict[str, dict[str, Any]] = {}
    for need in needs:
        if need.extra is not None:
            entry = extras.setdefault(need.extra, {"installed": True, "packages": {}})
            entry["packages"][need.name] = need.installed()
            entry["installed"] = entry["installed"] and need.satisfied()
    return extras


def _command(missing: list[str]) -> str | None:
    quoted = " ".join(f"'{text}'" for text in missing)
    return f"{sys.executable} -m pip install {quoted}" if missing else None


def _show(report: dict[str, Any]) -> None:
    rows = _rows(report)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        console.write(f"{name:{width}}  {value}")
    console.write("")
    if report["ready"]:
        console.write("ready.", style="green")
    else:
        console.write(f"not ready. Install the missing packages:\n  {report['install']}", style="red")


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    packages = ", ".join(f"{name} {found or 'missing'}" for name, found in report["packages"].items())
    cpu, memory, gpu = report["cpu"], report["memory"], report["gpu"]
    bfloat16 = {True: "works", False: "crashes; float32 is used", None: "not tested"}[report["cpu_bfloat16"]]
    return [
        ("seqwise", f"{report['seqwise']}, Python {report['python']}, {report['platform']}"),
        ("packages", packages),
        ("cpu", f"{cpu['name']}, {cpu['count']} usable, {cpu['threads'] or 'no'} threads"),
        ("cpu bfloat16", f"{bfloat16} (tested in a child process)"),
        ("gpu", f"{gpu['name']}, {_gigabytes(gpu['memory'])}, Triton {gpu['triton'] or 'missing'}" if gpu else "none"),
        ("recurrent layers", report["recurrent_backend"] or "unknown"),
        ("loss", report["loss_backend"] or "unknown"),
        ("memory", f"{_gigabytes(memory['free'])} free of {_gigabytes(memory['total'])}"),
        ("disk", f"{_gigabytes(report['disk']['free'])} free at {report['disk']['folder']}"),
        ("cache", f"{_gigabytes(report['cache']['size'])} in {report['cache']['folder']}"),
        *((f"extra [{name}]", _extra_line(name, extra)) for name, extra in report["extras"].items()),
    ]


def _extra_line(name: str, extra: dict[str, Any]) -> str:
    if extra["installed"]:
        return "installed"
    absent = ", ".join(package for package, found in extra["packages"].items() if found is None) or "too old"
    return f"not installed ({absent}); pip install 'seqwise[{name}]'"


def _gigabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
