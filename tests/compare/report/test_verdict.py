"""The verdict in all its cases: the best family, the numbers and the sentences."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sample_report import Values, parse

from seqwise.compare.report.schema import to_json
from seqwise.compare.report.verdict import MAX_SENTENCES, add_verdict

FLAT = [(100, 9.0), (200, 3.2), (400, 3.2)]


def make_family(name: str, mean: float | None, **fields: Any) -> Values:
    """A family with three seeds, a latency of 2 ms ± 1 %, and a curve that is flat at the end."""
    curves, latency = fields.pop("points", FLAT), fields.pop("latency", 0.002)
    return {
        "name": name, "model": name, "status": "failed" if mean is None else "done", "reason": "", "is_baseline": False,
        "parameters": 400_000, "mean": mean, "low": None if mean is None else mean - 0.07,
        "high": None if mean is None else mean + 0.07, "values": [{"seed": seed, "value": mean} for seed in range(3)],
        "sampling": None, "weights": 1_600_000, "latency": latency,
        "latencies": [] if latency is None else [0.99 * latency, latency, 1.01 * latency],
        "curves": [{"seed": 0, "points": [{"tokens": t, "seconds": t / 9, "value": v, "loss": v} for t, v in curves]}],
        **fields,
    }  # fmt: skip


def make_report(
    *families: Values, significant: str = "", probable: str = "", key: str = "perplexity", **metric: Any
) -> Values:
    """Builds a report; `significant` and `probable` name the pairs that differ so: "gru-lstm gru-rnn"."""
    p_values = {frozenset(pair.split("-")): (0.004, 0.012) for pair in significant.split()}
    p_values |= {frozenset(pair.split("-")): (0.009, 0.085) for pair in probable.split()}
    done = [each for each in families if each["mean"] is not None]
    pairs = []
    for index, a in enumerate(done):
        for b in done[index + 1 :]:
            p, adjusted = p_values.get(frozenset((a["name"], b["name"])), (0.3, 0.6))
            gap = a["mean"] - b["mean"]
            pairs.append({"a": a["name"], "b": b["name"], "difference": gap, "low": gap - 0.1, "high": gap + 0.1,
                          "p": p, "adjusted_p": adjusted, "significant": adjusted < 0.05,
                          "covers": "seeds and examples", "larger_noise": "seeds"})  # fmt: skip
    lower = key in ("perplexity", "mse")
    return {
        "seqwise": "0.2", "task": "language", "data": "a.txt", "split_rule": "", "about": [], "command": "",
        "unit": "tokens", "machine": {}, "families": list(families), "pairs": pairs, "examples": [], "trials": [],
        "rules": {"seeds": [0, 1, 2], "match": "parameters", "budget": "20 s", "parameters": None, "lr_trials": 1,
                  "lr_trial_budget": None, "training_budget": "20 s", "sentences": []},
        "metric": {"key": key, "name": key, "definition": "", "lower_is_better": lower,
                   "example_unit": "blocks of 128 tokens", "num_examples": 900, **metric},
    }  # fmt: skip


def compute_verdict(report: Values) -> Values:
    """Returns the verdict as plain values; sets the ranks of families and the outcomes of pairs in `report`."""
    result = json.loads(to_json(add_verdict(parse(report))))
    report |= {key: result[key] for key in ("families", "pairs")}
    return result["verdict"]


def get_verdict_text(report: Values) -> str:
    return " ".join(compute_verdict(report)["sentences"])


def test_a_clear_winner():
    report = make_report(
        make_family("lstm", 3.33),
        make_family("gru", 3.12),
        make_family("rnn", 3.9),
        significant="gru-lstm gru-rnn lstm-rnn",
    )
    verdict = compute_verdict(report)
    assert (verdict["best"], verdict["tied"], verdict["fastest"], verdict["smallest"]) == ("gru", [], "gru", "gru")
    assert {each["name"]: each["rank"] for each in report["families"]} == {
        "gru": "best",
        "lstm": "worse",
        "rnn": "worse",
    }
    assert verdict["sentences"] == [
        "gru is best: perplexity 3.12 (95 % interval 3.05 to 3.19).",
        "lstm (3.33) is worse (+6.7 %, p = 0.012); rnn (3.90) is far behind (+25 %, p = 0.012).",
        "The curves have flattened: a larger budget is unlikely to change this.",
    ]


def test_a_metric_where_higher_is_better_is_ranked_by_it():
    low, high = make_family("rnn", 0.80, low=0.78, high=0.82), make_family("gru", 0.842, low=0.82, high=0.864)
    verdict = compute_verdict(make_report(low, high, significant="gru-rnn", key="accuracy"))
    assert verdict["best"] == "gru"
    assert verdict["sentences"][:2] == [
        "gru is best: accuracy 84.2 % (95 % interval 82.0 to 86.4 %).",
        "rnn (80.0 %) is worse (−4.2 percentage points, p = 0.012).",
    ]


def test_a_tie_names_the_tied_and_the_worse_families():
    report = make_report(
        make_family("gru", 3.12), make_family("lstm", 3.15), make_family("rnn", 3.9), significant="gru-rnn lstm-rnn"
    )
    verdict = compute_verdict(report)
    assert (verdict["best"], verdict["tied"]) == ("gru", ["lstm"])
    assert [each["rank"] for each in report["families"]] == ["best", "tied", "worse"]
    assert verdict["sentences"][:2] == [
        "gru has the best perplexity, 3.12 (95 % interval 3.05 to 3.19).",
        "lstm (3.15) is tied with it (+0.96 %, p = 0.6).",
    ]
    assert verdict["smallest"] is None  # sizes were matched
    assert not any("small" in sentence for sentence in verdict["sentences"])


def test_three_tied_families():
    report = make_report(make_family("gru", 3.12), make_family("lstm", 3.15), make_family("rnn", 3.16))
    verdict = compute_verdict(report)
    assert verdict["tied"] == ["lstm", "rnn"]
    assert verdict["sentences"][:2] == [
        "There is no clear winner: gru has the best perplexity, 3.12 (95 % interval 3.05 to 3.19).",
        "lstm (3.15) and rnn (3.16) are tied with it (+0.96 to +1.3 %, p ≥ 0.6): more seeds are needed to tell them "
        "apart.",
    ]
    for pair in report["pairs"]:
        pair["larger_noise"] = "examples"
    assert "a larger test split is needed" in get_verdict_text(report)


NO_WINNER = "There is no clear winner: gru has the best perplexity, 3.12 (95 % interval 3.05 to 3.19)."
BEST = "gru has the best perplexity, 3.12 (95 % interval 3.05 to 3.19)."
TIED = "lstm (3.15) is tied with it (+0.96 %, p = 0.6)"
CLEAR_WINNER = "gru is best: perplexity 3.12 (95 % interval 3.05 to 3.19)."
WORSE = "rnn (3.90) is far behind (+25 %, p = 0.012)."


def probably_worse(num_pairs: int) -> str:
    p = f"p = 0.009, but 0.085 adjusted for {num_pairs} pairs"
    return f"transformer (3.40) is probably worse (+9.0 %, {p}); more seeds are needed to be certain."


@pytest.mark.parametrize(
    ("tied", "unsure", "worse", "expected"),
    [
        (0, 0, 0, ["gru reached perplexity 3.12 (95 % interval 3.05 to 3.19); no other family was tried."]),
        (0, 0, 1, [CLEAR_WINNER, WORSE]),
        (0, 1, 0, [BEST, probably_worse(1)]),
        (0, 1, 1, [BEST, probably_worse(3), WORSE]),
        (1, 0, 0, [NO_WINNER, f"{TIED}: more seeds are needed to tell them apart."]),
        (1, 0, 1, [BEST, f"{TIED}.", WORSE]),
        (1, 1, 0, [BEST, f"{TIED}.", probably_worse(3)]),
        (1, 1, 1, [BEST, f"{TIED}.", probably_worse(6), WORSE]),
    ],
)
def test_every_mixture_of_tied_probably_worse_and_worse(tied: int, unsure: int, worse: int, expected: list[str]):
    others = {"lstm": 3.15} if tied else {}
    others |= {"transformer": 3.4} if unsure else {}
    others |= {"rnn": 3.9} if worse else {}
    report = make_report(
        make_family("gru", 3.12), *(make_family(*each) for each in others.items()),
        significant="gru-rnn", probable="gru-transformer",
    )  # fmt: skip
    verdict = compute_verdict(report)
    assert (verdict["tied"], verdict["unsure"]) == (["lstm"] * tied, ["transformer"] * unsure)
    ranks = ["best", *["tied"] * tied, *["unsure"] * unsure, *["worse"] * worse]
    assert [each["rank"] for each in report["families"]] == ranks
    ranking = [line for line in verdict["sentences"] if "curve" not in line]
    assert ranking == expected


# The rules of docs/compare.md: how far behind, p of the pair alone and after adjustment → rank and words.
WORDING = [
    (3.15, 0.300, 0.600, "tied", "rnn (3.15) is tied with it (+0.96 %, p = 0.6)"),
    (3.15, 0.020, 0.080, "tied", "rnn (3.15) is tied with it (+0.96 %, p = 0.02, but 0.08 adjusted for 3 pairs)"),
    (3.15, 0.004, 0.012, "worse", "rnn (3.15) is slightly but certainly worse (+0.96 %, p = 0.012)."),
    (3.40, 0.300, 0.600, "unsure",
     "rnn (3.40) is behind (+9.0 %), but that may be chance (p = 0.6); more seeds are needed to be certain."),
    (3.40, 0.020, 0.080, "unsure",
     "rnn (3.40) is probably worse (+9.0 %, p = 0.02, but 0.08 adjusted for 3 pairs); more seeds are needed to be "
     "certain."),
    (3.40, 0.004, 0.012, "worse", "rnn (3.40) is worse (+9.0 %, p = 0.012)."),
    (4.80, 0.300, 0.600, "unsure", "rnn (4.80) is far behind (+54 %); more seeds are needed to be certain (p = 0.6)."),
    (4.80, 0.020, 0.080, "unsure",
     "rnn (4.80) is far behind (+54 %); more seeds are needed to be certain (p = 0.02, but 0.08 adjusted for 3 "
     "pairs)."),
    (4.80, 0.004, 0.012, "worse", "rnn (4.80) is far behind (+54 %, p = 0.012)."),
    (4.80, None, None, "unsure", "rnn (4.80) is far behind (+54 %); more seeds are needed to be certain (not tested)."),
]  # fmt: skip


@pytest.mark.parametrize(("mean", "p", "adjusted", "rank", "words"), WORDING)
def test_the_wording_follows_the_size_of_the_gap_and_its_certainty(
    mean: float, p: float | None, adjusted: float | None, rank: str, words: str
):
    report = make_report(make_family("gru", 3.12), make_family("rnn", mean))
    report["pairs"] += [{**report["pairs"][0], "a": "lstm", "b": other} for other in ("gru-2", "rnn-2")]  # also tested
    is_significant = adjusted is not None and adjusted < 0.05
    report["pairs"][0] |= {"p": p, "adjusted_p": adjusted, "significant": is_significant}
    verdict = compute_verdict(report)
    assert report["families"][1]["rank"] == rank
    assert any(sentence.startswith(words) for sentence in verdict["sentences"]), verdict["sentences"]
    assert "significant" not in verdict["sentences"][0]


def test_several_probably_worse_and_several_worse_families_share_a_sentence():
    names = ["gru", "lstm", "attentive", "rnn", "ngram"]
    report = make_report(
        *(make_family(name, 3.12 + at / 5) for at, name in enumerate(names)),
        probable="gru-lstm gru-attentive", significant="gru-rnn gru-ngram",
    )  # fmt: skip
    pair = {frozenset((each["a"], each["b"])): each for each in report["pairs"]}
    pair[frozenset(("gru", "lstm"))] |= {"p": 0.031, "adjusted_p": 0.09}
    pair[frozenset(("gru", "ngram"))] |= {"adjusted_p": 0.0001}
    assert compute_verdict(report)["sentences"][:3] == [
        "gru has the best perplexity, 3.12 (95 % interval 3.05 to 3.19).",
        "lstm (3.32) and attentive (3.52) are probably worse (+6.4 to +13 %, p ≤ 0.031, but ≥ 0.085 adjusted for "
        "10 pairs); more seeds are needed to be certain.",
        "rnn (3.72) is worse (+19 %, p = 0.012); ngram (3.92) is far behind (+26 %, p < 0.001).",
    ]
    outcomes = {"-".join((each["a"], each["b"])): each["outcome"] for each in report["pairs"]}
    assert outcomes["gru-lstm"] == outcomes["gru-attentive"] == "probable"
    assert outcomes["gru-rnn"] == "significant"
    assert outcomes["lstm-rnn"] == "inconclusive"


def make_report_with_single_run(*families: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A report in which lstm, unlike the other families, has one training run."""
    report = make_report(*families, **options)
    for pair in report["pairs"]:
        if "lstm" in (pair["a"], pair["b"]):
            pair |= {"covers": "examples", "significant": False, "larger_noise": "seeds"}
    return report


