"""Comparisons in the studio: how far they have come, the order so far, reports of finished and unfinished ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_comparison import finished_comparison, make_plan, write_text
from unfinished_comparison import copy_outcome, cut_comparison

from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.live import gather_live_report
from seqwise.compare.run.jobs import Job, load_training
from seqwise.errors import UsageError
from seqwise.locks import lock_folder
from seqwise.studio.catalogue import Catalogue
from seqwise.studio.comparisons import ComparisonProgress, find_download, list_comparisons, load_report_data
from seqwise.studio.functions.comparisons import ReportRequest
from seqwise.studio.services import Services
from seqwise.studio.work.comparisons import gather
from seqwise.studio.worker import Context

GRU_SEED, RNN_SEED = "gru/seed-1", "rnn/seed-1"


def read_progress(folder: Path) -> ComparisonProgress:
    catalogue = Catalogue([folder.parent])
    catalogue.refresh()
    return ComparisonProgress(catalogue, catalogue.get(f"{folder.parent.name}/{folder.name}"))


def describe(folder: Path) -> dict[str, Any]:
    return read_progress(folder).describe()


def get_trial(values: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in values["trials"] if each["name"] == name)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A comparison in which the gru was trained with one of two seeds, and the rnn partly with its second one."""
    return cut_comparison(tmp_path / "runs" / "half", missing=[GRU_SEED], partly=[RNN_SEED])


def test_a_comparison_before_its_first_trial(tmp_path: Path):
    folder = tmp_path / "runs" / "new"
    plan = make_plan(folder, write_text(tmp_path / "small.txt"))
    values = describe(folder)
    assert values["state"] == "stopped"
    assert (values["num_done"], values["num_failed"], values["num_trials"]) == (0, 0, len(plan.list_trials()))
    assert values["best"] is None
    assert values["leader"] is None
    assert {each["state"] for each in values["trials"]} == {"waiting"}
    assert [(each["name"], each["done"]) for each in values["stages"]] == [
        ("speed", 0), ("learning rates", 0), ("training", 0), ("test", 0), ("latency", 0)
    ]  # fmt: skip
    report = gather_live_report(folder, plan)
    assert report.verdict is None
    assert {family.status for family in report.families} == {"waiting"}
    assert all(family.curves == () for family in report.families)


def test_half_of_a_comparison(half: Path):
    values = describe(half)
    assert values["state"] == "stopped"
    assert values["has_report"] is False
    assert values["downloads"] == []
    assert (get_trial(values, GRU_SEED)["state"], get_trial(values, RNN_SEED)["state"]) == ("waiting", "stopped")
    assert get_trial(values, GRU_SEED)["id"] is None
    done = get_trial(values, "gru/seed-0")
    assert (done["state"], done["progress"], done["is_tested"]) == ("finished", 1.0, False)
    assert done["id"] == "runs/half/trials/gru/seed-0"
    stages = {each["name"]: (each["done"], each["total"]) for each in values["stages"]}
    assert stages["training"] == (5, 7)  # rnn, gru and too-fast have two seeds, the n-gram model has one fit
    assert stages["test"] == (0, 5)  # those of too-fast failed


def test_the_order_so_far_is_by_validation_and_not_complete_seeds_count(half: Path):
    progress = read_progress(half)
    rows = {row["name"]: row for row in progress.rank_families()}
    first = load_training(half, progress.plan.get_trial("gru/seed-0")).result.validation
    assert (rows["gru"]["value"], rows["gru"]["num_seeds"], rows["gru"]["source"]) == (first, 1, "seeds")
    validations = [
        json.loads(line)["validation"]["perplexity"]
        for line in (half / "trials" / RNN_SEED / "metrics.jsonl").read_text().splitlines()
        if json.loads(line).get("validation")
    ]
    other = load_training(half, progress.plan.get_trial("rnn/seed-0")).result.validation
    assert rows["rnn"]["value"] == pytest.approx((other + min(validations)) / 2)
    values = [row["value"] for row in progress.rank_families() if row["source"] == "seeds"]
    assert values == sorted(values)
    assert len(values) == 3
    assert progress.find_leader()["name"] == progress.rank_families()[0]["name"]


