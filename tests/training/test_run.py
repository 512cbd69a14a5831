"""The run folder: which folders are rejected, and the messages about damaged files."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from seqwise.cli.main import main
from seqwise.errors import RunError
from seqwise.training.run import Run

OPTIONS = [
    "--text.tokenizer",
    "characters",
    "--network.width",
    "8",
    "--budget",
    "2k-tokens",
    "--training.batch-size",
    "4",
]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, book) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", str(book), *OPTIONS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run_copy(finished_run, tmp_path) -> Path:
    return shutil.copytree(finished_run, tmp_path / "copy")


def run_failing(capsys, *arguments: str | Path) -> tuple[int, list[str]]:
    """Runs a command that fails; returns its exit status and the lines of its error message."""
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert "Traceback" not in stderr
    return status, stderr[stderr.index("error: ") :].splitlines()


def test_a_run_of_a_newer_version_is_rejected_with_its_version(run_copy, capsys):
    content = yaml.safe_load((run_copy / "config.yaml").read_text())
    content["run"] |= {"format": 99, "seqwise": "9.0.0"}
    content["new_section"] = {"unheard_of": 1}
    (run_copy / "config.yaml").write_text(yaml.safe_dump(content))
    for arguments in (
        ["train", "--resume", run_copy],
        ["predict", run_copy, "a"],
        ["evaluate", run_copy, "builtin:docs"],
    ):
        status, lines = run_failing(capsys, *arguments)
        assert status == 2
        assert lines == [
            f"error: {run_copy / 'config.yaml'}: this run was written by Seqwise 9.0.0 in format 99; "
            "this version reads formats up to 1.",
            "Update with: pip install --upgrade seqwise",
        ]


def test_a_run_opens_with_placeholders_that_were_set(run_copy):
    """A comparison with a budget in time sets `validate_every` to 0: at equal shares of the budget."""
    run = Run.open(run_copy)
    run.settings.training.validate_every = run.settings.training.save_every = run.settings.training.patience = 0
    (run_copy / "config.yaml").write_text(run.settings.to_yaml() + run.metadata.to_yaml())
    assert yaml.safe_load((run_copy / "config.yaml").read_text())["training"]["validate_every"] == 0
    assert Run.open(run_copy).settings == run.settings


def test_the_settings_file_keeps_the_keys_of_earlier_versions(finished_run):
    content = yaml.safe_load((finished_run / "config.yaml").read_text())
    assert list(content["run"]) == ["data", "fingerprint", "split", "command", "seqwise", "format"]
    metadata = Run.open(finished_run).metadata
    assert (metadata.split_rule, metadata.seqwise_version) == (content["run"]["split"], content["run"]["seqwise"])


def test_a_folder_that_is_no_run_is_rejected_and_a_similar_one_suggested(run_copy, capsys):
    (run_copy.parent / "cop").mkdir()
    status, lines = run_failing(capsys, "train", "--resume", run_copy.parent / "cop")
    assert status == 2
    assert lines == [
        f"error: {run_copy.parent / 'cop'} is not a run: it has no config.yaml.",
        f"Perhaps you meant '{run_copy}'.",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "}{",
        "just words",
        "- a\n- b",
        "run: 3",
        "run: {format: many}",
        "run: {data: x}",
        "run: {format: 1}\nmodel: lstm",
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_settings_file_is_reported_in_one_error_message(run_copy, capsys, damage):
    (run_copy / "config.yaml").write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    status, lines = run_failing(capsys, "train", "--resume", run_copy)
    assert status == 2
    assert lines[0].startswith(f"error: {run_copy / 'config.yaml'}: ")
    assert lines[1] == "Copy the folder again from where it was made, or train again."


def test_a_truncated_settings_file_is_rejected(run_copy):
    """Otherwise defaults would replace the missing settings."""
    settings = (run_copy / "config.yaml").read_text().rstrip("\n")
    for length in [*range(0, len(settings), 41), *range(len(settings) - 60, len(settings))]:
        (run_copy / "config.yaml").write_text(settings[:length])
        with pytest.raises(RunError):
            Run.open(run_copy)


def test_a_damaged_tokeniser_is_reported_in_one_error_message(run_copy, capsys):
    path = run_copy / "tokenizer.json"
    os.truncate(path, path.stat().st_size // 2)
    status, lines = run_failing(capsys, "predict", run_copy, "a")
    assert status == 2
    assert lines[0].startswith(f"error: {path}: ")
    assert run_failing(capsys, "train", "--resume", run_copy)[0] == 2


def test_damaged_weights_are_reported_and_restored_from_the_newest_checkpoint(run_copy, capsys):
    path = run_copy / "model.safetensors"
    os.truncate(path, path.stat().st_size // 2)
    status, lines = run_failing(capsys, "predict", run_copy, "a")
    assert status == 2
    assert lines[0].startswith(f"error: {path}: the weights cannot be read: ")
    assert lines[1].endswith(f"seqwise train --resume {run_copy}")
    assert main(["train", "--resume", str(run_copy)]) == 0
    assert "the newest are used instead" in capsys.readouterr().err
    assert main(["predict", str(run_copy), "a", "--max-length", "3"]) == 0


def test_changed_data_is_rejected(finished_run, run_copy, book, capsys):
    content = yaml.safe_load((run_copy / "config.yaml").read_text())
    changed = run_copy.parent / "book.txt"
    changed.write_text(book.read_text().replace("small", "large"))
    content["run"]["data"] = str(changed)
    (run_copy / "config.yaml").write_text(yaml.safe_dump(content))
    status, lines = run_failing(capsys, "train", "--resume", run_copy)
    assert status == 2
    assert lines == [
        f"error: {changed} is not the data this run was started with.",
        "Put the original file back, or start a new run.",
    ]


def test_an_incomplete_line_of_metrics_is_skipped(run_copy):
    rows = Run.open(run_copy).read_metrics()
    with (run_copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5000, "validation": {"loss": 1.0}')
    run = Run.open(run_copy)
    assert run.read_metrics() == rows
    run.drop_metrics_after(rows[-2]["step"])
    assert [json.loads(line) for line in (run_copy / "metrics.jsonl").read_text().splitlines()] == rows[:-1]


def test_a_run_is_never_overwritten(finished_run, book, tmp_path, capsys):
    before = {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}
    status, lines = run_failing(capsys, "train", book, *OPTIONS, "--out", finished_run)
    assert status == 2
    assert lines == [
        f"error: {finished_run} already contains a run.",
        f"Resume it: seqwise train --resume {finished_run}",
        "Or name another folder with --out.",
    ]
    assert before == {path: path.read_bytes() for path in finished_run.rglob("*") if path.is_file()}


def test_a_folder_with_other_files_is_left_alone(book, tmp_path, capsys):
    (tmp_path / "README.md").write_text("mine")
    status, lines = run_failing(capsys, "train", book, *OPTIONS, "--out", tmp_path)
    assert status == 2
    assert lines[0] == f"error: {tmp_path} is not an empty folder."
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    "choose_limit", [lambda sizes: min(sizes) - 1, lambda sizes: max(sizes) - 1], ids=["all", "one"]
)
def test_a_run_folder_that_cannot_be_completed_is_removed(book, tmp_path, capsys, choose_limit):
    """A limit on file size stops the first files of the folder, as a full disk does."""
    main(["train", str(book), *OPTIONS, "--out", str(tmp_path / "first")])  # the tokens are cached now
    sizes = [(tmp_path / "first" / name).stat().st_size for name in ("config.yaml", "tokenizer.json", "env.json")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (choose_limit(sizes), before[1]))
    try:
        status, lines = run_failing(capsys, "train", book, *OPTIONS, "--out", tmp_path / "second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert status == 1
    assert str(tmp_path / "second") in lines[0]
    assert lines[1] == "Name another folder with --out."
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


@pytest.mark.parametrize("name", ["task", "model", "width", "depth"])
def test_a_setting_without_which_the_weights_do_not_fit_is_named(run_copy, name):
    path = run_copy / "config.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.strip().startswith(f"{name}:")))
    with pytest.raises(RunError, match=f"config.yaml: '(network.)?{name}' is missing from the settings file"):
        Run.open(run_copy)


@pytest.mark.parametrize("value", ["3", "true", "text", "[width, depth]"])
def test_a_network_that_is_no_mapping_is_refused(run_copy, value):
    content = yaml.safe_load((run_copy / "config.yaml").read_text())
    content["network"] = yaml.safe_load(value)
    (run_copy / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(RunError, match=r"config\.yaml: 'network\.width' is missing from the settings file"):
        Run.open(run_copy)
