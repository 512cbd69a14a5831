"""How fast are word vectors learned beside gensim, and how good are they?

    python benchmarks/vectors.py                                    # all rows, three seeds, all processors
    python benchmarks/vectors.py --rows skipgram,gensim-skipgram --seeds 1
    python benchmarks/vectors.py --device cuda                      # on a GPU beside our own on the CPU
    python benchmarks/vectors.py CORPUS --tests FILE …              # other text, other questions

Reads $SEQWISE_DATA/reviews and $SEQWISE_DATA/vectors-eval unless told otherwise. Every row is a process of its own,
one after the other, the seeds outermost: 100 dimensions, window 5, 5 negatives, words that occur 5 times or more,
subsampling at 1e-3, 5 epochs, linear decay. gensim reads the unpacked text in its `corpus_file` mode.
Words per second are those of training alone; the seconds are those of the whole process, until the vectors are in a
file. Peak memory is the process's largest resident set. Both sides' vectors are measured by the same code.

Exits with 1 if skip-gram is less than 3 times or CBOW less than 1.5 times as fast as gensim, or if WordSim-353 is more
than 0.01 or analogies more than a point below gensim's mean. On a GPU it must be 10 million words per second.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHARED = {"dim": 100, "window": 5, "negative": 5, "min_count": 5, "subsample": 1e-3, "epochs": 5, "device": "cpu"}
GPU = {**SHARED, "device": "cuda"}

# Row → the settings that differ from SHARED; those of gensim are its names.
ROWS: dict[str, dict[str, Any]] = {
    "gensim-skipgram": {"sg": 1},
    "skipgram": {**SHARED, "method": "skipgram"},
    "gensim-cbow": {"sg": 0},
    "cbow-as-gensim": {**SHARED, "method": "cbow", "update": "gensim"},
    "cbow": {**SHARED, "method": "cbow"},
    "glove": {**SHARED, "method": "glove", "window": 10, "epochs": 20},
    "gpu-skipgram": {**GPU, "method": "skipgram"},
    "gpu-cbow": {**GPU, "method": "cbow"},
}
USUAL = {
    "cpu": [name for name in ROWS if not name.startswith("gpu-")],
    "cuda": ["gpu-skipgram", "gpu-cbow", "skipgram", "cbow"],
}
# (ours, peer, least ratio of speeds)
DUELS = (("skipgram", "gensim-skipgram", 3.0), ("cbow-as-gensim", "gensim-cbow", 1.5), ("cbow", "gensim-cbow", 1.5))
GPU_LEAST = 10_000_000  # words per second on an H200
WORDSIM, ANALOGY = 0.01, 0.01  # how far below the peer's mean ours may lie


def train_gensim(corpus: str, seed: int, threads: int, settings: dict[str, Any], out: str) -> dict[str, float]:
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=SHARED["dim"], window=SHARED["window"], negative=SHARED["negative"], min_count=SHARED["min_count"],
        sample=SHARED["subsample"], workers=threads, seed=seed, **settings,
    )  # fmt: skip
    model.build_vocab(corpus_file=corpus)
    began = time.perf_counter()
    model.train(
        corpus_file=corpus, total_examples=model.corpus_count, total_words=model.corpus_total_words,
        epochs=SHARED["epochs"],
    )  # fmt: skip
    seconds = time.perf_counter() - began
    model.wv.save_word2vec_format(out, binary=True)
    return {"words_per_second": SHARED["epochs"] * model.corpus_total_words / seconds}


def train_ours(corpus: str, seed: int, threads: int, settings: dict[str, Any], out: str) -> dict[str, float]:
    from seqwise.vectors.formats import save_vectors
    from seqwise.vectors.settings import VectorSettings
    from seqwise.vectors.training import VectorTraining

    with VectorTraining(corpus, VectorSettings(**settings, seed=seed, threads=threads)) as training:
        last = None
        for step in training.steps():
            last = step
        save_vectors(out, training.vectors())
        assert last is not None
        return {"words_per_second": last.speed, "loss": training.losses[-1] or 0.0, "unit": last.unit}  # type: ignore


def one(name: str, corpus: str, seed: int, threads: int, out: str) -> dict[str, Any]:
    """Train a row in this process."""
    train = train_gensim if name.startswith("gensim-") else train_ours
    found: dict[str, Any] = train(corpus, seed, threads, ROWS[name], out)
    found["peak_mb"] = measure_peak_memory()
    return found


def measure_peak_memory() -> float:
    """The largest resident set of this process in MB. What `getrusage` tells begins with that of the parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measure(name: str, corpus: Path, seed: int, threads: int, tests: Sequence[Path]) -> dict[str, Any]:
    """Train a row in a process of its own, then ask its vectors."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "vectors.bin" if name.startswith("gensim-") else "vectors.safetensors")
        command = [
            sys.executable, __file__, "--one", name, str(corpus), "--seed", str(seed), "--threads", str(threads),
            "--out", str(out),
        ]  # fmt: skip
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
        return {"row": name, "seed": seed, "seconds": seconds, **json.loads(done.stdout), **ask(out, tests)}


def ask(vectors: Path, tests: Sequence[Path]) -> dict[str, float]:
    """Name of each test → Spearman's correlation or the share of right answers."""
    from seqwise.vectors.evaluation import (
        detect_kind,
        evaluate_analogies,
        evaluate_similarities,
        read_analogies,
        read_similarities,
    )
    from seqwise.vectors.formats import load_vectors

    keyed, found = load_vectors(vectors), {}
    for test in tests:
        if detect_kind(test) == "analogies":
            value = evaluate_analogies(keyed, read_analogies(test)).total.accuracy
        else:
            value = evaluate_similarities(keyed, read_similarities(test)).spearman
        found[test.name.partition(".")[0]] = value or 0.0
    return found


