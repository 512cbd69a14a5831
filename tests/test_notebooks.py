"""The notebooks of the lab run, cell by cell, and what they say of the experiments is true."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from seqwise.lab import CHAPTERS, find_experiments, get_experiment
from seqwise.lab.exercises import EXERCISES

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read_cells(path: Path, kind: str) -> list[str]:
    """Returns the sources of the cells of a kind, `code` or `markdown`."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def run_cell(source: str, namespace: dict[str, Any], name: str) -> Any:
    """Runs a cell and returns the value of its last expression, None if it ends with a statement."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)


def test_every_chapter_has_a_notebook():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{letter}_" for letter in CHAPTERS]


@each_notebook
def test_the_file_is_a_notebook_without_outputs(path: Path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert text == json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"  # as Jupyter saves it
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@each_notebook
def test_it_quotes_claims_and_names_exercises_that_exist(path: Path):
    text = "\n".join(read_cells(path, "markdown"))
    quoted = dict(re.findall(r"^## ([A-H]\d+): (.*)$", text, flags=re.MULTILINE))
    assert 3 <= len(quoted) <= 5
    assert quoted == {name: get_experiment(name).claim for name in quoted}
    assert {name[0] for name in quoted} == {path.name[0]}
    assert "**Predict" in text
    exercises = re.findall(r"seqwise lab exercise (\w+)", text)
    assert exercises
    assert set(exercises) <= set(EXERCISES)
    numbers = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    total = len(find_experiments([path.name[0]]))
    spelled = numbers[total] if total < len(numbers) else str(total)
    assert f"{numbers[len(quoted)].capitalize()} of the {spelled} statements" in text


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.name[0] in "ACGH" else ()) for path in NOTEBOOKS],
)
def test_its_cells_run_in_order(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown = 0
    for number, source in enumerate(read_cells(path, "code"), start=1):
        value = run_cell(source, namespace, f"{path.stem}, cell {number}")
        if hasattr(value, "_repr_html_"):
            assert "<" in value._repr_html_()
            shown += 1
    assert shown >= 4  # results and figures
    assert list(tmp_path.iterdir()) == []  # reading a notebook leaves no files


def test_the_value_of_the_last_expression_is_shown():
    namespace: dict[str, Any] = {}
    assert run_cell("x = 2\nx + 1", namespace, "cell") == 3
    assert run_cell("y = x", namespace, "cell") is None
    assert namespace["y"] == 2
