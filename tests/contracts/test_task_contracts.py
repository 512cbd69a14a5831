"""Every task through one table: padding, sums, seeds, interruption, saving and loading, order of answers.

A task comes into the table by a module `rows_TASK.py` beside this one.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_row import TaskRow

from seqwise.config import parse_settings
from seqwise.metrics.evaluation import compute_metric
from seqwise.tasks import get_task
from seqwise.tasks.task import Preprocessor, Task
from seqwise.training.api import TrainedModel
from seqwise.training.run import Run
from seqwise.training.training_run import TrainingRun, create_run, open_training

ROWS: dict[str, TaskRow] = {
    path.stem.removeprefix("rows_"): import_module(path.stem).ROW
    for path in sorted(Path(__file__).parent.glob("rows_*.py"))
}
EVERY = [(task, family) for task, row in ROWS.items() for family in row.families]
SOME = [(task, family) for task, family in EVERY if family in ("lstm", "transformer")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(task, family) → a run folder that was made but not trained, and its task."""

    @cache
    def make(task: str, family: str) -> tuple[Run, Task, Path]:
        folder = tmp_path_factory.mktemp(f"{task}-{family}")
        row = ROWS[task]
        (folder / "data").mkdir()
        data = row.write(folder / "data")
        settings = parse_settings({**row.settings, "task": task, "model": family, "budget": "2-epochs"})
        return *create_run(data, settings, folder / "run"), folder

    return make


@pytest.fixture(scope="module")
def trained(made):
    """(task, family) → a run trained for a few updates."""

    @cache
    def train(task: str, family: str) -> TrainedModel:
        run, prepared, _ = made(task, family)
        take(TrainingRun(run, prepared), 6)
        return TrainedModel(run, "cpu")

    return train


def take(fit: TrainingRun, count: int) -> list[torch.Tensor]:
    """Train so many updates, save, and return the weights."""
    seen: list[int] = []
    for step in fit.steps(lambda: len(seen) + 1 >= count):
        seen.append(step.number)
        assert math.isfinite(step.loss)
    return [parameter.detach().clone() for parameter in fit.model.parameters()]


def questions(task: str, folder: Path) -> list[str]:
    row = ROWS[task]
    return row.asked(folder / "data") if row.asked else row.inputs


def small(task: str, family: str, made: Any) -> tuple[Task, torch.nn.Module, Any]:
    """The task, an untrained model and its first training batch."""
    run, prepared, _ = made(task, family)
    torch.manual_seed(1)
    model = prepared.build(run.settings).eval()
    return prepared, model, prepared.batches(run.settings)


def loss_of(model: torch.nn.Module, batch: Any) -> float:
    with torch.no_grad():
        return float(model(batch, None)[0].total)


@pytest.mark.parametrize(("task", "family"), EVERY)
def test_the_loss_of_a_batch_is_the_sum_over_its_rows(made, task, family):
    _, model, batches = small(task, family, made)
    batch = next(batches.epoch(0))
    parts = [batch.slice(row, row + 1) for row in range(batch.rows)]
    assert batch.rows > 1
    assert sum(part.num_targets for part in parts) == batch.num_targets > 0
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    assert loss_of(model, batch) == pytest.approx(sum(loss_of(model, part) for part in parts), rel=1e-4)


@pytest.mark.parametrize(("task", "family"), EVERY)
def test_padding_changes_nothing(made, task, family):
    """Rows put into a batch each by itself have no padding."""
    _, model, batches = small(task, family, made)
    if not hasattr(batches, "collate") or task == "forecast":
        pytest.skip("its rows are all of one length: there is no padding")
    numbers = np.arange(min(12, len(batches.lengths)))
    together = loss_of(model, batches.collate(numbers))
    alone = sum(loss_of(model, batches.collate(numbers[i : i + 1])) for i in range(len(numbers)))
    assert len({int(batches.lengths[number]) for number in numbers}) > 1, "rows of unequal length are needed"
    assert together == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("task", ROWS)
def test_two_processes_share_the_batches_of_one(made, task):
    run, prepared, _ = made(task, ROWS[task].families[-1])
    one = [batch.positions.tolist() for batch in prepared.batches(run.settings).epoch(0)]
    parts = [prepared.batches(run.settings, rank, 2) for rank in range(2)]
    two = [a.positions.tolist() + b.positions.tolist() for a, b in zip(*(part.epoch(0) for part in parts))]
    assert parts[0].steps == parts[1].steps == len(two)
    assert len(one) == len(two)
    # Only a batch that cannot be divided evenly may differ: by a row that is seen twice, or left for another epoch.
    odd = [(alone, shared) for alone, shared in zip(one, two) if sorted(alone) != sorted(shared)]
    assert all(len(alone) % 2 for alone, _ in odd)
    assert len(odd) <= 1
    alone, shared = (Counter(row for rows in batches for row in rows) for batches in (one, two))
    assert (alone - shared).total() < 2
    assert (shared - alone).total() < 2


@pytest.mark.parametrize(("task", "family"), SOME)
def test_an_epoch_can_be_entered_anywhere(made, task, family):
    run, prepared, _ = made(task, family)
    batches = prepared.batches(run.settings)
    whole = [batch.positions.tolist() for batch in batches.epoch(1)]
    assert [batch.positions.tolist() for batch in batches.epoch(1, 2)] == whole[2:]
    assert len(whole) == batches.steps


