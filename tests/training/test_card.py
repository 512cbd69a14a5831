"""The model card describes the run, and its commands work."""

from __future__ import annotations

import re
import shlex
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
from used_settings import keep_used

import seqwise
from seqwise.cli.main import main
from seqwise.training.card import _describe_validation, build_model_card
from seqwise.training.run import Run
from seqwise.training.step import TrainerState

SMALL = {
    "budget": "1k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 1},
    "training": {"batch_size": 4, "validate_every": 5},
    "data": {"window": 16},
}


@pytest.fixture(scope="module", params=["lstm", "ngram"])
def trained_model(request, book, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "plain"
    return seqwise.train(book, out=out, settings=keep_used(SMALL, model=request.param))


def test_the_card_names_task_data_split_and_validation(trained_model, book):
    card = (trained_model.run.folder / "README.md").read_text()
    best = min(row["validation"]["perplexity"] for row in trained_model.run.read_metrics() if row.get("validation"))
    assert card.startswith(f"# {trained_model.settings.model}, language\n")
    assert f"- data: `{book}` (fingerprint `{trained_model.run.metadata.fingerprint}`)" in card
    assert "- split: the end of the text is held out" in card
    assert "- vocabulary of text: characters, 22 tokens, learned from the training split" in card
    assert re.search(rf"^- validation perplexity at the best step \(\d[\d,]*\): {best:.4g}$", card, re.MULTILINE)


def test_the_card_reports_the_metric_of_the_best_step_even_if_another_step_has_a_better_one(trained_model, monkeypatch):
    """The best step is that of the smallest loss; its BLEU need not be the largest."""
    rows = [
        {"step": step, "tokens": step, "seconds": 1.0, "validation": {"loss": loss, "bleu": score}}
        for step, loss, score in ((10, 2.0, 30.0), (20, 1.0, 20.0))
    ]
    monkeypatch.setattr(trained_model.run, "read_metrics", lambda: rows)
    task = SimpleNamespace(primary_metric=("bleu", "BLEU"), unit="tokens")
    card = build_model_card(trained_model.run, task, "small", TrainerState(step=20))
    assert "- validation bleu at the best step (20): 20\n" in card


def test_the_commands_of_the_card_can_be_run(trained_model, capsys):
    card = (trained_model.run.folder / "README.md").read_text()
    commands = [shlex.split(line)[1:] for line in card.splitlines() if line.startswith(("seqwise ev", "seqwise pr"))]
    assert len(commands) == 2
    assert [main(arguments) for arguments in commands] == [0, 0]


def test_no_setting_is_shown_as_none(trained_model):
    assert "None" not in (trained_model.run.folder / "README.md").read_text()


def test_the_card_of_a_stopped_run_says_that_its_training_is_not_complete(book, tmp_path):
    def train_until(number, **arguments):
        def stop(step):
            if step.number == number:
                signal.raise_signal(signal.SIGINT)

        model = seqwise.train(on_step=stop, **arguments)
        (line,) = re.findall(r"^- trained: (.*)$", (model.run.folder / "README.md").read_text(), re.MULTILINE)
        assert ("the training is not complete" in repr(model)) is ("the training is not complete" in line)
        return line

    out = tmp_path / "run"
    stopped = train_until(3, data=book, model="gru", settings=SMALL, out=out)
    assert re.fullmatch(r"256 tokens in \d+ s, 4 updates; the training is not complete", stopped)
    card = (out / "README.md").read_text()
    assert f"\nseqwise train --resume {out}\n" in card
    assert "seqwise evaluate" not in card
    complete = train_until(None, resume=out)
    assert re.fullmatch(r"1,000 tokens in \d+ s, 16 updates; the budget is spent", complete)
    assert "--resume" not in (out / "README.md").read_text()
    # Neither the row of the earlier end nor its summary is that of the whole training.
    continued = train_until(18, resume=out, budget="64k-tokens")
    assert re.fullmatch(r"1,\d{3} tokens in \d+ s, 19 updates; the training is not complete", continued)
    assert "- time:" not in (out / "README.md").read_text()
    assert Run.open(out).load_summary() is not None


def test_a_validation_of_the_whole_split_is_no_power_of_ten(trained_model):
    run = trained_model.run
    summary = run.load_summary()
    row = {"step": 1, "validation": {"loss": 1.0, "perplexity": 2.0}}
    fake = SimpleNamespace(read_metrics=lambda: [row])
    for final, text in (
        (1.0, "on all of the split: 3"),
        (0.997, "on 99% of the split: 3"),
        (0.25, "on 25% of the split: 3"),
    ):
        changed = replace(summary, final=final, validation={"loss": 1.1, "perplexity": 3.0})
        (line,) = _describe_validation(fake, changed, trained_model.task)
        assert line.endswith(text)
