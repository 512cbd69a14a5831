"""The benchmarks of training speed, memory and reading run, and fail if a requirement is not met."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seqwise.data.batch import TokenBatch


@pytest.fixture(scope="module")
def language(benchmark_script):
    return benchmark_script("language")


@pytest.fixture(scope="module")
def memory(benchmark_script):
    return benchmark_script("memory")


@pytest.fixture
def tiny_language(language, monkeypatch):
    """The script with the same rows of tiny sizes."""
    rows = tuple(replace(row, depth=2, width=8, vocabulary=20, batch_size=3, window=5) for row in language.ROWS)
    monkeypatch.setattr(language, "ROWS", rows)
    return language


def count_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_every_row_is_measured_and_reported_as_json(tiny_language, capsys):
    tiny_language.main(["--repeats", "2", "--device", "cpu", "--threads", str(torch.get_num_threads()), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in report["rows"]] == [row.name for row in tiny_language.ROWS]
    assert all(row["tokens_per_second"] > 0 and row["baseline_tokens_per_second"] > 0 for row in report["rows"])
    assert report["machine"]["packages"]["torch"] is not None


@pytest.mark.parametrize(("ratio", "status"), [(0.95, 0), (0.949, 1)])
def test_a_ratio_below_the_requirement_is_a_failure(language, monkeypatch, capsys, ratio, status):
    ratios = iter([1.2, ratio, 1.0])
    monkeypatch.setattr(language, "measure", lambda *_: {"ratio": next(ratios), "cpu_ratio": 2.0})
    rows = ["lstm-words", "transformer-rotary", "lstm-characters"]
    command = ["--rows", *rows, "--device", "cpu", "--threads", str(torch.get_num_threads()), "--json"]
    assert language.main(command) == status
    assert len(json.loads(capsys.readouterr().out)["missed"]) == status


def test_the_table_has_a_line_per_row(tiny_language, capsys):
    rows = ["--rows", "lstm-words", "transformer-rotary"]
    tiny_language.main(["--repeats", "1", "--device", "cpu", "--threads", str(torch.get_num_threads()), *rows])
    title, heading, first, second, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("language on ")
    assert heading.split() == ["tokens/s", "seqwise", "baseline", "ratio", "CPU", "ratio"]
    assert first.startswith("transformer 2×8, V 20, B 3, T 5, rotary")
    assert second.startswith("lstm        2×8, V 20, B 3, T 5 ")


def test_transformer_and_baseline_have_the_same_number_of_weights(tiny_language):
    row = tiny_language.ROWS[0]
    model = tiny_language.LanguageModel(tiny_language.build_settings(row), row.vocabulary)
    assert count_parameters(model) == count_parameters(tiny_language.PlainGPT(row))


def test_lstm_and_baseline_give_the_same_loss_on_the_same_weights(tiny_language):
    row = next(row for row in tiny_language.ROWS if row.model == "lstm")
    model, baseline = (
        tiny_language.LanguageModel(tiny_language.build_settings(row), row.vocabulary),
        tiny_language.PlainLSTM(row),
    )
    second_biases = row.depth * 4 * row.width  # nn.LSTM has two biases per gate, which are added
    assert count_parameters(model) == count_parameters(baseline) - second_biases
    with torch.no_grad():
        baseline.tokens.weight.copy_(model.embedding.weight)
        baseline.head.bias.copy_(model.head.output.bias)
        for depth, layer in enumerate(model.backbone.stack.layer):
            getattr(baseline.lstm, f"weight_ih_l{depth}").copy_(layer.cell.weight_input)
            getattr(baseline.lstm, f"weight_hh_l{depth}").copy_(layer.cell.weight_hidden)
            getattr(baseline.lstm, f"bias_ih_l{depth}").copy_(layer.cell.bias)
            getattr(baseline.lstm, f"bias_hh_l{depth}").zero_()
    ids, targets = torch.randint(20, (2, 3, 5)).unbind()
    loss, _ = model(TokenBatch(ids, targets))
    assert (loss.total / loss.count).item() == pytest.approx(baseline(ids, targets, None)[0].item(), rel=1e-5)


@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_both_implementations_reduce_the_loss(tiny_language, tmp_path, model):
    row = next(row for row in tiny_language.ROWS if row.model == model)
    store = tiny_language.write_store(tmp_path / "store", row, batches=4)
    batches = [(batch.ids, batch.targets) for batch in tiny_language.build_loader(row, store).epoch(0)]
    batches = [pair for pair in batches if pair[0].shape == (row.batch_size, row.window)]
    for training in (tiny_language.train_seqwise(row, store), tiny_language.train_baseline(row, batches)):
        losses = [loss for loss, _ in zip(training, range(60))]
        assert all(map(math.isfinite, losses))
        assert sum(losses[-4:]) < sum(losses[:4]) - 0.2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")
@pytest.mark.parametrize("method", ["streams", "windows", "memmap windows"])
def test_memory_is_measured_during_training_from_the_store(memory, monkeypatch, tmp_path, capsys, method):
    monkeypatch.setattr(memory, "BLOCK_TOKENS", 30_000)
    store = memory.write_tokens(tmp_path / "tokens", 100_000)
    memory.write_tokens(tmp_path / "tiny", 2 * memory.BATCH_SIZE * memory.WINDOW)
    assert store.count_tokens(memory.VOCABULARY).sum() == 100_000
    assert memory.main(["--method", method, "--folder", str(tmp_path), "--steps", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["method"] == method
    assert result["model_mb"] > 100  # PyTorch alone
    assert 0 <= result["counting_mb"] <= result["above_mb"]
    assert result["tokens_per_second"] > 0


@pytest.mark.parametrize(("above", "status"), [((600, 20, 5000), 0), ((20, 601, 30), 1)])
def test_more_memory_than_the_limit_is_a_failure_except_for_the_memory_map(memory, capsys, above, status):
    rows = [
        {"method": method, "model_mb": 300, "counting_mb": 0, "above_mb": mb, "tokens_per_second": 1}
        for method, mb in zip(memory.METHODS, above)
    ]
    assert memory.print_report(rows, 1000) == status
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["worst_mb"] == max(above[:2])


def test_the_checks_of_a_token_store_are_timed(capsys, benchmark_script):
    benchmark_script("reading").main(["--checks", "--quick", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 3
    assert rows[-1]["first"] > rows[-1]["again"] > 0


def test_reading_tokenizer_training_and_tokenisation_are_timed(monkeypatch, tmp_path, capsys, benchmark_script):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))  # restores the variable that the script sets
    benchmark_script("reading").main(["--characters", "20000", "--kinds", "characters", "words", "--json"])
    characters, words = json.loads(capsys.readouterr().out)["rows"]
    assert characters["tokens"] in (20_000, 20_001)  # a line end is added where the text has none
    assert 2_000 < words["tokens"] < 10_000
    assert min(row[step] for row in (characters, words) for step in ("opening", "training", "tokenizing")) > 0
