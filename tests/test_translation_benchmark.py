"""The benchmark of beam search runs both sides on the same work, where the peer is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

FILE = Path(__file__).parents[1] / "benchmarks" / "translation.py"


@pytest.fixture(scope="module")
def translation():
    spec = importlib.util.spec_from_file_location("benchmarks_translation", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    module.ROWS = (module.Row("tiny", 1, 16, 2, 300, sentences=6),)
    module.BATCHES = (4,)
    yield module
    del sys.modules[spec.name]


def test_both_sides_write_the_same_and_the_ratios_are_reported(translation, capsys):
    pytest.importorskip("transformers")
    translation.main(["--repeats", "1", "--threads", str(torch.get_num_threads()), "--json"])
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert row["same"] == row["sentences"] == 6
    assert report["worst"] == row["ratio"] > 0
    assert row["sorted_ratio"] > 0
    assert row["ratio"] == pytest.approx(row["peer_seconds"] / row["ours_seconds"])


@pytest.mark.parametrize(("ratios", "status"), [((3.1, 3.0), 0), ((5.0, 2.9), 0), ((2.9, 5.0), 1)])
def test_the_ratio_on_the_same_batch_decides(translation, monkeypatch, ratios, status):
    result = {"ratio": ratios[0], "sorted_ratio": ratios[1]}
    monkeypatch.setattr(translation, "compare", lambda *_: [result])
    assert translation.main(["--threads", str(torch.get_num_threads())]) == status


def test_translations_have_the_lengths_that_are_asked_for(translation):
    row = translation.ROWS[0]
    work = translation.draw(row)
    found = translation.in_batches(translation.Ours(row).translate, work, 4)
    assert [len(ids) for ids in found] == work.lengths
    assert len(set(work.lengths)) > 1
