"""Output streams of the console, and the values of a JSON document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqwise.cli import console
from seqwise.config import Settings


@dataclass
class Result:
    path: Path
    perplexity: float


def test_results_go_to_standard_output_and_notes_to_standard_error(capsys):
    console.write("result [red]")
    console.log("note")
    console.warn("look")
    console.fail("bad")
    captured = capsys.readouterr()
    assert captured.out == "result [red]\n"
    assert captured.err == "note\nwarning: look\nerror: bad\n"


def test_a_json_document_has_plain_values_only(capsys):
    console.print_json(
        {
            "result": Result(Path("runs/a"), float("inf")),
            "array": np.arange(3, dtype=np.float32),
            "number": np.float64("nan"),
            "set": {1},
            1: "größer",
            "settings": Settings(seed=3),
        }
    )
    text = capsys.readouterr().out
    document = json.loads(text)
    assert document["result"] == {"path": "runs/a", "perplexity": None}
    assert document["array"] == [0.0, 1.0, 2.0]
    assert document["number"] is None
    assert document["set"] == [1]
    assert document["1"] == "größer"
    assert document["settings"]["seed"] == 3
    assert "größer" in text
