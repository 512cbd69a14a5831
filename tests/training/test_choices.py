"""Which settings were chosen by rule, and why."""

from __future__ import annotations

import json

import pytest

import seqwise
from seqwise.config import FAMILIES, TASKS, Settings
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.training.choices import explain_reading

CAPTION = {"encoder": "convolutional", "image_size": 32, "frames": False}


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_every_rule_gives_a_reason(task, cuda):
    context = DefaultsContext(90_000, 2_000, cuda, 2, num_examples=900, max_length=70, vector_width=50, bfloat16=True)
    for family in FAMILIES:
        if family != "ngram":
            settings = Settings(task=task, model=family, caption=CAPTION)
            _, reasons = resolve(settings, context)
            assert len(reasons) > 8
            assert [name for name, reason in reasons.items() if not reason and name != "tag.crf"] == []


def test_a_run_saves_the_reasons_for_what_its_user_did_not_set(book, tmp_path):
    settings = {"network": {"width": 16}, "training": {"batch_size": 4}}
    run = seqwise.train(
        book, task="language", model="gru", budget="200-tokens", out=tmp_path / "run", settings=settings, device="cpu"
    ).run
    choices = json.loads((run.folder / "choices.json").read_text())
    assert choices["text.tokenizer"] == "characters, because the text is smaller than 2 MB"
    assert "training tokens on a CPU" in choices["data.window"]
    assert choices["network.embedding"] == "the width of the network"
    assert not {"network.width", "training.batch_size", "task", "model", "budget"} & choices.keys()
    assert not any(name.startswith(("forecast.", "caption.", "transformer.")) for name in choices)


def test_settings_that_the_data_decides_are_explained():
    prepared = Settings(horizon=12, forecast={"season": 12, "lookback": 42, "time": "month"})
    choices = explain_reading(Settings(), prepared, ["season: 12 steps, by the timestamps (step: month)."])
    assert choices["forecast.season"] == "12 steps, by the timestamps (step: month)"
    assert choices["horizon"].startswith("one season")
    assert choices["forecast.time"] == "from the data"
    inherited = explain_reading(Settings(init="runs/a"), Settings(init="runs/a", network={"width": 7}), [])
    assert inherited == {"network.width": "from the run runs/a"}
