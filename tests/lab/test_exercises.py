"""Exercises: solutions agree with the layers and finite differences, mistakes are named, bad files are refused."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
import torch

from seqwise.cli.main import main
from seqwise.errors import UsageError
from seqwise.lab.exercises import EXERCISES, get_exercise
from seqwise.lab.exercises.exercise import BLANK, Mistake
from seqwise.lab.exercises.grading import TOLERANCE, _compare, grade
from seqwise.layers import GRUCell, LSTMCell, ReplacingGRUCell, SinusoidalPositions, attend_with_weights

MISTAKES = [(exercise.id, mistake) for exercise in EXERCISES.values() for mistake in exercise.mistakes]


def grade_outputs(exercise, cases, answers, tmp_path):
    return {each.name: each for each in _compare(exercise, cases, answers, tmp_path)}


def write_solution(exercise, path, old="", new=""):
    """Writes a solved exercise, as a student's file, with a change."""
    lines = exercise.source.replace('"""', f'"""Exercise {exercise.id}: ', 1)
    assert old in lines
    path.write_text(lines.replace(old, new))
    return path


def test_there_are_at_least_ten():
    assert len(EXERCISES) >= 10


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_agrees_with_finite_differences(name, tmp_path):
    exercise = get_exercise(name)
    cases = exercise.list_cases()
    answers = [exercise.compute_outputs(inputs) for inputs in cases]
    for output in grade_outputs(exercise, cases, answers, tmp_path).values():
        assert output.problem == ""
        assert (output.difference_error is not None) == (output.name in exercise.differences)
        assert (output.difference_error or 0.0) < 1e-6


@pytest.mark.parametrize(("name", "mistake"), MISTAKES, ids=[f"{name}: {each.description}" for name, each in MISTAKES])
def test_a_mistake_is_named(name, mistake: Mistake, tmp_path):
    exercise = get_exercise(name)
    cases = exercise.list_cases()
    answers = [exercise.compute_outputs(inputs, mistake) for inputs in cases]
    problems = {output.problem for output in grade_outputs(exercise, cases, answers, tmp_path).values()} - {""}
    assert problems
    assert problems <= {mistake.description, "The sign is reversed.", "The matrix is transposed."}


@pytest.mark.parametrize("name", EXERCISES)
def test_the_template_has_blanks_and_no_solution(name, tmp_path):
    exercise = get_exercise(name)
    template = exercise.build_template("file.py")
    blanks = [match for match in map(BLANK.match, exercise.source.splitlines()) if match]
    assert len(blanks) >= 2
    assert template.count("...") == len(blanks) + 1  # one in the instructions
    for match in blanks:
        assert match["code"].strip() not in template
    compile(template, "file.py", "exec")


def test_steps_agree_with_the_layers():
    for name, build, parts in (("D1", LSTMCell, 2), ("E2", GRUCell, 1), ("E2", ReplacingGRUCell, 1)):
        inputs = get_exercise(name).list_cases()[0]
        cell = build(2, 3).double()
        with torch.no_grad():
            cell.weight_input.copy_(torch.tensor(inputs["W"]))
            cell.weight_hidden.copy_(torch.tensor(inputs["U"]))
            cell.bias.copy_(torch.tensor(inputs["b"]))
            if name == "E2":
                cell.bias_hidden.copy_(torch.tensor(inputs["c_n"]))
            state = tuple(torch.tensor(inputs[key])[None] for key in ("h", "c")[:parts])
            new = cell.step(cell.project(torch.tensor(inputs["x"])[None, None])[:, 0], state, cell.weight_hidden)
        outputs = get_exercise(name).compute_outputs(inputs)
        expected = outputs[1:] if build is ReplacingGRUCell else outputs[:parts]
        for ours, theirs in zip(new, expected):
            np.testing.assert_allclose(ours[0].numpy(), theirs, rtol=1e-12)


def test_attention_positions_and_cross_entropy_agree_with_the_layers():
    inputs = get_exercise("F1").list_cases()[0]
    context, weights = get_exercise("F1").compute_outputs(inputs)
    ours = attend_with_weights(*(torch.tensor(inputs[key]) for key in "QKV"))
    np.testing.assert_allclose(ours[0], context, rtol=1e-12)
    np.testing.assert_allclose(ours[1], weights, rtol=1e-12)
    (positions,) = get_exercise("G2").compute_outputs({"length": 7, "width": 10})
    np.testing.assert_allclose(SinusoidalPositions(10)(torch.zeros(7, 10).double()), positions, rtol=1e-9)
    inputs = get_exercise("B6").list_cases()[0]
    z = torch.tensor(inputs["z"], requires_grad=True)
    torch.nn.functional.cross_entropy(z, torch.tensor(inputs["y"]), reduction="sum").backward()
    np.testing.assert_allclose(z.grad, get_exercise("B6").compute_outputs(inputs)[0], atol=1e-12)


