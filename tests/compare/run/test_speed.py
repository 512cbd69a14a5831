"""Training speed: measured in rounds, cached per machine, used to convert time budgets into tokens."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_comparison import InProcessEngine, make_plan, run_with, write_text

from seqwise import environment
from seqwise.compare.plan.budgets import TrialBudgets
from seqwise.compare.plan.plan import NEVER, Plan
from seqwise.compare.report.gather import load_report
from seqwise.compare.run import execute as execute_module
from seqwise.compare.run import speed as speed_module
from seqwise.compare.run.jobs import SPEED_JOB, Outcome, SpeedResult, SpeedResults
from seqwise.compare.run.speed import (
    MAX_ROUNDS,
    MIN_ROUNDS,
    SampledBatches,
    SpeedMeasurement,
    keep_fastest,
    measure_speeds,
)
from seqwise.compare.run.stages import convert_time_budget
from seqwise.errors import MemoryLimitError, SeqwiseError
from seqwise.resolved_settings import ResolvedSettings


class FakeMeasurement:
    """A family whose rounds take the given seconds."""

    def __init__(self, name: str, seconds: list[float], order: list[str]):
        self.name, self.seconds, self.order = name, list(seconds), order
        self.rounds: list[float] = []

    def run_round(self) -> None:
        self.order.append(self.name)
        self.rounds.append(self.seconds.pop(0))

    def get_result(self) -> SpeedResult:
        return SpeedResult(min(self.rounds[1:]), 64, 0.0)


def test_families_take_turns():
    order: list[str] = []
    seconds = {"rnn": [0.1, 9, 9, 2] + [9] * 8, "gru": [0.1, 9, 3, 9] + [9] * 8}
    prepare = {name: lambda name=name: FakeMeasurement(name, seconds[name], order) for name in seconds}
    measure_speeds(prepare, max_seconds=60.0, report_progress=lambda share: None)
    assert order == ["rnn", "gru"] * MAX_ROUNDS


def test_the_result_is_the_fastest_round_and_validation_without_the_first():
    measurement = SpeedMeasurement(None, lambda: None, num_updates=10)  # type: ignore[arg-type]
    measurement.rounds, measurement.tokens = [0.1, 9.0, 2.0, 4.0], 640
    measurement.validations = [0.1, 0.5, 0.3]
    assert measurement.get_result() == SpeedResult(0.2, 64.0, 0.3)
    measurement.validations = [7.0]  # too long to be repeated
    assert measurement.get_result().validation_seconds == 7.0


def test_on_a_cpu_waiting_does_not_count(monkeypatch: pytest.MonkeyPatch):
    trainer = SimpleNamespace(device=torch.device("cpu"), steps=lambda: (time.sleep(0.3) for _ in range(1)))
    monkeypatch.setattr(speed_module, "TrainerState", lambda: SimpleNamespace(tokens=64))
    measurement = SpeedMeasurement(trainer, lambda: None, num_updates=1)  # type: ignore[arg-type]
    measurement.run_round()
    assert measurement.rounds[0] < 0.2, "the processor time of the thread, not the time of the clock"


class TwoLengths:
    """An epoch in which a quarter of the batches is long."""

    steps = 64

    def epoch(self, number: int, start: int = 0) -> Iterator[SimpleNamespace]:
        for step in range(start, self.steps):
            yield SimpleNamespace(num_sequences=4, length=100 if step < 16 else 10, step=step)


def test_sampled_batches_have_the_lengths_of_the_epoch():
    batches = SampledBatches(TwoLengths())  # type: ignore[arg-type]
    lengths = [batch.length for batch in batches.epoch(0)]  # type: ignore[attr-defined]
    assert lengths == [10] * 6 + [100] * 2, "a quarter is long, as in the epoch"
    assert [batch.length for batch in batches.epoch(3, start=6)] == [100, 100]  # type: ignore[attr-defined]


def test_a_short_epoch_is_used_whole():
    class Short(TwoLengths):
        steps = 3

    batches = SampledBatches(Short())  # type: ignore[arg-type]
    assert batches.steps == 3
    assert sorted(batch.step for batch in batches.epoch(0)) == [0, 1, 2]  # type: ignore[attr-defined]


def test_a_family_that_does_not_fit_with_the_others_is_measured_after_them():
    alive: list[str] = []

    def prepare(name: str) -> FakeMeasurement:
        if name == "large" and alive:
            alive.clear()
            raise MemoryLimitError("it does not fit into memory")
        alive.append(name)
        return FakeMeasurement(name, [1] * MAX_ROUNDS, [])

    results = measure_speeds({name: partial(prepare, name) for name in ("rnn", "large")}, 0.0, lambda share: None)
    assert list(results) == ["rnn", "large"]


def test_with_no_time_the_minimum_number_of_rounds_is_measured():
    order: list[str] = []
    measure_speeds({"rnn": lambda: FakeMeasurement("rnn", [1] * 9, order)}, 0.0, lambda share: None)
    assert order == ["rnn"] * MIN_ROUNDS


def test_a_family_that_cannot_be_trained_does_not_keep_the_others_from_being_measured():
    def fail() -> FakeMeasurement:
        raise SeqwiseError("it does not fit into memory")

    prepare = {"gru": fail, "rnn": lambda: FakeMeasurement("rnn", [1] * 9, [])}
    assert list(measure_speeds(prepare, 0.0, lambda share: None)) == ["rnn"]


@pytest.mark.parametrize("damage", [("0.01", "0.02"), ("0.01", "-1"), ("0.01", '"fast"'), ("0.01", "Infinity")])
@pytest.mark.parametrize("has_digest", [True, False])
def test_a_damaged_speed_is_measured_again(damage, has_digest: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))
    settings = ResolvedSettings(task="language", model="gru")
    keep_fastest(SpeedResult(0.01, 64, 0.1), settings, "data")
    file = tmp_path / speed_module.SPEEDS_FILE
    content = file.read_text().replace(*damage)
    file.write_text(content if has_digest else re.sub(r',\s*"blake2b".*', "", content))
    busy = SpeedResult(0.03, 64, 0.3)
    is_plausible = not has_digest and damage[1] == "0.02"  # a file of an earlier version
    expected = SpeedResult(0.02, 64, 0.1) if is_plausible else busy
    assert keep_fastest(busy, settings, "data") == expected


def test_the_fastest_speed_of_a_machine_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))
    settings = ResolvedSettings(task="language", model="gru")
    idle, busy = SpeedResult(0.010, 64, 0.1), SpeedResult(0.030, 64, 0.3)
    assert keep_fastest(busy, settings, "data") == busy
    assert keep_fastest(idle, settings, "data") == idle, "a faster measurement replaces the one of a busy machine"
    assert keep_fastest(busy, settings, "data") == idle
    similar = SpeedResult(0.007, 64, 0.1)
    assert keep_fastest(similar, settings, "data") == idle, "a difference below a half is noise"
    assert keep_fastest(replace(similar, validation_seconds=0.05), settings, "data") == replace(
        idle, validation_seconds=0.05
    ), "updates and validations are compared separately"
    assert keep_fastest(idle, settings, "data").validation_seconds == 0.05
    idle = replace(idle, validation_seconds=0.05)
    other_seed = settings.model_copy(update={"seed": 7, "budget": "9s"})
    assert keep_fastest(busy, other_seed, "data") == idle
    assert keep_fastest(busy, settings, "other data") == busy
    wider = settings.model_copy(deep=True)
    wider.network.width = 512
    assert keep_fastest(busy, wider, "data") == busy
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    assert keep_fastest(busy, settings, "data") == busy, "other kernels have another speed"


def test_two_comparisons_do_not_lose_each_other_s_speeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The second one reads the file while the first one is about to write it."""
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))
    settings, speed = ResolvedSettings(task="language", model="gru"), SpeedResult(0.01, 64, 0.1)
    second = threading.Thread(target=keep_fastest, args=(speed, settings, "other data"))
    read = speed_module._read_speeds

    def read_slowly(path: Path) -> dict[str, dict[str, float]]:
        speeds = read(path)
        if threading.current_thread() is threading.main_thread():
            second.start()
            second.join(0.2)
        return speeds

    monkeypatch.setattr(speed_module, "_read_speeds", read_slowly)
    keep_fastest(speed, settings, "data")
    second.join()
    assert len(read(environment.get_cache_folder() / speed_module.SPEEDS_FILE)) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"key": 3}', "{"])
