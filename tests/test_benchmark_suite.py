"""The benchmarks compare equivalent implementations, record failures and check their requirements."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator

import pytest
import torch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recurrent(benchmark_script):
    return benchmark_script("recurrent")


@pytest.fixture(scope="module")
def loss(benchmark_script):
    return benchmark_script("loss")


@pytest.fixture(scope="module")
def transformer(benchmark_script):
    return benchmark_script("transformer")


def list_arguments(*more: str) -> list[str]:
    """Returns command-line arguments for a short run on the CPU."""
    return ["--device", "cpu", "--quick", "--repeats", "1", "--threads", str(torch.get_num_threads()), *more]


# ---- recurrent layers


def test_both_implementations_have_the_same_outputs_and_gradients(recurrent):
    Row = recurrent.Row
    rows = [
        Row(cell, 12, 3, 8, kind=kind) for cell in recurrent.CELLS for kind in ("layer", "bidirectional", "lengths")
    ]
    rows += [Row(cell, 5, 3, 8, variant="layer norm", baseline="loop") for cell in recurrent.CELLS]
    rows.append(Row("gru", 5, 3, 8, variant="reset before", baseline="loop"))
    for row in rows:
        seqwise, baseline = recurrent.build_implementations(row, CPU).values()
        for output, expected in zip(seqwise.compute_results(), baseline.compute_results(), strict=True):
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
        assert recurrent.compare_implementations(row, CPU) < 1e-4
        grad_x, *gradients = seqwise.forward_backward()
        expected_grad_x, *expected_gradients = baseline.forward_backward()
        if not baseline.batch_first:
            expected_grad_x = expected_grad_x.transpose(0, 1)
        torch.testing.assert_close(grad_x, expected_grad_x, rtol=1e-3, atol=1e-4)
        if baseline.module is not seqwise.module:
            names = (name for name, _ in baseline.module.named_parameters())
            by_name = dict(zip(names, expected_gradients, strict=True))
            expected_gradients = list(convert_gradients(by_name, row.cell, row.units))
        assert len(gradients) == len(list(seqwise.module.parameters())) == len(expected_gradients)
        for gradient, expected in zip(gradients, expected_gradients):
            torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)


def convert_gradients(gradients: dict[str, torch.Tensor], cell: str, units: int) -> Iterator[torch.Tensor]:
    """Yields PyTorch's gradients in the order of our parameters: only a GRU's candidate has a second bias."""
    for suffix in (name.removeprefix("weight_ih") for name in gradients if name.startswith("weight_ih")):
        yield from (gradients[f"weight_ih{suffix}"], gradients[f"weight_hh{suffix}"], gradients[f"bias_ih{suffix}"])
        if cell == "gru":
            yield gradients[f"bias_hh{suffix}"][2 * units :]


def test_lengths_are_sorted_and_padding_is_zero(recurrent):
    row = recurrent.Row("gru", 30, 6, 4, kind="lengths")
    lengths = recurrent.draw_lengths(row)
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
    assert lengths[0] == 30
    assert lengths.min() >= 10
    output, _ = recurrent.build_implementations(row, CPU)["baseline"].compute_results()
    assert all(not output[i, n:].any() for i, n in enumerate(lengths.tolist()))


def test_the_relative_error_of_nan_is_infinite(recurrent):
    assert recurrent.compute_relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)
    assert recurrent.compute_relative_error(torch.tensor([math.nan]), torch.ones(1)) == math.inf


def test_required_ratios_and_times_are_those_of_the_row_and_its_baseline(recurrent):
    rows = recurrent.list_rows("cuda", quick=False)
    descriptions = {(str(row), row.baseline): recurrent.describe_row(row) for row in rows}
    assert len(descriptions) == len(rows)
    assert descriptions["lstm 512×64×512 bf16", "pytorch"]["min_ratio"] == 2.0
    assert descriptions["lstm 512×64×512 bf16", "pytorch"]["max_us"] == 26.1
    assert descriptions["lstm 512×64×512 bf16", "loop"]["min_ratio"] is None
    assert descriptions["rnn 512×256×1024 bf16", "pytorch"]["min_ratio"] == 1.0
    assert descriptions["lstm bidirectional 512×64×512 bf16", "pytorch"]["min_ratio"] == 2.5
    assert descriptions["gru reset before 512×64×512 bf16", "reset after"]["min_ratio"] == pytest.approx(1 / 1.8)
    assert descriptions["lstm 512×64×512 fp32", "pytorch"]["min_ratio"] is None


def build_row(**changes: object) -> dict[str, object]:
    description = {
        "name": "x",
        "min_ratio": 2.0,
        "max_us": 10.0,
        "baseline": "pytorch",
        "group": "gru",
        "dtype": "float32",
    }
    times = {"ratio": 2.0, "seqwise_us": 10.0, "forward_ratio": 1.0}
    return {**description, **times, "memory": 5, "memory_baseline": 5, "relative_error": 0.001, **changes}


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, 0),
        ({"ratio": 1.9}, 1),
        ({"seqwise_us": 10.1}, 1),
        ({"memory": 6}, 1),
        ({"relative_error": 0.02}, 1),
        ({"failed": "no", "ratio": 0}, 0),
    ],
)
def test_each_missed_gpu_requirement_is_reported(recurrent, changes, missed):
    assert len(recurrent.check_gpu([build_row(**changes)])) == missed


def test_cpu_requirements_are_a_median_and_a_minimum_ratio(recurrent):
    rows = [build_row(ratio=ratio) for ratio in (0.97, 1.2, 5.0)]
    assert recurrent.check_cpu(rows) == []
    rows[1] = build_row(ratio=1.1)
    assert recurrent.check_cpu(rows) == ["gru: median ratio 1.100, required 1.2"]
    rows = [build_row(ratio=2.0), build_row(ratio=2.0, forward_ratio=0.9), build_row(ratio=0.5)]
    assert [line.split(":")[0] for line in recurrent.check_cpu(rows)] == ["x forward", "x"]


def test_a_recurrent_row_is_measured_and_reported(recurrent, monkeypatch, capsys):
    from seqwise.layers import scan

    monkeypatch.setattr(scan, "get_unavailable_reason", lambda device: "not here")
    recurrent.main(list_arguments("--rows", "rnn", "32x20×128", "--json"))
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["rnn 32×20×128 fp32", "rnn layer norm 32×20×128 fp32"]
    for row, backend in zip(rows, ("aten", "reference")):
        assert row["ratio"] == pytest.approx(row["baseline_us"] / row["seqwise_us"])
        assert row["relative_error"] < 1e-5
        assert row["backend"] == backend
        assert min(row["memory"], row["memory_baseline"], row["forward_us"]) > 0


# ---- the loss


def test_fused_and_eager_loss_have_the_same_value_and_gradients(loss, monkeypatch):
    monkeypatch.setitem(loss.kernel.MIN_SCORES, "cpu", 0)
    case = loss.Case(loss.Row(50, 12, 8), CPU)
    fused, eager = case.add_gradients(case.compute_fused)(), case.add_gradients(case.compute_eager)()
    for gradient, expected in zip(fused, eager, strict=True):
        torch.testing.assert_close(gradient, expected)
    assert case.targets.max() < 50


def test_a_chunk_size_is_measured_and_then_restored(loss, monkeypatch):
    monkeypatch.setitem(loss.kernel.MIN_SCORES, "cpu", 0)
    before = [dict(loss.kernel.MAX_SCORES), dict(loss.kernel.MIN_ROWS)]
    row = loss.measure_chunk(loss.Row(200, 64, 16), CPU, 1, chunk=1 << 8)
    assert before == [loss.kernel.MAX_SCORES, loss.kernel.MIN_ROWS]
    assert row["chunk"] == 2 * 200  # chunks of two rows, about 256 logits
    assert row["memory_ratio"] < 1  # logits of 2 rows at a time instead of 64
    assert row["relative_error"] < 1e-5


def test_the_chunk_size_is_that_of_the_backend(loss, monkeypatch):
    def compute_chunk_size(row, backend: str) -> int:
        monkeypatch.setattr(loss.kernel, "_choose_backend", lambda device, dtype: backend)
        return loss.compute_chunk_size(argparse.Namespace(row=row, device=CPU, dtype=getattr(torch, row.dtype)))

    assert compute_chunk_size(loss.Row(128_000, 8192, 768, "bfloat16"), "triton") == 768 * 128_000
    assert compute_chunk_size(loss.Row(10_000, 8192, 768, "bfloat16"), "triton") == 8192 * 10_000, (
        "all: the unfused functions"
    )
    assert compute_chunk_size(loss.Row(10_000, 8192, 768, "float32"), "triton") == 8192 * 10_000, "one chunk"
    assert compute_chunk_size(loss.Row(128_000, 8192, 768, "float32"), "plain") == 2048 * 128_000
    assert compute_chunk_size(loss.Row(10_000, 512, 256, "float32"), "cpu") == 512 * 10_000
    assert compute_chunk_size(loss.Row(32_000, 512, 256, "float32"), "cpu") == 256 * 32_000


def test_memory_and_time_are_required_at_one_vocabulary_size(loss):
    row = {
        "name": "x",
        "vocabulary": loss.REQUIRED_VOCABULARY,
        "dtype": "autocast",
        "memory_ratio": 0.1,
        "ratio": 1 / 1.2,
    }
    assert loss.check_gpu([row]) == []
    assert len(loss.check_gpu([{**row, "memory_ratio": 0.11}, {**row, "ratio": 0.8}])) == 2
    assert loss.check_gpu([{**row, "memory_ratio": 0.9, "vocabulary": 10_000}]) == []


# ---- the Transformer


@pytest.fixture
def tiny(transformer, monkeypatch):
    row = transformer.Row("tiny", "transformer", 2, 16, 20, 3, 8, "rotary")
    monkeypatch.setitem(transformer.ROWS, "cpu", row)
    return row


def test_variants_have_the_same_losses(transformer, tiny, tmp_path):
    names = ["trainer", "loop", "loop+eager", "loop+learned"]
    runs, losses = transformer.build_runs(tiny, names, CPU, 6, tmp_path)
    for _ in range(2):
        for run in runs.values():
            run()
    values = {name: [float(loss) for loss in losses[name]] for name in names}
    for name in names[1:3]:
        assert values[name] == pytest.approx(values["trainer"], rel=1e-5)
    assert values["loop+learned"][0] != pytest.approx(values["trainer"][0], rel=1e-6)
    assert len(losses["baseline"]) == 2


def test_an_unknown_variant_is_an_error(transformer):
    for variant in ("layers", "trainer+loop", "trainer+fast"):
        with pytest.raises(SystemExit, match="a variant is trainer or loop"):
            transformer.parse_variant(variant)


def test_an_unknown_variant_is_an_error_before_any_work(transformer, monkeypatch):
    monkeypatch.setattr(transformer, "set_up_device", lambda options: pytest.fail("too late"))
    with pytest.raises(SystemExit, match="a variant is trainer or loop"):
        transformer.main(list_arguments("--variants", "trainer", "trainer+fast"))


@pytest.mark.parametrize("broken", ["trainer+learned", "baseline"])
def test_a_failed_variant_is_recorded_and_the_others_are_measured(transformer, tiny, monkeypatch, capsys, broken):
    def fail(*_):
        raise ValueError("no such positions")

    train_seqwise = transformer.train_seqwise

    def fail_or_train(words, *rest):
        return (fail if "learned" in words else train_seqwise)(words, *rest)

    if broken == "baseline":
        monkeypatch.setattr(transformer, "train_baseline", fail)
    else:
        monkeypatch.setattr(transformer, "train_seqwise", fail_or_train)
    assert transformer.main(list_arguments("--json")) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0] == {"name": broken, "failed": "ValueError: no such positions"}
    assert {row["name"] for row in rows[1:]} == {"baseline", "trainer", "trainer+learned"} - {broken}
    assert all(row["tokens_per_second"] > 0 for row in rows[1:])


def test_speed_and_utilisation_of_one_variant_are_required(transformer):
    rows = [
        {"name": transformer.REQUIRED_VARIANT, "tokens_per_second": speed, "utilisation": utilisation}
        for speed, utilisation in [(514_000, 0.56), (513_999, 0.56), (514_000, 0.55)]
    ]
    assert transformer.check_rows(rows) == [
        f"{transformer.REQUIRED_VARIANT}: 513,999 tokens per second, required 514,000",
        f"{transformer.REQUIRED_VARIANT}: 0.550 of the matrix product, required 0.56",
    ]
    assert (
        transformer.check_rows(
            [{"name": "trainer", "tokens_per_second": 1}, {"name": transformer.REQUIRED_VARIANT, "failed": "x"}]
        )
        == []
    )


def test_the_transformer_table_has_the_baseline_and_the_variants(transformer, tiny, capsys):
    assert transformer.main(list_arguments("--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in report["rows"]] == ["baseline", "trainer", "trainer+learned"]
    assert report["rows"][0]["ratio"] == 1
    assert all(row["utilisation"] > 0 and math.isfinite(row["last_loss"]) for row in report["rows"])


def test_the_operations_per_token_match_the_published_rate(transformer):
    # 514,000 tokens per second are 440 TFLOP/s.
    assert 514_000 * transformer.count_flops_per_token(transformer.ROWS["cuda"]) / 1e12 == pytest.approx(440, rel=0.01)


# ---- recording


def test_recording_of_every_family_changes_no_output(benchmark_script, capsys):
    recording = benchmark_script("recording")
    assert recording.main(["--length", "8", "--width", "8", "--repeats", "1"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == list(recording.FAMILIES)
    assert all(row[-1] == "equal" for row in rows)
    operations = {row[0]: int(row[-2].replace(",", "")) for row in rows}
    assert operations["lstm"] == 2 * 16 * 8 * 8  # two layers of 16 k² per token
    assert operations["transformer"] == 2 * (24 * 8 * 8 + 4 * 8 * 8)  # 24 k² and 4 M k, with M = k = 8


# ---- decoding and cost


def test_cached_and_uncached_generation_agree(benchmark_script, monkeypatch, capsys):
    decoding = benchmark_script("decoding")
    rows = [
        decoding.Row(model, method, 2, 1, 16, 30, 5)
        for model in ("lstm", "transformer")
        for method in ("greedy", "beam")
    ]
    rows.append(decoding.Row("gru", "sampling", 2, 1, 16, 30, 5))
    monkeypatch.setattr(decoding, "list_rows", lambda device, quick: rows)
    monkeypatch.setattr(decoding, "build_transformers_generate", lambda row, device: None)
    assert decoding.main(list_arguments("--json")) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["agreement"] for row in rows] == [1.0, 1.0, 1.0, 1.0, None]
    assert all(row["cached_tokens_per_second"] > 0 for row in rows)
    assert ["plain_tokens_per_second" in row for row in rows] == [True, False, True, False, True]


@pytest.mark.parametrize("model", ["feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer"])
def test_a_plain_model_has_the_same_scores_token_by_token_and_at_once(model, benchmark_script):
    decoding = benchmark_script("decoding")
    row = decoding.Row(model, "greedy", 2, 1, 16, 30, 5)
    assert decoding.build_plain_loop(row, torch.device("cpu"))().shape == (2, 5)
    plain = decoding.build_plain_model(decoding.build_settings(row), 30).eval()
    ids = torch.randint(30, (2, 7))
    scores, state = plain(ids[:, :5], None)
    for token in ids[:, 5:].split(1, dim=1):
        scores, state = plain(token, state)
    torch.testing.assert_close(scores, plain(ids, None)[0])


def test_cached_generation_must_be_faster_and_agree(benchmark_script):
    decoding = benchmark_script("decoding")
    row = {"name": "x", "ratio": 1.0, "agreement": 0.98, "plain_ratio": 2.0, "required_plain_ratio": 2}
    assert decoding.check_rows([row, {**row, "agreement": None}]) == []
    assert (
        len(decoding.check_rows([{**row, "ratio": 0.9}, {**row, "agreement": 0.9}, {**row, "plain_ratio": 1.9}])) == 3
    )


def test_the_cost_of_every_family_is_measured_and_drawn(benchmark_script, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    cost = benchmark_script("cost")
    monkeypatch.setitem(cost.MIDDLE, "cpu", {"T": 4, "B": 2, "H": 8})
    monkeypatch.setitem(cost.POINTS, "cpu", {"T": (2, 4), "B": (1, 2), "H": (4, 8)})
    file, measured_sizes = tmp_path / "cost.json", []
    measure = cost.measure

    def record_and_measure(sizes, *rest):
        measured_sizes.append(tuple(sizes.values()))
        return measure(sizes, *rest)

    monkeypatch.setattr(cost, "measure", record_and_measure)
    assert cost.main(list_arguments("--json", str(file), "--chart", str(tmp_path / "cost.png"))) == 0
    rows = json.loads(file.read_text())["rows"]
    assert measured_sizes == [(2, 2, 8), (4, 2, 8), (4, 1, 8), (4, 2, 4)], "the common point is measured once"
    assert len({row["lstm"] for row in rows if (row["T"], row["B"], row["H"]) == (4, 2, 8)}) == 1
    assert [(row["axis"], row["T"], row["B"], row["H"]) for row in rows] == [
        ("T", 2, 2, 8), ("T", 4, 2, 8), ("B", 4, 1, 8), ("B", 4, 2, 8), ("H", 4, 2, 4), ("H", 4, 2, 8),
    ]  # fmt: skip
    assert all(row[family] > 0 for row in rows for family in cost.FAMILIES)
    assert cost.take_minimum({"rnn": 2.0, "gru": 3.0}, {"rnn": 1.0, "gru": 4.0}) == {"rnn": 1.0, "gru": 3.0}
    cost.main(["--draw", str(file), "--chart", str(tmp_path / "again.svg")])
    assert (tmp_path / "cost.png").stat().st_size > 10_000
    assert "</svg>" in (tmp_path / "again.svg").read_text()


def test_passes_keep_the_minimum_and_a_failed_point_affects_no_other(benchmark_script, monkeypatch, capsys):
    cost = benchmark_script("cost")
    monkeypatch.setitem(cost.MIDDLE, "cpu", {"T": 4, "B": 2, "H": 8})
    monkeypatch.setitem(cost.POINTS, "cpu", {"T": (2, 4), "B": (2,), "H": (4, 8)})
    # (T, B, H) → microseconds of the three passes; None makes the first pass fail with a TypeError
    measurements = {(2, 2, 8): [3.0, 2.0, 4.0], (4, 2, 8): [5.0, 6.0, 7.0], (4, 2, 4): [None]}

    def measure(sizes, *_):
        microseconds = measurements[tuple(sizes.values())].pop(0)
        return dict.fromkeys(cost.FAMILIES, microseconds / 1)

    monkeypatch.setattr(cost, "measure", measure)
    assert cost.main([argument for argument in list_arguments("--json") if argument != "--quick"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row.get("lstm") for row in rows] == [2.0, 5.0, 5.0, None, 5.0]
    assert rows[3]["failed"].startswith("TypeError")
