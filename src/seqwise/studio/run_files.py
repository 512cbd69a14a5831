"""What the page of a run shows of its folder: settings with their origins, parameters, checkpoints, samples, commands.

Files are read as text; of the weights only the header is read. A file that is missing, damaged, too large or a link out
of the folder is treated as missing. This module knows nothing of servers and pages, and imports no PyTorch.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import yaml

from seqwise.applicability import find_unused
from seqwise.families import MODEL_FAMILIES
from seqwise.resolved_settings import ResolvedSettings
from seqwise.studio.forms import list_setting_fields
from seqwise.training.rows import read_samples as read_sample_rows

MAX_TEXT_BYTES = 1 << 20  # of a model card, env.json or choices.json
MAX_SAMPLES_BYTES = 8 << 20
MAX_HEADER_BYTES = 16 << 20  # of a file of weights
MAX_SAMPLES = 200  # rows that are shown: the first one and the newest
MAX_CHECKPOINTS = 50
WEIGHTS, CARD, ENVIRONMENT, CHOICES = "model.safetensors", "README.md", "env.json", "choices.json"
SAMPLES, CHECKPOINTS, MANIFEST = "samples.jsonl", "checkpoints", "manifest.json"
DETECTED = "detected in the data"  # reason for the task
TYPES = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "U8": "uint8"}
DIGEST = "__metadata__"  # in the header of a file of weights, beside the tensors


def read_text(folder: Path, name: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Returns the text of a file of the folder, or ""."""
    path = folder / name
    with suppress(OSError, ValueError):
        if _is_own(path, folder) and path.stat().st_size <= max_bytes:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """Returns the content of a JSON file of the folder, or {}."""
    with suppress(ValueError, RecursionError):
        value = json.loads(read_text(folder, name))
        return value if isinstance(value, dict) else {}
    return {}


def _is_own(path: Path, folder: Path) -> bool:
    return path.is_file() and folder.resolve() in path.resolve().parents


