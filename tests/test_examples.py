"""The numbered examples run, and what they print is true."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import seqwise

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.fixture
def run_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the example of a number in an empty folder; returns what it printed."""

    def run(number: int) -> str:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(EXAMPLES[number - 1]), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_examples_are_numbered_without_gaps_and_short():
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES}
    own_task = lengths.pop("11_your_own_task.py")
    assert own_task < 150
    assert {name: lines for name, lines in lengths.items() if lines > 70} == {}


@pytest.mark.slow
def test_the_language_model_learns_and_writes(run_example, tmp_path: Path):
    text = run_example(1)
    perplexities = [float(number) for number in re.findall(r"valid perplexity +([\d.]+)", text)]
    assert perplexities[-1] < perplexities[0] < 40
    assert re.search(r"bits_per_character +[1-5]\.\d{3}", text)
    assert len(text.partition("softmax over")[2].partition("\n\n")[2].strip()) > 40
    assert (tmp_path / "runs" / "language-lstm-1" / "model.safetensors").exists()


@pytest.mark.slow
def test_gates_of_every_layer_are_printed(run_example):
    text = run_example(2)
    means = [float(number) for number in re.findall(r"mean forget gate ([\d.]+)", text)]
    assert len(means) == 2
    assert all(0.5 < mean < 1 for mean in means)  # the bias of 1 begins at 0.73
    assert "backbone.stack.layer.0.lstm.forget" in text


@pytest.mark.slow
def test_a_custom_cell_learns_to_remember(run_example):
    text = run_example(3)
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < 0.2 < losses[0]
    assert len(re.findall(r"gate at each step:(?: 0\.\d\d){10}$", text, re.MULTILINE)) == 1


@pytest.mark.slow
def test_the_classifier_learns_and_prints_its_attention_weights(run_example):
    text = run_example(4)
    accuracy = re.search(r"^accuracy +([\d.]+) ", text, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) > 0.6  # the most frequent label is a quarter
    weights = [float(number) for number in re.findall(r"^ +\S+ (0\.\d\d) ?█*$", text, re.MULTILINE)]
    assert sum(weights) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_the_tagger_learns_the_kind_of_a_name_from_its_context(run_example):
    text = run_example(5)
    assert float(re.findall(r"token accuracy ([\d.]+)", text)[0]) > 0.9
    assert re.findall(r"^read +(\w+)", text, re.MULTILINE) == ["method", "argument", "variable"]


@pytest.mark.slow
def test_the_translator_learns_and_prints_hypotheses_and_attention_weights(run_example):
    text = run_example(6)
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < losses[0] / 2
    assert "tok:13a" in text
    source = "Sunday, May 3rd, 1998"
    best = text.partition(f"{source}\n")[2].partition("\n\n")[0].splitlines()
    scores = [float(line.split()[0]) for line in best]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    rows = re.findall(r"^[\d-]  \|(.*)\|$", text, re.MULTILINE)
    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(source)}  # a weight for each character


@pytest.mark.slow
def test_the_captioner_describes_an_image_and_attends_to_a_region(run_example):
    text = run_example(7)
    chrf = re.search(r"^chrf +([\d.]+) ", text, re.MULTILINE)
    assert chrf is not None
    assert float(chrf[1]) > 5
    assert re.search(r"^in the data: \w+.*\ngenerated:   \w+", text, re.MULTILINE)
    region = re.search(r"attends most to region (\d+) of 16$", text, re.MULTILINE)
    assert region is not None
    assert int(region[1]) < 16


@pytest.mark.slow
def test_the_forecast_is_better_than_the_naive_one_and_drawn(run_example, tmp_path: Path):
    text = run_example(8)
    errors = re.findall(r"^(\w+) +([\d.]+) +naive +([\d.]+) +seasonal naive +([\d.]+)$", text, re.MULTILINE)
    assert [name for name, *_ in errors] == ["mse", "mae", "mase"]
    assert all(float(ours) < float(naive) for _, ours, naive, _ in errors)
    assert (tmp_path / "forecast.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.slow
def test_word_vectors_are_trained_with_three_objectives_and_queried(run_example):
    text = run_example(10)
    for method in ("skipgram", "cbow", "glove"):
        losses = re.search(rf"^{method}: [\d,]+ words, loss ([\d.]+) → ([\d.]+)$", text, re.MULTILINE)
        assert losses is not None
        assert float(losses[2]) < float(losses[1])
    assert len(re.findall(r"nearest to \w+: \S+ 0\.\d\d", text)) == 6
    assert re.search(r"'subclassable' is near \['", text)


@pytest.mark.slow
def test_a_task_in_one_file_trains_evaluates_predicts_and_is_compared(run_example, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SEQWISE_TASKS", "")  # restored afterwards: worker processes read the file of the task from it
    text = run_example(11)
    error = re.search(r"^mean squared error (0\.\d+) of", text, re.MULTILINE)
    assert error is not None
    assert float(error[1]) < 0.005  # always predicting the mean has an error of 1
    sums = re.search(r"12\+30 is about (\d+), 85\+7 about (\d+)", text)
    assert sums is not None
    assert [int(value) for value in sums.groups()] == pytest.approx([42, 92], abs=3)
    assert "<Comparison" in text
    assert (tmp_path / "runs" / "compare-1" / "report.html").exists()
    run = tmp_path / "runs" / "regress-gru-1"
    assert "task: regress" in (run / "config.yaml").read_text()
    assert seqwise.load(run).predict(["1+1"])[0].values["text"] == "1+1"
