"""Every task through one table: padding, sums, seeds, interruption, saving and loading, order of predictions.

Each task has a module `rows_TASK.py` in this folder with its row of the table.
"""

from __future__ import annotations

import csv
import json
import math
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_row import TaskRow
from used_settings import keep_used

from seqwise.metric_names import TASK_METRICS
from seqwise.metrics.evaluation import compute_metric
from seqwise.tasks import get_task
from seqwise.tasks.task import Preprocessor, Task
from seqwise.training.api import TrainedModel
from seqwise.training.create import create_run
from seqwise.training.distribution import World
from seqwise.training.run import RUN_FOLDER, Run
from seqwise.training.training_run import TrainingRun, open_training

ROWS: dict[str, TaskRow] = {
    path.stem.removeprefix("rows_"): import_module(path.stem).ROW
    for path in sorted(Path(__file__).parent.glob("rows_*.py"))
}
ALL_PAIRS = [(task, family) for task, row in ROWS.items() for family in row.families]
SOME_PAIRS = [(task, family) for task, family in ALL_PAIRS if family in ("lstm", "transformer")]


@pytest.fixture(scope="module")
def prepared_run(tmp_path_factory):
    """(task, family) → an untrained run, its task and the folder of both run and data."""

    @cache
    def make(task: str, family: str) -> tuple[Run, Task, Path]:
        folder = tmp_path_factory.mktemp(f"{task}-{family}")
        row = ROWS[task]
        (folder / "data").mkdir()
        data = row.write(folder / "data")
        settings = keep_used({**row.settings, "task": task, "model": family, "budget": "2-epochs"})
        return *create_run(data, settings, folder / "run"), folder

    return make


@pytest.fixture(scope="module")
def trained_model(prepared_run):
    """(task, family) → a run trained for a few updates."""

    @cache
    def train(task: str, family: str) -> TrainedModel:
        run, prepared, _ = prepared_run(task, family)
        train_steps(TrainingRun(run, prepared), 6)
        return TrainedModel(run, "cpu")

    return train


def train_steps(training: TrainingRun, count: int) -> list[torch.Tensor]:
    """Trains `count` updates, which saves a checkpoint at the end, and returns the weights."""
    steps: list[int] = []
    for step in training.steps(lambda: len(steps) + 1 >= count):
        steps.append(step.number)
        assert math.isfinite(step.loss)
    return [parameter.detach().clone() for parameter in training.model.parameters()]


@pytest.mark.parametrize("task", ROWS)
def test_every_file_of_a_new_run_is_removed_after_an_interrupted_creation(task, tmp_path):
    row = ROWS[task]
    (tmp_path / "data").mkdir()
    settings = keep_used({**row.settings, "task": task, "model": "lstm", "budget": "2-epochs"})
    run, _ = create_run(row.write(tmp_path / "data"), settings, tmp_path / "run")
    assert len(list(run.folder.iterdir())) > 2
    RUN_FOLDER.remove_unfinished(run.folder)
    assert list(run.folder.iterdir()) == []


def list_prediction_inputs(task: str, folder: Path) -> list[str]:
    row = ROWS[task]
    return row.inputs_in_folder(folder / "data") if row.inputs_in_folder else row.inputs


def build_small_model(task: str, family: str, prepared_run: Any) -> tuple[Task, torch.nn.Module, Any]:
    """Returns the task, an untrained model and its training batches."""
    run, prepared, _ = prepared_run(task, family)
    torch.manual_seed(1)
    model = prepared.build(run.settings).eval()
    return prepared, model, prepared.batches(run.settings)


def compute_loss(model: torch.nn.Module, batch: Any) -> float:
    with torch.no_grad():
        return float(model(batch, None)[0].total)