def test_a_damaged_file_of_speeds_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))
    settings = ResolvedSettings(task="language", model="gru")
    monkeypatch.setattr(speed_module, "_make_key", lambda settings, fingerprint: "key")
    (environment.get_cache_folder() / speed_module.SPEEDS_FILE).write_text(content)
    assert keep_fastest(SpeedResult(1.0, 64, 0.1), settings, "data").update_seconds == 1.0
    assert keep_fastest(SpeedResult(2.0, 64, 0.1), settings, "data").update_seconds == 1.0


def test_tokens_are_what_the_time_allows_after_the_validations():
    budgets = TrialBudgets("12s", 3, (0, 1, 2), lr_trial="2s", training="10s")
    fast = budgets.convert_to_tokens(update_seconds=0.01, update_tokens=64, validation_seconds=0.01)
    assert fast.training == 62_700  # (10 − 19 × 0.01) s × 6,400 tokens/s = 62,784, rounded down to three digits
    assert fast.lr_trial == 12_800
    assert fast.tokens_per_second == pytest.approx(6400)
    assert fast.validate_every == 0
    slow = budgets.convert_to_tokens(update_seconds=0.01, update_tokens=64, validation_seconds=0.3)
    assert slow.training == 58_200  # a tenth of the time is enough for 3 validations
    assert slow.validate_every == 228  # 910 updates in 4 parts
    huge = budgets.convert_to_tokens(update_seconds=100.0, update_tokens=64, validation_seconds=100.0)
    assert (huge.lr_trial, huge.training, huge.validate_every) == (64, 64, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = write_text(tmp_path / "small.txt")
    make_plan(tmp_path / "out", text, models=["rnn", "ngram"], budget="20s", seeds=2, lr_trials=3)
    return tmp_path / "out"


def test_all_seeds_of_a_family_have_the_same_tokens(folder: Path):
    Outcome("done", result=SpeedResults({"rnn": SpeedResult(0.01, 64, 0.01)})).save(SPEED_JOB.get_file(folder))
    plan = convert_time_budget(folder, Plan.open(folder))
    assert plan == Plan.open(folder)
    budgets = {trial.name: plan.make_settings(trial, 0.01).budget for trial in plan.list_trials()}
    assert budgets["rnn/seed-0"] == budgets["rnn/seed-1"] == f"{plan.token_budgets['rnn'].training}-tokens"
    assert budgets["rnn/lr-1"] == budgets["rnn/lr-3"] == f"{plan.token_budgets['rnn'].lr_trial}-tokens"
    settings = plan.make_settings(plan.get_trial("rnn/lr-1"), None)
    assert settings.training.validate_every == NEVER


def test_a_family_without_a_speed_gets_the_tokens_of_the_slowest(tmp_path: Path):
    text = write_text(tmp_path / "small.txt")
    plan = make_plan(tmp_path / "out", text, models=["rnn", "gru", "lstm"], budget="20s", seeds=2, lr_trials=3)
    speeds = {"rnn": SpeedResult(0.01, 64, 0.01), "gru": SpeedResult(0.03, 64, 0.01)}
    Outcome("done", result=SpeedResults(speeds)).save(SPEED_JOB.get_file(tmp_path / "out"))
    budgets = convert_time_budget(tmp_path / "out", plan).token_budgets
    assert budgets["lstm"] == budgets["gru"] != budgets["rnn"]


def test_a_speed_that_cannot_be_measured_is_an_error_and_measured_again_on_resume(folder: Path):
    Outcome("failed", "the disk is full.").save(SPEED_JOB.get_file(folder))
    with pytest.raises(SeqwiseError, match="the speed cannot be measured: the disk is full"):
        convert_time_budget(folder, Plan.open(folder))
    assert not SPEED_JOB.get_file(folder).exists()
    assert Plan.open(folder).token_budgets == {}


@pytest.mark.slow
def test_a_repeated_comparison_has_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another measurement of the speed must not change a number."""
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    text = write_text(tmp_path / "small.txt")
    values = []
    for number, update_seconds in enumerate((0.010, 0.0095, 0.030)):
        result = {"rnn": SpeedResult(update_seconds, 64, 0.001)}
        monkeypatch.setattr(execute_module, "measure_speeds", lambda *arguments, result=result: result)
        folder = tmp_path / str(number)
        plan = make_plan(folder, text, models=["rnn"], budget="0.6s", seeds=2, lr_trials=1)
        run_with(folder, plan, InProcessEngine(folder))
        (family,) = load_report(folder).families
        assert family.training is not None
        values.append((family.training.tokens, [each.value for each in family.values]))
    assert values[0] == values[1] == values[2]
    assert values[0][1][0] != values[0][1][1], "two seeds differ"
