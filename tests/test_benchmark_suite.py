"""The benchmark suite measures what it says: peers in turn and equal, memory counted, failures told, goals judged."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def measuring(benchmark_script):
    return benchmark_script("measuring")


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


# ---- measuring


def test_peers_take_turns(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "TURN", 0.0)
    monkeypatch.setattr(measuring, "SPENT", 0.0)
    calls: list[str] = []
    times = measuring.in_turn({name: lambda name=name: calls.append(name) for name in "ab"}, CPU, repeats=3, warm=1)
    # The first call of each, a warm round, one call each to see how long it takes, then the turns.
    assert "".join(calls) == "ab" + "ab" + "ab" + "ababab"
    assert len(times["a"].turns) == len(times["b"].turns) == 3
    assert measuring.Times([3.0, 1.0, 2.5]).median == 2.5
    assert measuring.Times([3.0, 1.0, 2.5]).least == 1.0


def test_short_calls_are_repeated_within_a_turn(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "TURN", 0.005)
    calls: list[int] = []
    times = measuring.in_turn({"a": lambda: calls.append(1)}, CPU, repeats=2)["a"]
    assert len(calls) > 100
    assert len(times.turns) == 2 * measuring.MORE  # turns that are short are taken more often
    assert all(seconds < 0.001 for seconds in times.turns)


def test_memory_is_counted_at_its_peak_beyond_what_was_there(measuring):
    before = torch.zeros(1_000_000)

    def run() -> torch.Tensor:
        a = before + 1  # 4 MB
        b = a + 1  # 8
        del a  # 4
        return b + 1  # 8

    assert measuring.peak(run, CPU) == pytest.approx(8e6, rel=0.01)


@pytest.fixture
def report(measuring, tmp_path):
    def make(quick: bool = False):
        options = argparse.Namespace(quick=quick, json=str(tmp_path / "made" / "rows.json"))
        columns = (measuring.Column("name", "", width=-6), measuring.Column("ratio", "ratio", ".2f"))
        return measuring.Report("area", options, CPU, columns, ["--device", "cpu"])

    return make


def test_a_row_that_fails_is_noted_and_the_others_are_saved_as_they_come(report, tmp_path, capsys):
    made, file = report(), tmp_path / "made" / "rows.json"
    made.measured({"name": "good"}, lambda: {"ratio": 1.5})
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["good"]
    made.measured({"name": "bad"}, lambda: {"ratio": 1 / 0})
    made.measured({"name": "last"}, lambda: {"ratio": 2})
    assert made.finish() == 1
    saved = json.loads(file.read_text())
    assert [row.get("failed") for row in saved["rows"]] == [None, "ZeroDivisionError: division by zero", None]
    assert saved["command"] == "python benchmarks/area.py --device cpu"
    assert saved["machine"]["cpu"]["count"] > 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "          ratio",
        "good       1.50",
        "bad  failed: ZeroDivisionError: division by zero",
        "last       2.00",
    ]


@pytest.mark.parametrize(("quick", "missed", "status"), [(False, [], 0), (False, ["x: 1, not 2"], 1), (True, ["x"], 0)])
def test_what_is_missed_decides_the_status_but_not_of_a_short_run(report, tmp_path, quick, missed, status):
    assert report(quick).finish(missed) == status
    assert json.loads((tmp_path / "made" / "rows.json").read_text())["missed"] == ([] if quick else missed)


# ---- recurrent layers


def test_both_sides_have_the_same_outputs_and_gradients(recurrent):
    Row = recurrent.Row
    rows = [Row(cell, 12, 3, 8, kind=kind) for cell in recurrent.CELLS for kind in ("layer", "both ways", "lengths")]
    rows += [Row(cell, 5, 3, 8, variant="layer norm", peer="loop") for cell in recurrent.CELLS]
    rows.append(Row("gru", 5, 3, 8, variant="reset before", peer="loop"))
    for row in rows:
        ours, peer = recurrent.sides_of(row, CPU).values()
        torch.testing.assert_close(ours.output(), peer.output(), rtol=1e-4, atol=1e-5)
        mine, theirs = ours.both(), peer.both()
        of_x = theirs[0] if peer.batch_first else theirs[0].transpose(0, 1)
        torch.testing.assert_close(mine[0], of_x, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(mine[1], theirs[1], rtol=1e-3, atol=1e-4)  # the input's weights
        assert len(mine) == 1 + len(list(ours.module.parameters()))


def test_lengths_are_sorted_reach_all_steps_and_leave_padding_empty(recurrent):
    row = recurrent.Row("gru", 30, 6, 4, kind="lengths")
    lengths = recurrent.draw_lengths(row)
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
    assert lengths[0] == 30
    assert lengths.min() >= 10
    output = recurrent.sides_of(row, CPU)["peer"].output()
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
    return {**usual, "memory_ours": 5, "memory_theirs": 5, "group": "gru", "forward_ratio": 1.0, **more}


@pytest.mark.parametrize(
    ("more", "missed"),
    [({}, 0), ({"ratio": 1.9}, 1), ({"ours": 10.1}, 1), ({"memory_ours": 6}, 1), ({"failed": "no", "ratio": 0}, 0)],
)
def test_goals_on_the_gpu(recurrent, more, missed):
    assert len(recurrent.missed_on_gpu([judged(**more)])) == missed


def test_goals_on_the_cpu_are_a_median_and_never_slower(recurrent):
    rows = [judged(ratio=ratio) for ratio in (0.97, 1.2, 5.0)]
    assert recurrent.missed_on_cpu(rows) == []
    rows[1] = judged(ratio=1.1)
    assert recurrent.missed_on_cpu(rows) == ["gru: 1.10 times the peer in the median, not 1.2"]
    rows = [judged(ratio=2.0), judged(ratio=2.0, forward_ratio=0.9), judged(ratio=0.5)]
    assert [line.split(":")[0] for line in recurrent.missed_on_cpu(rows)] == ["x forward", "x"]


def test_a_recurrent_row_is_measured_and_told(recurrent, capsys):
    recurrent.main(command("--rows", "rnn", "32×20×128", "--json"))
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["rnn 32×20×128 fp32", "rnn layer norm 32×20×128 fp32"]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["theirs"] / row["ours"])
        assert row["apart"] < 1e-5
        assert row["path"] in ("aten", "open", "compiled")
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
    assert found["chunk"] == 1 << 8
    assert found["share"] < 1  # 8 rows of scores at a time instead of 64
    assert found["apart"] < 1e-5


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
    file = tmp_path / "cost.json"
    assert cost.main(command("--json", str(file), "--chart", str(tmp_path / "cost.png"))) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["axis"], row["T"], row["B"], row["H"]) for row in rows] == [
        ("T", 2, 2, 8), ("T", 4, 2, 8), ("B", 4, 1, 8), ("B", 4, 2, 8), ("H", 4, 2, 4), ("H", 4, 2, 8),
    ]  # fmt: skip
    assert all(row[family] > 0 for row in rows for family in cost.FAMILIES)
    assert cost.lower({"rnn": 2.0, "gru": 3.0}, {"rnn": 1.0, "gru": 4.0}) == {"rnn": 1.0, "gru": 3.0}
    cost.main(["--draw", str(file), "--chart", str(tmp_path / "again.svg")])
    assert (tmp_path / "cost.png").stat().st_size > 10_000
    assert "</svg>" in (tmp_path / "again.svg").read_text()


# ---- the page


def test_the_page_shows_columns_as_the_script_prints_them_and_ratios_by_group():
    path = Path(__file__).parents[1] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_for_performance", path)
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    columns = [
        {"key": "name", "heading": "T×B×H", "format": "", "scale": 1.0},
        {"key": "memory", "heading": "MB", "format": ",.0f", "scale": 1e-6},
        {"key": "nobody", "heading": "left out", "format": "", "scale": 1.0},
    ]
    rows = [{"name": "a", "memory": 2_500_000_000}, {"name": "b", "failed": "no"}]
    assert generate.rows_table(columns, rows) == "| T×B×H | MB |\n|---|---|\n| a | 2,500 |\n| b |  |"
    ratios = [{"group": "gru", "peer": "pytorch", "ratio": ratio} for ratio in (2.0, 1.0, 4.0)]
    ratios += [{"group": "gru", "peer": "loop", "ratio": 90.0}, {"group": "gru", "peer": "pytorch", "failed": "no"}]
    assert generate.groups_table(ratios).splitlines()[2:] == ["| gru | 3 | 1.00 | 2.00 | 4.00 |"]
