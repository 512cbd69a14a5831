"""Readers of the files that Seqwise writes, for fuzzing: runs, checkpoints, tokenisers, stores, plans; and settings."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_readers import CSV, DATA_READERS, SENTENCES, SERIES, TEXT, VECTOR_READERS, Reader, write_files

CHECKPOINT = "run/checkpoints/step-9"
INPUTS = {"language": "the cat", "classify": "the old cat"}
SETTINGS = """model: gru
task: language
budget: 2m
network: {width: 32, depth: 2, dropout: 0.1}
training: {learning_rate: 0.001, batch_size: 8, schedule: cosine}
text: {tokenizer: words, vocabulary: 1000}
data: {valid_fraction: 0.1}
transformer: {heads: 4}
"""


# Runs


@cache
def write_run(task: str, model: str = "gru") -> Callable[[Path], None]:
    """Returns a function that trains FOLDER/run on data in FOLDER."""

    def write(folder: Path) -> None:
        from seqwise.training.api import train

        data, text = {
            "language": ("a.txt", TEXT),
            "classify": ("a.csv", CSV),
            "forecast": ("a.csv", SERIES),
        }[task]
        (folder / data).write_text(text, encoding="utf-8")
        settings: dict[str, Any] = {
            "language": {"text": {"tokenizer": "words"}, "data": {"window": 8}},
            "classify": {},
            "forecast": {"target": "sales", "horizon": 2},
        }[task]
        if model == "ngram":
            settings = {"text": {"tokenizer": "words"}}
        else:
            settings |= {"network": {"width": 8, "depth": 1}, "training": {"batch_size": 4}}
        budget = {"budget": "3-epochs"} if model != "ngram" else {}
        run = folder / "run"
        train(str(folder / data), task=task, model=model, out=run, settings={**settings, "device": "cpu", **budget})

    return write


def predict(task: str) -> Callable[[Path], object]:
    """Returns a function that loads a run, describes it and predicts."""

    def read(folder: Path) -> object:
        from seqwise.training.api import load_run

        model = load_run(folder / "run", "cpu")
        text = INPUTS.get(task) or str(folder / "a.csv")
        prediction = model.predict(text, max_length=4) if task == "language" else model.predict(text)
        return repr(model), "".join(prediction) if task == "language" else prediction

    return read


def evaluate(folder: Path) -> object:
    from seqwise.training.api import load_run

    return str(load_run(folder / "run", "cpu").evaluate(str(folder / "a.csv")))


def inspect_training(folder: Path) -> object:
    from seqwise.lens.health import health
    from seqwise.lens.training import training
    from seqwise.training.api import load_run

    model = load_run(folder / "run", "cpu")
    return str(training(model)), str(health(model, quick=True))


def resume(folder: Path) -> object:
    """Opens a run to resume it."""
    from seqwise.training.run import Run
    from seqwise.training.training_run import open_task, open_training

    run = Run.open(folder / "run")
    object.__setattr__(run.metadata, "data", str(folder / "a.txt"))
    messages: list[str] = []
    return open_training(run, task=open_task(run, messages.append), log=messages.append).ended


def write_resumable_run(folder: Path) -> None:
    """Writes a run with one checkpoint, called step-9."""
    write_run("language")(folder)
    checkpoints = (folder / "run" / "checkpoints").glob("step-*")
    newest, *others = sorted(checkpoints, key=lambda path: -int(path.name.removeprefix("step-")))
    for path in others:
        shutil.rmtree(path)
    newest.rename(newest.with_name("step-9"))


def sign_checkpoint(folder: Path) -> None:
    """Writes a manifest that fits the damaged files."""
    manifest = {}
    for path in (folder / CHECKPOINT / "tensors.safetensors", folder / CHECKPOINT / "state.json"):
        data = path.read_bytes()
        manifest[path.name] = {"bytes": len(data), "blake2b": hashlib.blake2b(data).hexdigest()}
    (folder / CHECKPOINT / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


RUN_FILES = {
    "run/config.yaml": "yaml",
    "run/env.json": "json",
    "run/metrics.jsonl": "jsonl",
    "run/model.safetensors": "safetensors",
    "run/training_summary.safetensors": "safetensors",
    "run/tokenizer.json": "json",
    "run/task.json": "json",
    "run/summary.json": "json",
}


def select(*names: str) -> dict[str, str]:
    return {f"run/{name}": RUN_FILES[f"run/{name}"] for name in names}


# Other files


def write_tokenizers(folder: Path) -> None:
    from seqwise.text.tokenizer import Tokenizer

    for kind in ("characters", "words", "bpe", "wordpiece"):
        Tokenizer.train(kind, SENTENCES, 300).save(folder / f"{kind}.json")


def read_tokenizers(folder: Path) -> object:
    from seqwise.text.tokenizer import Tokenizer

    texts = []
    for path in sorted(folder.glob("*.json")):
        tokenizer = Tokenizer.load(path)
        texts.append(tokenizer.decode(tokenizer.encode("the old cät sat.").ids))
    return texts


def write_store(folder: Path) -> None:
    from stores import write_store

    write_store(folder / "train", np.arange(200) % 50, vocabulary=50)


def read_store(folder: Path) -> object:
    from seqwise.data.corpus.store import TokenStore

    store = TokenStore(folder / "train")
    count = min(len(store), 100)
    return store.read(0, count), store.count_tokens(50)


def read_settings(folder: Path) -> object:
    from seqwise.cli.options import read_config

    return read_config(["--config", str(folder / "a.yaml")], ["gru"])


def write_comparison(folder: Path) -> None:
    from small_comparison import finished_comparison

    finished_comparison(folder / "compared")


def read_comparison(folder: Path) -> object:
    from seqwise.compare.plan.plan import Plan
    from seqwise.compare.report.gather import load_report

    return Plan.open(folder / "compared"), load_report(folder / "compared")


def read_solution(folder: Path) -> object:
    from seqwise.lab.exercises.grading import read_exercise

    return read_exercise(folder / "b1.py")


def write_solution(folder: Path) -> None:
    from seqwise.lab.exercises.catalogue import get_exercise

    text = '"""Exercise B1: a solution."""\nimport numpy as np\n\n\ndef solve(x, y):\n    return np.dot(x, y) + 1\n'
    assert get_exercise("B1")
    (folder / "b1.py").write_text(text, encoding="utf-8")


def read_results(folder: Path) -> object:
    from seqwise.lab.catalogue import get_experiment
    from seqwise.lab.running import ResultFile

    results = ResultFile(folder / "results.jsonl")
    results.load()
    return results.has(get_experiment("C3")()), results.list_others(["C2"])


def read_inputs(folder: Path) -> object:
    from seqwise.cli.inputs import read_lines

    return read_lines(str(folder / "a.txt"))


SAVED_READERS = {
    "settings": Reader(write_files(a__yaml=SETTINGS), {"a.yaml": "yaml"}, read_settings, weight=3),
    "tokenizer": Reader(
        write_tokenizers,
        {f"{kind}.json": "json" for kind in ("characters", "words", "bpe", "wordpiece")},
        read_tokenizers,
        weight=2,
    ),
    "run-language": Reader(write_run("language"), select("config.yaml", "tokenizer.json"), predict("language")),
    "run-weights": Reader(write_run("classify"), select("model.safetensors"), predict("classify"), weight=2),
    "run-classify": Reader(
        write_run("classify"), select("config.yaml", "task.json", "tokenizer.json", "env.json"), predict("classify")
    ),
    "run-forecast": Reader(
        write_run("forecast"), select("config.yaml", "task.json", "model.safetensors"), predict("forecast"), weight=0.5
    ),
    "run-ngram": Reader(
        write_run("language", "ngram"),
        select("config.yaml", "tokenizer.json", "model.safetensors"),
        predict("language"),
        weight=0.5,
    ),
    "run-evaluate": Reader(
        write_run("classify"),
        select("training_summary.safetensors", "task.json", "metrics.jsonl"),
        evaluate,
        weight=0.5,
    ),
    "metrics": Reader(write_run("language"), select("metrics.jsonl", "summary.json"), inspect_training, weight=0.5),
    "checkpoint": Reader(
        write_resumable_run,
        {
            f"{CHECKPOINT}/tensors.safetensors": "safetensors",
            f"{CHECKPOINT}/state.json": "json",
            f"{CHECKPOINT}/manifest.json": "json",
            "run/metrics.jsonl": "jsonl",
            "run/config.yaml": "yaml",
        },
        resume,
        sign=sign_checkpoint,
        is_changed=True,
        weight=0.5,
    ),
    "store": Reader(write_store, {"train.json": "json", "train.bin": "binary"}, read_store),
    "comparison": Reader(write_comparison, {"compared/compare.yaml": "yaml"}, read_comparison, weight=0.2),
    "solution": Reader(write_solution, {"b1.py": "python"}, read_solution),
    "lab-results": Reader(
        write_files(results__jsonl='{"id": "C2", "parameters": {"seed": 0}}\n{"id": "A1", "figures": []}\n'),
        {"results.jsonl": "jsonl"},
        read_results,
    ),
    "inputs": Reader(write_files(a__txt=TEXT), {"a.txt": "text"}, read_inputs),
}
READERS: dict[str, Reader] = {**DATA_READERS, **VECTOR_READERS, **SAVED_READERS}
