"""Speed and quality of word vectors compared with gensim.

    python benchmarks/vectors.py                                    # all rows, three seeds, all processors
    python benchmarks/vectors.py --rows skipgram,gensim-skipgram --seeds 1
    python benchmarks/vectors.py --device cuda                      # on a GPU, compared with our own on the CPU
    python benchmarks/vectors.py CORPUS --tests FILE …              # other text, other tests

The defaults are $SEQWISE_DATA/reviews and $SEQWISE_DATA/vectors-eval. Every row runs in a separate process,
sequentially, with the seeds as the outer loop: 100 dimensions, window 5, 5 negatives, words that occur at least 5
times, subsampling at 1e-3, 5 epochs, linear decay. gensim reads the decompressed text in its `corpus_file` mode. Words
per second are those of training alone; seconds are those of the whole process, including saving. Peak memory is the
largest resident set of the process. The same code evaluates the vectors of both.

The exit status is 1 if skip-gram is less than 3 times or CBOW less than 1.5 times as fast as gensim, or if WordSim-353
is more than 0.01 or the accuracy of analogies more than 0.01 below gensim's mean. On a GPU at least 10 million words
per second are required.
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

# Row → settings; those of gensim in its own names, in addition to SHARED.
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
DEFAULT_ROWS = {
    "cpu": [name for name in ROWS if not name.startswith("gpu-")],
    "cuda": ["gpu-skipgram", "gpu-cbow", "skipgram", "cbow"],
}
# (row, baseline, minimum ratio of speeds)
COMPARISONS = (
    ("skipgram", "gensim-skipgram", 3.0),
    ("cbow-as-gensim", "gensim-cbow", 1.5),
    ("cbow", "gensim-cbow", 1.5),
)
MIN_GPU_SPEED = 10_000_000  # words per second on an H200
MAX_WORDSIM_LOSS, MAX_ANALOGY_LOSS = 0.01, 0.01  # below the baseline's mean


def train_gensim(corpus: str, seed: int, threads: int, settings: dict[str, Any], out: str) -> dict[str, float]:
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=SHARED["dim"], window=SHARED["window"], negative=SHARED["negative"], min_count=SHARED["min_count"],
        sample=SHARED["subsample"], workers=threads, seed=seed, **settings,
    )  # fmt: skip
    model.build_vocab(corpus_file=corpus)
    started_at = time.perf_counter()
    model.train(
        corpus_file=corpus, total_examples=model.corpus_count, total_words=model.corpus_total_words,
        epochs=SHARED["epochs"],
    )  # fmt: skip
    seconds = time.perf_counter() - started_at
    model.wv.save_word2vec_format(out, binary=True)
    return {"words_per_second": SHARED["epochs"] * model.corpus_total_words / seconds}


def train_seqwise(corpus: str, seed: int, threads: int, settings: dict[str, Any], out: str) -> dict[str, float]:
    from seqwise.vectors.formats import save_vectors
    from seqwise.vectors.settings import VectorSettings
    from seqwise.vectors.training import VectorTraining

    with VectorTraining(corpus, VectorSettings(**settings, seed=seed, threads=threads)) as training:
        last = None
        for step in training.steps():
            last = step
        save_vectors(out, training.export_vectors())
        assert last is not None
        return {"words_per_second": last.speed, "loss": training.trainer.losses[-1] or 0.0, "unit": last.unit}  # type: ignore


def train_row(name: str, corpus: str, seed: int, threads: int, out: str) -> dict[str, Any]:
    """Trains a row in this process; returns its speed and peak memory."""
    train = train_gensim if name.startswith("gensim-") else train_seqwise
    result: dict[str, Any] = train(corpus, seed, threads, ROWS[name], out)
    result["peak_mb"] = measure_peak_memory()
    return result


def measure_peak_memory() -> float:
    """Returns the peak resident set of this process in MB. The value of `getrusage` would include the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measure(name: str, corpus: Path, seed: int, threads: int, tests: Sequence[Path]) -> dict[str, Any]:
    """Trains a row in a separate process and evaluates its vectors."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "vectors.bin" if name.startswith("gensim-") else "vectors.safetensors")
        command = [
            sys.executable, __file__, "--one", name, str(corpus), "--seed", str(seed), "--threads", str(threads),
            "--out", str(out),
        ]  # fmt: skip
        started_at = time.perf_counter()
        process = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - started_at
        if process.returncode:
            raise RuntimeError((process.stderr.strip() or f"status {process.returncode}").splitlines()[-1])
        return {"row": name, "seed": seed, "seconds": seconds, **json.loads(process.stdout), **evaluate(out, tests)}


def evaluate(vectors: Path, tests: Sequence[Path]) -> dict[str, float]:
    """Returns test name → Spearman's correlation or accuracy."""
    from seqwise.vectors.evaluation import (
        detect_kind,
        evaluate_analogies,
        evaluate_similarities,
        read_analogies,
        read_similarities,
    )
    from seqwise.vectors.formats import load_vectors

    keyed, results = load_vectors(vectors), {}
    for test in tests:
        if detect_kind(test) == "analogies":
            value = evaluate_analogies(keyed, read_analogies(test)).total.accuracy
        else:
            value = evaluate_similarities(keyed, read_similarities(test)).spearman
        results[test.name.partition(".")[0]] = value or 0.0
    return results


