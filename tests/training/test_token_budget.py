"""A budget in tokens is spent exactly, for every task; the last update uses the part of a batch that is left."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from used_settings import keep_used

from seqwise.backbones.states import map_state
from seqwise.budget import Budget
from seqwise.config import Settings, merge_settings
from seqwise.data.batch import TokenBatch
from seqwise.tasks.task import Task
from seqwise.training import memory
from seqwise.training.create import create_run
from seqwise.training.loop import Step, Trainer
from seqwise.training.memory import SequenceRange, select_sequences, split_ranges
from seqwise.training.run import Run
from seqwise.training.training_run import TrainingRun, open_training

sys.path.append(str(Path(__file__).parents[1] / "contracts"))  # small data of each task
ROWS = {task: import_module(f"rows_{task}").ROW for task in ("classify", "tag", "translate", "caption", "forecast")}
ROWS["masked"] = import_module("rows_masked").ROW
TASKS = ["language", *ROWS]

# One plain step of SGD: the weights move by the gradient itself. Nothing is random.
PLAIN_SGD = {
    "training": {
        "optimizer": "sgd", "clip": "none", "schedule": "constant", "warmup": 0.0, "weight_decay": 0.0,
        "learning_rate": 0.5, "ema": 0.0, "batch_size": 4,
    },
    "network": {"width": 8, "depth": 1, "dropout": 0.0},
    "recurrent": {"weight_dropout": 0.0},
    "classify": {"word_dropout": 0.0},
    "caption": {"shift": 0},
}  # fmt: skip


@pytest.fixture(scope="module")
def prepare_task(tmp_path_factory, book) -> Callable[..., tuple[Settings, Task]]:
    """Task and family → resolved settings without anything random, and the task on some small data."""

    @cache
    def prepare(task: str, family: str = "lstm") -> tuple[Settings, Task]:
        folder = tmp_path_factory.mktemp(task)
        row = ROWS.get(task)
        data = str(book) if row is None else row.write(folder)
        base = {"text": {"tokenizer": "characters"}, "data": {"window": 8}} if row is None else row.settings
        values = {**merge_settings(base, PLAIN_SGD), "task": task, "model": family, "budget": "1-epochs"}
        run, prepared = create_run(data, keep_used(values), folder / "run")
        return run.settings, prepared

    return prepare


def make_trainer(settings: Settings, task: Task, budget: str, seed: int = 0, **changes: Any) -> Trainer:
    torch.manual_seed(seed)
    training = settings.training.model_copy(update=changes)
    return Trainer(
        task.build(settings), task.batches(settings), training, Budget.parse(budget, training.max_epochs), seed=seed
    )


def get_first_batches(settings: Settings, task: Task) -> tuple[Any, Any, list[int]]:
    """Returns the first two batches of training, and the tokens of each row of the second."""
    batches = task.batches(settings).epoch(0)
    first, second = next(batches), next(batches)
    return first, second, [second.slice(row, row + 1).num_tokens for row in range(second.num_sequences)]


def get_weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def run_trainer(trainer: Trainer) -> list[Step]:
    return list(trainer.steps())


@pytest.mark.parametrize("task", TASKS)
def test_every_task_ends_with_exactly_its_tokens(prepare_task, task):
    settings, prepared = prepare_task(task)
    first, second, row_tokens = get_first_batches(settings, prepared)
    assert max(row_tokens) > 1
    divisible_row = next(row for row in range(1, len(row_tokens)) if row_tokens[row] > 1)
    for extra in [
        1,  # a single token of the first row
        row_tokens[0],  # one whole row
        sum(row_tokens[:divisible_row]) + 1,  # some rows, and a token of the next
        second.num_tokens - 1,  # all but one
        second.num_tokens,  # the whole batch
    ]:
        budget = first.num_tokens + extra
        steps = run_trainer(make_trainer(settings, prepared, f"{budget}-tokens"))
        assert [step.tokens for step in steps] == [first.num_tokens, budget]
        assert steps[-1].ended == "the budget is spent"
        assert steps[-1].progress == 1
        assert steps[0].ended == ""


def test_a_budget_smaller_than_one_batch_makes_one_update(prepare_task):
    settings, prepared = prepare_task("classify")
    steps = run_trainer(make_trainer(settings, prepared, "3-tokens"))
    assert [step.tokens for step in steps] == [3]


@pytest.mark.parametrize(("task", "family"), [*((task, "lstm") for task in TASKS), ("language", "transformer")])
@pytest.mark.parametrize("num_micro_batches", [1, 2])
def test_the_last_update_is_the_weighted_sum_over_its_rows(prepare_task, task, family, num_micro_batches):
    """Adds the gradients of single rows: the first ones fully, the next one by the share of its tokens that is left."""
    settings, prepared = prepare_task(task, family)
    first, second, row_tokens = get_first_batches(settings, prepared)
    num_whole_rows = next(row for row in range(1, len(row_tokens)) if row_tokens[row] > 1)
    partial_share = (row_tokens[num_whole_rows] // 2) / row_tokens[num_whole_rows]
    budget = first.num_tokens + sum(row_tokens[:num_whole_rows]) + row_tokens[num_whole_rows] // 2
    trainer = make_trainer(settings, prepared, f"{budget}-tokens", accumulate=num_micro_batches)
    stream = trainer.steps()
    next(stream)
    before, batch_state = get_weights(trainer.model), trainer.model_state
    shares = [1.0] * num_whole_rows + [partial_share] + [0.0] * (second.num_sequences - num_whole_rows - 1)
    total, count = torch.zeros(()), 0.0
    trainer.model.zero_grad()
    if hasattr(trainer.model, "progress"):
        trainer.model.progress = trainer.state.tokens / budget
    for row, share in enumerate(shares):
        if not share:
            continue
        row_batch = second.slice(row, row + 1)
        state = None if second.resets_state else map_state(lambda tensor: tensor[row : row + 1], batch_state)  # noqa: B023
        total = total + share * trainer.model(row_batch, state)[0].total
        count += share * row_batch.num_targets
    (total / count).backward()
    gradient = torch.cat([
        (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trainer.model.parameters()
    ])  # fmt: skip
    step = next(stream)
    assert step.ended
    torch.testing.assert_close(get_weights(trainer.model), before - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    assert step.loss == pytest.approx(float(total.detach()) / count, rel=1e-4)
    assert step.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-3)
    assert 0 < partial_share < 1 or row_tokens[num_whole_rows] == 1


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_token_budget_of_whole_batches_equals_one_in_epochs(prepare_task, family):
    settings, prepared = prepare_task("language", family)
    settings = settings.model_copy(deep=True)
    settings.network.dropout = 0.3
    by_epochs = make_trainer(settings, prepared, f"{25 / prepared.batches(settings).steps:.6f}-epochs")
    steps = run_trainer(by_epochs)
    by_tokens = make_trainer(settings, prepared, f"{steps[-1].tokens}-tokens")
    assert [step.loss for step in run_trainer(by_tokens)] == [step.loss for step in steps]
    assert 25 <= len(steps) <= 26
    assert torch.equal(get_weights(by_epochs.model), get_weights(by_tokens.model))


def test_a_maximum_of_epochs_equals_a_budget_in_epochs(prepare_task):
    """The schedule ends with the epochs."""
    settings, prepared = prepare_task("classify", "gru")
    limited = settings.model_copy(deep=True)
    limited.training.max_epochs = 2
    by_epochs, by_maximum = make_trainer(settings, prepared, "2-epochs"), make_trainer(limited, prepared, "10h")
    steps, limited_steps = run_trainer(by_epochs), run_trainer(by_maximum)
    assert [step.learning_rate for step in limited_steps] == [step.learning_rate for step in steps]
    assert torch.equal(get_weights(by_epochs.model), get_weights(by_maximum.model))
    assert limited_steps[-1].ended == "2 epochs are the maximum (training.max_epochs)"


@pytest.mark.parametrize("budget", ["0.05s", "0.3-epochs"])
def test_other_budgets_never_use_part_of_a_batch(prepare_task, monkeypatch, budget):
    settings, prepared = prepare_task("tag")
    monkeypatch.setattr(memory, "select_sequences", lambda *args: pytest.fail("a batch was cut"))
    steps = run_trainer(make_trainer(settings, prepared, budget))
    sizes = [batch.num_tokens for batch, _ in zip(prepared.batches(settings).epoch(0), steps)]
    assert [step.tokens for step in steps[: len(sizes)]] == [sum(sizes[: index + 1]) for index in range(len(sizes))]


# Selected rows


def make_batch(*counts: int) -> TokenBatch:
    """Returns rows of ten positions; `counts` is the number of targets in each."""
    mask = torch.arange(10)[None, :] < torch.tensor(counts)[:, None]
    return TokenBatch(torch.zeros_like(mask, dtype=torch.long), torch.zeros_like(mask, dtype=torch.long), mask)


def test_rows_are_selected_until_the_tokens_are_spent():
    batch = make_batch(4, 0, 10, 2)
    assert select_sequences(batch, 16) == (SequenceRange(0, 4),)
    assert select_sequences(batch, 100) == (SequenceRange(0, 4),)
    assert select_sequences(batch, 15) == (SequenceRange(0, 3), SequenceRange(3, 4, 0.5))
    assert select_sequences(batch, 14) == (SequenceRange(0, 3),)
    assert select_sequences(batch, 4) == (SequenceRange(0, 2),)  # a row without any token costs nothing
    assert select_sequences(batch, 1) == (SequenceRange(0, 1, 0.25),)
    assert select_sequences(batch, 0) == ()
    assert select_sequences(batch, -3) == ()
    assert select_sequences(make_batch(0, 5), -3) == ()  # another process has spent it all


def test_micro_batches_split_ranges_at_multiples_of_their_size():
    ranges = (SequenceRange(0, 5), SequenceRange(5, 6, 0.5))
    assert list(split_ranges(ranges, 2)) == [(0, 2, 1.0), (2, 4, 1.0), (4, 5, 1.0), (5, 6, 0.5)]
    assert list(split_ranges(ranges, 8)) == list(ranges)
    assert list(split_ranges((), 2)) == []


def count_targets(batch: TokenBatch, ranges: tuple[SequenceRange, ...]) -> float:
    return sum(weight * batch.slice(start, stop).num_targets for start, stop, weight in ranges)


@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.lists(st.integers(0, 10), min_size=2, max_size=12), st.integers(1, 4), st.data())
def test_processes_together_spend_the_remaining_tokens(counts, processes, data):
    """The rows of the processes, in the order of their ranks, share the targets that one process would use."""
    tokens_left = data.draw(st.integers(0, sum(counts)))
    cuts = sorted(data.draw(st.integers(1, len(counts))) for _ in range(processes - 1))
    bounds = [0, *cuts, len(counts)]
    parts = [counts[a:b] for a, b in pairwise(bounds)]
    spent = 0.0
    for rank, part in enumerate(parts):
        if part:
            batch = make_batch(*part)
            spent += count_targets(
                batch, select_sequences(batch, tokens_left - sum(sum(each) for each in parts[:rank]))
            )
    assert spent == pytest.approx(tokens_left)
    batch = make_batch(*counts)
    assert count_targets(batch, select_sequences(batch, tokens_left)) == pytest.approx(tokens_left)


# Runs that are interrupted


def create_untrained_run(folder: Path, settings: Settings, task: Task, data: Path) -> Run:
    return Run.create(folder, settings, _origin(task, data), task.preprocessor, {})


def _origin(task: Task, data: Path) -> Any:
    from seqwise.training.metadata import RunMetadata

    return RunMetadata(str(data), task.fingerprint, task.split_rule, "", "0")


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_an_interrupted_run_ends_with_the_same_bits(prepare_task, tmp_path, book, family):
    settings, task = prepare_task("language", family)
    settings = settings.model_copy(deep=True)
    settings.network.dropout, settings.budget = 0.3, f"{9 * 32 + 13}-tokens"  # inside the second row of update 10
    settings.training.validate_every = 4

    def read_result(run: Run) -> tuple:
        rows = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
        history = [(row["step"], row["tokens"], row["loss"], row["validation"]) for row in rows]
        return history, (run.folder / "model.safetensors").read_bytes()

    uninterrupted = create_untrained_run(tmp_path / "whole", settings, task, book)
    list(TrainingRun(uninterrupted, task).steps())
    assert uninterrupted.read_metrics()[-1]["tokens"] == 9 * 32 + 13
    assert uninterrupted.read_metrics()[-1]["step"] == 10
    for last_step in (1, 8, 9):
        interrupted = create_untrained_run(tmp_path / f"cut-{last_step}", settings, task, book)
        numbers: list[int] = []
        for step in TrainingRun(interrupted, task).steps(lambda: len(numbers) + 1 >= last_step):  # noqa: B023 - used at once
            numbers.append(step.number)
        assert numbers[-1] == last_step
        list(open_training(Run.open(interrupted.folder), task=task).steps())
        assert read_result(interrupted)[0][-1] == read_result(uninterrupted)[0][-1]
        assert read_result(interrupted)[1] == read_result(uninterrupted)[1]
    training = open_training(Run.open(uninterrupted.folder), task=task)
    assert training.ended == "the budget is spent"
    before = read_result(uninterrupted)
    assert list(training.steps()) == []
    assert read_result(uninterrupted) == before
