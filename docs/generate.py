"""Writes the generated parts of the documentation.

    python docs/generate.py                  the tables of settings, recorded names, comparisons, speed and records
    python docs/generate.py --transcripts    also run every `$ ` command of docs/*.md and insert its real output
    python docs/generate.py --transcripts tag.md caption.md    the same for some pages only
    python docs/generate.py --comparisons    also rewrite the recorded reports with the present verdicts and page

A generated part is between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; `tests/policy/test_documentation.py` fails
when one is stale. Transcripts depend on the machine and the day, so no test compares them.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import torch
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from seqwise.compare.report.page.page import make_page
from seqwise.compare.report.schema import Family, Report, from_json, to_json
from seqwise.compare.report.texts import add_texts
from seqwise.compare.report.verdict import add_verdict
from seqwise.config import Section, Settings
from seqwise.data.batch import TokenBatch
from seqwise.layers.attention import MultiHeadAttention
from seqwise.layers.attentive import AttentiveRecurrent
from seqwise.layers.cells import make_cell
from seqwise.layers.positions import LearnedPositions, Rotary, SinusoidalPositions
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.layers.transformer import Decoder, DecoderLayer, PreNormEncoderLayer
from seqwise.resolved_settings import ResolvedRecurrentSettings, ResolvedSettings
from seqwise.tasks.language.task import LanguageModel
from seqwise.vectors.settings import VectorSettings

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "benchmarks"))
from measuring import Column  # noqa: E402 - a script, not part of the package
from records_page import build_records  # noqa: E402

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TAKES_MINUTES = re.compile(r"# (takes )?minutes\s*$", re.MULTILINE)

# ---- the table of settings


def build_settings_tables() -> str:
    """Returns one table per section of `config.py`, in its order."""
    parts = [f"### Run\n\n{Settings.__doc__}\n\n{build_settings_table('', Settings)}"]
    for name, field in Settings.model_fields.items():
        if is_section(field):
            section: Any = field.annotation
            table = build_settings_table(f"{name}.", section)
            parts.append(f"### {name}\n\n{section.__doc__}\n\n{table}")
    description = "Options of `seqwise vectors train`, which has no configuration file."
    parts.append(f"### vectors\n\n{description}\n\n{build_settings_table('', VectorSettings)}")
    return "\n\n".join(parts)


def is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Section)


def format_text(field: FieldInfo) -> str:
    """Returns the meaning of a setting as one line."""
    return escape(" ".join((field.description or "").split()))


def build_settings_table(prefix: str, section: type[Section]) -> str:
    rows = [
        f"| `{prefix}{name}` | {format_default(name, section)} | {format_values(field)} | {format_text(field)} |"
        for name, field in section.model_fields.items()
        if not is_section(field)
    ]
    return "\n".join(["| setting | default | values | meaning |", "|---|---|---|---|", *rows])


def escape(text: str | None) -> str:
    """Escapes `<`, since Markdown would read `<unk>` as a tag."""
    return (text or "").replace("<", "&lt;")


def format_default(name: str, section: type[Section]) -> str:
    value = section.model_fields[name].default
    if value is None:
        return "none" if name in section.optional else "by rule"
    return "off" if value is False else "on" if value is True else f"`{value}`"


def format_values(field: FieldInfo) -> str:
    """Returns the permitted values of a setting, with its bounds."""
    types = list(describe_type(field.annotation))
    if types == ["switch"] and field.default is None:  # no default: the option needs a value
        types = ["`True`", "`False`"]
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [f"{signs[key]} {getattr(mark, key)}" for mark in field.metadata for key in signs if hasattr(mark, key)]
    return ", ".join(types) + (f" {' and '.join(bounds)}" if bounds else "")


def describe_type(kind: Any) -> Iterator[str]:
    names = {int: "integer", float: "number", str: "text", bool: "switch"}
    if kind in names:
        yield names[kind]
    elif get_origin(kind) is not None and all(isinstance(option, str) for option in get_args(kind)):
        yield " ".join(f"`{option}`" for option in get_args(kind))
    else:
        for part in get_args(kind):
            if part is not type(None):
                yield from describe_type(part)


# ---- the table of recorded names

SIZES = {"B": 2, "T": 5, "D": 12, "U": 14, "H": 3, "K": 4, "V": 17}
FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


def build_names_table() -> str:
    """Returns every dotted name that language models record, then those of single layers."""
    models = [(f"`{family}`", *build_language_model(family)) for family in FAMILIES]
    rows = [row for model in (*models, *build_single_layers()) for row in build_name_rows(*model)]
    return "\n".join(["| model or layer | name | shape |", "|---|---|---|", *rows])


def build_name_rows(title: str, model: nn.Module, arguments: tuple) -> Iterator[str]:
    """Yields the table rows of one model: the names that it records, with their shapes."""
    with torch.no_grad(), record(model) as recording:
        model(*arguments)
    shapes = {re.sub(r"\blayer\.\d+", "layer.N", name): format_shape(name, value) for name, value in recording.items()}
    for name, shape in shapes.items():
        yield f"| {title} | `{name}` | {shape} |"
        title = ""


def format_shape(name: str, value: Tensor) -> str:
    """Returns a shape in letters; the keys of attention are S, though here there are as many as queries."""
    factors = {size: letter for letter, size in SIZES.items()}
    factors |= {k * SIZES[letter]: f"{k}{letter}" for k in (2, 4) for letter in "DU"}
    letters = [factors[size] for size in value.shape]
    if name.endswith("weights"):
        letters[-1] = "S"
    elif name.endswith("keys"):
        letters[-2] = "S"
    return f"({', '.join(letters)})"


def build_language_model(family: str) -> tuple[nn.Module, tuple]:
    """Returns a language model and the arguments to call it with."""
    recurrent = family not in ("transformer", "feedforward")
    width = SIZES["U"] if recurrent else SIZES["D"]
    network = {"width": width, "embedding": SIZES["D"], "depth": 2}
    settings = Settings.model_validate(
        {"model": family, "network": network, "transformer": {"heads": SIZES["H"]}, "data": {"window": SIZES["T"]}}
    )
    ids = torch.zeros(SIZES["B"], SIZES["T"], dtype=torch.int64)
    return LanguageModel(ResolvedSettings.from_settings(settings), SIZES["V"]).eval(), (TokenBatch(ids, ids),)


def build_single_layers() -> Iterator[tuple[str, nn.Module, tuple]]:
    """Yields title, layer and the arguments to call it with."""
    width, units = SIZES["D"], SIZES["U"]
    x = torch.zeros(SIZES["B"], SIZES["T"], width)
    norm = ResolvedRecurrentSettings(layer_norm=True)
    for name in ("rnn", "gru", "lstm"):
        yield f"`{name}` with layer norm", Recurrent(make_cell(name, width, units, norm)), (x,)
    cells = [make_cell("rnn", width, units, ResolvedRecurrentSettings()) for _ in range(3)]
    yield "`Bidirectional`", Bidirectional(Recurrent(cells[0]), Recurrent(cells[1])), (x,)
    yield "`AttentiveRecurrent`", AttentiveRecurrent(cells[2], attention_span=SIZES["T"]), (x,)
    yield "`MultiHeadAttention`", MultiHeadAttention(width, SIZES["H"]), (x,)
    yield "`PreNormEncoderLayer`", PreNormEncoderLayer(width, SIZES["H"], 4 * width, "gelu"), (x,)
    yield "`Decoder`", Decoder([DecoderLayer(width, SIZES["H"], 4 * width, "relu")]), (x, x)
    yield "`SinusoidalPositions`", SinusoidalPositions(width), (x,)
    yield "`LearnedPositions`", LearnedPositions(width, SIZES["T"]), (x,)
    yield "`Rotary`", Rotary(), (x.view(SIZES["B"], SIZES["T"], SIZES["H"], SIZES["K"]).transpose(1, 2),)


# ---- the recorded comparisons


def build_comparisons() -> str:
    """Returns the command, the table and the verdict of each report in docs/comparisons."""
    titles = {
        "ptb": "Penn Treebank, words", "sst2": "SST-2", "conll2003": "CoNLL-2003", "dates": "builtin:dates",
        "etth1": "ETTh1", "wikitext2": "WikiText-2", "multi30k": "Multi30k, English to German",
    }  # fmt: skip
    return "\n\n".join(build_comparison(title, name) for name, title in titles.items())


def read_report(path: Path) -> Report:
    """Returns the report inside a recorded page."""
    script = re.search(
        r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL
    )
    assert script is not None
    return from_json(Report, json.dumps(json.loads(script[1])["report"]))


def rewrite_reports() -> None:
    """Writes the verdict, the texts and the page of each recorded report again; its results and tests stay."""
    for path in sorted((DOCS / "comparisons").glob("*.html")):
        report = add_texts(add_verdict(read_report(path)))
        path.write_text(make_page(from_json(Report, to_json(report))), encoding="utf-8")


def build_comparison(title: str, name: str) -> str:
    report = read_report(DOCS / "comparisons" / f"{name}.html")
    assert report.verdict is not None
    head = f"| | {report.metric.name} | 95 % interval | parameters | {report.unit}/s | one prediction |"
    rows = [build_comparison_row(family, report.verdict.equal) for family in report.families]
    budget = f"each family: {report.rules.budget} × {len(report.rules.seeds)} seeds"
    lines = [
        f"## {title}",
        f"[Report]({name}.html) · {report.machine['in_words']} · {budget}",
        f"```text\n{report.command}\n```",
        "\n".join([head, "|---|---|---|---|---|---|", *rows]),
        " ".join(report.verdict.sentences),
    ]
    return "\n\n".join(lines)


def build_comparison_row(family: Family, equal: tuple[str, ...]) -> str:
    mark = {"best": " **best**", "tied": " ≈", "unsure": " ?"}.get(family.rank, "")
    text = family.text
    cells = [
        f"`{family.name}`{' =' if family.name in equal else mark}",
        text["mean"],
        text["interval"],
        text["parameters"] if family.parameters else "",
        "" if family.is_baseline else text["tokens_per_second"],
        text["latency"],
    ]
    return f"| {' | '.join(cells)} |"


# ---- the tables of speed and memory

AREAS = {
    "recurrent": "Recurrent layers", "transformer": "A training step of the Transformer",
    "language": "Language models through the trainer", "loss": "Projection and cross-entropy",
    "decoding": "Generation with caches", "translation": "Beam search compared with transformers",
    "vectors": "Word vectors", "reading": "From text to tokens", "cost": "Time per token",
}  # fmt: skip
MACHINES = {"h200": "One H200", "cpu": "CPU"}
MAX_ROWS = 30  # longer tables are folded


def build_performance_tables() -> str:
    """Returns the measurements of each area on each machine: command, table, requirements not met."""
    parts = []
    for area, title in AREAS.items():
        sections = [
            build_performance_section(area, machine)
            for machine in MACHINES
            if get_performance_file(area, machine).exists()
        ]
        if sections:
            parts.append("\n\n".join([f"## {title}", *sections]))
    return "\n\n".join(parts)


def get_performance_file(area: str, machine: str) -> Path:
    return DOCS / "performance" / f"{area}-{machine}.json"


# Names in the files of earlier versions → present names, by area.
RENAMED_KEYS = {
    "recurrent": {
        "peer": "baseline", "ours": "seqwise_us", "theirs": "baseline_us", "least": "min_ratio", "most": "max_us",
        "aim": "target_us", "forward_ours": "forward_us", "forward_theirs": "forward_baseline_us",
        "memory_ours": "memory", "memory_theirs": "memory_baseline", "apart": "relative_error", "path": "backend",
    },
    "transformer": {"share": "utilisation"},
    "language": {"ours_tokens_per_second": "tokens_per_second", "peer_tokens_per_second": "baseline_tokens_per_second"},
    "loss": {
        "share": "memory_ratio", "apart": "relative_error",
        "ours_seconds": "fused_seconds", "ours_bytes": "fused_bytes",
    },
    "decoding": {"anew_tokens_per_second": "uncached_tokens_per_second", "same": "agreement"},
    "reading": {"learning": "training", "writing": "tokenizing"},
}  # fmt: skip
RENAMED_HEADINGS = {
    "beside": "baseline", "peer": "baseline", "ours": "seqwise", "least": "min ratio", "apart": "rel. error",
    "first s": "first call s", "path": "backend", "product": "matmul", "last": "last loss", "loss": "first loss",
    "cpu": "CPU ratio", "scores": "chunk", "anew": "uncached", "same": "agreement", "opening": "open corpus",
    "learning": "train tokeniser", "writing": "tokenise",
}  # fmt: skip
RENAMED_WORDS = (
    (r"\bboth ways\b", "bidirectional"),
    (r"^peer$", "baseline"),
    (r"([\d.]+) times the peer in the median, not", r"median ratio \1, required"),
    (r"([\d.]+) times the peer, not", r"ratio \1, required"),
    (r"MB, more than the peer's (\d+)", r"MB, at most \1 allowed"),
    (r"tokens per second, not", "tokens per second, required"),
    (r"with a cache as without$", "with a cache as without, required 1"),
)


def read_measurements(path: Path) -> dict[str, Any]:
    """Returns a saved benchmark run, with the old names of keys, columns and rows replaced."""
    run = json.loads(path.read_text(encoding="utf-8"))
    keys = RENAMED_KEYS.get(run.get("area", ""), {})
    for column in run["columns"]:
        heading = {"share": keys.get("share", "share").replace("_", " ")} | RENAMED_HEADINGS
        title = column["heading"].strip()
        column["heading"] = heading.get(title, title)
        column["key"] = keys.get(column["key"], column["key"])
    run["rows"] = [{keys.get(key, key): replace_words(value) for key, value in row.items()} for row in run["rows"]]
    for name in ("missed", "planned"):
        run[name] = [replace_words(line) for line in run.get(name, [])]
    return run


def replace_words(value: Any) -> Any:
    if isinstance(value, str):
        for old, new in RENAMED_WORDS:
            value = re.sub(old, new, value)
    return value


def build_performance_section(area: str, machine: str) -> str:
    run = read_measurements(get_performance_file(area, machine))
    lines = [
        f"### {MACHINES[machine]}",
        f"```text\n{re.sub(r' --json [^ ]+', '', run['command'])}\n```",
        describe_conditions(run),
    ]
    rows = run["rows"]
    if any("group" in row for row in rows):
        lines.append(build_groups_table(rows))
    table = build_rows_table(run["columns"], rows)
    folded = f"<details><summary>All {len(rows)} rows</summary>\n\n{table}\n\n</details>"
    lines.append(folded if len(rows) > MAX_ROWS else table)
    lines += [f"Failed: {row.get('name', '')}: {row['failed']}" for row in rows if "failed" in row]
    if not run.get("finished", True):
        lines.append(describe_interruption(run))
    if run.get("missed"):
        lines.append("Requirements not met:\n\n" + "\n".join(f"- {line}" for line in run["missed"]))
    if area == "cost" and (DOCS / "images" / f"cost-{machine}.png").exists():
        lines.append(f"![microseconds per token over time, batch and width](images/cost-{machine}.png)")
    return "\n\n".join(lines)


def describe_interruption(run: dict[str, Any]) -> str:
    """Returns a sentence on the rows that an unfinished run lacks; rows are measured in the planned order."""
    missing = run.get("planned", [])[len(run["rows"]) :]
    return f"Interrupted after {len(run['rows'])} rows." + (f" Not measured: {'; '.join(missing)}." if missing else "")


def describe_conditions(run: dict[str, Any]) -> str:
    """Returns the machine, the version of PyTorch, the date and, for CPUs, the load."""
    parts = [run["where"], f"torch {run['machine']['packages']['torch']}", run["date"]]
    before, after = run["load"]
    if run["device"] == "cpu" and before is not None:
        parts.append(f"load average {before} before and {after} after, on {run['machine']['cpu']['count']} processors")
    quick = " A quick run with few repeats: approximate values." if run["quick"] else ""
    return f"{', '.join(parts)}.{quick}"


def build_rows_table(columns: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    """Returns the table of a script's columns, without empty ones."""
    columns_used = [column for column in columns if any(row.get(column["key"]) is not None for row in rows)]
    head = "| " + " | ".join(column["heading"] for column in columns_used) + " |"
    body = ["| " + " | ".join(Column(**column).format_cell(row) for column in columns_used) + " |" for row in rows]
    return "\n".join([head, "|---" * len(columns_used) + "|", *body])