def test_a_family_trained_once_is_at_most_probably_worse():
    once = {"low": None, "high": None, "values": [{"seed": 0, "value": 3.5}], "sampling": {"low": 3.4, "high": 3.6}}
    partly = make_family("lstm", 3.5, status="partly", reason="killed.", **once)
    report = make_report_with_single_run(
        make_family("gru", 3.12), partly, make_family("rnn", 4.0), significant="gru-lstm gru-rnn lstm-rnn"
    )
    verdict = compute_verdict(report)
    assert (verdict["unsure"], report["families"][2]["rank"]) == (["lstm"], "worse")
    expected = (
        "lstm (3.50) is probably worse (+12 %, p = 0.012, by the test examples alone); more seeds are needed to be "
        "certain."
    )
    assert expected in verdict["sentences"]
    assert [each["outcome"] for each in report["pairs"]] == ["probable", "significant", "probable"]


def test_only_the_first_of_many_significantly_worse_families_are_named():
    others = "abcdef"
    report = make_report(
        make_family("gru", 3.12),
        make_family("lstm", 3.15),
        *(make_family(name, 4 + at) for at, name in enumerate(others)),
        significant=" ".join(f"gru-{name}" for name in others),
    )
    words = "a (4.00), b (5.00), c (6.00) and 3 others are far behind (+28 to +188 %, p ≤ 0.012)."
    assert words in compute_verdict(report)["sentences"]