@pytest.mark.parametrize(("task", "family"), ALL_PAIRS)
def test_the_loss_of_a_batch_is_the_sum_of_the_losses_of_its_rows(prepared_run, task, family):
    _, model, batches = build_small_model(task, family, prepared_run)
    batch = next(batches.epoch(0))
    parts = [batch.slice(row, row + 1) for row in range(batch.num_sequences)]
    assert batch.num_sequences > 1
    assert sum(part.num_targets for part in parts) == batch.num_targets > 0
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    assert compute_loss(model, batch) == pytest.approx(sum(compute_loss(model, part) for part in parts), rel=1e-4)


@pytest.mark.parametrize(("task", "family"), ALL_PAIRS)
def test_padding_changes_nothing(prepared_run, task, family):
    """A batch of one row has no padding."""
    _, model, batches = build_small_model(task, family, prepared_run)
    if not hasattr(batches, "collate") or task == "forecast":
        pytest.skip("its rows are all of one length: there is no padding")
    indices = np.arange(min(12, len(batches.lengths)))
    padded = compute_loss(model, batches.collate(indices))
    without_padding = sum(compute_loss(model, batches.collate(indices[i : i + 1])) for i in range(len(indices)))
    assert len({int(batches.lengths[index]) for index in indices}) > 1, "rows of unequal length are needed"
    assert padded == pytest.approx(without_padding, rel=1e-4)


