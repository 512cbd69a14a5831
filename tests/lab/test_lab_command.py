"""`seqwise lab list`, `run` and `quiz`: tables, JSON, parameters, interruption and resumption, wrong input."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time

import pytest

from seqwise.cli.main import main
from seqwise.lab import CHAPTERS, get_experiment, list_ids
from seqwise.lab.experiment import Experiment
from seqwise.lab.running import ResultFile

FIELDS = {"id", "claim", "equation", "verdict", "condition", "rule", "measured", "seconds"}


def run_command(capsys, *words):
    status = main(["lab", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_list_names_every_experiment_and_no_verdict(capsys):
    status, text, _ = run_command(capsys, "list")
    assert status == 0
    for name in list_ids():
        assert f"  {name:4} " in text
        assert get_experiment(name).claim in text
    assert "refuted" not in text
    status, text, _ = run_command(capsys, "list", "c", "--json")
    rows = json.loads(text)
    assert [row["id"] for row in rows] == list_ids("C")
    assert {"id", "claim", "seconds"} <= set(rows[0])


def test_one_experiment_prints_claim_numbers_verdict_and_figure(capsys):
    status, text, _ = run_command(capsys, "run", "c2")
    assert status == 0
    for part in ("Claim: Growth follows", "Equation: ", "Numbers: ", "Verdict: holds if", "Try next: ", "│"):
        assert part in text


def test_parameters_are_options(capsys):
    status, text, _ = run_command(capsys, "run", "C2", "--radius", "0.5", "--coupling", "0", "--json")
    assert status == 0
    (result,) = json.loads(text)
    assert set(result) >= FIELDS
    assert result["parameters"]["radius"] == 0.5
    assert result["size"] == "changed"
    assert result["measured"]["spectral_radius_normal"] == pytest.approx(0.5)
    assert result["verdict"] == "holds"  # without coupling both matrices are normal
    status, text, _ = run_command(capsys, "run", "C2", "--help")
    assert status == 0
    assert "--radius FLOAT" in text
    assert "Spectral radius of both matrices." in text


WRONG = {
    ("run", "C99"): "Chapter C has C1 to",
    ("run", "X"): "Chapters are A, B",
    ("run", "C2", "--raduis", "1"): "Perhaps you meant '--radius'",
    ("run", "C2", "--units", "0"): "units: expected at least 1; received 0",
    ("run", "E3", "--near", "0.9"): "near: expected at least 0 and at most 0.5; received 0.9",
    ("run", "H6", "--learning-rate", "1"): "loss of skipgram is not a number",
    ("run", "C2", "--units", "two"): "--units: expected INT; received 'two'",
    ("run", "C2", "--radius", "nan"): "finite",
    ("run",): "no experiment is named",
    ("run", "--all", "C2"): "received 'C2' as well",
    ("run", "C", "D", "--slides"): "one chapter",
    ("run", "C", "--resume"): "--resume needs the page",
    ("run", "C2", "C7", "--radius", "0.5"): "Parameters are options of a single experiment",
    ("run", "C2", "--out", "x.pdf"): "expected a file that ends in .html or .png",
    ("run", "C", "--out", "x.png"): "expected a file that ends in .html",
    ("quiz", "--number", "0"): "expected at least 1",
    ("sing",): "lab has no command 'sing'",
    ("list", "Q7"): "there is no experiment 'Q7'",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_gets_a_clear_message(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, text, message = run_command(capsys, *words)
    assert status == 2
    assert text == ""
    assert WRONG[words] in message


def test_an_error_is_blamed_on_changed_parameters(monkeypatch, capsys):
    def fail(self):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(get_experiment("C2"), "measure", fail)
    status, _, message = run_command(capsys, "run", "C2", "--units", "7")
    assert status == 2
    assert "C2 cannot be run with units 7: shapes do not match." in message
    with pytest.raises(RuntimeError):
        get_experiment("C2")().run()


def test_a_chapter_is_a_table_and_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, text, message = run_command(capsys, "run", "C2", "C1", "--out", "c.html", "--markdown", "c.md")
    assert status == 0
    assert text.startswith("C1   holds ")
    assert "2 experiments: 1 holds, 1 holds under a condition" in text
    assert "saved to c.html" in message
    assert "Growth follows" in (tmp_path / "c.html").read_text()
    assert "**Holds if** W is normal" in (tmp_path / "c.md").read_text()
    status, _, message = run_command(capsys, "run", "C1", "C2", "--slides")
    assert status == 0
    assert "saved to lab-C.html" in message


def test_resume_keeps_results_with_the_same_parameters(tmp_path, monkeypatch, capsys):
    runs = []
    original = Experiment.run
    monkeypatch.setattr(Experiment, "run", lambda self: runs.append((self.id, self.seed)) or original(self))
    page = str(tmp_path / "c.html")
    for words in (("C1",), ("C1", "C2", "--resume"), ("C1", "C2", "--resume"), ("C1", "C2", "--seed", "3")):
        assert run_command(capsys, "run", *words[:1], *words[1:], "--out", page, "--slides")[0] == 0
    assert runs == [("C1", 0), ("C2", 0), ("C1", 3), ("C2", 3)]


def test_results_are_neither_lost_nor_mixed(tmp_path, capsys):
    page, lines = str(tmp_path / "c.html"), tmp_path / "c.jsonl"
    assert run_command(capsys, "run", "C1", "C2", "--out", page)[0] == 0
    before = lines.read_text()
    status, _, message = run_command(capsys, "run", "C2", "D1", "--out", page)
    assert status == 2
    assert "c.jsonl: 1 result of other experiments, such as C1, would be lost." in message
    status, _, message = run_command(capsys, "run", "C1", "C2", "--seed", "1", "--resume", "--out", page)
    assert status == 2
    assert "would mix two sizes or seeds" in message
    assert lines.read_text() == before
    assert run_command(capsys, "run", "D1", "D2", "--resume", "--out", page)[0] == 0
    assert [json.loads(line)["id"] for line in lines.read_text().splitlines()] == ["C1", "C2", "D1", "D2"]
    assert all(f'"id":"{name}"' in (tmp_path / "c.html").read_text() for name in ("C1", "C2", "D1", "D2"))


def test_a_damaged_result_file_loses_only_the_damaged_line(tmp_path):
    path = tmp_path / "lab.jsonl"
    lines = [
        b'{"id": "C2", "verdict": "holds"}',
        b'{"id": "C3\xff"',
        b"[" * 100_000,
        b"[]",
        b'{"id": []}',
        b'{"id": "C3", "ver',
    ]
    path.write_bytes(b"\n".join(lines))
    results = ResultFile(path)
    results.load()
    assert list(results.records) == ["C2"]


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_results(tmp_path):
    command = [sys.executable, "-m", "seqwise", "lab", "run", "--all", "--quick"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = tmp_path / "lab.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not lines.exists() or lines.read_text().count("\n") < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Continue: seqwise lab run --all --quick --resume" in message
    saved = [json.loads(line)["id"] for line in lines.read_text().splitlines()]
    assert len(saved) >= 3
    assert saved == list_ids()[: len(saved)]
    assert (tmp_path / "lab.html").exists()


def answer(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_quiz_asks_runs_and_keeps_score(monkeypatch, capsys):
    answer(monkeypatch, "maybe\nd\n")
    status, text, message = run_command(capsys, "quiz", "C2")
    assert status == 0
    assert "C2 (1 of 1)  Growth follows" in text
    assert "Type t for true" in message
    assert "Right: C2 holds if W is normal" in text
    assert "Score: 1 of 1." in text
    answer(monkeypatch, "true\n")
    _, text, _ = run_command(capsys, "quiz", "C2", "--text-only")
    assert "Wrong: C2" in text
    assert "To look at again: seqwise lab run C2" in text
    answer(monkeypatch, "")
    status, text, _ = run_command(capsys, "quiz", "C")
    assert status == 0
    assert "No statement was answered." in text


def test_every_chapter_has_a_folder():
    assert "".join(CHAPTERS) == "ABCDEFGH"
