"""From a request to a plan: invalid requests raise an error before anything is written or trained."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import small_comparison
from locking_processes import run_with_kill
from small_comparison import BUDGET, create_comparison, make_plan, tiny, write_text

from seqwise.budget import Budget
from seqwise.compare.plan import create as planning
from seqwise.compare.plan.create import Request, create_plan
from seqwise.compare.plan.folder import COMPARISON_FOLDER, PLAN_FILE, PREPROCESSOR_FOLDER
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import NEVER, Plan
from seqwise.compare.run.jobs import LATENCY_JOB, Job, Outcome, SpeedResult, SpeedResults
from seqwise.compare.run.stages import reopen_plan, run_stages
from seqwise.config import Settings
from seqwise.errors import DataError, LockedError, RunError, SaveError, SeqwiseError, UsageError
from seqwise.locks import LOCK_FILE
from seqwise.new_folders import create_folder
from seqwise.tasks.language.task import Language
from seqwise.training.loop import Trainer


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "small.txt")


@pytest.fixture(autouse=True)
def _nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "steps", lambda self: pytest.fail("trained"))


@pytest.mark.parametrize(
    ("options", "words", "fix"),
    [
        ({"models": ["rnn", "lsmt"]}, "there is no family 'lsmt'. Perhaps you meant 'lstm'.", "--models"),
        ({"models": ["rnn", "rnn"]}, "rnn is named more than once", "--models"),
        ({"models": []}, "there is nothing to compare", "--models"),
        ({"budget": "much"}, "the budget 'much' is not understood", "2M-tokens"),
        ({"budget": "0s"}, "is empty", "90s"),
        ({"budget": "3-tokens"}, "a training run of 1 tokens is too short", "larger --budget"),
        (
            {"budget": "2k-tokens"},
            "rnn: a learning-rate trial of 500 tokens is too short: 10 updates take 640 tokens",
            "larger --budget",
        ),
        (
            {"budget": "1k-tokens", "lr_trials": 1},
            "a training run of 1,000 tokens is too short: 20 updates take 1,280 tokens",
            "larger --budget",
        ),
        ({"seeds": 0}, "--seeds: expected at least 1; received 0", ""),
        ({"lr_trials": 0}, "--lr-trials: expected at least 1; received 0", ""),
        ({"nproc": 0}, "--nproc: expected at least 1; received 0", ""),
        ({"examples": -1}, "--examples: expected at least 0; received -1", ""),
        (
            {"match": "time"},
            f"--match time needs a budget in time, such as 2m; received {BUDGET}",
            "--budget or --match",
        ),
        (
            {"match": "tokens", "budget": "2m"},
            "--match tokens needs a budget in tokens or epochs",
            "--budget or --match",
        ),
        ({"match": "tokens", "parameters": 5000}, "--parameters is a size for all families", "Leave out --parameters"),
        ({"parameters": "1Q"}, "--parameters: expected a number of parameters; received '1Q'.", "300k"),
        ({"budget": "60k"}, "the budget '60k' is not understood. Perhaps you meant 60k-tokens.", "500k-tokens"),
        ({"parameters": 0}, "a network has at least one parameter", "--parameters"),
        ({"variants": Path("nowhere.yaml")}, "the variants file does not exist", ""),
        ({"variants": {"x": {"budget": "1h"}}}, "x: budget cannot be set for one variant alone", "Set these for all"),
        (
            {"variants": {"fast": {"model": "rnn", "training.learning_rate": 0.5}}},
            "--lr-trials 2 searches for a learning rate, but it is already set: fast 0.5.",
            "Use --lr-trials 1",
        ),
        ({"nproc": 5}, "a batch of 4 cannot be divided among 5 processes", "--training.batch-size"),
    ],
    ids=str,
)
def test_invalid_options_raise_an_error(text: Path, tmp_path: Path, options, words, fix):
    with pytest.raises(UsageError) as excinfo:
        make_plan(tmp_path / "out" / "here", text, **options)
    assert words in excinfo.value.problem
    assert fix in excinfo.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["small.txt"]


def _get_suggested_budget(error: UsageError) -> str:
    """Returns the budget that an error message suggests."""
    match = re.search(r"at least (\S+?)[,.]?( |$)", error.fix)
    assert match, error.fix
    return match[1]


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        ("2k-tokens", {}), ("3-tokens", {}), ("1k-tokens", {"lr_trials": 1}),
        ("2k-tokens", {"lr_trials": 5, "seeds": 3}),
        ("0.1-epochs", {"seeds": 1}), ("0.0001-epochs", {}),
    ],
    ids=str,
)  # fmt: skip
def test_the_error_about_a_small_budget_suggests_the_smallest_that_suffices(text: Path, tmp_path, budget, options):
    with pytest.raises(UsageError) as excinfo:
        make_plan(tmp_path / "out", text, budget=budget, **options)
    suggested = _get_suggested_budget(excinfo.value)
    assert Budget.parse(suggested).unit == Budget.parse(budget).unit
    make_plan(tmp_path / "out", text, budget=suggested, **options)
    # The suggestion has two digits, so it is rounded up by a tenth at most.
    less = f"{0.9 * Budget.parse(suggested).amount:.10g}-{Budget.parse(suggested).unit}"
    with pytest.raises(UsageError, match="is too short"):
        make_plan(tmp_path / "less", text, budget=less, **options)


def test_an_invalid_name_or_budget_raises_an_error_before_reading_the_data(text: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Language, "prepare", lambda *args, **options: pytest.fail("read"))
    wrong: list[dict] = [{"models": ["lsmt"]}, {"budget": "much"}, {"lr_trials": 0}, {"parameters": "big"}]
    for options in [*wrong, {"variants": {"x": {"seed": 1}}}]:
        with pytest.raises(UsageError):
            make_plan(tmp_path / "out", text, **options)


def test_every_family_starts_from_scratch(text: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="starts every family from scratch; received --init"):
        make_plan(tmp_path / "out", text, tiny(init="runs/other"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("training", "words", "fix"),
    [
        (
            {"patience": 3},
            "--training.patience cannot be set in a comparison: every family spends all",
            "--training.patience",
        ),
        ({"max_epochs": 9}, "--training.max-epochs cannot be set in a comparison", "--training.max-epochs"),
        ({"validate_every": 9}, "--training.validate-every cannot be set in a comparison", "--training.validate-every"),
        (
            {"learning_rate": 0.5},
            "it is already set: rnn 0.5, gru 0.5.",
            "Use --lr-trials 1 to train with it",
        ),
    ],
)
def test_settings_that_a_comparison_chooses_cannot_be_set(text: Path, tmp_path: Path, training, words, fix):
    with pytest.raises(UsageError) as excinfo:
        make_plan(tmp_path / "out", text, tiny(training=training))
    assert words in excinfo.value.problem
    assert fix in excinfo.value.fix
    assert not (tmp_path / "out").exists()


def test_a_set_learning_rate_is_used_without_a_search(text: Path, tmp_path: Path):
    variants = {"fast": {"model": "rnn", "training.learning_rate": 0.5}}
    plan = make_plan(tmp_path / "out", text, tiny(training={"learning_rate": 0.007}), variants=variants, lr_trials=1)
    rates = {name: each.training.learning_rate for name, each in plan.families.items()}
    assert rates == {"rnn": 0.007, "gru": 0.007, "fast": 0.5}


def test_an_ngram_model_for_classification_raises_an_error(tmp_path: Path):
    data = tmp_path / "opinions.tsv"
    data.write_text("".join(f"{'good' if n % 2 else 'dull'} {n}\t{n % 2}\n" for n in range(80)))
    base = tiny(task="classify", text={"tokenizer": "words"}, data={"window": None})
    with pytest.raises(UsageError, match="ngram") as excinfo:
        make_plan(tmp_path / "out", data, base, models=["rnn", "ngram"], budget="9k-tokens")
    assert "Families for the task classify are feedforward, rnn, gru" in excinfo.value.fix
    assert not (tmp_path / "out").exists()


def test_data_too_small_for_its_split_raises_an_error(tmp_path: Path):
    (tmp_path / "two.tsv").write_text("good\t1\nbad\t0\n")
    base = tiny(task="classify", text={"tokenizer": "words"}, data={"window": None})
    with pytest.raises(DataError):
        make_plan(tmp_path / "out", tmp_path / "two.tsv", base)
    (tmp_path / "line.txt").write_text("one line.\n")
    with pytest.raises(DataError):
        make_plan(tmp_path / "out", tmp_path / "line.txt")
    with pytest.raises(UsageError, match="no such file"):
        make_plan(tmp_path / "out", tmp_path / "missing.txt")
    assert not (tmp_path / "out").exists()


def _write_labelled_texts(path: Path, rows: int) -> Path:
    lines = (f"text {number} of many words,{('odd', 'even')[number % 2 == 0]}" for number in range(rows))
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def test_very_few_examples_raise_an_error_and_few_are_noted(tmp_path: Path):
    options = ComparisonOptions(["gru", "rnn"], budget="20k-tokens", seeds=1, lr_trials=1)
    few = Request(str(_write_labelled_texts(tmp_path / "few.csv", 40)), options, Settings(task="classify"))
    with pytest.raises(UsageError, match=r"the (valid|test) split has \d texts: .* at least 3"):
        create_comparison(tmp_path / "few", few)
    assert not (tmp_path / "few").exists()
    messages: list[str] = []
    some = Request(str(_write_labelled_texts(tmp_path / "some.csv", 600)), options, Settings(task="classify"))
    create_comparison(tmp_path / "some", some, messages.append)
    assert any(
        "the test split has only 30 texts" in sentence and "--data.test-fraction" in sentence for sentence in messages
    )


def test_an_existing_folder_raises_an_error_and_is_unchanged(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="already contains a comparison") as excinfo:
        make_plan(folder, text)
    assert f"seqwise compare --resume {folder}" in excinfo.value.fix
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for path in (tmp_path / "mine", text):
        with pytest.raises(UsageError, match="is not an empty folder"):
            COMPARISON_FOLDER.check_new(path)
    (tmp_path / "empty").mkdir()
    COMPARISON_FOLDER.check_new(tmp_path / "empty")


def test_two_processes_never_share_a_folder(text: Path, tmp_path: Path, monkeypatch):
    """The second process starts while the first reads its data, which may take long."""
    folder = tmp_path / "out"
    prepare_task = planning.prepare_task

    def plan_again(*args, **options):
        monkeypatch.setattr(
            planning, "prepare_task", lambda *args, **options: pytest.fail("the second process read the data")
        )
        with pytest.raises(LockedError, match=rf"out is locked: process {os.getpid()} on "):
            make_plan(folder, text, models=["lstm"])
        return prepare_task(*args, **options)

    monkeypatch.setattr(planning, "prepare_task", plan_again)
    first = make_plan(folder, text)
    assert Plan.open(folder) == first
    assert (folder / PREPROCESSOR_FOLDER / "tokenizer.json").exists()


def test_a_default_folder_taken_meanwhile_is_skipped(text: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = Request(str(text), ComparisonOptions(["rnn"], budget=BUDGET, seeds=1, lr_trials=1), tiny())
    with (
        create_folder(COMPARISON_FOLDER, None, "demo") as first,  # and both read their data
        create_folder(COMPARISON_FOLDER, None, "demo") as second,
    ):
        assert (first, second) == (Path("runs/demo-1"), Path("runs/demo-2"))
        plan = create_plan(second, request)
    assert Plan.open(second) == plan
    assert list(Path("runs").iterdir()) == [second]


WAITING_PROCESS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from small_comparison import make_plan
from seqwise.compare.plan import create as planning

def wait(*args, **options):
    print("reading", flush=True)
    time.sleep(60)

planning.prepare_task = wait
make_plan(Path(sys.argv[2]), sys.argv[3])
"""