def test_the_advice_for_unsure_families_is_their_larger_source_of_noise():
    report = make_report(make_family("gru", 3.1), make_family("lstm", 3.2), make_family("rnn", 3.4), probable="gru-rnn")
    for pair in report["pairs"]:
        pair["larger_noise"] = "examples" if "rnn" in (pair["a"], pair["b"]) else "seeds"
    text = get_verdict_text(report)
    assert "lstm (3.20) is behind (+3.2 %), but that may be chance (p = 0.6); more seeds are needed" in text
    assert (
        "rnn (3.40) is probably worse (+9.7 %, p = 0.009, but 0.085 adjusted for 3 pairs); a larger test split is"
        in text
    )


def test_a_probably_worse_family_is_not_a_leader():
    report = make_report(
        make_family("gru", 3.12, latency=0.002), make_family("lstm", 3.15, latency=0.0015, parameters=300_000),
        make_family("rnn", 3.4, latency=0.0001, parameters=100_000), probable="gru-rnn",
    )  # fmt: skip
    verdict = compute_verdict(report)
    assert (verdict["fastest"], verdict["smallest"]) == ("lstm", "lstm")
    assert "Of the best, lstm is fastest: 1.5 ms per prediction, 1.3 times as fast as gru." in verdict["sentences"]
    assert (verdict["fastest_text"], verdict["smallest_text"]) == ("1.5 ms", "300,000 parameters")
    two = make_report(make_family("gru", 3.12), make_family("rnn", 3.4, latency=0.0001), probable="gru-rnn")
    assert (
        "Where speed matters more, rnn has perplexity 3.40 and needs 100 µs per prediction, 20 times"
        in get_verdict_text(two)
    )


def test_a_probably_worse_family_may_overtake():
    falling = [(100, 6.0), (200, 3.8), (400, 3.4)]
    report = make_report(
        make_family("gru", 3.1), make_family("rnn", 3.4, points=falling), make_family("lstm", 3.9), probable="gru-rnn"
    )
    assert "What would change this: rnn was still improving by 11 % per doubling" in get_verdict_text(report)


def test_equal_seeds_have_no_interval():
    same = {"low": 1.0, "high": 1.0}
    other = make_family("rnn", 0.7, low=0.6, high=0.8)
    report = make_report(make_family("gru", 1.0, **same), other, key="exact_match", probable="gru-rnn")
    assert (
        compute_verdict(report)["sentences"][0] == "gru has the best exact_match, 100.0 % (the same for all 3 seeds)."
    )
    once = {"low": None, "high": None, "sampling": {"low": 1.0, "high": 1.0}}
    alone = make_report(make_family("gru", 1.0, **once), key="exact_match")
    assert compute_verdict(alone)["sentences"][0] == "gru reached exact_match 100.0 %; no other family was tried."


PERFECT = {"low": 1.0, "high": 1.0}
RISING = [(100, 0.2), (200, 0.6), (400, 1.0)]
BAG_OF_WORDS = {"name": "bag of words", "value": 1.0, "about": ""}


def test_a_task_that_all_families_solve_needs_a_harder_test_set():
    families = [make_family(name, 1.0, points=RISING, **PERFECT) for name in ("gru", "lstm")]
    report = make_report(*families, key="accuracy") | {"baselines": [BAG_OF_WORDS]}
    verdict = compute_verdict(report)
    assert (verdict["best"], verdict["equal"], verdict["solved"]) == ("gru", ["lstm"], True)
    assert verdict["sentences"] == [
        "gru and lstm solve this task: accuracy 100.0 % with every seed, the best possible result. "
        "Only a harder or larger test set can tell them apart.",
        "None of them is clearly cheaper: neither their latencies nor their sizes differ clearly.",
        "A baseline, the bag of words, solves it as well (100.0 %): it does not need a sequence model.",
    ]


def test_the_cheapest_of_families_that_solve_a_task_is_named():
    names = {"gru": 0.002, "lstm": 0.001, "rnn": 0.004}
    families = [make_family(name, 1.0, latency=latency, **PERFECT) for name, latency in names.items()]
    sentences = compute_verdict(make_report(*families, key="accuracy"))["sentences"]
    assert sentences[0].startswith("All 3 families solve this task: ")
    assert sentences[1] == "The cheapest of them is lstm: 1.0 ms per prediction, 2.0 times as fast as gru."
    fastest_first = [make_family(name, 1.0, latency=time, **PERFECT) for name, time in (("gru", 0.001), ("rnn", 0.003))]
    sentences = compute_verdict(make_report(*fastest_first, key="accuracy"))["sentences"]
    assert sentences[1] == "The cheapest of them is gru: 1.0 ms per prediction, 3.0 times as fast as rnn."
    small = make_family("rnn", 1.0, parameters=100_000, latency=0.005, **PERFECT)
    sentences = compute_verdict(make_report(families[0], small, key="accuracy"))["sentences"]
    assert sentences[1].startswith("The cheapest of them is gru: "), "the latency comes before the size"
    small = make_family("rnn", 1.0, parameters=100_000, latency=0.002, **PERFECT)
    sentences = compute_verdict(make_report(families[0], small, key="accuracy"))["sentences"]
    assert sentences[1] == "The cheapest of them is rnn, the smallest: 100,000 parameters."


