"""The benchmark of beam search gives both implementations the same inputs, where transformers is installed."""

from __future__ import annotations

import json

import pytest
import torch


@pytest.fixture
def translation(benchmark_script, monkeypatch):
    module = benchmark_script("translation")
    monkeypatch.setattr(module, "ROWS", (module.Row("tiny", 1, 16, 2, 300, sentences=6),))
    monkeypatch.setattr(module, "BATCH_SIZES", (4,))
    return module


def test_both_implementations_agree_and_the_ratios_are_reported(translation, capsys):
    pytest.importorskip("transformers")
    translation.main(["--repeats", "1", "--threads", str(torch.get_num_threads()), "--json"])
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert row["identical"] == row["sentences"] == 6
    assert row["ratio"] > 0
    assert len(report["missed"]) == (row["ratio"] < translation.MIN_RATIO)
    assert row["sorted_ratio"] > 0
    assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seqwise_seconds"])


@pytest.mark.parametrize(("ratios", "missed"), [((3.1, 3.0), 0), ((5.0, 2.9), 0), ((2.9, 5.0), 1)])
def test_the_ratio_with_the_same_batch_is_required(translation, ratios, missed):
    row = {"name": "tiny", "ratio": ratios[0], "sorted_ratio": ratios[1]}
    assert len(translation.check_rows([row])) == missed


def test_translations_have_the_prescribed_lengths(translation):
    row = translation.ROWS[0]
    inputs = translation.generate_inputs(row)
    translations = translation.translate_in_batches(translation.TranslationModel(row).translate, inputs, 4)
    assert [len(ids) for ids in translations] == inputs.lengths
    assert len(set(inputs.lengths)) > 1