def test_a_folder_left_by_a_killed_process_is_reused(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    command = [
        sys.executable,
        "-c",
        WAITING_PROCESS,
        str(Path(small_comparison.__file__).parent),
        str(folder),
        str(text),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        with pytest.raises(LockedError, match=f"is locked: process {process.pid} on "):
            make_plan(folder, text)  # the process that creates it is alive
        process.kill()
    assert [path.name for path in folder.iterdir()] == [LOCK_FILE]
    (folder / PREPROCESSOR_FOLDER).mkdir()
    (folder / PREPROCESSOR_FOLDER / "tokenizer.json").write_text("{")  # as if it was killed while saving
    (folder / f".{PLAN_FILE}.writing").write_text("data: ")
    plan = make_plan(folder, text)
    assert Plan.open(folder) == plan
    assert sorted(path.name for path in folder.iterdir()) == [PLAN_FILE, PREPROCESSOR_FOLDER]


@pytest.mark.parametrize("fatal_calls", [(2, 9), pytest.param(range(1, 100), marks=pytest.mark.slow)])
def test_a_creation_that_was_killed_can_be_repeated(text: Path, tmp_path: Path, fatal_calls: range):
    """Processes are killed just before their n-th call that changes the disk."""
    make_plan(tmp_path / "first", text)  # the tokens are cached now
    num_left = 0
    for call in fatal_calls:
        folder = tmp_path / str(call)
        status = run_with_kill(lambda: int(make_plan(folder, text) is None), call)  # noqa: B023 - used at once
        if status == 0:  # all calls were made
            assert call > 9
            break
        assert status == -signal.SIGKILL
        if not (folder / PLAN_FILE).exists():
            num_left += (folder / LOCK_FILE).exists()
            make_plan(folder, text)
        assert sorted(path.name for path in folder.iterdir() if path.name != LOCK_FILE) == [
            PLAN_FILE,
            PREPROCESSOR_FOLDER,
        ]
    assert num_left > 0


def test_a_folder_with_other_files_is_never_reused(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    (folder / PREPROCESSOR_FOLDER).mkdir(parents=True)
    with pytest.raises(UsageError, match="is not an empty folder"):
        make_plan(folder, text)  # without a lock file
    (folder / LOCK_FILE).touch()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not an empty folder"):
        make_plan(folder, text)
    assert (folder / "letter.txt").read_text() == "dear"
    assert (folder / PREPROCESSOR_FOLDER).is_dir()


def test_a_failure_removes_only_its_own_files(text: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "mine").mkdir()

    def fail(*args, **options):
        (tmp_path / "above" / "others.txt").touch()
        raise DataError("unreadable")

    monkeypatch.setattr(planning, "prepare_task", fail)
    for folder in (tmp_path / "mine", tmp_path / "above" / "below"):
        (tmp_path / "above").mkdir(exist_ok=True)
        with pytest.raises(DataError):
            make_plan(folder, text)
    assert list((tmp_path / "mine").iterdir()) == []
    assert [path.name for path in (tmp_path / "above").iterdir()] == ["others.txt"]


def test_a_failed_save_leaves_no_files(text: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="cannot create"):
        make_plan(tmp_path / "file" / "below", text)

    def fail_on_full_disk(self: Plan, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Plan, "save", fail_on_full_disk)
    with pytest.raises(SaveError, match="the disk is full") as excinfo:
        make_plan(tmp_path / "out", text)
    assert "--out" in excinfo.value.fix
    assert "train --resume" not in str(excinfo.value)
    assert not (tmp_path / "out").exists()

    def interrupt(self: Plan, folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Plan, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_plan(tmp_path / "out", text)
    assert not (tmp_path / "out").exists()


def test_the_plan_is_complete(text: Path, tmp_path: Path):
    messages: list[str] = []
    options = ComparisonOptions(
        ["rnn", "ngram"], {"wide": {"model": "gru", "network": {"width": 20}}}, BUDGET, seeds=2, lr_trials=2
    )
    request = Request(str(text), options, tiny(task=None, seed=7), "seqwise compare …")
    plan = create_comparison(tmp_path / "out", request, messages.append)
    assert plan == Plan.open(tmp_path / "out")
    assert list(plan.families) == ["rnn", "ngram", "wide"]
    assert plan.task == "language"
    assert plan.metric == "perplexity"
    assert plan.about == tuple(messages)
    assert plan.command == "seqwise compare …"
    assert plan.budgets.seeds == (7, 8)
    assert plan.parameters["ngram"] == 0 < plan.parameters["rnn"] < plan.parameters["wide"]
    assert plan.families["wide"].network.width == 20
    for name in ("rnn", "wide"):
        assert plan.families[name].training.learning_rate  # chosen by rule
        assert plan.families[name].training.patience == NEVER  # the whole budget is spent, whatever the validation loss
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [PLAN_FILE, PREPROCESSOR_FOLDER]


def test_sizes_are_matched_or_default(text: Path, tmp_path: Path):
    base = tiny(network={"width": None})
    matched = make_plan(tmp_path / "matched", text, base, models=["rnn", "lstm"], parameters=6_000)
    counts = matched.parameters.values()
    assert max(counts) / min(counts) < 1.03
    assert matched.target_parameters == 6_000
    for size in ("6k", "6000", "0.006M"):
        same = make_plan(tmp_path / size, text, base, models=["rnn", "lstm"], parameters=size)
        assert (same.target_parameters, same.parameters) == (6_000, matched.parameters)
    free = make_plan(tmp_path / "free", text, base, models=["rnn", "lstm"], match="tokens", budget="90k-tokens")
    assert free.target_parameters is None
    assert free.parameters["lstm"] > 1.5 * free.parameters["rnn"]


# Before the first trial: the speed of each family


class SpeedOnlyEngine:
    """An engine that only reports how long an update and a validation take."""

    def __init__(self, folder: Path, update: float, validation: float):
        self.folder, self.result = folder, SpeedResults({"rnn": SpeedResult(update, 64, validation)})
        self.stages: list[str] = []
        self.num_workers = 1

    def run(self, jobs, on_event, should_stop) -> None:
        self.stages.append(jobs[0].kind)
        for job in jobs:
            if job.kind == "speed":
                Outcome("done", result=self.result).save(job.get_file(self.folder))

    def close(self) -> None:
        """There is nothing to close."""


def test_a_time_too_short_for_one_validation_raises_an_error_before_training(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, budget="8s", seeds=1)
    assert plan.budgets.lr_trial == "1s"
    slow = SpeedOnlyEngine(folder, update=0.2, validation=0.5)
    with pytest.raises(UsageError, match="rnn: a learning-rate trial of 1 s is too short: 10 updates take 2 s"):
        run_stages(folder, plan, slow, lambda event: None)
    assert slow.stages == ["speed"]
    assert not folder.exists(), "the same command with another budget must be able to use the folder"
    plan = make_plan(folder, text, budget="8s", seeds=1, lr_trials=1)
    with pytest.raises(UsageError, match="a training run of 8 s is too short: 20 updates and one validation take 9 s"):
        run_stages(folder, plan, SpeedOnlyEngine(folder, update=0.2, validation=5.0), lambda event: None)
    plan = make_plan(folder, text, budget="12s", seeds=1)
    fast = SpeedOnlyEngine(folder, update=0.04, validation=0.5)
    with pytest.raises(SeqwiseError, match=r"4 of 4 jobs have no result(.|\n)*seqwise compare --resume"):
        run_stages(folder, plan, fast, lambda event: None)  # the engine trains nothing and was not interrupted
    assert fast.stages == ["speed", "train"]


@pytest.mark.parametrize("lr_trials", [1, 2])
def test_the_error_about_a_short_time_suggests_the_shortest_that_suffices(text: Path, tmp_path: Path, lr_trials: int):
    folder = tmp_path / "out"
    with pytest.raises(UsageError) as excinfo:
        run_stages(
            folder,
            make_plan(folder, text, budget="3s", lr_trials=lr_trials),
            SpeedOnlyEngine(folder, 0.9, 4.0),
            lambda event: None,
        )
    suggested = _get_suggested_budget(excinfo.value)
    for slowdown, is_rejected in ((1.0, False), (1.15, False), (1.3, True)):  # than the first measurement
        plan = make_plan(folder, text, budget=suggested, lr_trials=lr_trials)
        with pytest.raises(SeqwiseError, match="too short" if is_rejected else "have no result"):
            run_stages(folder, plan, SpeedOnlyEngine(folder, 0.9 * slowdown, 4.0 * slowdown), lambda event: None)
        shutil.rmtree(folder, ignore_errors=True)


def test_removing_a_rejected_comparison_leaves_other_files(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, budget="8s", seeds=1)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="too short"):
        run_stages(folder, plan, SpeedOnlyEngine(folder, 10.0, 10.0), lambda event: None)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_budget_in_tokens_is_not_rejected_for_the_speed(text: Path, tmp_path: Path):
    plan = make_plan(tmp_path / "out", text)
    engine = SpeedOnlyEngine(tmp_path / "out", 1e6, 1e6)
    with pytest.raises(SeqwiseError, match="have no result"):
        run_stages(tmp_path / "out", plan, engine, lambda event: None)
    assert engine.stages == ["speed", "train"]


def test_only_a_requested_stop_is_an_interruption(text: Path, tmp_path: Path):
    plan = make_plan(tmp_path / "out", text)
    engine = SpeedOnlyEngine(tmp_path / "out", 1.0, 1.0)
    assert not run_stages(tmp_path / "out", plan, engine, lambda event: None, should_stop=lambda: bool(engine.stages))
    assert engine.stages == ["speed"]


def test_a_resumed_demo_is_still_not_strict(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, budget="8s", seeds=1, strict=False)
    slow = SpeedOnlyEngine(folder, 10.0, 10.0)
    with pytest.raises(SeqwiseError, match="have no result"):
        run_stages(folder, reopen_plan(folder), slow, lambda event: None)
    assert slow.stages == ["speed", "train"]
    assert not Plan.open(folder).strict


def test_a_comparison_with_a_checkpoint_is_not_rejected_for_its_speed(text: Path, tmp_path: Path):
    """It was killed before the end of the first trial: there is a checkpoint, but no outcome."""
    folder = tmp_path / "out"
    plan = make_plan(folder, text, budget="8s", seeds=1)
    checkpoint = folder / "trials" / "rnn" / "lr-1" / "checkpoints" / "step-7"
    checkpoint.mkdir(parents=True)
    slow = SpeedOnlyEngine(folder, 10.0, 10.0)
    with pytest.raises(SeqwiseError, match="have no result"):
        run_stages(folder, plan, slow, lambda event: None)
    assert slow.stages == ["train"]
    assert checkpoint.exists()


# Resuming needs the data


def test_a_comparison_is_not_resumed_without_its_data(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text)
    assert reopen_plan(folder) == plan
    content = text.read_text()
    text.write_text(content + "one more line.\n")
    with pytest.raises(RunError, match="has changed since this comparison was created"):
        reopen_plan(folder)
    text.unlink()
    with pytest.raises(DataError, match="there is no such file"):
        reopen_plan(folder)
    text.write_text(content)
    assert reopen_plan(folder) == plan


def test_a_finished_comparison_needs_no_data(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text)
    for trial in plan.list_trials():
        Outcome("done").save(Job("train", trial.name).get_file(folder))
    text.unlink()
    with pytest.raises(DataError):
        reopen_plan(folder)  # the tests are missing
    for trial in plan.list_training_trials():
        Outcome("done").save(Job("test", trial.name).get_file(folder))
    with pytest.raises(DataError):
        reopen_plan(folder)  # nothing was timed
    Outcome("done").save(LATENCY_JOB.get_file(folder))
    assert reopen_plan(folder) == plan
    Outcome("failed", "by chance").save(Job("test", "gru/seed-1").get_file(folder))
    with pytest.raises(DataError):
        reopen_plan(folder)  # it would be repeated


def test_a_relative_data_path_is_explained_in_another_folder(text: Path, tmp_path: Path, monkeypatch):
    home, other = tmp_path / "at home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    text.rename(home / "small.txt")
    monkeypatch.chdir(home)
    make_plan(Path("out"), "small.txt")
    monkeypatch.chdir(other)
    with pytest.raises(RunError) as excinfo:
        reopen_plan(Path("../at home/out"))
    assert excinfo.value.problem.startswith(f"small.txt is relative to {home}.")
    assert excinfo.value.fix == f"Use: cd '{home}' && seqwise compare --resume '{home}/out'"
    monkeypatch.chdir(home)
    assert reopen_plan(Path("out")).data == "small.txt"