def test_families_that_solve_a_task_and_others_that_do_not():
    report = make_report(
        make_family("gru", 1.0, **PERFECT), make_family("lstm", 1.0, **PERFECT),
        make_family("rnn", 0.998, low=0.996, high=1.0), make_family("transformer", 0.8, low=0.78, high=0.82),
        key="accuracy", significant="gru-transformer",
    )  # fmt: skip
    assert compute_verdict(report)["sentences"][:4] == [
        "gru and lstm solve this task: accuracy 100.0 % with every seed, the best possible result. "
        "Only a harder or larger test set can tell them apart.",
        "rnn (99.80 %) is tied with them (−0.2 percentage points, p = 0.6).",
        "None of them is clearly cheaper: neither their latencies nor their sizes differ clearly.",
        "transformer (80.0 %) is far behind (−20.0 percentage points, p = 0.012).",
    ]


def test_a_budget_is_not_called_small_for_a_family_that_cannot_improve():
    """The best gained 40 points in its last doubling, up to 100 %."""
    report = make_report(
        make_family("gru", 1.0, points=RISING, **PERFECT),
        make_family("rnn", 0.7, low=0.69, high=0.71, points=[(100, 0.2), (200, 0.7), (400, 0.7)]),
        key="accuracy", significant="gru-rnn",
    )  # fmt: skip
    assert "A larger budget would still" not in get_verdict_text(report)


def test_families_that_are_equal_below_the_optimum():
    same = {"low": 0.88, "high": 0.92}
    gru, lstm = (make_family(name, 0.9, **same) for name in ("gru", "lstm"))
    verdict = compute_verdict(make_report(gru, lstm, key="accuracy"))
    assert (verdict["equal"], verdict["solved"]) == (["lstm"], False)
    assert verdict["sentences"][0] == (
        "gru and lstm are identical on this test split: accuracy 90.0 % (95 % interval 88.0 to 92.0 %), equal for "
        "every seed. Only a larger or harder test set can tell them apart."
    )
    lstm["values"] = [{"seed": seed, "value": value} for seed, value in enumerate((0.89, 0.9, 0.91))]
    assert compute_verdict(make_report(gru, lstm, key="accuracy"))["sentences"][0] == (
        "gru and lstm have exactly the same accuracy on this test split, 90.0 % (95 % interval 88.0 to 92.0 %): "
        "more seeds are needed to tell them apart."
    )


def test_without_tests_no_family_is_called_worse():
    report = {**make_report(make_family("gru", 3.12), make_family("lstm", 9.9)), "pairs": []}
    assert compute_verdict(report)["unsure"] == ["lstm"]
    assert "lstm (9.90) is far behind (+217 %, not tested)." in compute_verdict(report)["sentences"]


def test_the_fastest_leader_and_a_faster_worse_family_are_recommended():
    report = make_report(
        make_family("gru", 3.12, latency=0.002),
        make_family("lstm", 3.15, latency=0.001),
        make_family("rnn", 3.9, latency=0.0001),
        significant="gru-rnn lstm-rnn",
    )
    verdict = compute_verdict(report)
    assert verdict["fastest"] == "lstm"
    assert "Of the best, lstm is fastest: 1.0 ms per prediction, 2.0 times as fast as gru." in verdict["sentences"]
    expected = (
        "Where speed matters more, rnn has perplexity 3.90 and needs 100 µs per prediction, 10 times as fast as lstm."
    )
    assert expected in verdict["sentences"]


OVERLAPPING = {"gru": [0.0020, 0.0021, 0.0030], "lstm": [0.0010, 0.0011, 0.0021], "rnn": [0.0004, 0.0005, 0.0011]}


def test_overlapping_latencies_have_no_fastest_family():
    report = make_report(
        *(
            make_family(name, 3.1 + at / 100, latency=times[1], latencies=times)
            for at, (name, times) in enumerate(OVERLAPPING.items())
        ),
        significant="gru-rnn lstm-rnn",
    )  # fmt: skip
    verdict = compute_verdict(report)
    assert (verdict["fastest"], verdict["fastest_text"]) == (None, None)
    assert "fast" not in get_verdict_text(report)
    report["families"][1]["latencies"][2] = 0.0012
    assert compute_verdict(report)["fastest"] == "lstm"
    assert "Of the best, lstm is fastest" in get_verdict_text(report)
    assert "Where speed matters more" not in get_verdict_text(
        report
    )  # rnn's slowest round is slower than lstm's fastest
    report["families"][2]["latencies"][2] = 0.0006
    assert "Where speed matters more, rnn" in get_verdict_text(report)


def test_one_round_is_not_enough_for_a_fastest_family():
    report = make_report(
        make_family("gru", 3.1, latency=0.002, latencies=[0.002]),
        make_family("lstm", 3.11, latency=0.001, latencies=[0.001]),
    )
    assert compute_verdict(report)["fastest"] is None
    assert "fast" not in get_verdict_text(report)


def test_the_fastest_leader_is_faster_than_all_leaders():
    report = make_report(
        make_family("gru", 3.1, latency=0.004),
        make_family("lstm", 3.12, latency=0.001),
        make_family("rnn", 3.13, latency=0.0011),
    )
    assert compute_verdict(report)["fastest"] is None


def test_a_small_speedup_is_not_mentioned():
    assert "fast" not in get_verdict_text(
        make_report(make_family("gru", 3.12, latency=0.0020), make_family("lstm", 3.15, latency=0.0019))
    )


def test_unknown_latencies_have_no_fastest_family():
    report = make_report(make_family("gru", 3.12, latency=None), make_family("lstm", 3.15, latency=None))
    assert compute_verdict(report)["fastest"] is None


def test_the_smallest_leader_is_named():
    report = make_report(make_family("gru", 3.12, parameters=900_000), make_family("lstm", 3.15, parameters=300_000))
    assert compute_verdict(report)["smallest"] == "lstm"
    assert "lstm is the smallest of the best: 300,000 parameters." in get_verdict_text(report)


def test_size_is_read_from_the_weights_where_parameters_are_not_counted():
    report = make_report(make_family("gru", 3.12), make_family("ngram", 3.15, parameters=None, weights=200_000))
    assert compute_verdict(report)["smallest"] == "ngram"
    assert (
        compute_verdict(
            make_report(make_family("gru", 3.1), make_family("ngram", 3.11, parameters=None, weights=None))
        )["smallest"]
        is None
    )


def test_verdict_of_one_family():
    verdict = compute_verdict(make_report(make_family("gru", 3.12)))
    assert (verdict["best"], verdict["tied"]) == ("gru", [])
    assert verdict["sentences"] == [
        "gru reached perplexity 3.12 (95 % interval 3.05 to 3.19); no other family was tried.",
        "The curve has flattened: a larger budget is unlikely to change this.",
    ]