def test_there_is_no_leader_before_two_families_are_validated(half: Path):
    for path in half.glob("trials/*/*.json"):
        if path.stem != "seed-0" or path.parent.name != "gru":
            path.unlink()
    for path in half.glob("trials/*/*/metrics.jsonl"):
        path.unlink()
    progress = read_progress(half)
    assert progress.rank_families()[0]["name"] == "gru"
    assert progress.find_leader() is None
    assert progress.summarize()["best"] is None


def test_equal_families_lead_together(half: Path):
    progress = read_progress(half)
    trials = [each for each in progress.trials if each.trial.family in ("gru", "rnn")]
    progress.trials = [type(each)(each.trial, each.outcome, each.test, each.run, 5.0) for each in trials]
    progress.plan = type(progress.plan)(**{
        **vars(progress.plan), "families": {name: progress.plan.families[name] for name in ("rnn", "gru")}
    })  # fmt: skip
    assert progress.find_leader()["names"] == ["rnn", "gru"]


def test_a_failed_trial_has_its_reason_and_does_not_lead(half: Path):
    values = describe(half)
    failed = get_trial(values, "too-fast/seed-0")
    assert failed["state"] == "failed"
    assert failed["reason"]
    row = values["ranking"][-1]
    assert (row["name"], row["source"], row["num_failed"]) == ("too-fast", "", row["num_trials"])
    assert row["reason"]


def test_a_comparison_runs_while_a_process_locks_it(half: Path):
    with lock_folder(half), lock_folder(half / "trials" / RNN_SEED):
        values = describe(half)
    assert values["state"] == "running"
    trial = get_trial(values, RNN_SEED)
    assert trial["state"] == "running"
    assert 0 < trial["progress"] < 1
    assert values["remaining"]
    assert describe(half)["state"] == "stopped"


def test_a_finished_comparison_has_its_report(tmp_path: Path):
    folder = finished_comparison(tmp_path / "runs" / "done")
    progress = read_progress(folder)
    values = progress.describe()
    assert (values["state"], values["has_report"]) == ("finished", True)
    assert values["downloads"] == ["report.html", "report.json"]
    written = json.loads((folder / "report.json").read_text())
    assert load_report_data(progress)["report"] == written
    best = written["verdict"]["best"]
    text = next(family["text"]["mean"] for family in written["families"] if family["name"] == best)
    assert values["best"] == {"name": best, "text": f"perplexity {text}"}
    assert all(each["done"] == each["total"] for each in values["stages"])


def test_a_report_that_lacks_a_trial_is_not_shown(tmp_path: Path):
    folder = finished_comparison(tmp_path / "runs" / "resumed")
    Job("train", "too-fast/seed-0").get_file(folder).unlink()  # as a resumed comparison repeats failed trials
    assert describe(folder)["state"] == "stopped"
    assert read_progress(folder).report is None


def test_a_report_is_not_shown_while_trials_run(tmp_path: Path):
    folder = finished_comparison(tmp_path / "runs" / "resumed")
    with lock_folder(folder):
        assert read_progress(folder).report is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"families": 3}'])
def test_a_damaged_report_counts_as_none(tmp_path: Path, content: str):
    folder = finished_comparison(tmp_path / "runs" / "damaged")
    (folder / "report.json").write_text(content)
    assert describe(folder)["state"] == "stopped"


def test_a_report_without_its_trials_is_shown(tmp_path: Path):
    folder = finished_comparison(tmp_path / "runs" / "copied")
    (folder / "trials").rename(tmp_path / "trials")
    assert describe(folder)["state"] == "finished"


