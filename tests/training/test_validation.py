"""How much of the validation split is evaluated: chosen by tokens or by time, fixed for a run, larger at the end."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from short_runs import OPTIONS, train

from seqwise.budget import Budget
from seqwise.cli.progress import TrainingDisplay
from seqwise.data.batch import iterate_by_length, spread_indices
from seqwise.tasks.task import Size
from seqwise.training import loop, training_run, validation
from seqwise.training.checkpoints import load_newest_checkpoint
from seqwise.training.distribution import World
from seqwise.training.run import Run
from seqwise.training.validation import (
    choose_meaningful_share,
    choose_minimum_share,
    choose_share,
    count_tokens,
    estimate_share,
    explain_share,
    measure_share,
)

SMALL_SPLIT = ("--data.valid-fraction", "0.005")  # 300 characters for validation, so that it is fast


def list_validated_steps(folder: Path) -> list[int]:
    return [row["step"] for row in Run.open(folder).read_metrics() if row.get("validation")]


@pytest.fixture
def small_minimum(monkeypatch):
    """Lets 320 of the 3,000 characters of the validation split suffice for a validation."""
    monkeypatch.setattr(validation, "MIN_TOKENS", 320)


def test_indices_are_spread_evenly():
    assert spread_indices(10, 1.0).tolist() == list(range(10))
    assert spread_indices(10, 0.3).tolist() == [0, 3, 6]
    assert spread_indices(10, 1e-9).tolist() == [0]
    assert spread_indices(0, 0.5).tolist() == []
    assert sorted(index for batch in iterate_by_length([5, 1, 4, 2], 2, share=0.5) for index in batch) == [0, 2]


def test_a_small_split_is_evaluated_as_a_whole():
    assert choose_minimum_share(Size(60_000)) == 1
    assert choose_minimum_share(Size(500_000)) == pytest.approx(0.1)
    assert choose_minimum_share(Size(1_000_000, num_examples=2_500)) == pytest.approx(0.2)  # 500 of 2,500 examples
    assert choose_minimum_share(Size(0)) == 1


def test_twenty_validations_cost_a_tenth_of_the_training():
    """3 tokens without a backward pass cost as much as one with it, so 20 · 150,000 cost as much as 1,000,000."""
    share = choose_share(Size(1_500_000), budget_tokens=10_000_000)
    assert share * 1_500_000 == pytest.approx(150_000)
    assert estimate_share(Size(1_500_000), 10_000_000) == pytest.approx(2.0)
    assert choose_share(Size(1_500_000), budget_tokens=100_000) * 1_500_000 == pytest.approx(50_000)


def test_epochs_are_counted_in_tokens():
    assert count_tokens(Budget.parse("2-epochs"), 1_000) == 2_000
    assert count_tokens(Budget.parse("500-tokens"), 1_000) == 500
    assert count_tokens(Budget.parse("500k-tokens", max_epochs=2), 1_000) == 2_000
    assert count_tokens(Budget.parse("500-tokens", max_epochs=2), 1_000) == 500
    assert count_tokens(Budget.parse("5m", max_epochs=3), 1_000) == 3_000
    assert count_tokens(Budget.parse("5m"), 1_000) == math.inf


@pytest.mark.parametrize(
    ("seconds", "tokens"),
    [
        (6_000, 300_000),  # 30 s for each validation
        (600, 50_000),  # 3 s are enough for 30,000 tokens, and up to 12 s are spent to reach the minimum of 50,000
        (60, 12_000),  # 0.3 s are enough for 3,000 tokens, and up to 1.2 s are spent
    ],
)
def test_a_time_budget_determines_how_many_tokens_are_validated(monkeypatch, seconds, tokens):
    """The model evaluates 10,000 tokens per second."""
    clock, split = [0.0], Size(10_000_000)

    def validate(share: float) -> None:
        clock[0] += share * split.num_tokens / 10_000

    monkeypatch.setattr(validation, "read_clock", lambda: clock[0])
    share, duration = measure_share(split, seconds, World(), validate)
    assert share * split.num_tokens == pytest.approx(tokens)
    assert duration == pytest.approx(tokens / 10_000)
    assert clock[0] < 0.05 * seconds  # what the measurement itself takes


@pytest.mark.parametrize(
    ("max_tokens", "tokens"),
    [
        (math.inf, 300_000),
        (100_000_000, 300_000),  # 30,000 s of training, of which the budget ends 6,000
        (10_000_000, 150_000),  # a twentieth of a tenth of 3,000 s
        (1_000_000, 50_000),  # four times as much as a twentieth of a tenth of 300 s, 15,000 tokens, would be 60,000
        (100_000, 6_000),  # four times 1,500
    ],
)
def test_a_maximum_of_epochs_determines_how_much_is_validated_if_it_ends_training_earlier(
    monkeypatch, max_tokens, tokens
):
    """The model evaluates 10,000 tokens per second, and is trained on a third of that."""
    clock, split = [0.0], Size(10_000_000)

    def validate(share: float) -> None:
        clock[0] += share * split.num_tokens / 10_000

    monkeypatch.setattr(validation, "read_clock", lambda: clock[0])
    share, _ = measure_share(split, 6_000, World(), validate, max_tokens)
    assert share * split.num_tokens == pytest.approx(tokens)
    training_seconds = min(6_000, max_tokens / 10_000 * 3)
    assert clock[0] < 0.1 * training_seconds  # what the measurement itself takes


@pytest.mark.parametrize(
    ("split", "tokens"),
    [
        (Size(10_000_000), 2_000),
        (Size(10_000_000, num_examples=10_000), 20_000),  # 20 examples
        (Size(1_500), 1_500),
    ],
)
def test_however_short_the_budget_a_meaningful_part_is_validated(monkeypatch, split, tokens):
    """The model evaluates 300 tokens per second, so that a hundredth of a second would be enough for 3."""
    clock = [0.0]

    def validate(share: float) -> None:
        clock[0] += share * split.num_tokens / 300

    monkeypatch.setattr(validation, "read_clock", lambda: clock[0])
    share, duration = measure_share(split, 2.0, World(), validate)
    assert share * split.num_tokens == pytest.approx(tokens)
    assert duration == pytest.approx(tokens / 300)
    assert clock[0] == pytest.approx(2 * tokens / 300), "the measurement evaluates no more than that, twice"


def explain(share: float, split: Size, has_interval: bool = False, seconds: float = 0.0, budget: str = "1h") -> str:
    return explain_share(share, split, has_interval, seconds, Budget.parse(budget))


def test_the_budget_explains_a_part_above_the_minimum_unless_the_interval_is_set():
    split = Size(1_500_000)
    share = choose_share(split, budget_tokens=10_000_000)
    assert explain(share, split) == ", so that it takes at most 10% of the training"
    assert explain(share, split, has_interval=True) == ""
    assert "minimum" in explain(choose_share(split, budget_tokens=100_000), split)


def test_a_part_that_takes_more_than_the_budget_is_explained_with_its_time():
    split = Size(200_000)
    share, reason = choose_meaningful_share(split), ", the minimum for a meaningful result"
    assert share == 0.01
    assert explain(share, split, seconds=0.9, budget="10s") == reason
    assert explain(share, split, seconds=6.94, budget="1000-tokens") == reason
    reason += ". It takes about 6.9 s, more than 10% of the budget"
    assert explain(share, split, has_interval=True, seconds=6.94, budget="10s") == reason
    reason += ": only the end of the training is validated, beyond the budget"
    assert explain(share, split, seconds=6.94, budget="10s") == reason


def test_a_validation_that_is_longer_than_the_budget_allows_is_done_at_the_end_only(
    book, tmp_path, capsys, monkeypatch
):
    """The clock of the run moves by a second at each reading, so a validation takes 1 s."""
    clock = itertools.count()
    for module in (loop, training_run, validation):
        monkeypatch.setattr(module, "read_clock", lambda: float(next(clock)))
    assert train(book, *OPTIONS, "--budget", "9s", "--out", tmp_path / "run") == 0
    size = training_run.open_task(Run.open(tmp_path / "run")).valid_size().num_tokens
    log = capsys.readouterr().err
    assert (
        f"validation: {200_000 / size:.2g}% of the split, 2,000 tokens, during training, the minimum for a mean" in log
    )
    assert "It takes about 1.0 s, more than 10% of the budget: only the end of the training is validated" in log
    last = Run.open(tmp_path / "run").read_metrics()[-1]
    assert list_validated_steps(tmp_path / "run") == [last["step"]]
    assert last["step"] > 1


def test_a_run_that_its_maximum_of_epochs_ends_validates_as_with_a_budget_in_epochs(
    book, tmp_path, monkeypatch, small_minimum
):
    monkeypatch.setattr(validation, "MEANINGFUL_TOKENS", 100)
    sizes = [*OPTIONS[:4], "--training.batch-size", "16", "--data.window", "32"]
    for name, limits in (
        ("time", ["--budget", "1h", "--training.max-epochs", "1"]),
        ("epochs", ["--budget", "1-epochs"]),
    ):
        assert train(book, *sizes, *limits, "--out", tmp_path / name) == 0
    summaries = [Run.open(tmp_path / name).load_summary() for name in ("time", "epochs")]
    assert [each.share for each in summaries] == [pytest.approx(0.28, abs=0.01)] * 2
    assert [each.final for each in summaries] == [1, 1]
    assert summaries[0].validation == summaries[1].validation
    assert list_validated_steps(tmp_path / "time") == list_validated_steps(tmp_path / "epochs")


@pytest.mark.parametrize(
    ("budget", "max_tokens", "expected"),
    [
        ("20s", math.inf, 0.2),  # a tenth of 20 s is twice the second that validations with a share of 0.1 took
        ("20s", 12_000, 0.2),
        ("100s", 12_000, 0.4),  # a tenth of 12,000 tokens of training costs as much as 3,600 of validation, of 9,000
        ("100s", math.inf, 1.0),
        ("100s", 300, 0.1),  # no smaller than during training
        ("12k-tokens", 12_000, 0.4),
    ],
)
def test_the_last_validation_takes_a_tenth_of_what_ends_the_training_first(budget, max_tokens, expected):
    state = SimpleNamespace(validation_share=0.1, best_loss=1.0, validation_seconds=1.0, ended="")
    trainer = SimpleNamespace(state=state, budget=Budget.parse(budget))
    run = SimpleNamespace(trainer=trainer, valid_size=Size(9_000, 9), max_tokens=max_tokens)
    assert training_run.TrainingRun._choose_final_share(run) == pytest.approx(expected)


def test_a_run_validates_on_a_part_of_the_split_and_at_the_end_on_more_of_it(book, tmp_path, capsys, small_minimum):
    """A tenth of 9,600 tokens of training costs as much as 3 · 960 of validation: 9 times 320, and 2,880 at the end."""
    assert train(book, *OPTIONS, "--budget", "9600-tokens", "--out", tmp_path / "run") == 0
    stderr = capsys.readouterr().err
    size = training_run.open_task(Run.open(tmp_path / "run")).valid_size().num_tokens
    minimum = "320 tokens, during training, the minimum with which two validations can be compared."
    assert f"validation: {32_000 / size:.2g}% of the split, {minimum}" in stderr
    assert 9 <= len(list_validated_steps(tmp_path / "run")) <= 11
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["share"] == pytest.approx(320 / size)
    assert summary["final"] == pytest.approx(2880 / size)
    assert set(summary["seconds"]) == {"reading", "training", "validation", "saving"}
    assert all(seconds > 0 for seconds in summary["seconds"].values())
    assert f"best weights on {288_000 / size:.2g}% of the validation split: ppl " in stderr
    assert "time: reading " in stderr
    assert f"on {288_000 / size:.2g}% of the split" in (tmp_path / "run/README.md").read_text()


def test_the_final_validation_is_of_the_saved_weights(book, tmp_path, small_minimum):
    assert train(book, *OPTIONS, "--budget", "9600-tokens", "--out", tmp_path / "run") == 0
    run = Run.open(tmp_path / "run")
    summary, training = run.load_summary(), training_run.open_training(run)
    training.model.load_state_dict(run.read_weights(), strict=False)
    assert training._validate(summary.final) == summary.validation


def test_a_resumed_run_validates_on_the_same_part(book, tmp_path, monkeypatch, small_minimum):
    arguments = [book, *OPTIONS, "--budget", "9600-tokens", "--training.save-every", "1"]
    assert train(*arguments, "--out", tmp_path / "uninterrupted") == 0
    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", interrupt_at_step_75)
        assert train(*arguments, "--out", tmp_path / "run") == 130
    assert train("--resume", tmp_path / "run") == 0
    rows = [
        [{key: row[key] for key in ("step", "loss", "validation")} for row in Run.open(tmp_path / name).read_metrics()]
        for name in ("uninterrupted", "run")
    ]
    assert rows[0] == rows[1]
    summaries = [Run.open(tmp_path / name).load_summary() for name in ("uninterrupted", "run")]
    assert summaries[0].validation == summaries[1].validation


def interrupt_at_step_75(display, step) -> None:
    if step.number == 75:
        raise KeyboardInterrupt


def test_a_small_split_has_no_second_validation_at_the_end(book, tmp_path, capsys):
    assert train(book, *OPTIONS, *SMALL_SPLIT, "--budget", "1920-tokens", "--out", tmp_path / "run") == 0
    summary = Run.open(tmp_path / "run").load_summary()
    assert (summary.share, summary.final) == (1.0, None)
    assert "best weights on" not in capsys.readouterr().err


def test_a_larger_budget_continues_a_finished_run(book, tmp_path, capsys):
    schedule = ["--training.schedule", "cosine", "--training.warmup", "0"]
    arguments = [book, *OPTIONS, *SMALL_SPLIT, *schedule, "--seed", "3"]
    assert train(*arguments, "--budget", "1920-tokens", "--out", tmp_path / "run") == 0
    before = Run.open(tmp_path / "run").read_metrics()
    capsys.readouterr()
    assert train("--resume", tmp_path / "run", "--budget", "3840-tokens") == 0
    assert "resuming at step 30." in capsys.readouterr().err
    run = Run.open(tmp_path / "run")
    rows = run.read_metrics()
    assert rows[: len(before)] == before
    assert rows[-1]["tokens"] == 3840
    assert [row["step"] for row in rows if row.get("ended")] == [30, 60]
    # The learning rate is that of a run which had this budget from the start.
    assert train(*arguments, "--budget", "3840-tokens", "--out", tmp_path / "uninterrupted") == 0
    expected_rows = Run.open(tmp_path / "uninterrupted").read_metrics()
    rates, expected_rates = ({row["step"]: row["learning_rate"] for row in each} for each in (rows, expected_rows))
    assert rates[40] == pytest.approx(expected_rates[40], rel=1e-12)
    assert rates[60] == pytest.approx(expected_rates[60], rel=1e-12)
    assert len([step for step in list_validated_steps(tmp_path / "run") if step > 30]) == 10  # the other half of twenty
    assert run.settings.budget == "3840-tokens"
    assert run.metadata.command.splitlines()[1].endswith("--budget 3840-tokens")
    assert run.load_summary().step == 60


@pytest.mark.slow
def test_a_larger_budget_survives_a_kill_before_the_next_checkpoint(book, tmp_path, monkeypatch):
    assert train(book, *OPTIONS, "--budget", "1920-tokens", "--out", tmp_path / "run") == 0
    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", interrupt)
        assert train("--resume", tmp_path / "run", "--budget", "3840-tokens") == 130
    assert train("--resume", tmp_path / "run") == 0
    assert load_newest_checkpoint(tmp_path / "run/checkpoints", print).state["place"]["tokens"] == 3840


def interrupt(display, step) -> None:
    raise KeyboardInterrupt


def test_a_smaller_budget_than_is_already_spent_is_an_error(book, tmp_path, capsys):
    assert train(book, *OPTIONS, *SMALL_SPLIT, "--budget", "1920-tokens", "--out", tmp_path / "run") == 0
    config = (tmp_path / "run/config.yaml").read_text()
    for budget in ("1k-tokens", "0.001-epochs"):
        capsys.readouterr()
        assert train("--resume", tmp_path / "run", "--budget", budget) == 2
        stderr = capsys.readouterr().err
        assert "this run has already used" in stderr
        assert "Name a larger budget. It counts from the start of the run." in stderr
        assert (tmp_path / "run/config.yaml").read_text() == config
    assert train("--resume", tmp_path / "run", "--budget", "1920-tokens") == 0, "the same budget is no error"
    assert "this run is already complete: " in capsys.readouterr().err
    assert (tmp_path / "run/config.yaml").read_text() == config


def test_a_run_that_has_reached_its_maximum_of_epochs_is_not_continued_by_a_larger_budget(book, tmp_path, capsys):
    sizes = [*OPTIONS[:4], "--training.batch-size", "16", "--data.window", "64", *SMALL_SPLIT]
    run = tmp_path / "run"
    assert train(book, *sizes, "--budget", "1h", "--training.max-epochs", "1", "--out", run) == 0
    assert "done: 1 epoch is the maximum (training.max_epochs)." in capsys.readouterr().err
    assert " updates; 1 epoch is the maximum (training.max_epochs)\n" in (run / "README.md").read_text()
    assert train("--resume", run, "--budget", "2h") == 2
    assert "Start a new run with a larger --training.max-epochs." in capsys.readouterr().err
    assert train("--resume", run) == 0
    assert "this run is already complete: " in capsys.readouterr().err


def test_the_error_about_another_maximum_of_epochs_has_the_command_of_a_new_run(book, tmp_path, capsys):
    sizes = [*OPTIONS[:4], "--training.batch-size", "16", "--data.window", "64", *SMALL_SPLIT]
    run, more = tmp_path / "run", tmp_path / "more"
    limits = ["--budget", "1h", "--training.max-epochs", "1"]
    assert train(book, *sizes, *limits, "--model", "gru", "--seed", "3", "--out", run) == 0
    assert train(f"--resume={run}", "--training.max-epochs", "2", "--device", "auto") == 2
    error = capsys.readouterr().err
    assert "--training.max-epochs 2 differs" in error
    command = error.splitlines()[-1].removeprefix("Or start a new run: ")
    assert command == f"seqwise train {book} --config {run}/config.yaml --training.max-epochs 2 --device auto"
    assert train(*shlex.split(command)[2:], "--out", more) == 0
    settings, longer = Run.open(run).settings, Run.open(more).settings
    assert Run.open(more).read_metrics()[-1]["ended"] == "2 epochs are the maximum (training.max_epochs)"
    settings.training.max_epochs = 2
    assert longer == settings


@pytest.mark.slow
def test_another_unit_is_counted_from_the_start_of_the_run(book, tmp_path):
    assert train(book, *OPTIONS, "--budget", "1920-tokens", "--out", tmp_path / "run") == 0
    assert train("--resume", tmp_path / "run", "--budget", "0.1-epochs") == 0
    run = Run.open(tmp_path / "run")
    assert run.read_metrics()[-1]["ended"] == "the budget is spent"
    assert run.read_metrics()[-1]["progress"] == 1
    assert run.read_metrics()[-1]["tokens"] > 5_000


def test_patience_counts_from_the_resumption(book, tmp_path):
    """At a learning rate of almost zero the first validation is the best, and the two after it end the run."""
    options = [
        *("--training.learning-rate", "1e-12", "--training.weight-decay", "0"),
        *("--training.patience", "2", "--training.validate-every", "1"),
    ]
    assert train(book, *OPTIONS, *SMALL_SPLIT, *options, "--budget", "6400-tokens", "--out", tmp_path / "run") == 0
    first = Run.open(tmp_path / "run").read_metrics()[-1]
    assert first["ended"].startswith("validation has not improved 2 times")
    assert train("--resume", tmp_path / "run", "--budget", "12800-tokens") == 0
    last = Run.open(tmp_path / "run").read_metrics()[-1]
    assert last["ended"].startswith("validation has not improved 2 times")
    assert last["step"] >= first["step"] + 2


def test_an_n_gram_model_has_no_budget_to_change(book, tmp_path, capsys):
    assert train(book, "--model", "ngram", "--text.tokenizer", "words", "--out", tmp_path / "run") == 0
    assert "time: reading " in capsys.readouterr().err
    assert train("--resume", tmp_path / "run", "--budget", "5m") == 2
    assert "an n-gram model is fitted in one pass: it has no budget." in capsys.readouterr().err
