"""The benchmark of beam search runs both sides on the same work, where the peer is installed."""

from __future__ import annotations

import json

import pytest
import torch


@pytest.fixture
def translation(benchmark_script, monkeypatch):
    module = benchmark_script("translation")
    monkeypatch.setattr(module, "ROWS", (module.Row("tiny", 1, 16, 2, 300, sentences=6),))
    monkeypatch.setattr(module, "BATCHES", (4,))
    return module


def test_both_sides_write_the_same_and_the_ratios_are_reported(translation, capsys):
    pytest.importorskip("transformers")
    translation.main(["--repeats", "1", "--threads", str(torch.get_num_threads()), "--json"])
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert row["same"] == row["sentences"] == 6
    assert row["ratio"] > 0
    assert len(report["missed"]) == (row["ratio"] < translation.REQUIRED)
    assert row["sorted_ratio"] > 0
    assert row["ratio"] == pytest.approx(row["peer_seconds"] / row["ours_seconds"])


@pytest.mark.parametrize(("ratios", "missed"), [((3.1, 3.0), 0), ((5.0, 2.9), 0), ((2.9, 5.0), 1)])
def test_the_ratio_on_the_same_batch_decides(translation, ratios, missed):
    row = {"name": "tiny", "ratio": ratios[0], "sorted_ratio": ratios[1]}
    assert len(translation.missed_of([row])) == missed


def test_translations_have_the_lengths_that_are_asked_for(translation):
    row = translation.ROWS[0]
    work = translation.draw(row)
    found = translation.in_batches(translation.Ours(row).translate, work, 4)
    assert [len(ids) for ids in found] == work.lengths
    assert len(set(work.lengths)) > 1