@pytest.mark.parametrize(("task", "family"), SOME)
def test_an_interrupted_run_ends_with_the_same_bits(made, task, family, tmp_path):
    run, prepared, _ = made(task, family)

    def fresh(name: str) -> Run:
        return Run.create(tmp_path / name, run.settings, run.origin, prepared.preprocessor, {})

    whole = take(TrainingRun(fresh("whole"), prepared), 5)
    broken = fresh("broken")
    take(TrainingRun(broken, prepared), 2)
    resumed = take(open_training(Run.open(broken.folder)), 3)  # reads the data again
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


@pytest.mark.parametrize(("task", "family"), SOME)
def test_what_was_learned_comes_back_from_the_folder(made, task, family):
    run, prepared, _ = made(task, family)
    preprocessor = Preprocessor.load(run.folder)
    assert preprocessor.facts == prepared.preprocessor.facts
    assert {name: t.fingerprint for name, t in preprocessor.tokenizers.items()} == {
        name: t.fingerprint for name, t in prepared.preprocessor.tokenizers.items()
    }
    restored = get_task(task).restore(run.settings, preprocessor)
    shapes = {name: tensor.shape for name, tensor in prepared.build(run.settings).state_dict().items()}
    assert {name: tensor.shape for name, tensor in restored.state_dict().items()} == shapes


@pytest.mark.parametrize(("task", "family"), EVERY)
def test_every_metric_is_finite_and_defined(made, trained, task, family):
    found = trained(task, family).evaluate(made(task, family)[0].origin.data)
    assert found.metrics
    assert found.metrics.keys() <= found.definitions.keys()
    assert all(math.isfinite(value) for value in found.metrics.values())
    assert "test split" in found.on
    assert found.as_dict()["definitions"].keys() == found.metrics.keys()


@pytest.mark.parametrize(("task", "family"), EVERY)
def test_answers_come_in_the_order_of_the_questions_and_do_not_depend_on_each_other(made, trained, task, family):
    asked = questions(task, made(task, family)[2])
    loaded = trained(task, family)
    together = [rounded(answer.values) for answer in loaded.predict(asked)]
    assert together == [rounded(loaded.predict(each).values) for each in asked]
    assert together[::-1] == [rounded(answer.values) for answer in loaded.predict(asked[::-1])]


@pytest.mark.parametrize(("task", "family"), SOME)
def test_examples_add_up_to_the_headline_and_are_the_same_for_every_model(made, trained, task, family):
    data, primary_metric = made(task, family)[0].origin.data, made(task, family)[1].primary_metric[0]
    loaded, other = trained(task, family), trained(task, ROWS[task].families[0])
    plain = loaded.evaluate(data)
    assert plain.examples is None
    assert plain.seconds > 0
    for metric in {primary_metric, *({"bleu", "exact_match"} & plain.metrics.keys())}:
        found = loaded.evaluate(data, examples=True, primary_metric=metric)
        assert found.metrics == plain.metrics
        assert found.as_dict().keys() == plain.as_dict().keys()
        assert found.examples.metric == metric
        assert compute_metric(metric, found.examples.sums.sum(0)) == pytest.approx(plain.metrics[metric], rel=1e-6)
        against = other.evaluate(data, examples=True, primary_metric=metric).examples
        assert found.examples.unit == against.unit
        assert found.examples.sums.shape == against.sums.shape
        assert [(each.input, each.expected) for each in found.examples.texts] == [
            (each.input, each.expected) for each in against.texts
        ]
        assert all(each.input for each in found.examples.texts)


@pytest.mark.parametrize(("task", "family"), SOME)
def test_one_answer_takes_some_time(made, trained, task, family):
    loaded, (run, prepared, _) = trained(task, family), made(task, family)
    seconds = prepared.measure_latency(
        loaded.model, loaded.settings, run.preprocessor, run.origin.data, trained_on=run.origin.fingerprint, answers=3
    )
    assert 0 < seconds() < math.inf


def rounded(value: Any) -> Any:
    """Plain values with few digits: a batch of another size rounds differently."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.2g}") + 0.0 if isinstance(value, float) else value


@pytest.mark.parametrize(("task", "family"), SOME)
def test_validation_names_its_headline(made, trained, task, family):
    loaded = trained(task, family)
    prepared = made(task, family)[1]
    metrics = prepared.validate(loaded.model, loaded.settings, Alone())
    assert {"loss", prepared.primary_metric[0]} <= metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())


class Alone:
    """A world of one process."""

    rank, size = 0, 1

    def sum(self, *numbers: float) -> list[float]:
        return [float(number) for number in numbers]


@pytest.mark.parametrize("task", ROWS)
def test_the_card_and_the_report_say_what_it_is(made, trained, task):
    family = ROWS[task].families[-1]
    run, prepared, _ = made(task, family)
    trained(task, family)
    assert (run.folder / "README.md").read_text(encoding="utf-8").startswith(f"# {family}, {task}\n")
    report = prepared.report()
    assert report.rows.keys() == {"train", "valid", "test"}
    assert all(len(row) == len(report.columns) for row in report.rows.values())


@pytest.mark.gpu
@pytest.mark.parametrize(("task", "family"), EVERY)
def test_a_gpu_trains_measures_and_answers(tmp_path, task, family):
    (tmp_path / "data").mkdir()
    row = ROWS[task]
    data = row.write(tmp_path / "data")
    settings = parse_settings({**row.settings, "task": task, "model": family, "budget": "2-epochs", "device": "cuda"})
    run, prepared = create_run(data, settings, tmp_path / "run")
    take(TrainingRun(run, prepared), 4)
    loaded = TrainedModel(run, "cuda")
    assert all(math.isfinite(value) for value in loaded.evaluate(data).metrics.values())
    assert len(loaded.predict(questions(task, tmp_path))) == len(questions(task, tmp_path))
