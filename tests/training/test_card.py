"""The model card says what the run is, and its commands work."""

from __future__ import annotations

import shlex

import pytest

import seqwise
from seqwise.cli.main import main

SMALL = {
    "budget": "1k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 1},
    "training": {"batch": 4},
    "data": {"window": 16},
}


@pytest.fixture(scope="module", params=["lstm", "ngram"])
def trained(request, book, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "plain"
    return seqwise.train(book, out=out, settings=SMALL, model=request.param)


def test_it_names_task_data_split_and_validation(trained, book):
    card = (trained.run.folder / "README.md").read_text()
    best = min(row["validation"]["perplexity"] for row in trained.run.metrics() if row.get("validation"))
    assert card.startswith(f"# {trained.settings.model}, language\n")
    assert f"- data: `{book}` (fingerprint `{trained.run.origin.fingerprint}`)" in card
    assert "- split: the end of the text is held out" in card
    assert "- vocabulary of text: characters, 22 tokens, learned from the training split" in card
    assert f"best validation perplexity: {best:.4g}, at step" in card


def test_its_commands_can_be_run(trained, capsys):
    card = (trained.run.folder / "README.md").read_text()
    commands = [shlex.split(line)[1:] for line in card.splitlines() if line.startswith(("seqwise ev", "seqwise pr"))]
    assert len(commands) == 2
    assert [main(words) for words in commands] == [0, 0]


def test_no_setting_is_shown_as_none(trained):
    assert "None" not in (trained.run.folder / "README.md").read_text()