def test_verdict_with_one_seed():
    once = {"low": None, "high": None, "sampling": {"low": 3.0, "high": 3.2}}
    report = make_report(make_family("gru", 3.12, **once), make_family("lstm", 3.3, **once), significant="gru-lstm")
    report["rules"]["seeds"] = [0]
    sentences = compute_verdict(report)["sentences"]
    assert sentences[0].startswith("gru is best: perplexity 3.12 (95 % interval over the test examples 3.00 to 3.20).")
    assert "Each family was trained only once" in sentences[2]
    alone = make_report(make_family("gru", 3.123, low=None, high=None))
    alone["rules"]["seeds"] = [0]
    assert compute_verdict(alone)["sentences"][0] == "gru reached perplexity 3.123; no other family was tried."
    assert "gru was trained only once" in get_verdict_text(alone)


def test_verdict_when_every_family_failed():
    report = make_report(
        make_family("gru", None, reason="out of memory.\nTry less."), make_family("lstm", None, reason="out of memory.")
    )
    verdict = compute_verdict(report)
    assert verdict == {
        "best": None, "tied": [], "unsure": [], "fastest": None, "smallest": None,
        "fastest_text": None, "smallest_text": None, "equal": [], "solved": False,
        "sentences": ["No family finished, so there is nothing to compare.", "gru and lstm failed (out of memory)."],
    }  # fmt: skip
    assert [each["rank"] for each in report["families"]] == ["failed", "failed"]


def test_failed_and_partly_failed_families_are_named():
    report = make_report(
        make_family("gru", 3.12, status="partly", reason="seed 2: killed.", values=[{"seed": 0, "value": 3.12}]),
        make_family("rnn", None, reason="the loss became infinite."),
        make_family("lstm", None, reason=""),
    )
    sentences = compute_verdict(report)["sentences"]
    assert sentences[0].startswith("gru is the only family that finished: perplexity 3.12")
    expected = (
        "rnn failed (the loss became infinite); lstm failed; "
        "gru is judged by the only training run that finished, as others failed (seed 2: killed)."
    )
    assert expected in sentences
    assert [each["rank"] for each in report["families"]] == ["best", "failed", "failed"]


def test_a_long_reason_is_shortened():
    sentences = compute_verdict(make_report(make_family("gru", 3.1), make_family("rnn", None, reason="x" * 500)))[
        "sentences"
    ]
    assert max(map(len, sentences)) < 150


def test_an_ngram_model_beats_all_networks():
    report = make_report(
        make_family("gru", 3.5), make_family("ngram", 3.1, is_baseline=True, points=[]), significant="gru-ngram"
    )
    assert compute_verdict(report)["best"] == "ngram"
    assert "ngram only counts n-grams, and no network is as good as that" in get_verdict_text(report)


def test_an_ngram_model_probably_beats_all_networks():
    report = make_report(
        make_family("gru", 3.5), make_family("ngram", 3.1, is_baseline=True, points=[]), probable="gru-ngram"
    )
    assert "ngram only counts n-grams, and probably no network is as good as that" in get_verdict_text(report)
    worse = make_report(
        make_family("gru", 3.1), make_family("ngram", 3.5, is_baseline=True, points=[]), probable="gru-ngram"
    )
    assert "counts" not in get_verdict_text(worse)


def test_an_ngram_model_ties_with_the_best_network():
    report = make_report(make_family("gru", 3.1), make_family("ngram", 3.15, is_baseline=True, points=[]))
    assert "no network is certainly better than that" in get_verdict_text(report)


def test_an_ngram_model_that_is_worse_is_not_mentioned():
    report = make_report(
        make_family("gru", 3.1), make_family("ngram", 4.2, is_baseline=True, points=[]), significant="gru-ngram"
    )
    assert "counts" not in get_verdict_text(report)


@pytest.mark.parametrize(
    ("count", "words"), [(14, "has only 14 blocks of 128 tokens"), (1, "a single example"), (100, "")]
)
def test_a_small_test_split_is_a_caveat(count: int, words: str):
    sentences = get_verdict_text(make_report(make_family("gru", 3.1), make_family("lstm", 3.2), num_examples=count))
    assert (words in sentences) if words else ("test split has" not in sentences)


def test_a_curve_that_is_still_falling_would_change_the_order():
    falling = [(100, 6.0), (200, 3.8), (400, 3.4)]
    report = make_report(
        make_family("gru", 3.1), make_family("transformer", 3.4, points=falling), significant="gru-transformer"
    )
    expected = (
        "What would change this: transformer was still improving by 11 % per doubling of the budget (gru: 0 %), "
        "enough to close its gap. Try a larger budget."
    )
    assert expected in compute_verdict(report)["sentences"]


def test_a_perplexity_that_fell_by_hundreds_will_not_fall_by_hundreds_again():
    """It went from 600 to 300, the best from 380 to 200: another doubling gives about 150 and 105, not 0 and 20."""
    halving, falling = [(100, 800.0), (200, 380.0), (400, 200.0)], [(100, 900.0), (200, 600.0), (400, 300.0)]
    report = make_report(
        make_family("gru", 200.0, points=halving), make_family("rnn", 300.0, points=falling), significant="gru-rnn"
    )
    assert "What would change this" not in get_verdict_text(report)
    assert "rnn gained 50 % in the last doubling; doubling it again would probably not change" in get_verdict_text(
        report
    )


def test_an_unnoticeable_gap_is_not_mentioned():
    rising, flat = [(100, 0.1), (200, 0.6), (400, 0.8)], [(100, 0.1), (200, 0.8), (400, 0.8)]
    narrow = {"low": 0.79, "high": 0.81}
    report = make_report(
        make_family("gru", 0.8, points=flat, **narrow),
        make_family("lstm", 0.8, points=rising, **narrow),
        key="accuracy",
    )
    assert (
        "lstm was still improving by 20 percentage points per doubling of the budget (gru: 0.0 percentage points), "
        "enough to get ahead. Try a larger budget."
    ) in get_verdict_text(report)
    assert "gap" not in get_verdict_text(report)


def test_two_families_that_would_overtake_are_named():
    falling = [(100, 6.0), (200, 4.5), (400, 3.4)]
    report = make_report(make_family("gru", 3.1), *(make_family(name, 3.4, points=falling) for name in ("lstm", "rnn")))
    assert "lstm was still improving by 24 % per" in get_verdict_text(report)
    assert "the same holds for rnn." in get_verdict_text(report)


def test_where_all_improve_alike_the_order_stays():
    falling = [(100, 6.0), (200, 3.8), (400, 3.4)]
    report = make_report(
        make_family("gru", 3.1, points=falling), make_family("rnn", 3.4, points=falling), significant="gru-rnn"
    )
    expected = "A larger budget would still make better models: gru gained 11 % in the last doubling; doubling it"
    assert expected in get_verdict_text(report)


