"""The table on the terminal: one line per family, and a legend of the marks that occur."""

from __future__ import annotations

import re

import pytest
from sample_report import SAMPLES, Values, complete, family, parse, report

from seqwise.cli.comparison_display import build_table


def table(values: Values) -> list[str]:
    return build_table(parse(values))


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def with_ranks(*ranks: str) -> Values:
    means = [0.9 - at / 1000 for at in range(len(ranks))]
    families = [family(f"f{at}", "accuracy", [mean, mean + 0.01]) for at, mean in enumerate(means)]
    values = report("classify", "accuracy", families)
    for each, rank in zip(values["families"], ranks):
        each["rank"] = rank
    return values


def test_every_family_is_listed_with_its_mark():
    lines = table(SAMPLES["with_failures"]())
    assert cells(lines[0])[-1] == "one prediction"
    assert [cells(line)[:2] for line in lines[1:5]] == [
        ["best", "gru"], ["≈", "lstm"], ["?", "feedforward"], ["failed", "transformer"],
    ]  # fmt: skip
    assert cells(lines[2])[2:4] == ["84.3 %", "83.2 to 85.4 %"]
    assert cells(lines[4])[2:] == ["–"] * 7


@pytest.mark.parametrize(
    ("ranks", "legend"),
    [
        (("best", "worse"), ""),
        (("best", "tied", "worse"), " ≈: tied with the best."),
        (("best", "unsure", "failed"), " ?: behind, but not certainly."),
        (("best", "tied", "unsure"), " ≈: tied with the best; ?: behind, but not certainly."),
    ],
)
def test_only_marks_that_occur_are_explained(ranks: tuple[str, ...], legend: str):
    assert table(with_ranks(*ranks))[-1] == f"accuracy on the test split, mean over 2 seeds; higher is better.{legend}"


def test_families_with_exactly_the_best_mean_are_marked_as_equal():
    families = [family(name, "accuracy", [1.0, 1.0]) for name in ("gru", "lstm")]
    lines = table(report("classify", "accuracy", [*families, family("rnn", "accuracy", [0.998, 0.999])]))
    assert [cells(line)[:2] for line in lines[1:4]] == [["best", "gru"], ["=", "lstm"], ["≈", "rnn"]]
    assert lines[-1].endswith("higher is better. =: equal to the best; ≈: tied with the best.")


def test_an_interval_of_width_zero_is_described_in_words():
    values = report("classify", "accuracy", [family("gru", "accuracy", [1.0] * 3), family("rnn", "accuracy", [0.9])])
    values["families"][1]["sampling"] = {"low": 0.9, "high": 0.9}
    lines = table(complete(values))
    assert cells(lines[1])[2:4] == ["100.0 %", "the same for all seeds"]
    assert cells(lines[2])[:3] == ["rnn", "90.0 %", "the same for all examples"]  # worse: no mark


def test_an_interval_over_examples_is_named_where_others_are_over_seeds():
    values = report("classify", "accuracy", [family("gru", "accuracy", [0.9, 0.91]), family("rnn", "accuracy", [0.8])])
    assert "mean over 2 seeds (rnn: one training run, the interval is over test examples)" in table(values)[-1]


def test_the_table_prints_the_texts_of_the_report():
    for name in ("normal", "extreme", "with_failures"):
        values = SAMPLES[name]()
        for each, line in zip(values["families"], table(values)[1:]):
            keys = ("mean", "interval", "parameters", "tokens_per_second", "seconds", "memory", "latency")
            assert cells(line)[-7:] == [each["text"][key] for key in keys]


def test_baselines_are_listed_below_in_brackets():
    values = SAMPLES["with_failures"]()
    lines = table(values)
    bare = table({key: value for key, value in values.items() if key != "baselines"})
    assert cells(lines[5]) == ["(most frequent label)", "55.2 %"]
    assert lines[-1] == "(most frequent label) is a baseline. It always answers 'positive'."
    assert len(bare) == len(lines) - 2


def test_a_number_looks_the_same_in_the_table_and_in_the_verdict():
    values = SAMPLES["normal"]()
    verdict = " ".join(values["verdict"]["sentences"])
    best, second, *_ = values["families"]
    assert f"{best['text']['mean']} (95 % interval {best['text']['interval']})" in verdict
    assert f"{second['name']} ({second['text']['mean']})" in verdict
    families = [
        family("gru", "accuracy", [0.8, 0.81], latency=0.0021, latencies=[0.0021, 0.0022]),
        family("rnn", "accuracy", [0.799, 0.809], latency=0.0011, latencies=[0.0011, 0.0012]),
    ]
    timed_report = report("classify", "accuracy", families)
    assert timed_report["verdict"]["fastest"] == "rnn"
    latency = next(each for each in timed_report["families"] if each["name"] == "rnn")["text"]["latency"]
    assert timed_report["verdict"]["fastest_text"] == latency == "1.1 ms"
    assert any(f"rnn is fastest: {latency} per" in each for each in timed_report["verdict"]["sentences"])


def test_gaps_look_the_same_in_the_verdict_and_in_the_pairs():
    clear = report("classify", "accuracy", [family("gru", "accuracy", [0.9, 0.91]), family("rnn", "accuracy", [0.5])])
    (pair,) = clear["pairs"]
    assert pair["text"]["difference"] == "+40.5"
    assert (
        f"rnn (50.0 %) is far behind (−40.5 percentage points, p {pair['text']['adjusted_p']})."
        in (clear["verdict"]["sentences"])
    )