def test_the_live_report_has_curves_of_trials_that_still_train(half: Path):
    report = gather_live_report(half, Plan.open(half))
    rnn = report.family("rnn")
    assert [curve.seed for curve in rnn.curves] == [0, 1]
    assert len(rnn.curves[1].points) < len(rnn.curves[0].points)
    assert rnn.status == "waiting"
    assert report.verdict is None
    statuses = {trial.name: trial.status for trial in report.trials}
    assert (statuses["gru/seed-0"], statuses[GRU_SEED], statuses["too-fast/seed-0"]) == ("done", "waiting", "failed")
    assert report.family("too-fast").status == "failed"


def test_a_verdict_before_the_end_is_called_provisional(half: Path, tmp_path: Path):
    done = finished_comparison(tmp_path / "done")
    for trial in ("gru/seed-0", "rnn/seed-0"):
        copy_outcome(done, half, Job("test", trial))
    report = gather_live_report(half, Plan.open(half))
    assert report.verdict is not None
    assert report.verdict.sentences[0] == "Provisional: 2 of 7 models are evaluated on the test split."
    assert report.family("gru").mean is not None
    assert report.family("gru").status == "partly"


def test_colours_of_variants_stay_the_same_from_the_plan_to_the_report(half: Path, tmp_path: Path):
    done = finished_comparison(tmp_path / "runs" / "done")
    expected = {each["name"]: each["style"] for each in describe(half)["families"]}
    live = gather(Context(lambda event: None), str(half))
    for data in (live, load_report_data(read_progress(done))):
        names = [family["name"] for family in data["report"]["families"]]
        assert dict(zip(names, data["styles"], strict=True)) == expected


def test_the_list_has_every_comparison_and_the_problem_of_a_damaged_one(half: Path):
    damaged = half.parent / "damaged"
    damaged.mkdir()
    (damaged / "compare.yaml").write_text("families: 3\n")
    catalogue = Catalogue([half.parent])
    catalogue.refresh()
    rows = {row["id"]: row for row in list_comparisons(catalogue)}
    assert set(rows) == {"runs/half", "runs/damaged"}
    assert rows["runs/damaged"]["state"] == "failed"
    assert "not the plan of a comparison" in rows["runs/damaged"]["problem"]


def test_a_run_is_not_a_comparison(half: Path):
    catalogue = Catalogue([half.parent])
    catalogue.refresh()
    with pytest.raises(UsageError, match="is a run, not a comparison"):
        ComparisonProgress(catalogue, catalogue.get("runs/half/trials/gru/seed-0"))


@pytest.mark.parametrize("name", ["compare.yaml", "../done/report.json", "/etc/passwd", "", "trials", "workers.log"])
def test_only_the_report_can_be_downloaded(tmp_path: Path, name: str):
    progress = read_progress(finished_comparison(tmp_path / "runs" / "done"))
    assert find_download(progress.catalogue, progress.entry, name) is None
    assert find_download(progress.catalogue, progress.entry, "report.json") is not None


def test_a_link_is_not_downloaded(tmp_path: Path):
    folder = finished_comparison(tmp_path / "runs" / "done")
    (tmp_path / "secret").write_text("secret")
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(tmp_path / "secret")
    progress = read_progress(folder)
    assert find_download(progress.catalogue, progress.entry, "report.html") is None
    assert progress.describe()["downloads"] == ["report.json"]


def test_a_request_names_the_folder_of_a_known_comparison(half: Path):
    services = Services.create([half.parent])
    services.catalogue.refresh()
    assert ReportRequest(run="runs/half").resolve(services) == {"run": str(half)}
    with pytest.raises(UsageError, match="there is no run"):
        ReportRequest(run="../half").resolve(services)


def test_progress_and_reports_need_no_pytorch():
    code = "import sys, seqwise.studio.app, seqwise.studio.work.comparisons; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=os.environ).returncode == 0
