"""examples/09_masked.py runs and prints what it claims."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "09_masked.py"


@pytest.mark.slow
def test_the_example_fills_in_and_starts_a_classifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    text = capsys.readouterr().out
    similarities = [float(number) for number in re.findall(r"in two texts ([\d.]+)", text)]
    assert similarities[0] == 1.0
    assert similarities[1] < 0.99
    assert len(re.findall(r"[\w\"*,.`]+ 0\.\d{3}", text.partition("[MASK]: ")[2].splitlines()[0])) == 3
    assert "model of the classifier: lstm, same vocabulary: True" in text
