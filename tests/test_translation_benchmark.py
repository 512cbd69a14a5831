"""The benchmark of beam search gives both implementations the same inputs, where transformers is installed."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn


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


def build_attention(width: int) -> nn.ModuleDict:
    return nn.ModuleDict({f"{name}_proj": nn.Linear(width, width) for name in ("q", "k", "v", "out")})


def build_marian(row, max_length: int) -> nn.Module:
    """Returns modules with the names of Marian's, for machines without transformers."""
    width, marian = row.width, nn.Module()
    marian.model = nn.ModuleDict({"shared": nn.Embedding(row.vocabulary, width)})
    for name, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        layer = nn.ModuleDict({attention: build_attention(width) for attention in attentions})
        for norm in (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm"):
            layer[norm] = nn.LayerNorm(width)
        layer.update({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})
        positions = nn.Embedding(max_length, width)
        marian.model[name] = nn.ModuleDict({"embed_positions": positions, "layers": nn.ModuleList([layer])})
    return marian


def test_the_cross_attention_of_both_implementations_has_the_same_weights(translation):
    row = translation.ROWS[0]
    model, marian = translation.TranslationModel(row), build_marian(row, translation.MAX_LENGTH)
    translation.share_weights(model, marian)
    (layer,), (expected,) = model.token_decoder.decoder.decoder.layer, marian.model.decoder.layers
    assert torch.equal(layer.cross_attention.out_proj.weight, expected.encoder_attn.out_proj.weight)
    assert torch.equal(layer.cross_attention.in_proj.weight[: row.width], expected.encoder_attn.q_proj.weight)


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
