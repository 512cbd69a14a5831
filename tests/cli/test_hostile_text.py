"""Control characters, escape sequences and bidirectional marks in data reach no terminal, image, page or card.

What other programs read stays exact: predicted texts in a pipe, and the values of a JSON document.
"""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from rich.progress import Progress
from sample_figures import make_heatmap, make_lines, make_series
from sample_report import family, parse, report

import seqwise
from seqwise.cli import console
from seqwise.cli import main as cli
from seqwise.cli.progress import PlainColumn
from seqwise.compare.report.page.page import make_page
from seqwise.errors import DataError
from seqwise.page.drawing import draw_svg
from seqwise.page.figures import Figure
from seqwise.page.html import build_page
from seqwise.page.terminal import draw_text
from seqwise.tasks.forecast.output import build_forecast_svg
from seqwise.training.card import build_model_card
from seqwise.training.step import TrainerState

NASTY = {
    "escape sequence": "\x1b[2Jred",
    "title of the terminal": "\x1b]0;title\x07",
    "link": "\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\",
    "C1": "\x9b31mred",
    "backspace": "ab\x08\x08cd",
    "carriage return": "good\rbad",
    "delete": "a\x7f",
    "override": "abc\u202egpj.exe",
    "isolate": "\u2067abc\u2069",
    "zero width": "ad\u200bmin",
    "byte order mark": "\ufeffa",
    "separator": "a\u2028b",
    "tags": "a\U000e0041",
}
NO_PRINTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)

END = b"<end>"

pytestmark = pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)


def assert_printable(output: str) -> None:
    assert not NO_PRINTING.findall(output)
    assert re.search("[␀-␡⟨↵]", output)  # what was there is shown


def run_in_terminal(action: Callable[[], object]) -> str:
    """Runs a function while standard output is a terminal; returns what was written to it."""
    reader, writer = pty.openpty()
    received: list[bytes] = []

    def receive() -> None:  # meanwhile, since a terminal holds few bytes
        while END not in b"".join(received):
            received.append(os.read(reader, 65536))

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    with open(writer, "w", encoding="utf-8", newline="") as stream, redirect_stdout(stream):
        action()
        stream.write(END.decode())
        stream.flush()
        thread.join(timeout=10)
    os.close(reader)
    return b"".join(received).decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory) -> seqwise.training.api.TrainedModel:
    """A classifier whose labels have nasty names."""
    rows = [(f"word{index} again", name) for index, name in enumerate(NASTY.values())] * 8
    settings = {"device": "cpu", "network.width": 8, "network.depth": 1, "data.on_empty": "drop"}
    out = tmp_path_factory.mktemp("runs") / "labels"
    return seqwise.train(rows, out=out, task="classify", model="gru", budget="300-tokens", settings=settings)


def test_in_the_name_of_a_missing_file(seqwise_command, text: str, tmp_path: Path):
    result = seqwise_command("check", tmp_path / f"{text}.txt".replace("/", "-"))
    assert result.status == 2
    assert_printable(result.err)
    assert len(result.err.splitlines()) <= 3


def test_in_a_message_a_warning_and_a_traceback(text: str, capsys, monkeypatch):
    def fail(argv: list[str]) -> int:
        console.log(text)
        console.warn(text)
        sys.stderr.write(warnings.formatwarning(text, UserWarning, text, 1, text))  # what `warnings.warn` prints
        raise DataError(text, fix=text, file=f"{text}\n")

    module = ModuleType("seqwise.cli.probe")
    module.main = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "seqwise.cli.probe", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", "for a test")
    assert cli.main(["probe", "--debug"]) == 2
    error = capsys.readouterr().err
    assert "UserWarning" in error
    assert "Traceback" in error
    assert_printable(error)


def test_in_a_line_of_progress(text: str):
    progress = Progress()
    progress.add_task(f"[red]{text}\n")
    shown = PlainColumn("{task.description}").render(progress.tasks[0]).plain
    assert_printable(shown)
    assert shown.startswith("[red]")
    assert "\n" not in shown


def test_in_the_labels_of_an_evaluation(seqwise_command, trained_model, text: str):
    data = trained_model.run.metadata.data
    result = seqwise_command("evaluate", trained_model.run.folder, data, "--split", "all")
    assert result.status == 0
    assert_printable(result.out)
    assert console.make_printable(text, is_line=True) in result.out


def test_in_a_predicted_label(trained_model, text: str):
    words = ["predict", str(trained_model.run.folder), "word1 again", "--top", str(len(NASTY))]
    shown = run_in_terminal(lambda: cli.main(words))
    assert_printable(shown)
    assert console.make_printable(text) in shown


def test_in_a_json_document(seqwise_command, trained_model, text: str):
    result = seqwise_command("predict", trained_model.run.folder, "word1 again", "--json")
    assert not NO_PRINTING.findall(result.out)
    assert text in json.loads(result.out)[0]["probabilities"]


def test_a_predicted_label_in_a_pipe_is_exact(seqwise_command, trained_model, text: str):
    result = seqwise_command("predict", trained_model.run.folder, "word1 again", "--top", len(NASTY))
    assert text in result.out


def test_in_generated_text(text: str):
    shown = run_in_terminal(lambda: [console.write_text(piece) for piece in (text, "\n", text)])
    assert_printable(shown)
    assert shown.count("\n") == 1


FIGURES: list[Callable[[str], Figure]] = [
    lambda text: make_heatmap([[1, 2], [3, 4]], title=text, rows=[text, "b"], columns=["a", text], note=text),
    lambda text: make_lines(make_series(text, [1, 2, 3]), title=text, x_label=text, y_label=text),
]


def test_in_figures(text: str):
    for make in FIGURES:
        drawing = draw_svg(text, [text], [make(text)])
        ElementTree.fromstring(drawing)
        assert_printable(drawing)
        assert_printable(draw_text(text, [text], [make(text)], has_colour=False).replace("\u200e", ""))
        assert_printable(build_page(text, [text], [make(text)]))


def test_in_the_plot_of_a_forecast(text: str):
    history = {"timestamps": [text, text], "values": [0.5, 0.7]}
    forecast = {"timestamps": [text, text], "point": [1.0, 2.0], "history": history}
    drawing = build_forecast_svg({text: forecast})
    ElementTree.fromstring(drawing)
    assert_printable(drawing)


def test_in_the_report_of_a_comparison(text: str):
    values = report("classify", "accuracy", [family(text, "accuracy", [0.9, 0.8])], data=text, about=[text])
    page = make_page(parse(values))
    assert not NO_PRINTING.findall(page)
    embedded = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    assert not NO_PRINTING.findall(json.loads(embedded[1])["report"]["data"])


def test_in_a_model_card(trained_model, text: str, monkeypatch):
    command = f"seqwise train '{text}\n```\n# Forged <script>alert(1)</script>'"
    values = {"command": command, "data": f"{text}`<script>\n# Forged", "split_rule": f"{text}\n<script>[a](b)"}
    monkeypatch.setattr(trained_model.run, "metadata", replace(trained_model.run.metadata, **values))
    card = build_model_card(trained_model.run, trained_model.task, "small", TrainerState(step=1))
    assert_printable(card)
    outside = re.sub(r"^(````+|```)\n.*?^\1$|(``+|`).*?\2", "", card, flags=re.DOTALL | re.MULTILINE)
    assert "<script>" not in outside
    assert "[a](b)" not in outside
    assert [line for line in outside.splitlines() if line.startswith("#")] == ["# gru, classify"]