def test_no_family_overtakes_beyond_the_optimum():
    """Both would reach 100 %, however much more one of them gained before."""
    rising, saturated = [(100, 0.2), (200, 0.6), (400, 0.98)], [(100, 0.2), (200, 0.98), (400, 0.995)]
    report = make_report(
        make_family("gru", 0.995, points=saturated), make_family("rnn", 0.98, points=rising), key="exact_match"
    )
    expected = "rnn gained 38 percentage points in the last doubling; doubling it again would probably not change"
    assert f"{expected} the order." in get_verdict_text(report)
    report = make_report(
        make_family("gru", 0.9, points=saturated), make_family("rnn", 0.85, points=rising), key="exact_match"
    )
    assert "What would change this: rnn was still improving by 38 percentage points" in get_verdict_text(report)


def test_without_curves_the_verdict_does_not_judge_the_budget():
    assert "budget" not in get_verdict_text(
        make_report(make_family("gru", 3.1, points=[]), make_family("lstm", 3.2, points=[]), significant="gru-lstm")
    )


def test_the_verdict_is_limited_to_its_most_important_sentences():
    falling = [(100, 6.0), (200, 3.8), (400, 3.1)]
    report = make_report(
        make_family("gru", 3.1, status="partly", reason="killed"),
        make_family("lstm", 3.12, latency=0.001, points=falling),
        make_family("ngram", 3.15, is_baseline=True, latency=0.0005, points=[]),
        make_family("rnn", 3.9, latency=0.0001),
        make_family("transformer", None, reason="out of memory"),
        significant="gru-rnn",
        num_examples=20,
    )
    sentences = compute_verdict(report)["sentences"]
    assert len(sentences) == MAX_SENTENCES
    assert sentences[0].startswith("gru has the best perplexity")
    assert sentences[1].startswith("lstm (3.12) and ngram (3.15) are tied with it")
    assert sentences[2].startswith("rnn (3.90) is far behind")
    assert sentences[3].startswith("The test split has only 20 blocks")
    assert sentences[4].startswith("transformer failed (out of memory)")
    assert sentences[-1].startswith("What would change this: lstm")


def test_caveats_and_failures_are_always_included():
    once = {"low": None, "high": None, "values": [{"seed": 0, "value": 3}], "sampling": {"low": 3.0, "high": 3.2}}
    report = make_report(
        make_family("gru", 3.12, **once),
        make_family("ngram", 3.13, is_baseline=True, points=[], **once),
        make_family("lstm", 3.4, points=[(100, 9.0), (200, 5.0), (400, 3.2)], **once),
        make_family("rnn", None, reason="it diverged."),
        probable="gru-lstm",
        num_examples=40,
    )
    report["rules"]["seeds"] = [0]
    sentences = compute_verdict(report)["sentences"]
    for words in (
        "trained only once",
        "has only 40 blocks",
        "rnn failed (it diverged)",
        "lstm (3.40) is probably worse",
    ):
        assert any(words in sentence for sentence in sentences), words
    assert not any("counts" in sentence for sentence in sentences)


def test_an_infinite_mean_is_not_called_a_failed_training():
    infinite = make_family(
        "lstm", None, status="done", reason="its perplexity on the test split is not a finite number."
    )
    report = make_report(make_family("gru", 3.12), infinite)
    assert "lstm cannot be ranked (its perplexity on the test split is not a finite number)." in get_verdict_text(
        report
    )
    assert "failed" not in get_verdict_text(report)


def test_the_verdict_is_plain_data():
    verdict = compute_verdict(make_report(make_family("gru", 3.1), make_family("lstm", 3.2)))
    assert json.loads(json.dumps(verdict)) == verdict


BASELINE = {"name": "most frequent label", "value": 0.8, "about": "It always answers 'a'."}
BASELINE_WARNING = (
    "the most frequent label (80.0 %): the budget may be too small, or there may be little more to learn."
)


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (0.77, f"No family is better than a baseline, {BASELINE_WARNING}"),
        (0.80, f"No family is better than a baseline, {BASELINE_WARNING}"),
        (0.81, f"gru is hardly better than a baseline, {BASELINE_WARNING}"),  # within its interval
        (0.84, None),
    ],
)
def test_a_baseline_as_good_as_the_best_is_named(best: float, words: str | None):
    low, high = (
        make_family("rnn", 0.7, low=0.68, high=0.72),
        make_family("gru", best, low=best - 0.02, high=best + 0.02),
    )
    report = make_report(low, high, significant="gru-rnn", key="accuracy") | {"baselines": [{**BASELINE, "value": 0.1}]}
    assert "than a baseline" not in get_verdict_text(report)
    sentences = compute_verdict(report | {"baselines": [{**BASELINE, "value": 0.1}, BASELINE]})["sentences"]
    assert [each for each in sentences if "than a baseline" in each] == ([words] if words else [])


def test_the_best_baseline_counts_where_lower_is_better():
    report = make_report(
        make_family("gru", 0.6, low=0.59, high=0.61), make_family("rnn", 0.9), significant="gru-rnn", key="mse"
    )
    report["baselines"] = [{"name": name, "value": value, "about": ""} for name, value in (("old", 0.5), ("new", 0.7))]
    assert "No family is better than a baseline, the old (0.500)" in get_verdict_text(report)
    report["baselines"] = report["baselines"][1:]
    assert "than a baseline" not in get_verdict_text(report)


OVERFITTING_CURVE = [
    (100 * at, value) for at, value in enumerate((9.0, 6.0, 4.0, 3.5, 3.3, 3.1, 3.2, 3.3, 3.4, 3.5), start=1)
]


def test_a_family_that_got_worse_after_its_best_point_is_named():
    report = make_report(
        make_family("gru", 3.12), make_family("rnn", 3.9, points=OVERFITTING_CURVE), significant="gru-rnn"
    )
    assert (
        "rnn was best after 60 % of its training and got worse after that: more time would not help."
        in get_verdict_text(report)
    )
    for point, loss in zip(report["families"][1]["curves"][0]["points"], range(10, 0, -1)):
        point["training_loss"] = float(loss)
    assert (
        "rnn was best after 60 % of its training and got worse after that: it overfits; more data or dropout would "
        "help, not more time." in get_verdict_text(report)
    )
    report["families"][0]["curves"] = report["families"][1]["curves"]
    assert (
        "gru and rnn were best after 60 % and 60 % of their training and got worse after that: they overfit;"
        in get_verdict_text(report)
    )
    for each in report["families"]:
        for point in each["curves"][0]["points"]:
            point["training_loss"] = point["tokens"]
    assert "they became unstable; a lower learning rate would help" in get_verdict_text(report)