@pytest.mark.parametrize("task", ROWS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_several_processes_share_the_batches_of_one(prepared_run, task, world_size):
    run, prepared, _ = prepared_run(task, ROWS[task].families[-1])
    of_one_process = [batch.positions.tolist() for batch in prepared.batches(run.settings).epoch(0)]
    loaders = [prepared.batches(run.settings, rank, world_size) for rank in range(world_size)]
    together = [
        [row for part in parts if not part.is_filler for row in part.positions.tolist()]
        for parts in zip(*(loader.epoch(0) for loader in loaders), strict=True)
    ]
    assert [loader.steps for loader in loaders] == [len(of_one_process)] * world_size
    assert [sorted(rows) for rows in together] == [sorted(rows) for rows in of_one_process]


@pytest.mark.parametrize(("task", "family"), SOME_PAIRS)
def test_an_epoch_can_be_resumed_at_any_batch(prepared_run, task, family):
    run, prepared, _ = prepared_run(task, family)
    batches = prepared.batches(run.settings)
    uninterrupted = [batch.positions.tolist() for batch in batches.epoch(1)]
    assert [batch.positions.tolist() for batch in batches.epoch(1, 2)] == uninterrupted[2:]
    assert len(uninterrupted) == batches.steps


@pytest.mark.parametrize(("task", "family"), SOME_PAIRS)
def test_a_resumed_run_gives_identical_weights(prepared_run, task, family, tmp_path):
    run, prepared, _ = prepared_run(task, family)

    def create_copy(name: str) -> Run:
        return Run.create(tmp_path / name, run.settings, run.metadata, prepared.preprocessor, {})

    uninterrupted = train_steps(TrainingRun(create_copy("whole"), prepared), 5)
    interrupted = create_copy("interrupted")
    train_steps(TrainingRun(interrupted, prepared), 2)
    resumed = train_steps(open_training(Run.open(interrupted.folder)), 3)  # reads the data again
    assert all(torch.equal(a, b) for a, b in zip(uninterrupted, resumed, strict=True))


@pytest.mark.parametrize(("task", "family"), SOME_PAIRS)
def test_the_preprocessor_is_restored_from_the_run_folder(prepared_run, task, family):
    run, prepared, _ = prepared_run(task, family)
    preprocessor = Preprocessor.load(run.folder)
    assert preprocessor.attributes == prepared.preprocessor.attributes
    assert {name: t.fingerprint for name, t in preprocessor.tokenizers.items()} == {
        name: t.fingerprint for name, t in prepared.preprocessor.tokenizers.items()
    }
    restored = get_task(task).restore(run.settings, preprocessor)
    shapes = {name: tensor.shape for name, tensor in prepared.build(run.settings).state_dict().items()}
    assert {name: tensor.shape for name, tensor in restored.state_dict().items()} == shapes


@pytest.mark.parametrize(("task", "family"), ALL_PAIRS)
def test_every_metric_is_finite_and_defined(prepared_run, trained_model, task, family):
    evaluation = trained_model(task, family).evaluate(prepared_run(task, family)[0].metadata.data)
    assert evaluation.metrics
    assert evaluation.metrics.keys() <= evaluation.definitions.keys()
    assert all(math.isfinite(value) for value in evaluation.metrics.values())
    assert "test split" in evaluation.data
    assert evaluation.as_dict()["definitions"].keys() == evaluation.metrics.keys()


@pytest.mark.parametrize("task", ROWS)
def test_the_metrics_that_a_task_may_have_are_listed(prepared_run, trained_model, task, tmp_path):
    """Recipes are checked against the list before training; tests/tasks/test_language_methods.py has language."""
    evaluations = [
        trained_model(task, family).evaluate(prepared_run(task, family)[0].metadata.data)
        for family in ROWS[task].families
    ]
    if task == "forecast":  # further metrics, of forecasts with quantiles
        settings = ROWS[task].settings | {"forecast": {**ROWS[task].settings["forecast"], "quantiles": "0.1,0.9"}}
        settings = keep_used({**settings, "task": task, "model": "gru", "budget": "2-epochs"})
        data = prepared_run(task, "gru")[0].metadata.data
        run, prepared = create_run(data, settings, tmp_path / "run")
        train_steps(TrainingRun(run, prepared), 2)
        evaluations.append(TrainedModel(run, "cpu").evaluate(data))
    assert {name for each in evaluations for name in each.metrics} == {*TASK_METRICS[task]}


@pytest.mark.parametrize(("task", "family"), ALL_PAIRS)
def test_predictions_have_the_order_of_the_inputs_and_are_independent(prepared_run, trained_model, task, family):
    inputs = list_prediction_inputs(task, prepared_run(task, family)[2])
    loaded = trained_model(task, family)
    together = [round_values(prediction.values) for prediction in loaded.predict(inputs)]
    assert together == [round_values(loaded.predict(each).values) for each in inputs]
    assert together[::-1] == [round_values(prediction.values) for prediction in loaded.predict(inputs[::-1])]


@pytest.mark.parametrize(("task", "family"), SOME_PAIRS)
def test_example_scores_sum_to_the_primary_metric_for_every_model(prepared_run, trained_model, task, family):
    data, primary_metric = prepared_run(task, family)[0].metadata.data, prepared_run(task, family)[1].primary_metric[0]
    loaded, other_model = trained_model(task, family), trained_model(task, ROWS[task].families[0])
    without_examples = loaded.evaluate(data)
    assert without_examples.examples is None
    assert without_examples.seconds > 0
    for metric in {primary_metric, *({"bleu", "exact_match"} & without_examples.metrics.keys())}:
        evaluation = loaded.evaluate(data, examples=True, primary_metric=metric)
        assert evaluation.metrics == without_examples.metrics
        assert evaluation.as_dict().keys() == without_examples.as_dict().keys()
        assert evaluation.examples.metric == metric
        assert compute_metric(metric, evaluation.examples.sums.sum(0)) == pytest.approx(
            without_examples.metrics[metric], rel=1e-6
        )
        other_examples = other_model.evaluate(data, examples=True, primary_metric=metric).examples
        assert evaluation.examples.unit == other_examples.unit
        assert evaluation.examples.sums.shape == other_examples.sums.shape
        assert [(each.input, each.expected) for each in evaluation.examples.texts] == [
            (each.input, each.expected) for each in other_examples.texts
        ]
        assert all(each.input for each in evaluation.examples.texts)


@pytest.mark.parametrize("task", ROWS)
def test_examples_of_the_training_split_are_recognised_and_baselines_are_finite(prepared_run, trained_model, task):
    family = ROWS[task].families[0]
    data, loaded = prepared_run(task, family)[0].metadata.data, trained_model(task, family)
    evaluation = loaded.evaluate(data, split="train")
    assert evaluation.overlap is not None
    assert evaluation.overlap.count == evaluation.overlap.total > 0
    assert evaluation.overlap.value is None
    assert any(note.startswith(f"All {evaluation.overlap.total:,} ") for note in evaluation.notes)
    assert loaded.evaluate(data).overlap.total < evaluation.overlap.total
    assert evaluation.baselines
    assert all(math.isfinite(baseline.value) for baseline in evaluation.baselines)
    assert evaluation.primary_metric == prepared_run(task, family)[1].primary_metric[0]
    assert [each["name"] for each in evaluation.as_dict()["baselines"]] == [each.name for each in evaluation.baselines]


@pytest.mark.parametrize("task", ROWS)
def test_evaluation_writes_input_expected_and_predicted(prepared_run, trained_model, task, tmp_path):
    family = ROWS[task].families[0]
    data, loaded = prepared_run(task, family)[0].metadata.data, trained_model(task, family)
    loaded.evaluate(data, out=tmp_path / "answers.jsonl")
    loaded.evaluate(data, out=tmp_path / "answers.csv")
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows
    assert all({"input", "expected", "predicted"} <= row.keys() for row in rows)
    assert any(row["expected"] for row in rows)
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows)
    assert table[0].keys() == rows[0].keys()


