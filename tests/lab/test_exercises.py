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


SENT_BACK = "U.T @ np.concatenate([da_i, da_f, da_g, da_o])"
STUDENTS_CHANGES = [  # exercise, part of the solution, change, message
    ("B1", "U.T @ da", "U @ da", "U is not transposed"),
    ("B1", "U.T @ da", "U.T @ dh", "lacks the derivative of the tanh"),
    ("B1", "1 - h[t] ** 2", "1 - np.tanh(h[t]) ** 2", "already the tanh"),
    ("B1", "U.T @ da", "0.5 * U.T @ da", "right for a single time step"),
    ("B1", "return dW, dU, db", "return dU, dW, db", "This is dU: the outputs are exchanged."),
    ("B1", "return dW, dU, db", "return dW, dU, 3 * db", "It is 3 times what it should be"),
    ("D7", SENT_BACK, SENT_BACK.replace("da_g, da_o", "da_o, da_g"), "stacked in the order i, f, o, g"),
    ("D7", SENT_BACK, "U[2 * units : 3 * units].T @ da_g", "Only the path through the candidate"),
    ("D7", "dh * np.tanh(c[t])", "dh * c[t]", "multiplies tanh(c_t), not c_t"),
    ("D7", "dc_later = dc * f[t]", "dc_later = dc * f[t] ** 2", "right for a single time step"),
    ("E2", "n = np.tanh(x_n", "r, z = z, r; n = np.tanh(x_n", "The two gates are exchanged"),
    ("F1", "np.sqrt(Q.shape[1])", "np.sqrt(len(K))", "divided by √S"),
    ("G2", "position / 10000", "position / 1000", "10000, not 1000"),
    ("G10", "-item[1])[:beam]", "-item[1] / len(item[0]))[:beam]", "score per token"),
    (
        "G10",
        "-item[1])[:beam]",
        "-item[1] / len(item[0]) ** 0.7)[:beam]",
        "Expected [0.] for one of the inputs; received",
    ),
    ("H8", "2**cross_entropy", "2.1**cross_entropy", "No known mistake explains it."),
]


@pytest.mark.parametrize(("name", "old", "new", "message"), STUDENTS_CHANGES)
def test_a_changed_file_gets_a_helpful_message(name, old, new, message, tmp_path, capsys):
    path = write_solution(get_exercise(name), tmp_path / "file.py", old, new)
    assert main(["lab", "grade", str(path)]) == 1
    printed = capsys.readouterr().out
    assert message in printed
    assert ("times what it should be" in printed) == ("times" in message)


def test_one_wrong_sum_is_not_blamed_on_the_path_through_time(tmp_path):
    path = write_solution(get_exercise("B1"), tmp_path / "b1.py", "np.outer(da, previous)", "np.outer(dh, previous)")
    problems = {output.name: output.problem for output in grade(path).outputs}
    assert problems["dW"] == problems["db"] == ""
    assert "no known mistake" in problems["dU"]


def test_what_a_file_prints_is_shown_once(tmp_path, capsys):
    change = "print('the tokens')\n    tokens, score = max(hypotheses"
    path = write_solution(get_exercise("G10"), tmp_path / "g10.py", "tokens, score = max(hypotheses", change)
    assert main(["lab", "grade", str(path)]) == 0
    printed = capsys.readouterr().err
    assert printed.count("the tokens") == 1
    assert "for the first of 5 inputs" in printed


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
    "def solve(:\n": "not valid Python: invalid syntax.\n",
    "def solve(p, words): return (p\n": "h8.py:3: this is not valid Python: '(' was never closed.\n",
    f"def solve(p, words): return {'-' * 20_000}p\n": "h8.py: an expression of the file is nested too deeply.\n",
    "def solve(p, words):\n    return p @ p, 1.0\n": "h8.py:4: the file failed with ValueError: matmul",
    "def solve(p, words):\n    return p + words, 1.0\n": "This line failed: return p + words, 1.0",
    "def solve(p, words):\n    print('text' * 10**6)\n": "h8.py:4: the file prints too much.\nRemove the print.",
    "print('text' * (2**18 - 10))\ndef solve(p, words):\n    print('text' * 20)\n    return 1.0, 2.0\n": "too much",
    "def solve(p, words): return np.ones(10**6), 1.0\n": "too large: (1000000,), ()",
    "def solve(p, words): return 2.0, 3.0\n": "No known mistake explains it",
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
    assert main(["lab", "grade", str(tmp_path)]) == 2
    assert "this is a folder" in capsys.readouterr().err
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