def summary(
    rows: Sequence[dict[str, Any]], names: Sequence[str], columns: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Row → the mean of each column over the seeds, of speeds the median; none for a row that always failed."""
    table = {}
    for name in names:
        of = [row for row in rows if row["row"] == name and "failed" not in row]
        if not of:
            continue
        table[name] = {
            column: (statistics.median if column == "words_per_second" else statistics.mean)(row[column] for row in of)
            for column in columns
        }
    return table


def verdict(table: dict[str, dict[str, float]]) -> tuple[list[str], list[str]]:
    """How many times as fast as the peer, and what is not as required."""
    ratios, missed = [], []
    for ours, peer, least in DUELS:
        if ours not in table or peer not in table:
            continue
        mine, theirs = table[ours], table[peer]
        ratio = mine["words_per_second"] / theirs["words_per_second"]
        ratios.append(f"{ours} is {ratio:.2f} times as fast as {peer}")
        if ratio < least:
            missed.append(f"{ours}: {ratio:.3f} times as fast as {peer}, not {least:g}")
        for test, slack in (("wordsim353", WORDSIM), ("questions-words", ANALOGY)):
            if test in mine and mine[test] < theirs[test] - slack:
                missed.append(f"{ours}: {test} {mine[test]:.4f}, more than {slack:g} below {theirs[test]:.4f}")
    if "gpu-skipgram" in table and table["gpu-skipgram"]["words_per_second"] < GPU_LEAST:
        missed.append(f"gpu-skipgram: fewer than {GPU_LEAST:,} words per second")
    return ratios, missed


def lines_of(table: dict[str, dict[str, float]], rows: list[dict[str, Any]], tests: Sequence[str]) -> Iterator[str]:
    """The table of means and medians, with half the distance between the extremes."""
    yield f"{'':<18}{'words/s':>12}{'seconds':>9}{'peak MB':>9}" + "".join(f"{test:>18}" for test in tests)
    for name, row in table.items():
        values = []
        for test in tests:
            found = [each[test] for each in rows if each["row"] == name and "failed" not in each]
            values.append(f"{row[test]:8.3f} ±{(max(found) - min(found)) / 2:.3f}")
        unit = "*" if name == "glove" else " "
        speed = f"{name:<18}{row['words_per_second']:>11,.0f}{unit}{row['seconds']:>9.1f}{row['peak_mb']:>9.0f}"
        yield speed + "".join(f"{value:>18}" for value in values)
    if "glove" in table:
        yield "* pairs of words per second"


def main(arguments: Sequence[str] | None = None) -> int:
    from measuring import (  # it brings PyTorch, which a process of one row has no use for
        Column,
        Report,
        build_parser,
        set_up_device,
    )

    command = build_parser(__doc__)
    command.add_argument("corpus", nargs="?", type=Path)
    command.add_argument("--rows", help=f"of {', '.join(ROWS)}, with commas; those of the device unless set")
    command.add_argument("--seeds", type=int, help="three unless set")
    command.add_argument("--tests", type=Path, nargs="*")
    asked = command.parse_args(arguments)
    data = os.environ.get("SEQWISE_DATA")
    if asked.corpus is None and data is None:
        print("skipped: no corpus. Name a text file, or set SEQWISE_DATA.")
        return 0
    corpus = asked.corpus or Path(data or "", "reviews", "unlabelled.txt.gz")
    tests = sorted(Path(data, "vectors-eval").iterdir()) if asked.tests is None and data else asked.tests or []
    asked.device = asked.device or "cpu"  # the peer has no other
    columns = (
        Column("row", "", width=-18),
        Column("seed", "seed", width=6),
        Column("words_per_second", "words/s", ",.0f", width=13),
        Column("seconds", "seconds", ".1f"),
        Column("peak_mb", "peak MB", ".0f"),
    )
    device, wanted = set_up_device(asked), known_rows(asked.rows, asked.device)
    names = present(wanted, lambda line: print(line, file=sys.stderr))
    runs = [(name, seed) for seed in range(1, (asked.seeds or (1 if asked.quick else 3)) + 1) for name in names]
    planned = [f"{name}, seed {seed}" for name, seed in runs]
    told = [test.name.partition(".")[0] for test in tests]
    keys = ["words_per_second", "seconds", "peak_mb", *told]

    def judge(rows: Sequence[dict[str, Any]]) -> list[str]:
        return verdict(summary(rows, names, keys))[1]

    report = Report("vectors", asked, device, columns, arguments, planned=planned, check=judge)
    with unpacked(corpus) as plain:
        for name, seed in runs:
            known = {"row": name, "seed": seed}
            report.add_measurement(known, lambda name=name, seed=seed: measure(name, plain, seed, asked.threads, tests))
    table = report.facts["table"] = summary(report.rows, names, keys)
    for line in (*lines_of(table, report.rows, told), *verdict(table)[0]):
        report.log(line)
    return report.finish()


def known_rows(given: str | None, device: str) -> list[str]:
    """Those that are named, or those of the device."""
    names = given.split(",") if given else USUAL[device]
    if unknown := [name for name in names if name not in ROWS]:
        raise SystemExit(f"there is no row {', '.join(unknown)}. The rows are: {', '.join(ROWS)}")
    return names


def present(names: list[str], log: Callable[[str], None]) -> list[str]:
    """The rows whose program is installed."""
    if importlib.util.find_spec("gensim") is not None or not any(name.startswith("gensim-") for name in names):
        return names
    log("gensim is not installed: its rows are left out. pip install gensim")
    return [name for name in names if not name.startswith("gensim-")]


@contextmanager
def unpacked(corpus: Path) -> Iterator[Path]:
    """The corpus as a plain file."""
    if corpus.suffix != ".gz":
        yield corpus
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "corpus.txt")
        with gzip.open(corpus, "rb") as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield plain


def main_of_one(arguments: Sequence[str]) -> int:
    """One row in this process: what `measure` starts."""
    command = argparse.ArgumentParser()
    command.add_argument("name")
    command.add_argument("corpus")
    command.add_argument("--seed", type=int)
    command.add_argument("--threads", type=int)
    command.add_argument("--out")
    asked = command.parse_args(arguments)
    print(json.dumps(one(asked.name, asked.corpus, asked.seed, asked.threads, asked.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main_of_one(sys.argv[2:]) if sys.argv[1:2] == ["--one"] else main())