@pytest.mark.parametrize(("task", "family"), SOME_PAIRS)
def test_latency_is_positive(prepared_run, trained_model, task, family):
    loaded, (run, prepared, _) = trained_model(task, family), prepared_run(task, family)
    measure = prepared.measure_latency(loaded.bundle, run.metadata.data, num_predictions=3)
    assert 0 < measure() < math.inf


def round_values(value: Any) -> Any:
    """Rounds all floats to two digits, because a batch of another size rounds differently."""
    if isinstance(value, dict):
        return {key: round_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [round_values(item) for item in value]
    return float(f"{value:.2g}") + 0.0 if isinstance(value, float) else value


@pytest.mark.parametrize(("task", "family"), SOME_PAIRS)
def test_validation_has_its_primary_metric(prepared_run, trained_model, task, family):
    loaded = trained_model(task, family)
    prepared = prepared_run(task, family)[1]
    metrics = prepared.validate(loaded.model, loaded.settings, World())
    assert metrics == prepared.validate(loaded.model, loaded.settings, World(), share=1.0)
    part = prepared.validate(loaded.model, loaded.settings, World(), share=0.3)
    assert part == prepared.validate(loaded.model, loaded.settings, World(), share=0.3)
    assert prepared.valid_size().num_tokens > 0
    if task != "masked":  # whose data here is a single batch
        assert part["loss"] != metrics["loss"]
    assert {"loss", prepared.primary_metric[0]} <= metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("task", ROWS)
def test_the_model_card_and_the_report_describe_the_task(prepared_run, trained_model, task):
    family = ROWS[task].families[-1]
    run, prepared, _ = prepared_run(task, family)
    trained_model(task, family)
    assert (run.folder / "README.md").read_text(encoding="utf-8").startswith(f"# {family}, {task}\n")
    counts = prepared.count_data()
    assert counts.keys() == {"train", "valid", "test"}
    assert all(row.keys() == counts["train"].keys() for row in counts.values())


@pytest.mark.gpu
@pytest.mark.parametrize(("task", "family"), ALL_PAIRS)
def test_a_gpu_trains_evaluates_and_predicts(tmp_path, task, family):
    (tmp_path / "data").mkdir()
    row = ROWS[task]
    data = row.write(tmp_path / "data")
    settings = keep_used({**row.settings, "task": task, "model": family, "budget": "2-epochs", "device": "cuda"})
    run, prepared = create_run(data, settings, tmp_path / "run")
    train_steps(TrainingRun(run, prepared), 4)
    loaded = TrainedModel(run, "cuda")
    assert all(math.isfinite(value) for value in loaded.evaluate(data).metrics.values())
    assert len(loaded.predict(list_prediction_inputs(task, tmp_path))) == len(list_prediction_inputs(task, tmp_path))