def build_groups_table(rows: list[dict[str, Any]]) -> str:
    """Returns the number of rows and the minimum, median and maximum ratio to PyTorch for each group of rows."""
    lines = ["| compared with PyTorch | rows | minimum ratio | median | maximum |", "|---|---|---|---|---|"]
    compared = [row for row in rows if row.get("baseline") == "pytorch" and "ratio" in row]
    for group in dict.fromkeys(row["group"] for row in compared):
        ratios = sorted(row["ratio"] for row in compared if row["group"] == group)
        low, middle, high = ratios[0], statistics.median(ratios), ratios[-1]
        lines.append(f"| {group} | {len(ratios)} | {low:.2f} | {middle:.2f} | {high:.2f} |")
    return "\n".join(lines)


PARTS = {
    "settings": ("settings.md", build_settings_tables),
    "names": ("layers.md", build_names_table),
    "comparisons": ("comparisons/README.md", build_comparisons),
    "performance": ("performance.md", build_performance_tables),
    "records": ("records.md", build_records),
}


# ---- writing


def fill_part(name: str) -> tuple[Path, str]:
    """Returns the path of the page with a generated part, and its up-to-date text."""
    page, build = PARTS[name]
    text = (DOCS / page).read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return DOCS / page, f"{before}{begin}\n{build()}\n\n{end}{rest.split(end)[1]}"