def test_a_family_that_got_worse_is_not_called_improving():
    report = make_report(make_family("gru", 3.12), make_family("rnn", 3.2, points=OVERFITTING_CURVE))
    text = get_verdict_text(report)
    assert "got worse after that" in text
    assert "What would change this" not in text
    rising = make_report(make_family("gru", 3.12), make_family("rnn", 3.2, points=OVERFITTING_CURVE[:6]))
    assert "What would change this: rnn was still improving" in get_verdict_text(rising)


UNIGRAM = {"baselines": [{"name": "unigram", "value": 21.3, "about": ""}]}
DIVERGED = [4.05, 4.21, 4.12, 7880.0, 4.18]  # perplexity of each seed; 1579.312 on average


def make_scattered_family(name: str, values: list[float], **fields: Any) -> Values:
    """A family with these values of its seeds, which are also its interval."""
    seeds = [{"seed": seed, "value": value} for seed, value in enumerate(values)]
    mean = sum(values) / len(values)
    return make_family(name, mean, values=seeds, low=min(values), high=max(values), **fields)


def test_a_diverged_seed_is_named_and_its_family_not_described_by_the_mean():
    report = make_report(
        make_family("gru", 4.08), make_family("lstm", 4.13), make_family("rnn", 5.2),
        make_scattered_family("attentive", DIVERGED), significant="gru-rnn lstm-rnn",
    )  # fmt: skip
    verdict = compute_verdict(report | UNIGRAM)
    assert verdict["sentences"] == [
        "gru has the best perplexity, 4.08 (95 % interval 4.01 to 4.15).",
        "lstm (4.13) is tied with it (+1.2 %, p = 0.6).",
        "rnn (5.20) is far behind (+27 %, p = 0.012).",
        "attentive diverged with seed 3 (perplexity 7,880, worse than every baseline), so its mean says little: its "
        "other 4 seeds have 4.05 to 4.21. A lower learning rate may help.",
        "The curves have flattened: a larger budget is unlikely to change this.",
    ]
    assert verdict["unsure"] == ["attentive"]  # ranked by its mean, like every family


def test_without_a_baseline_a_scattered_family_is_far_behind():
    report = make_report(make_family("gru", 4.08), make_scattered_family("attentive", DIVERGED))
    assert "diverged" not in get_verdict_text(report)
    assert "attentive (1,579) is far behind (+38,609 %); more seeds are needed" in get_verdict_text(report)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([4.12, 900.0], "seed 1 (perplexity 900.0, worse than every baseline), so its mean says little: its other "
                        "seed has 4.120."),
        ([900.0, 4.12, 7880.0], "seeds 0 and 2 (perplexity 900.0 and 7,880, worse than every baseline), so its mean "
                                "says little: its other seed has 4.120."),
        ([4.12, 4.12, 900.0], "seed 2 (perplexity 900.0, worse than every baseline), so its mean says little: its "
                              "other 2 seeds have 4.120."),
    ],
)  # fmt: skip
def test_the_other_seeds_of_a_diverged_family(values: list[float], words: str):
    report = make_report(make_family("gru", 4.08), make_scattered_family("attentive", values)) | UNIGRAM
    sentence = f"attentive diverged with {words} A lower learning rate may help."
    assert compute_verdict(report)["sentences"][1] == sentence


def test_a_certainly_worse_family_that_diverged_is_not_described_by_its_mean():
    attentive = make_scattered_family("attentive", DIVERGED)
    report = make_report(make_family("gru", 4.08), attentive, significant="attentive-gru") | UNIGRAM
    sentences = compute_verdict(report)["sentences"]
    assert sentences[0] == "gru is best: perplexity 4.08 (95 % interval 4.01 to 4.15)."
    assert sentences[1].startswith("attentive diverged with seed 3")
    assert "1,579" not in " ".join(sentences)


def test_an_error_that_diverged():
    report = make_report(
        make_family("gru", 0.31, low=0.3, high=0.32), make_scattered_family("rnn", [0.4, 9.5, 0.44]), key="mse"
    )
    report["baselines"] = [{"name": name, "value": value, "about": ""} for name, value in (("old", 1.2), ("new", 0.35))]
    assert (
        "rnn diverged with seed 1 (mse 9.500, worse than every baseline), so its mean says little: its other 2 seeds "
        "have 0.400 to 0.440." in get_verdict_text(report)
    )


def test_the_best_family_diverged_with_a_seed():
    """Its mean is hardly better than the baseline, but that is not a matter of the budget."""
    best = make_scattered_family("gru", [3.9, 4.1, 45.0])
    report = make_report(best, make_family("rnn", 20.9), make_family("lstm", 21.2), significant="gru-lstm") | UNIGRAM
    verdict = compute_verdict(report)
    assert (verdict["best"], verdict["unsure"]) == ("gru", ["rnn"])
    assert verdict["sentences"][0] == "gru has the best perplexity, 18 (95 % interval 4 to 45)."
    assert verdict["sentences"][3] == (
        "gru diverged with seed 2 (perplexity 45.00, worse than every baseline), so its mean says little: its other 2 "
        "seeds have 3.90 to 4.10. A lower learning rate may help."
    )
    assert verdict["sentences"][4] == "gru is hardly better on average than a baseline, the unigram (21)."
    report["families"][0]["values"][2]["value"] = 21.4  # did not diverge
    assert "gru is hardly better than a baseline, the unigram (21)" in get_verdict_text(report)


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (21.35, "No family is better than a baseline, the unigram (21.30): the budget may be too small, or"),
        (21.2, "No family is better than a baseline, the unigram (21.30): the budget may be too small, or"),
        (21.1, "No family is better than a baseline, the unigram (21.30): the budget may be too small, or"),
        (21.0, "No family is better on average than a baseline, the unigram (21.30)."),  # by 1.4 %
        (3.9, "No family is better on average than a baseline, the unigram (21.30)."),
    ],
)
def test_a_seed_of_a_diverged_family_does_not_hide_that_no_family_is_better_than_a_baseline(seed: float, words: str):
    gru = make_scattered_family("gru", [seed, 30.0, 45.0])
    sentences = compute_verdict(make_report(make_family("rnn", 25.0), gru) | UNIGRAM)["sentences"]
    assert sentences[0].endswith("rnn has the best perplexity, 25.00 (95 % interval 24.93 to 25.07).")
    assert sum(each.startswith("gru diverged with seed 2") for each in sentences) == (seed < 21.3)
    assert [each.startswith(words) for each in sentences if "than a baseline" in each] == [True]


