"""The benchmark of training speed runs, and compares models of the same size."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seqwise.data.batch import Batch

PATH = Path(__file__).parents[1] / "benchmarks" / "language.py"


@pytest.fixture(scope="module")
def language():
    spec = importlib.util.spec_from_file_location("benchmarks_language", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def tiny(language, monkeypatch):
    """The same rows with tiny shapes."""
    rows = tuple(replace(row, depth=2, width=8, vocabulary=20, rows=3, window=5) for row in language.ROWS)
    monkeypatch.setattr(language, "ROWS", rows)
    return language


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_every_row_is_measured_and_reported_as_json(tiny, capsys):
    status = tiny.main(["--steps", "2", "--threads", str(torch.get_num_threads()), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in report["rows"]] == [row.name for row in tiny.ROWS]
    assert all(row["ours_tokens_per_second"] > 0 and row["peer_tokens_per_second"] > 0 for row in report["rows"])
    assert report["worst"] == min(row["ratio"] for row in report["rows"])
    assert status == (report["worst"] < 0.95)
    assert report["machine"]["packages"]["torch"] is not None


def test_the_table_has_a_line_per_row(tiny, capsys):
    tiny.main(["--steps", "1", "--threads", str(torch.get_num_threads()), "--rows", "lstm-words", "transformer-rotary"])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["ours", "peer", "tokens/s", "ratio", "cpu", "ratio"]
    assert first.startswith("transformer 2×8, V 20, B 3, T 5, rotary")
    assert second.startswith("lstm        2×8, V 20, B 3, T 5 ")


def test_transformer_and_peer_have_the_same_number_of_weights(tiny):
    row = tiny.ROWS[0]
    ours = tiny.LanguageModel(tiny.settings_of(row), row.vocabulary)
    assert parameters(ours) == parameters(tiny.PlainGPT(row))


def test_lstm_and_peer_give_the_same_loss_on_the_same_weights(tiny):
    row = next(row for row in tiny.ROWS if row.model == "lstm")
    ours, peer = tiny.LanguageModel(tiny.settings_of(row), row.vocabulary), tiny.PlainLSTM(row)
    second_biases = row.depth * 4 * row.width  # nn.LSTM has two biases per gate that are only ever added
    assert parameters(ours) == parameters(peer) - second_biases
    with torch.no_grad():
        peer.tokens.weight.copy_(ours.embedding.weight)
        peer.head.bias.copy_(ours.head.output.bias)
        for depth, layer in enumerate(ours.backbone.deep.layer):
            getattr(peer.lstm, f"weight_ih_l{depth}").copy_(layer.cell.weight_input)
            getattr(peer.lstm, f"weight_hh_l{depth}").copy_(layer.cell.weight_hidden)
            getattr(peer.lstm, f"bias_ih_l{depth}").copy_(layer.cell.bias)
            getattr(peer.lstm, f"bias_hh_l{depth}").zero_()
    ids, targets = torch.randint(20, (2, 3, 5)).unbind()
    loss, _ = ours(Batch(ids, targets))
    assert (loss.total / loss.count).item() == pytest.approx(peer(ids, targets, None)[0].item(), rel=1e-5)


@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_both_learn(tiny, tmp_path, model):
    row = next(row for row in tiny.ROWS if row.model == model)
    store = tiny.write_store(tmp_path / "store", row, batches=4)
    ready = [(batch.ids, batch.targets) for batch in tiny.batches_of(row, store).epoch(0)]
    ready = [pair for pair in ready if pair[0].shape == (row.rows, row.window)]
    for steps in (tiny.our_steps(row, store), tiny.plain_steps(row, ready)):
        losses = [loss for loss, _ in zip(steps, range(60))]
        assert all(map(math.isfinite, losses))
        assert sum(losses[-4:]) < sum(losses[:4]) - 0.2
