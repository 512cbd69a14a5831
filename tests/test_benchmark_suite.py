"""The benchmark suite measures what it says: peers that are equal, failures told, goals judged."""

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


def command(*more: str) -> list[str]:
    return ["--device", "cpu", "--quick", "--repeats", "1", "--threads", str(torch.get_num_threads()), *more]


# ---- recurrent layers


def test_both_sides_have_the_same_outputs_and_gradients(recurrent):
    Row = recurrent.Row
    rows = [Row(cell, 12, 3, 8, kind=kind) for cell in recurrent.CELLS for kind in ("layer", "both ways", "lengths")]
    rows += [Row(cell, 5, 3, 8, variant="layer norm", peer="loop") for cell in recurrent.CELLS]
    rows.append(Row("gru", 5, 3, 8, variant="reset before", peer="loop"))
    for row in rows:
        ours, peer = recurrent.sides_of(row, CPU).values()
        for mine, theirs in zip(ours.results(), peer.results(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        assert recurrent.apart(row, CPU) < 1e-4
        (of_our_x, *mine), (of_x, *theirs) = ours.both(), peer.both()
        torch.testing.assert_close(of_our_x, of_x if peer.batch_first else of_x.transpose(0, 1), rtol=1e-3, atol=1e-4)
        gradients = dict(zip((name for name, _ in peer.module.named_parameters()), theirs, strict=True))
        wanted = theirs if peer.module is ours.module else list(as_ours(gradients, row.cell, row.units))
        assert len(mine) == len(list(ours.module.parameters())) == len(wanted)
        for found, expected in zip(mine, wanted):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def as_ours(of: dict[str, torch.Tensor], cell: str, units: int) -> Iterator[torch.Tensor]:
    """PyTorch's gradients, scan by scan, as our cells have them: a GRU has a second bias in its candidate only."""
    for scan in (name.removeprefix("weight_ih") for name in of if name.startswith("weight_ih")):
        yield from (of[f"weight_ih{scan}"], of[f"weight_hh{scan}"], of[f"bias_ih{scan}"])
        if cell == "gru":
            yield of[f"bias_hh{scan}"][2 * units :]


def test_lengths_are_sorted_reach_all_steps_and_leave_padding_empty(recurrent):
    row = recurrent.Row("gru", 30, 6, 4, kind="lengths")
    lengths = recurrent.draw_lengths(row)
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
    assert lengths[0] == 30
    assert lengths.min() >= 10
    output, _ = recurrent.sides_of(row, CPU)["peer"].results()
    assert all(not output[i, n:].any() for i, n in enumerate(lengths.tolist()))


def test_a_distance_that_is_no_number_is_infinite(recurrent):
    assert recurrent.distance(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)
    assert recurrent.distance(torch.tensor([math.nan]), torch.ones(1)) == math.inf


def test_rows_of_the_gpu_bring_their_goals(recurrent):
    rows = recurrent.rows_of("cuda", quick=False)
    known = {(str(row), row.peer): recurrent.known_of(row) for row in rows}
    assert len(known) == len(rows)
    assert known["lstm 512×64×512 bf16", "pytorch"]["least"] == 2.0
    assert known["lstm 512×64×512 bf16", "pytorch"]["most"] == 26.1
    assert known["lstm 512×64×512 bf16", "loop"]["least"] is None
    assert known["rnn 512×256×1024 bf16", "pytorch"]["least"] == 1.0
    assert known["lstm both ways 512×64×512 bf16", "pytorch"]["least"] == 2.5
    assert known["gru reset before 512×64×512 bf16", "reset after"]["least"] == pytest.approx(1 / 1.8)
    assert known["lstm 512×64×512 fp32", "pytorch"]["least"] is None


def judged(**more: object) -> dict[str, object]:
    usual = {"name": "x", "least": 2.0, "most": 10.0, "ratio": 2.0, "ours": 10.0, "peer": "pytorch"}
    measured = {"memory_ours": 5, "memory_theirs": 5, "forward_ratio": 1.0, "apart": 0.001}
    return {**usual, **measured, "group": "gru", "dtype": "float32", **more}


@pytest.mark.parametrize(
    ("more", "missed"),
    [
        ({}, 0),
        ({"ratio": 1.9}, 1),
        ({"ours": 10.1}, 1),
        ({"memory_ours": 6}, 1),
        ({"apart": 0.02}, 1),
        ({"failed": "no", "ratio": 0}, 0),
    ],
)
def test_goals_on_the_gpu(recurrent, more, missed):
    assert len(recurrent.missed_on_gpu([judged(**more)])) == missed


def test_goals_on_the_cpu_are_a_median_and_never_slower(recurrent):
    rows = [judged(ratio=ratio) for ratio in (0.97, 1.2, 5.0)]
    assert recurrent.missed_on_cpu(rows) == []
    rows[1] = judged(ratio=1.1)
    assert recurrent.missed_on_cpu(rows) == ["gru: 1.100 times the peer in the median, not 1.2"]
    rows = [judged(ratio=2.0), judged(ratio=2.0, forward_ratio=0.9), judged(ratio=0.5)]
    assert [line.split(":")[0] for line in recurrent.missed_on_cpu(rows)] == ["x forward", "x"]


def test_a_recurrent_row_is_measured_and_told(recurrent, monkeypatch, capsys):
    from seqwise.layers import fused

    monkeypatch.setattr(fused, "get_unavailable_reason", lambda device: "not here")
    recurrent.main(command("--rows", "rnn", "32x20×128", "--json"))
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["rnn 32×20×128 fp32", "rnn layer norm 32×20×128 fp32"]
    for row, path in zip(rows, ("aten", "open")):
        assert row["ratio"] == pytest.approx(row["theirs"] / row["ours"])
        assert row["apart"] < 1e-5
        assert row["path"] == path
        assert min(row["memory_ours"], row["memory_theirs"], row["forward_ours"]) > 0


# ---- the loss


def test_the_losses_are_the_same_with_the_same_gradients(loss, monkeypatch):
    monkeypatch.setitem(loss.kernel.FEW, "cpu", 0)
    case = loss.Case(loss.Row(50, 12, 8), CPU)
    ours, eager = case.run(case.ours)(), case.run(case.eager)()
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert case.targets.max() < 50


def test_another_size_of_chunks_is_tried_and_put_back(loss, monkeypatch):
    monkeypatch.setitem(loss.kernel.FEW, "cpu", 0)
    before = [dict(loss.kernel.MOST), dict(loss.kernel.ROWS)]
    found = loss.measure_chunk(loss.Row(200, 64, 16), CPU, 1, chunk=1 << 8)
    assert before == [loss.kernel.MOST, loss.kernel.ROWS]
    assert found["chunk"] == 2 * 200  # rows of equal number, about 256 scores
    assert found["share"] < 1  # 2 rows of scores at a time instead of 64
    assert found["apart"] < 1e-5


def test_the_scores_at_a_time_are_those_of_the_way_that_is_taken(loss, monkeypatch):
    def told(row, way: str) -> int:
        monkeypatch.setattr(loss.kernel, "_way", lambda device, dtype: way)
        return loss.scores_at_a_time(argparse.Namespace(row=row, device=CPU, dtype=getattr(torch, row.dtype)))

    assert told(loss.Row(128_000, 8192, 768, "bfloat16"), "cuda") == 768 * 128_000
    assert told(loss.Row(10_000, 8192, 768, "bfloat16"), "cuda") == 8192 * 10_000, "all: the usual functions"
    assert told(loss.Row(10_000, 8192, 768, "float32"), "cuda") == 8192 * 10_000, "all fit into one piece"
    assert told(loss.Row(128_000, 8192, 768, "float32"), "plain") == 2048 * 128_000
    assert told(loss.Row(10_000, 512, 256, "float32"), "cpu") == 512 * 10_000
    assert told(loss.Row(32_000, 512, 256, "float32"), "cpu") == 256 * 32_000


def test_memory_and_time_are_both_required_at_one_vocabulary(loss):
    row = {"name": "x", "vocabulary": loss.GOAL, "dtype": "autocast", "share": 0.1, "ratio": 1 / 1.2}
    assert loss.missed_on_gpu([row]) == []
    assert len(loss.missed_on_gpu([{**row, "share": 0.11}, {**row, "ratio": 0.8}])) == 2
    assert loss.missed_on_gpu([{**row, "share": 0.9, "vocabulary": 10_000}]) == []


# ---- the Transformer


@pytest.fixture
def tiny(transformer, monkeypatch):
    row = transformer.Row("tiny", "transformer", 2, 16, 20, 3, 8, "rotary")
    monkeypatch.setitem(transformer.ROWS, "cpu", row)
    return row


def test_variants_compute_the_same_model(transformer, tiny, tmp_path):
    names = ["trainer", "loop", "loop+eager", "loop+learned"]
    runs, losses = transformer.runs_of(tiny, names, CPU, 6, tmp_path)
    for _ in range(2):
        for run in runs.values():
            run()
    same = {name: [float(loss) for loss in losses[name]] for name in names}
    for name in names[1:3]:
        assert same[name] == pytest.approx(same["trainer"], rel=1e-5)
    assert same["loop+learned"][0] != pytest.approx(same["trainer"][0], rel=1e-6)
    assert len(losses["peer"]) == 2


def test_an_unknown_variant_is_refused(transformer):
    for variant in ("layers", "trainer+loop", "trainer+fast"):
        with pytest.raises(SystemExit, match="a variant is trainer or loop"):
            transformer.words_of(variant)


def test_a_wrong_variant_is_refused_before_anything_else(transformer, monkeypatch):
    monkeypatch.setattr(transformer, "settle", lambda options: pytest.fail("too late"))
    with pytest.raises(SystemExit, match="a variant is trainer or loop"):
        transformer.main(command("--variants", "trainer", "trainer+fast"))


@pytest.mark.parametrize("broken", ["trainer+learned", "peer"])
def test_a_variant_that_fails_is_noted_and_the_others_are_measured(transformer, tiny, monkeypatch, capsys, broken):
    def fail(*_):
        raise ValueError("no such positions")

    ours, peer = transformer.our_steps, transformer.peer_steps
    monkeypatch.setattr(transformer, "peer_steps", fail if broken == "peer" else peer)
    monkeypatch.setattr(
        transformer,
        "our_steps",
        lambda words, *more: (fail if "learned" in words and broken != "peer" else ours)(words, *more),
    )
    assert transformer.main(command("--json")) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0] == {"name": broken, "failed": "ValueError: no such positions"}
    assert {row["name"] for row in rows[1:]} == {"peer", "trainer", "trainer+learned"} - {broken}
    assert all(row["tokens_per_second"] > 0 for row in rows[1:])


def test_speed_and_share_of_one_variant_are_required(transformer):
    rows = [
        {"name": transformer.BY, "tokens_per_second": speed, "share": share}
        for speed, share in [(514_000, 0.56), (513_999, 0.56), (514_000, 0.55)]
    ]
    assert transformer.missed_of(rows) == [
        f"{transformer.BY}: 513,999 tokens per second, not 514,000",
        f"{transformer.BY}: 0.550 of the product, not 0.56",
    ]
    assert (
        transformer.missed_of([{"name": "trainer", "tokens_per_second": 1}, {"name": transformer.BY, "failed": "x"}])
        == []
    )


def test_the_table_of_the_transformer_has_the_peer_and_the_variants(transformer, tiny, capsys):
    assert transformer.main(command("--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in report["rows"]] == ["peer", "trainer", "trainer+learned"]
    assert report["rows"][0]["ratio"] == 1
    assert all(row["share"] > 0 and math.isfinite(row["last_loss"]) for row in report["rows"])


def test_operations_of_the_large_one_are_those_of_the_anchor(transformer):
    # 514,000 tokens a second are 440 TFLOP/s.
    assert 514_000 * transformer.flops_per_token(transformer.ROWS["cuda"]) / 1e12 == pytest.approx(440, rel=0.01)


# ---- decoding and cost


def test_caches_write_what_the_plain_way_writes(benchmark_script, monkeypatch, capsys):
    decoding = benchmark_script("decoding")
    rows = [
        decoding.Row(model, how, 2, 1, 16, 30, 5) for model in ("lstm", "transformer") for how in ("greedy", "beam")
    ]
    rows.append(decoding.Row("gru", "sampling", 2, 1, 16, 30, 5))
    monkeypatch.setattr(decoding, "rows_of", lambda device, quick: rows)
    monkeypatch.setattr(decoding, "peer_of", lambda row, device: None)
    assert decoding.main(command("--json")) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [row["same"] for row in found] == [1.0, 1.0, 1.0, 1.0, None]
    assert all(row["cached_tokens_per_second"] > 0 for row in found)


def test_slower_with_a_cache_or_other_tokens_are_missed(benchmark_script):
    decoding = benchmark_script("decoding")
    row = {"name": "x", "ratio": 1.0, "same": 0.98}
    assert decoding.missed_of([row, {**row, "same": None}]) == []
    assert len(decoding.missed_of([{**row, "ratio": 0.9}, {**row, "same": 0.9}])) == 2


def test_every_family_has_its_cost_at_every_point_and_a_chart(benchmark_script, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    cost = benchmark_script("cost")
    monkeypatch.setitem(cost.MIDDLE, "cpu", {"T": 4, "B": 2, "H": 8})
    monkeypatch.setitem(cost.POINTS, "cpu", {"T": (2, 4), "B": (1, 2), "H": (4, 8)})
    file, asked = tmp_path / "cost.json", []
    measure = cost.measure
    monkeypatch.setattr(
        cost, "measure", lambda sizes, *more: (asked.append(tuple(sizes.values())), measure(sizes, *more))[1]
    )
    assert cost.main(command("--json", str(file), "--chart", str(tmp_path / "cost.png"))) == 0
    rows = json.loads(file.read_text())["rows"]
    assert asked == [(2, 2, 8), (4, 2, 8), (4, 1, 8), (4, 2, 4)], "the point that all share is measured once"
    assert len({row["lstm"] for row in rows if (row["T"], row["B"], row["H"]) == (4, 2, 8)}) == 1
    assert [(row["axis"], row["T"], row["B"], row["H"]) for row in rows] == [
        ("T", 2, 2, 8), ("T", 4, 2, 8), ("B", 4, 1, 8), ("B", 4, 2, 8), ("H", 4, 2, 4), ("H", 4, 2, 8),
    ]  # fmt: skip
    assert all(row[family] > 0 for row in rows for family in cost.FAMILIES)
    assert cost.lower({"rnn": 2.0, "gru": 3.0}, {"rnn": 1.0, "gru": 4.0}) == {"rnn": 1.0, "gru": 3.0}
    cost.main(["--draw", str(file), "--chart", str(tmp_path / "again.svg")])
    assert (tmp_path / "cost.png").stat().st_size > 10_000
    assert "</svg>" in (tmp_path / "again.svg").read_text()


def test_passes_keep_what_is_lowest_and_a_point_that_fails_costs_no_other(benchmark_script, monkeypatch, capsys):
    cost = benchmark_script("cost")
    monkeypatch.setitem(cost.MIDDLE, "cpu", {"T": 4, "B": 2, "H": 8})
    monkeypatch.setitem(cost.POINTS, "cpu", {"T": (2, 4), "B": (2,), "H": (4, 8)})
    answers = {(2, 2, 8): [3.0, 2.0, 4.0], (4, 2, 8): [5.0, 6.0, 7.0], (4, 2, 4): [None]}

    def measure(sizes, *_):
        value = answers[tuple(sizes.values())].pop(0)
        return dict.fromkeys(cost.FAMILIES, value / 1)

    monkeypatch.setattr(cost, "measure", measure)
    assert cost.main([word for word in command("--json") if word != "--quick"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row.get("lstm") for row in rows] == [2.0, 5.0, 5.0, None, 5.0]
    assert rows[3]["failed"].startswith("TypeError")