@pytest.mark.parametrize(("seed", "count"), [(21.2, 1), (21.0, 0)])
def test_an_ngram_model_is_compared_with_the_noticeably_better_seeds_of_a_diverged_family(seed: float, count: int):
    ngram = make_family("ngram", 21.3, is_baseline=True, points=[])
    report = make_report(ngram, make_scattered_family("gru", [seed, 30.0, 45.0])) | UNIGRAM
    text = get_verdict_text(report)
    assert "gru diverged with seed 2" in text
    assert text.count("ngram only counts n-grams, and ") == count


def test_a_larger_budget_is_not_judged_by_the_mean_of_a_best_family_that_diverged():
    rnn = make_family("rnn", 20.9, points=[(100, 60.0), (200, 30.0), (400, 21.0)])
    report = make_report(make_scattered_family("gru", [3.9, 4.1, 45.0]), rnn)
    assert "What would change this: rnn was still improving by 30 %" in get_verdict_text(report)
    text = get_verdict_text(report | UNIGRAM)
    assert "gru diverged with seed 2" in text
    assert "larger budget" not in text


def test_a_family_that_diverged_is_no_tie():
    report = make_report(make_family("rnn", 17.5), make_scattered_family("gru", [3.9, 4.1, 45.0])) | UNIGRAM
    verdict = compute_verdict(report)
    assert verdict["tied"] == ["gru"]
    assert verdict["sentences"][:2] == [
        "There is no clear winner: rnn has the best perplexity, 17.50 (95 % interval 17.43 to 17.57).",
        "gru diverged with seed 2 (perplexity 45.00, worse than every baseline), so its mean says little: its other 2 "
        "seeds have 3.90 to 4.10. A lower learning rate may help.",
    ]


def test_no_other_sentence_contradicts_a_diverged_seed():
    """Without it the verdict calls the budget too small for networks, or recommends the family for its speed."""
    attentive = make_scattered_family("attentive", DIVERGED, latency=0.0001, points=OVERFITTING_CURVE)
    ngram = make_family("ngram", 4.9, is_baseline=True, points=[])
    text = get_verdict_text(make_report(ngram, attentive) | UNIGRAM)
    assert "attentive diverged with seed 3" in text
    for words in ("only counts n-grams", "Where speed matters", "got worse after", "larger budget", "flattened"):
        assert words not in text
    attentive["values"] = attentive["values"][3:4]  # the only seed: there is no other that learned
    text = get_verdict_text(make_report(ngram, attentive) | UNIGRAM)
    assert "diverged" not in text
    for words in ("only counts n-grams", "Where speed matters", "got worse after"):
        assert words in text


def test_a_tied_family_that_diverged_is_not_recommended():
    """Its mean puts it among the best, but says little: the fastest and the smallest of the best are others."""
    gru = make_scattered_family("gru", [3.9, 4.1, 45.0], latency=0.0001, parameters=100_000)
    rnn, slow = make_family("rnn", 17.5), make_family("lstm", 19.0, latency=0.0008)
    verdict = compute_verdict(make_report(rnn, gru, slow) | UNIGRAM)
    assert (verdict["best"], verdict["tied"], verdict["unsure"]) == ("rnn", ["gru"], ["lstm"])
    assert (verdict["fastest"], verdict["smallest"]) == (None, None)  # rnn is compared with no other
    text = " ".join(verdict["sentences"])
    assert "of the best" not in text.lower()
    assert "lstm has perplexity 19.00 and needs 800 µs per prediction, 2.5 times as fast as rnn." in text

    tied = make_family("elman", 17.6, latency=0.001, parameters=300_000)
    verdict = compute_verdict(make_report(rnn, gru, tied) | UNIGRAM)
    assert (verdict["tied"], verdict["fastest"], verdict["smallest"]) == (["elman", "gru"], "elman", "elman")
    text = " ".join(verdict["sentences"])
    assert "Of the best, elman is fastest: 1.0 ms per prediction, 2.0 times as fast as rnn." in text
    assert "elman is the smallest of the best: 300,000 parameters." in text
    without_baseline = compute_verdict(make_report(rnn, gru, tied))  # no seed diverged
    assert (without_baseline["fastest"], without_baseline["smallest"]) == ("gru", "gru")


def test_the_size_of_a_tied_family_that_diverged_need_not_be_known():
    gru = make_scattered_family("gru", [3.9, 4.1, 45.0], parameters=None, weights=None)
    tied = make_family("elman", 17.6, parameters=300_000)
    assert compute_verdict(make_report(make_family("rnn", 17.5), gru, tied) | UNIGRAM)["smallest"] == "elman"


def test_the_best_family_is_recommended_although_it_diverged():
    best = make_scattered_family("gru", [3.9, 4.1, 45.0], latency=0.0001, parameters=100_000)
    verdict = compute_verdict(make_report(best, make_family("rnn", 17.8)) | UNIGRAM)
    assert (verdict["best"], verdict["tied"]) == ("gru", ["rnn"])
    assert (verdict["fastest"], verdict["smallest"]) == ("gru", "gru")


def test_of_exactly_equal_families_that_diverged_the_cheapest_is_named():
    """The seeds of two identical variants diverge alike."""
    twins = [make_scattered_family(name, [3.9, 4.1, 45.0], latency=time) for name, time in (("a", 0.003), ("b", 0.001))]
    verdict = compute_verdict(make_report(*twins) | UNIGRAM)
    assert (verdict["equal"], verdict["fastest"]) == (["b"], "b")
    assert "The cheapest of them is b: 1.0 ms per prediction, 3.0 times as fast as a." in verdict["sentences"]


def test_the_cheapest_of_equal_families_is_not_compared_with_a_tied_one_that_diverged():
    gru = make_scattered_family("gru", [3.9, 4.1, 45.0], latency=0.0001)
    equal = [make_family(name, 17.5, latency=time) for name, time in (("a", 0.003), ("b", 0.001))]
    verdict = compute_verdict(make_report(*equal, gru) | UNIGRAM)
    assert (verdict["equal"], verdict["tied"], verdict["fastest"]) == (["b"], ["b", "gru"], "b")
    assert "The cheapest of them is b: 1.0 ms per prediction, 3.0 times as fast as a." in verdict["sentences"]


def test_a_seed_slightly_below_a_baseline_did_not_diverge():
    rnn = make_scattered_family("rnn", [0.83, 0.79, 0.82])
    report = make_report(make_family("gru", 0.9, low=0.89, high=0.91), rnn, key="accuracy") | {"baselines": [BASELINE]}
    assert "diverged" not in get_verdict_text(report)
    assert "rnn (81.3 %) is far behind (−8.7 percentage points); more seeds" in get_verdict_text(report)
