"""Malicious files among those that Seqwise writes: tokenisers, settings, metrics, checkpoints and token stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuzz_readers import CSV, TEXT
from fuzz_saved import sign_checkpoint
from malicious import Case
from malicious_cases import PREDICT, check, put, put_in_run
from malicious_payloads import DEEP, MEGABYTE


def change_json(path: Path, change: Callable[[Any], Any]) -> bytes:
    return json.dumps(change(json.loads(path.read_text(encoding="utf-8")))).encode()


def list_tokenizers(runs: Path) -> Iterator[Case]:
    def change(part: str, value: Any) -> bytes:
        def replace(content: Any) -> Any:
            target = content
            *parents, last = part.split(".")
            for each in parents:
                target = target[each]
            target[last] = value
            return content

        return change_json(runs / "classify" / "run" / "tokenizer.json", replace)

    contents = {
        "padding to 10^12": change("tokenizer.padding", {
            "strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "x",
        }),
        "truncation to 0": change("tokenizer.truncation", {
            "direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 10**9,
        }),
        "ids of 2^32": change("tokenizer.model.vocab", {"<unk>": 2**32 - 1}),
        "ids of 10^9": change("tokenizer.model.vocab", {"<unk>": 10**9, "a": 0}),
        "negative ids": change("tokenizer.model.vocab", {"<unk>": -1}),
        "empty vocabulary": change("tokenizer.model.vocab", {}),
        "no model": change("tokenizer.model", None),
        "regular expression that backtracks": change("tokenizer.pre_tokenizer", {
            "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False,
        }),
        "replacement by a megabyte": change("tokenizer.normalizer", {
            "type": "Replace", "pattern": {"String": "e"}, "content": "e" * MEGABYTE,
        }),
        "kind": change("kind", "../../x"),
        "specials": change("specials", 5),
        "format of 5,000 digits": b'{"format": ' + b"9" * 5_000 + b"}",
        "nested": b"[" * DEEP,
        "lowercase": change("lowercase", [[]]),
    }  # fmt: skip
    for name, content in contents.items():
        can_succeed = name in (
            *("lowercase", "specials", "padding to 10^12", "truncation to 0"),  # padding and truncation are ignored
            *("regular expression that backtracks", "replacement by a megabyte"),
        )
        write = put_in_run(runs, "classify", "tokenizer.json", content)
        yield Case(f"tokeniser: {name}", write, PREDICT, "run", can_succeed=can_succeed)


def list_run_files(runs: Path) -> Iterator[Case]:
    config = (runs / "classify" / "run" / "config.yaml").read_text(encoding="utf-8")
    sizes = {"width: 8": "width: 1000000000", "depth: 1": "depth: 100000000", "task: classify": "task: forecast"}
    for old, new in sizes.items():
        write = put_in_run(runs, "classify", "config.yaml", config.replace(old, new, 1).encode())
        yield Case(f"run with {new}", write, PREDICT, "run", can_succeed=False)
    settings = {
        "network.width": 10**9, "network.depth": 10**8, "training.batch_size": 10**12, "text.vocabulary": 10**15,
        "network.dropout": 1e308, "training.learning_rate": 1e308, "budget": "1e400-epochs", "seed": 10**400,
    }  # fmt: skip
    for name, value in settings.items():
        section, _, key = name.rpartition(".")
        values: dict[str, Any] = {"network": {"width": 8, "depth": 1}, "training": {"batch_size": 8}}
        (values.setdefault(section, {}) if section else values)[key] = value
        text = json.dumps(values)

        def write(folder: Path, text: str = text) -> None:
            put("a.yaml", text.encode())(folder)
            put("a.csv", CSV.encode())(folder)

        command = ("train", "a.csv", "--task", "classify", "--model", "gru", "--config", "a.yaml")
        command = (*command, "--out", "../../../out/run", *(() if key == "budget" else ("--budget", "1-epochs")))
        yield Case(f"settings with {name} {value!r:.30}", write, command)
    task = {
        "nested": b"[" * DEEP, "list": b"[]", "no labels": b"{}", "labels as number": b'{"labels": 5}',
        "labels as lists": b'{"labels": [[], {}]}', "too many labels": json.dumps({"labels": ["a"] * 9}).encode(),
        "escape sequences": b'{"labels": ["\\u001b[31ma", "\\u202eb"]}',
    }  # fmt: skip
    for name, content in task.items():
        write = put_in_run(runs, "classify", "task.json", content)
        yield Case(f"task.json: {name}", write, PREDICT, "run", is_exact=name == "escape sequences")
    metrics = {
        "not objects": b"1\nnull\n[]\n", "nested": b"[" * DEEP, "no keys": b"{}\n{}\n", "not UTF-8": b"\xff\xfe\n",
        "texts as numbers": b'{"step": "a", "loss": [], "tokens": {}, "validation": 5}\n',
        "infinite": b'{"step": 1e999, "tokens": 1e999, "loss": NaN, "seconds": -1, "learning_rate": 0}\n',
    }  # fmt: skip
    for name, content in metrics.items():
        write = put_in_run(runs, "language", "metrics.jsonl", content)
        for view in ("training", "health"):
            options = ("--quick",) if view == "health" else ()
            yield Case(f"metrics for {view}: {name}", write, ("inspect", "run", "--view", view, *options), "run")
        yield Case(f"metrics for resume: {name}", write, ("train", "--resume", "run"), "run")


def list_checkpoints(runs: Path) -> Iterator[Case]:
    folder = "checkpoints/step-9"
    state = (runs / "resumable" / "run" / folder / "state.json").read_bytes()
    manifests = {
        "names ../../../../outside": {"../../../../outside": {"bytes": 1, "blake2b": "a"}},
        "names /etc/passwd": {"/etc/passwd": {"bytes": 1, "blake2b": "a"}},
        "names /dev/zero": {"/dev/zero": {"bytes": 0, "blake2b": "a"}},
        "list": [], "empty": {}, "number": 5, "no digests": {"state.json": {}}, "digests as lists": {"state.json": []},
    }  # fmt: skip
    for name, manifest in manifests.items():
        write = put_in_run(runs, "resumable", f"{folder}/manifest.json", json.dumps(manifest).encode())
        yield Case(f"manifest: {name}", write, ("train", "--resume", "run"), "step-9")
    states = {"without keys": b"{}", "list": b"[]", "nested": b"[" * DEEP, "cut": state[: len(state) // 2]}
    for name, content in states.items():

        def write(root: Path, content: bytes = content) -> None:
            put_in_run(runs, "resumable", f"{folder}/state.json", content)(root)
            sign_checkpoint(root)

        yield Case(f"state: {name}", write, ("train", "--resume", "run"), "step-9")

    def link_checkpoints(root: Path) -> None:
        shutil.copytree(runs / "resumable", root, dirs_exist_ok=True)
        outside = root.parent / "outside"
        (root / "run" / "checkpoints").rename(outside)
        (outside / "step-99").mkdir()
        (root / "run" / "checkpoints").symlink_to(outside)

    yield Case("checkpoints are a link", link_checkpoints, ("train", "--resume", "run"), "run")

    def name_steps(root: Path) -> None:
        shutil.copytree(runs / "resumable", root, dirs_exist_ok=True)
        for name in ("step-99999999999999999999", "step-0", "step-²", "step-" + "9" * 200):
            (root / "run" / "checkpoints" / name).mkdir()

    yield Case("steps of 200 digits", name_steps, ("train", "--resume", "run"), "run")


def list_stores() -> Iterator[Case]:
    changes = {
        "negative tokens": {"tokens": -1}, "10^18 tokens": {"tokens": 10**18}, "tokens as text": {"tokens": "5"},
        "negative vocabulary": {"vocabulary": -1}, "vocabulary as list": {"vocabulary": []},
        "other keys": {"x": 1}, "tokens as float": {"tokens": 1e308}, "negative words": {"words": -5},
    }  # fmt: skip
    for name, change in changes.items():

        def tamper(root: Path, change: dict[str, Any] = change) -> None:
            for path in (root / "cache" / "tokens").glob("*/*.json"):
                path.write_bytes(change_json(path, lambda content: {**content, **change}))

        command = check("a.txt", "language")
        yield Case(
            f"store: {name}", put("a.txt", TEXT.encode()), command, before=command, tamper=tamper, can_fail=False
        )