def insert_transcripts(text: str, folder: Path) -> str:
    """Returns the page with the output of every command, run in `folder`.

    A block that contains `# takes minutes` or `$SEQWISE_DATA` is left as it is. Python blocks run too, because a
    command may need the files that they write. A block that was shortened (`[…]`) runs, but stays as it is.
    """

    def run_block(block: re.Match[str]) -> str:
        if TAKES_MINUTES.search(block[2]) or "SEQWISE_DATA" in block[2]:
            return block[0]
        if block[1] == "python":
            subprocess.run([sys.executable, "-c", block[2]], cwd=folder, capture_output=True, check=False)
            return block[0]
        commands = re.findall(r"^\$ (?:.*\\\n)*.*$", block[2], re.MULTILINE)
        transcript = "".join(f"{command}\n{run_command(command[2:], folder)}" for command in commands)
        return block[0] if "[…]" in block[2] else f"```console\n{transcript}```"

    return BLOCK.sub(run_block, text)


def run_command(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "110"}
    result = subprocess.run(
        ["bash", "-c", f"({command}\n) 2>&1"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return result.stdout


def main() -> None:
    if "--comparisons" in sys.argv:
        rewrite_reports()
    for name in PARTS:
        page, text = fill_part(name)
        page.write_text(text, encoding="utf-8")
    if "--transcripts" in sys.argv:
        pages = [argument for argument in sys.argv[1:] if argument.endswith(".md")]
        for page in sorted(DOCS.glob("*.md")):
            if pages and page.name not in pages:
                continue
            text = page.read_text(encoding="utf-8")
            if BLOCK.search(text):
                with tempfile.TemporaryDirectory() as folder:
                    page.write_text(insert_transcripts(text, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