def test_beam_search_finds_a_likelier_sequence_than_greedy_search():
    exercise = get_exercise("G10")
    greedy = next(mistake for mistake in exercise.mistakes if "greedy" in mistake.description)
    better = [
        exercise.compute_outputs(inputs)[1] > exercise.compute_outputs(inputs, greedy)[1]
        for inputs in exercise.list_cases()
    ]
    assert any(better)


def test_the_command_writes_an_exercise_and_grades_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "exercise", "d7"]) == 0
    assert main(["lab", "exercise", "D7"]) == 2
    assert "is not replaced" in capsys.readouterr().err
    assert main(["lab", "grade", "d7.py"]) == 2
    assert "d7.py:" in (message := capsys.readouterr().err)
    assert "still blank" in message
    write_solution(get_exercise("D7"), tmp_path / "d7.py")
    assert main(["lab", "grade", "d7.py"]) == 0
    assert "2 of 2 right" in capsys.readouterr().out
    write_solution(get_exercise("D7"), tmp_path / "d7.py", "dc_later = dc * f[t]", "dc_later = dc")
    assert main(["lab", "grade", "d7.py"]) == 1
    assert "the factor f_t is missing" in capsys.readouterr().out


BAD_FILES = {
    "import torch\n": "imports 'torch'",
    "import os.path\n": "imports 'os.path'",
    "def solve(:\n": "not valid Python",
    "def solution(): return 1\n": "no function solve",
    "def solve(p, words): return 1 / 0\n": "ZeroDivisionError",
    "def solve(p, words): raise SystemExit(0)\n": "SystemExit",
    "def solve(p, words): return 'a'\n": "ValueError",
    "def solve(p, words): return 1.0\n": "must return 2 values",
    "def solve(p, words): return np.ones(10**12), 1.0\n": "MemoryError",
    "def solve(p, words): return p, p @ p.T\n": "Expected the shape ()",
    "def solve(p, words): return float('nan'), 1.0\n": "not finite",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_gets_a_clear_message(text, tmp_path, capsys):
    path = tmp_path / "h8.py"
    path.write_text(f'"""Exercise H8: perplexity"""\nimport numpy as np\n{text}')
    assert main(["lab", "grade", str(path)]) in (1, 2)
    captured = capsys.readouterr()
    assert BAD_FILES[text] in captured.out + captured.err
    assert "Traceback" not in captured.err
    assert path.exists()


def test_a_file_that_hangs_is_stopped_with_all_its_processes(tmp_path):
    path, mark = tmp_path / "h8.py", tmp_path / "mark"
    path.write_text(
        '"""Exercise H8: perplexity"""\nimport numpy as np\nimport math\n\n\n'
        "def solve(p, words):\n"
        "    subprocess = __import__('subprocess')\n"
        f"    subprocess.Popen(['sh', '-c', 'sleep 3; touch {mark}'])\n"
        "    while True:\n        pass\n"
    )
    start = time.monotonic()
    with pytest.raises(UsageError, match="stopped after 1 seconds"):
        grade(path, seconds=1.0)
    assert time.monotonic() - start < 10
    time.sleep(3)
    assert not mark.exists()


def test_other_problems_of_files(tmp_path, capsys):
    assert main(["lab", "grade", str(tmp_path / "none.py")]) == 2
    assert "no such file" in capsys.readouterr().err
    path = tmp_path / "x.py"
    path.write_text("print(1)\n")
    assert main(["lab", "grade", str(path)]) == 2
    assert "must begin with" in capsys.readouterr().err
    assert main(["lab", "exercise", "Z1"]) == 2
    assert "Exercises: B1" in capsys.readouterr().err


def test_grading_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    path = write_solution(get_exercise("H8"), tmp_path / "h8.py")
    assert grade(path).is_right
    assert os.listdir(tmp_path / "tmp") == []
    assert TOLERANCE <= 1e-6