def list_settings(settings: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Returns each setting: name, value, help, whether it is used, its origin, and the reason of a chosen one.

    The origin is "set" by the user, "chosen" by rule, or "default". Runs of earlier versions have no file of choices:
    what their command does not name was chosen.
    """
    choices, resolved_defaults = read_object(folder, CHOICES), dict(_flatten(ResolvedSettings().model_dump()))
    command = _get_command(settings)
    has_choices, values = bool(choices), dict(_flatten(settings))
    unused = _find_unused(settings, values)
    rows = []
    for field in list_setting_fields():
        name, value = field["name"], values.get(field["name"])
        is_default = value is None or value in (field["default"], resolved_defaults.get(name))
        is_named = f"--{name.replace('_', '-')}" in command.replace("=", " ").split()
        origin = "default"
        if name in choices or (name == "task" and command and not is_named and "--config" not in command):
            origin = "chosen"
        elif is_named or (has_choices and not is_default):
            origin = "set"
        elif not is_default:
            origin = "" if "--config" in command or not command else "chosen"
        rows.append(
            {
                "name": name,
                "value": value if isinstance(value, (str, int, float, bool)) or value is None else str(value),
                "help": field["help"],
                "is_used": value is not None and name not in unused,
                "origin": origin,
                "reason": str(choices.get(name) or (DETECTED if name == "task" and origin == "chosen" else "")),
            }
        )
    return rows


def _find_unused(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    if str(settings.get("model")) not in MODEL_FAMILIES:  # a model of the user, whose code is not imported here
        return {}
    with suppress(AttributeError, TypeError):  # in a damaged file
        return find_unused(_NestedValues(settings), names)  # type: ignore[arg-type]
    return {}


class _NestedValues:
    """The settings of a run as attributes, as the conditions of settings read them; a missing one is None."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = values

    def __getattr__(self, name: str) -> Any:
        value = self._values.get(name)
        return _NestedValues(value) if isinstance(value, Mapping) else value


def _get_run(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    run = settings.get("run")
    return run if isinstance(run, Mapping) else {}


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and not prefix:
            yield from _flatten(value, f"{name}.")
        else:
            yield f"{prefix}{name}", value


def read_parameters(folder: Path) -> dict[str, Any] | None:
    """Returns the number of weights of the model and of its parts, the bytes and types; None without weights."""
    path = folder / WEIGHTS
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        if not _is_own(path, folder):
            return None
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_HEADER_BYTES:
                return None
            header = json.loads(file.read(length))
        parts: Counter[str] = Counter()
        types: Counter[str] = Counter()
        for name, tensor in header.items():
            if name != DIGEST:
                count = prod(tensor["shape"])
                parts[name.partition(".")[0]] += count
                types[str(tensor["dtype"])] += count
        return {
            "total": parts.total(),
            "parts": [{"name": name, "count": count} for name, count in parts.most_common(30)],
            "types": [TYPES.get(each, each) for each in types],
            "bytes": path.stat().st_size,
            "changed": path.stat().st_mtime,
        }
    return None


def list_checkpoints(folder: Path) -> list[dict[str, Any]]:
    """Returns the checkpoints, the newest first."""
    rows = []
    with suppress(OSError):
        for path in (folder / CHECKPOINTS).iterdir():
            number = path.name.removeprefix("step-")
            if number != path.name and number.isdecimal() and _is_own(path / MANIFEST, folder):
                files = [each.stat(follow_symlinks=False) for each in path.iterdir()]
                changed = (path / MANIFEST).stat().st_mtime
                rows.append({"step": int(number), "bytes": sum(each.st_size for each in files), "changed": changed})
    return sorted(rows, key=lambda row: -row["step"])[:MAX_CHECKPOINTS]


def read_samples(folder: Path) -> list[dict[str, Any]]:
    """Returns rows of samples, the newest first; of many, the first one and the newest."""
    path = folder / SAMPLES
    with suppress(OSError):
        if _is_own(path, folder) and path.stat().st_size <= MAX_SAMPLES_BYTES:
            rows = read_sample_rows(path)
            return [*rows[:-MAX_SAMPLES][:1], *rows[-MAX_SAMPLES:]][::-1]
    return []


def list_environment(folder: Path) -> list[tuple[str, str]]:
    """Returns names and values of env.json in words."""
    values = read_object(folder, ENVIRONMENT)
    rows = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            parts = [
                f"{'' if key == 'name' else key.replace('_', ' ')} {_format(each, key)}" for key, each in value.items()
            ]
            text = ", ".join(map(str.strip, parts))
        else:
            text = _format(value)
        rows.append((name.replace("_", " "), text))
    return [row for row in rows if row[1]]


def _format(value: Any, key: str = "") -> str:
    if key in ("total", "free") and isinstance(value, (int, float)):
        return f"{value / 1e9:.1f} GB"
    return "" if value is None else str(value) if not isinstance(value, (list, dict)) else yaml.safe_dump(value).strip()


def _get_command(settings: Mapping[str, Any]) -> str:
    """Returns the commands that trained the run, without a call from Python."""
    lines = str(_get_run(settings).get("command") or "").splitlines()
    return "\n".join(line for line in lines if not line.startswith("seqwise.train("))


def list_commands(settings: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Returns the commands that trained the run, and those that use, inspect and resume it, by purpose."""
    path, words = str(folder), [""]
    for line in read_text(folder, CARD).splitlines():
        if line.startswith("seqwise predict "):
            with suppress(ValueError):
                words = shlex.split(line)[3:]
    commands = {
        "train": _get_command(settings),
        "predict": shlex.join(["seqwise", "predict", path, *words]),
        "inspect": shlex.join(["seqwise", "inspect", path]),
        "evaluate": shlex.join(["seqwise", "evaluate", path, str(_get_run(settings).get("data") or "DATA")]),
        "resume": shlex.join(["seqwise", "train", "--resume", path]),
    }
    return {name: command for name, command in commands.items() if command}