def summarize(
    rows: Sequence[dict[str, Any]], names: Sequence[str], columns: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns row → mean of each column over the seeds (median for speeds), without rows that always failed."""
    table = {}
    for name in names:
        runs = [row for row in rows if row["row"] == name and "failed" not in row]
        if not runs:
            continue
        table[name] = {
            column: (statistics.median if column == "words_per_second" else statistics.mean)(
                row[column] for row in runs
            )
            for column in columns
        }
    return table


def check_table(table: dict[str, dict[str, float]]) -> tuple[list[str], list[str]]:
    """Returns the ratios of speeds in words, and the requirements that are not met."""
    ratios, missed = [], []
    for name, baseline_name, min_ratio in COMPARISONS:
        if name not in table or baseline_name not in table:
            continue
        row, baseline = table[name], table[baseline_name]
        ratio = row["words_per_second"] / baseline["words_per_second"]
        ratios.append(f"{name} is {ratio:.2f} times as fast as {baseline_name}")
        if ratio < min_ratio:
            missed.append(f"{name}: {ratio:.3f} times as fast as {baseline_name}, required {min_ratio:g}")
        for test, slack in (("wordsim353", MAX_WORDSIM_LOSS), ("questions-words", MAX_ANALOGY_LOSS)):
            if test in row and row[test] < baseline[test] - slack:
                missed.append(f"{name}: {test} {row[test]:.4f}, more than {slack:g} below {baseline[test]:.4f}")
    if "gpu-skipgram" in table and table["gpu-skipgram"]["words_per_second"] < MIN_GPU_SPEED:
        missed.append(f"gpu-skipgram: fewer than {MIN_GPU_SPEED:,} words per second")
    return ratios, missed


def format_table(table: dict[str, dict[str, float]], rows: list[dict[str, Any]], tests: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the table of means and medians, with half of the range over the seeds."""
    yield f"{'':<18}{'words/s':>12}{'seconds':>9}{'peak MB':>9}" + "".join(f"{test:>18}" for test in tests)
    for name, row in table.items():
        values = []
        for test in tests:
            results = [each[test] for each in rows if each["row"] == name and "failed" not in each]
            values.append(f"{row[test]:8.3f} ±{(max(results) - min(results)) / 2:.3f}")
        unit = "*" if name == "glove" else " "
        speed = f"{name:<18}{row['words_per_second']:>11,.0f}{unit}{row['seconds']:>9.1f}{row['peak_mb']:>9.0f}"
        yield speed + "".join(f"{value:>18}" for value in values)
    if "glove" in table:
        yield "* pairs of words per second"


def main(arguments: Sequence[str] | None = None) -> int:
    from measuring import (  # imports PyTorch, which the process of one row does not need
        Column,
        Report,
        build_parser,
        set_up_device,
    )

    parser = build_parser(__doc__)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--rows", help=f"of {', '.join(ROWS)}, separated by commas; default: those of the device")
    parser.add_argument("--seeds", type=int, help="default: three")
    parser.add_argument("--tests", type=Path, nargs="*")
    options = parser.parse_args(arguments)
    data = os.environ.get("SEQWISE_DATA")
    if options.corpus is None and data is None:
        print("skipped: no corpus. Name a text file, or set SEQWISE_DATA.")
        return 0
    corpus = options.corpus or Path(data or "", "reviews", "unlabelled.txt.gz")
    tests = sorted(Path(data, "vectors-eval").iterdir()) if options.tests is None and data else options.tests or []
    options.device = options.device or "cpu"  # gensim has no GPU support
    columns = (
        Column("row", "", width=-18),
        Column("seed", "seed", width=6),
        Column("words_per_second", "words/s", ",.0f", width=13),
        Column("seconds", "seconds", ".1f"),
        Column("peak_mb", "peak MB", ".0f"),
    )
    device, requested = set_up_device(options), parse_rows(options.rows, options.device)
    names = select_installed(requested, lambda line: print(line, file=sys.stderr))
    runs = [(name, seed) for seed in range(1, (options.seeds or (1 if options.quick else 3)) + 1) for name in names]
    row_names = [f"{name}, seed {seed}" for name, seed in runs]
    test_names = [test.name.partition(".")[0] for test in tests]
    keys = ["words_per_second", "seconds", "peak_mb", *test_names]

    def check(rows: Sequence[dict[str, Any]]) -> list[str]:
        return check_table(summarize(rows, names, keys))[1]

    report = Report("vectors", options, device, columns, arguments, row_names=row_names, check=check)
    with decompress(corpus) as text_file:
        for name, seed in runs:
            description = {"row": name, "seed": seed}
            report.add_measurement(
                description, lambda name=name, seed=seed: measure(name, text_file, seed, options.threads, tests)
            )
    table = report.details["table"] = summarize(report.rows, names, keys)
    for line in (*format_table(table, report.rows, test_names), *check_table(table)[0]):
        report.log(line)
    return report.finish()


def parse_rows(text: str | None, device: str) -> list[str]:
    """Returns the named rows, or the default ones of the device."""
    names = text.split(",") if text else DEFAULT_ROWS[device]
    if unknown := [name for name in names if name not in ROWS]:
        raise SystemExit(f"there is no row {', '.join(unknown)}. The rows are: {', '.join(ROWS)}")
    return names


def select_installed(names: list[str], log: Callable[[str], None]) -> list[str]:
    """Returns the rows whose package is installed."""
    if importlib.util.find_spec("gensim") is not None or not any(name.startswith("gensim-") for name in names):
        return names
    log("gensim is not installed: its rows are skipped. pip install gensim")
    return [name for name in names if not name.startswith("gensim-")]


@contextmanager
def decompress(corpus: Path) -> Iterator[Path]:
    """Provides the corpus as a plain text file."""
    if corpus.suffix != ".gz":
        yield corpus
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "corpus.txt")
        with gzip.open(corpus, "rb") as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield plain


def train_row_main(arguments: Sequence[str]) -> int:
    """Trains one row; `measure` runs this in a new process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("corpus")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out")
    options = parser.parse_args(arguments)
    print(json.dumps(train_row(options.name, options.corpus, options.seed, options.threads, options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(train_row_main(sys.argv[2:]) if sys.argv[1:2] == ["--one"] else main())
