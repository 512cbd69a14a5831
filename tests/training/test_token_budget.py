"""A budget in tokens ends with exactly that many, for every task, and the last update is the one it ought to be."""

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

from seqwise.backbones.states import map_state
from seqwise.budget import Budget
from seqwise.config import Settings, parse_settings
from seqwise.data.batch import TokenBatch
from seqwise.tasks.task import Task
from seqwise.training import memory
from seqwise.training.api import merge_settings
from seqwise.training.loop import Step, Trainer
from seqwise.training.memory import RowRange, select_rows, split_ranges
from seqwise.training.run import Run
from seqwise.training.training_run import TrainingRun, create_run, open_training

sys.path.append(str(Path(__file__).parents[1] / "contracts"))  # where each task has some small data
ROWS = {task: import_module(f"rows_{task}").ROW for task in ("classify", "tag", "translate", "caption", "forecast")}
ROWS["masked"] = import_module("rows_masked").ROW
TASKS = ["language", *ROWS]

# One plain step of SGD: the weights move by the gradient itself. Nothing is random.
PLAIN = {
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
def prepared(tmp_path_factory, book) -> Callable[..., tuple[Settings, Task]]:
    """Task and family → resolved settings without anything random, and the task on some small data."""

    @cache
    def prepare(task: str, family: str = "lstm") -> tuple[Settings, Task]:
        folder = tmp_path_factory.mktemp(task)
        row = ROWS.get(task)
        data = str(book) if row is None else row.write(folder)
        base = {"text": {"tokenizer": "characters"}, "data": {"window": 8}} if row is None else row.settings
        values = {**merge_settings(base, PLAIN), "task": task, "model": family, "budget": "1-epochs"}
        run, found = create_run(data, parse_settings(values), folder / "run")
        return run.settings, found

    return prepare


def trainer(settings: Settings, task: Task, budget: str, seed: int = 0, **changes: Any) -> Trainer:
    torch.manual_seed(seed)
    training = settings.training.model_copy(update=changes)
    return Trainer(task.build(settings), task.batches(settings), training, Budget.parse(budget), seed=seed)


def two(settings: Settings, task: Task) -> tuple[Any, Any, list[int]]:
    """The first two batches of training, and the tokens of each row of the second."""
    batches = task.batches(settings).epoch(0)
    first, second = next(batches), next(batches)
    return first, second, [second.slice(row, row + 1).num_tokens for row in range(second.rows)]


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def steps_of(found: Trainer) -> list[Step]:
    return list(found.steps())


@pytest.mark.parametrize("task", TASKS)
def test_every_task_ends_with_exactly_its_tokens(prepared, task):
    settings, found = prepared(task)
    first, second, rows = two(settings, found)
    assert max(rows) > 1
    inside = next(at for at in range(1, len(rows)) if rows[at] > 1)
    for extra, updates in [
        (1, 2),  # a single token of the first row
        (rows[0], 2),  # one whole row
        (sum(rows[:inside]) + 1, 2),  # some rows, and a token of the next
        (second.num_tokens - 1, 2),  # all but one
        (second.num_tokens, 2),  # the whole batch
    ]:
        budget = first.num_tokens + extra
        steps = steps_of(trainer(settings, found, f"{budget}-tokens"))
        assert [step.tokens for step in steps] == [first.num_tokens, budget]
        assert len(steps) == updates
        assert steps[-1].ended == "the budget is spent"
        assert steps[-1].progress == 1
        assert steps[0].ended == ""


def test_a_budget_smaller_than_one_batch_makes_one_update(prepared):
    settings, found = prepared("classify")
    steps = steps_of(trainer(settings, found, "3-tokens"))
    assert [step.tokens for step in steps] == [3]


@pytest.mark.parametrize(("task", "family"), [*((task, "lstm") for task in TASKS), ("language", "transformer")])
@pytest.mark.parametrize("pieces", [1, 2])
def test_the_last_update_is_the_weighted_sum_over_its_rows(prepared, task, family, pieces):
    """By hand: each row's gradient, the first rows fully, the next one by the share of its tokens that is left."""
    settings, found = prepared(task, family)
    first, second, rows = two(settings, found)
    whole = next(at for at in range(1, len(rows)) if rows[at] > 1)
    part = (rows[whole] // 2) / rows[whole]
    budget = first.num_tokens + sum(rows[:whole]) + rows[whole] // 2
    trained = trainer(settings, found, f"{budget}-tokens", accumulate=pieces)
    stream = trained.steps()
    next(stream)
    before, carry = weights(trained.model), trained.model_state
    shares = [1.0] * whole + [part] + [0.0] * (second.rows - whole - 1)
    total, count = torch.zeros(()), 0.0
    trained.model.zero_grad()
    if hasattr(trained.model, "progress"):
        trained.model.progress = trained.state.tokens / budget
    for row, share in enumerate(shares):
        if not share:
            continue
        piece = second.slice(row, row + 1)
        mine = None if second.resets_state else map_state(lambda tensor: tensor[row : row + 1], carry)  # noqa: B023
        total = total + share * trained.model(piece, mine)[0].total
        count += share * piece.num_targets
    (total / count).backward()
    gradient = torch.cat([
        (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained.model.parameters()
    ])  # fmt: skip
    step = next(stream)
    assert step.ended
    torch.testing.assert_close(weights(trained.model), before - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    assert step.loss == pytest.approx(float(total.detach()) / count, rel=1e-4)
    assert step.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-3)
    assert 0 < part < 1 or rows[whole] == 1


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_token_budget_of_whole_batches_equals_one_in_epochs(prepared, family):
    settings, found = prepared("language", family)
    settings = settings.model_copy(deep=True)
    settings.network.dropout = 0.3
    by_epochs = trainer(settings, found, f"{25 / found.batches(settings).steps:.6f}-epochs")
    preprocessor = steps_of(by_epochs)
    by_tokens = trainer(settings, found, f"{preprocessor[-1].tokens}-tokens")
    assert [step.loss for step in steps_of(by_tokens)] == [step.loss for step in preprocessor]
    assert 25 <= len(preprocessor) <= 26
    assert torch.equal(weights(by_epochs.model), weights(by_tokens.model))


@pytest.mark.parametrize("budget", ["0.05s", "0.3-epochs"])
def test_other_budgets_never_cut_a_batch(prepared, monkeypatch, budget):
    settings, found = prepared("tag")
    monkeypatch.setattr(memory, "select_rows", lambda *args: pytest.fail("a batch was cut"))
    steps = steps_of(trainer(settings, found, budget))
    sizes = [batch.num_tokens for batch, _ in zip(found.batches(settings).epoch(0), steps)]
    assert [step.tokens for step in steps[: len(sizes)]] == [sum(sizes[: at + 1]) for at in range(len(sizes))]


# Selected rows


def masked(*counts: int) -> TokenBatch:
    """Rows of ten places, of which so many count."""
    mask = torch.arange(10)[None, :] < torch.tensor(counts)[:, None]
    return TokenBatch(torch.zeros_like(mask, dtype=torch.long), torch.zeros_like(mask, dtype=torch.long), mask)


def test_rows_are_selected_until_the_tokens_are_spent():
    batch = masked(4, 0, 10, 2)
    assert select_rows(batch, 16) == (RowRange(0, 4),)
    assert select_rows(batch, 100) == (RowRange(0, 4),)
    assert select_rows(batch, 15) == (RowRange(0, 3), RowRange(3, 4, 0.5))
    assert select_rows(batch, 14) == (RowRange(0, 3),)
    assert select_rows(batch, 4) == (RowRange(0, 2),)  # a row without any token costs nothing
    assert select_rows(batch, 1) == (RowRange(0, 1, 0.25),)
    assert select_rows(batch, 0) == ()
    assert select_rows(batch, -3) == ()
    assert select_rows(masked(0, 5), -3) == ()  # another process has spent it all


def test_micro_batches_split_ranges_at_multiples_of_their_size():
    ranges = (RowRange(0, 5), RowRange(5, 6, 0.5))
    assert list(split_ranges(ranges, 2)) == [(0, 2, 1.0), (2, 4, 1.0), (4, 5, 1.0), (5, 6, 0.5)]
    assert list(split_ranges(ranges, 8)) == list(ranges)
    assert list(split_ranges((), 2)) == []


def count_targets(batch: TokenBatch, ranges: tuple[RowRange, ...]) -> float:
    return sum(weight * batch.slice(start, stop).num_targets for start, stop, weight in ranges)


@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.lists(st.integers(0, 10), min_size=2, max_size=12), st.integers(1, 4), st.data())
def test_processes_spend_together_what_is_left(counts, processes, data):
    """Rows dealt to processes in the order of their ranks share what one process would learn from."""
    left = data.draw(st.integers(0, sum(counts)))
    cuts = sorted(data.draw(st.integers(1, len(counts))) for _ in range(processes - 1))
    bounds = [0, *cuts, len(counts)]
    parts = [counts[a:b] for a, b in pairwise(bounds)]
    spent = 0.0
    for rank, part in enumerate(parts):
        if part:
            batch = masked(*part)
            spent += count_targets(batch, select_rows(batch, left - sum(sum(each) for each in parts[:rank])))
    assert spent == pytest.approx(left)
    batch = masked(*counts)
    assert count_targets(batch, select_rows(batch, left)) == pytest.approx(left)


# Runs that are interrupted


def fresh(folder: Path, settings: Settings, task: Task, data: Path) -> Run:
    made = Run.create(folder, settings, _origin(task, data), task.preprocessor, {})
    return made


def _origin(task: Task, data: Path) -> Any:
    from seqwise.training.run import Origin

    return Origin(str(data), task.fingerprint, task.split_rule, "", "0")


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_an_interrupted_run_ends_with_the_same_bits(prepared, tmp_path, book, family):
    settings, task = prepared("language", family)
    settings = settings.model_copy(deep=True)
    settings.network.dropout, settings.budget = 0.3, f"{9 * 32 + 13}-tokens"  # inside the second row of update 10
    settings.training.validate_every = 4

    def result(run: Run) -> tuple:
        rows = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
        preprocessor = [(row["step"], row["tokens"], row["loss"], row["validation"]) for row in rows]
        return preprocessor, (run.folder / "model.safetensors").read_bytes()

    whole = fresh(tmp_path / "whole", settings, task, book)
    list(TrainingRun(whole, task).steps())
    assert whole.metrics()[-1]["tokens"] == 9 * 32 + 13
    assert whole.metrics()[-1]["step"] == 10
    for cut in (1, 8, 9):
        broken = fresh(tmp_path / f"cut-{cut}", settings, task, book)
        seen: list[int] = []
        for step in TrainingRun(broken, task).steps(lambda: len(seen) + 1 >= cut):  # noqa: B023 - used at once
            seen.append(step.number)
        assert seen[-1] == cut
        list(open_training(Run.open(broken.folder), task=task).steps())
        assert result(broken)[0][-1] == result(whole)[0][-1]
        assert result(broken)[1] == result(whole)[1]
    ended = open_training(Run.open(whole.folder), task=task)
    assert ended.ended == "the budget is spent"
    before = result(whole)
    assert list(ended.steps()) == []
    assert result(whole) == before
