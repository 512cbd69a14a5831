"""Sample reports of comparisons, of many kinds, as plain values with the keys of `report.json`.

Numbers are invented but consistent: means are those of the values, pairs those of the means. The verdict and the texts
are computed as in a real report. `parse` turns plain values into the typed report.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

from seqwise.compare.report.schema import Report, from_json, to_json
from seqwise.compare.report.texts import add_texts
from seqwise.compare.report.verdict import add_verdict

Values = dict[str, Any]

HOSTILE = "</script><script>document.title='taken'</script><b>&amp;\"'`${1}{{DATA}}"
QUANTILE = {2: 12.71, 3: 4.30}  # number of seeds → 97.5 % quantile of Student's t

METRICS = {
    "perplexity": (
        "perplexity",
        "exp of the mean negative log-likelihood per token, in nats",
        True,
        "blocks of 128 tokens",
    ),
    "accuracy": ("accuracy", "share of texts given their label", False, "texts"),
    "mse": ("mse", "mean squared error of the standardised values", True, "blocks of 96 steps"),
    "bleu": ("BLEU", "sacreBLEU, BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0", False, "pairs"),
}


def parse(values: Values) -> Report:
    """Returns the typed report of plain values."""
    return from_json(Report, json.dumps(values))


def complete(values: Values) -> Values:
    """Returns the values with verdict, ranks and texts computed."""
    return json.loads(to_json(add_texts(add_verdict(parse(values)))))


def family(name: str, metric: str, values: Sequence[float], **more: Any) -> Values:
    """Returns a family that finished, with its costs and curves."""
    generator = random.Random(name)
    lower_is_better = METRICS[metric][2]
    centre, seeds = mean(values), range(len(values))
    half_width = QUANTILE[len(values)] * stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    noise = 0.03 * abs(centre) * generator.uniform(0.5, 1.5)
    speed = generator.uniform(15_000, 90_000)
    rate = round(0.004 * generator.uniform(0.4, 2), 5)
    latency = more.pop("latency", generator.uniform(0.0004, 0.009))
    return {
        "name": name,
        "model": name,
        "status": "done",
        "reason": "",
        "is_baseline": False,
        "parameters": int(412_000 * generator.uniform(0.98, 1.02)),
        "learning_rate": rate,
        "lr_trials": [
            {
                "rate": rate * times,
                "validation": centre * (1.1 + 0.05 * at if lower_is_better else 0.9 - 0.05 * at),
                "status": "done",
                "reason": "",
            }
            for at, times in enumerate((1.0, 0.4, 2.5))
        ],
        "mean": centre,
        "low": None if half_width is None else centre - half_width,
        "high": None if half_width is None else centre + half_width,
        "values": [{"seed": seed, "value": value} for seed, value in zip(seeds, values)],
        "sampling": {"low": centre - noise, "high": centre + noise},
        "metrics": {metric: centre, "loss": centre / 3.7},
        "training": {
            "tokens": int(15 * speed),
            "seconds": 15.02,
            "tokens_per_second": speed,
            "updates": int(speed / 70),
        },
        "memory": int(generator.uniform(300e6, 900e6)),
        "weights": 1_650_000,
        "latency": latency,
        "latencies": [] if latency is None else [0.9 * latency, latency, 1.3 * latency],
        "evaluation_seconds": generator.uniform(0.2, 3),
        "curves": [
            {"seed": seed, "points": points(value, lower_is_better, speed, generator)}
            for seed, value in zip(seeds, values)
        ],
        "rank": "worse",
        "run": f"trials/{name}/seed-0",
        "settings": {
            "model": name,
            "seed": 0,
            "training": {"rate": rate, "batch_size": 32},
            "network": {"width": generator.randint(100, 300), "depth": 2, "dropout": None},
        },
        **more,
    }


def points(end: float, lower_is_better: bool, speed: float, generator: random.Random) -> list[dict[str, float]]:
    """Returns a curve that falls or rises to its end."""
    curve = []
    for number in range(1, 25):
        seconds = 15 * number / 24
        gap = 1.6 * (1 / (1 + 8 * number / 24) ** 1.3 - 1 / 9**1.3) + generator.gauss(0, 0.006)
        value = end * (1 + 3 * max(gap, -0.2)) if lower_is_better else end * (1 - 0.6 * max(gap, -0.05))
        curve.append({"tokens": int(speed * seconds), "seconds": seconds, "value": value, "loss": abs(value) / 3})
    return curve


def failed(name: str, reason: str) -> Values:
    scores, costs = (
        ("mean", "low", "high", "sampling"),
        ("training", "memory", "weights", "latency", "evaluation_seconds"),
    )
    return {
        "name": name,
        "model": name,
        "status": "failed",
        "reason": reason,
        "is_baseline": False,
        "rank": "failed",
        "lr_trials": [{"rate": 0.004, "validation": None, "status": "failed", "reason": reason}],
        "values": [],
        "latencies": [],
        "metrics": {},
        "curves": [],
        "settings": {},
        "run": f"trials/{name}/seed-0",
        **dict.fromkeys(("parameters", "learning_rate", *scores, *costs)),
    }


def report(task: str, metric: str, families: list[Values], **more: Any) -> Values:
    """Returns a complete report with these families: best first, pairs, verdict, trials."""
    name, definition, lower_is_better, unit = METRICS[metric]
    finished = sorted(
        (each for each in families if each["mean"] is not None),
        key=lambda each: each["mean"] * (1 if lower_is_better else -1),
    )
    pairs = [pair(a, b) for at, a in enumerate(finished) for b in finished[at + 1 :]]
    seeds = sorted({value["seed"] for each in finished for value in each["values"]}) or [0, 1, 2]
    values: Values = {
        "format": 2,
        "seqwise": "0.1.0",
        "task": task,
        "data": "builtin:docs",
        "unit": "tokens",
        "split_rule": "The last 10 % of the text are held out: 5 % for validation, 5 % for testing.",
        "about": ["1,204,311 characters of English, with a vocabulary of 97."],
        "command": f"seqwise compare builtin:docs --task {task} --models "
        + ",".join(each["name"] for each in families),
        "machine": {
            "seqwise": "0.1.0",
            "python": "3.11.2",
            "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
            "cpu": {"name": "AMD EPYC", "count": 2, "threads": 2},
            "memory": {"total": 8_000_000_000, "free": None},
            "gpu": None,
            "in_words": "AMD EPYC, 2 cores, 2 threads, no GPU",
        },
        "rules": {
            "budget": "20 s",
            "match": "parameters",
            "parameters": 412_345,
            "seeds": seeds,
            "lr_trials": 3,
            "lr_trial_budget": "5 s",
            "training_budget": "15 s",
            "sentences": [
                "Every family had 20 s for each seed, everything included.",
                "A quarter of it went into three short training runs with different learning rates.",
                "Widths that were not set were chosen for about 300,000 parameters.",
                "Trials ran one after another on the same cores.",
            ],
            "tested": "The model of each training run was evaluated once on the test split, after all training.",
        },
        "metric": {
            "key": metric,
            "name": name,
            "definition": definition,
            "lower_is_better": lower_is_better,
            "example_unit": unit,
        },
        "families": [*finished, *(each for each in families if each["mean"] is None)],
        "pairs": pairs,
        "examples": [],
        "trials": trials(families, seeds),
        **more,
    }
    return complete(values)


def pair(a: Values, b: Values) -> Values:
    difference = a["mean"] - b["mean"]
    half_width = 0.02 * (abs(a["mean"]) + abs(b["mean"]))
    p = min(1.0, 2.718 ** (-3 * abs(difference) / half_width)) if half_width else 1.0
    return {
        "a": a["name"],
        "b": b["name"],
        "difference": difference,
        "low": difference - half_width,
        "high": difference + half_width,
        "p": p,
        "adjusted_p": min(1.0, 3 * p),
        "significant": 3 * p < 0.05,
        "covers": "seeds and examples",
        "larger_noise": "seeds",
    }


def trials(families: list[Values], seeds: list[int]) -> list[Values]:
    summaries = []
    for each in families:
        common = {"family": each["name"], "status": "done" if each["values"] else "failed", "reason": each["reason"]}
        spent = (
            {"tokens": 204_800, "seconds": 5.01, "updates": 200}
            if each["values"]
            else dict.fromkeys(("tokens", "seconds", "updates"))
        )
        for number, lr_trial in enumerate(each["lr_trials"], start=1):
            summaries.append(
                {
                    "name": f"{each['name']}/lr-{number}",
                    "kind": "lr",
                    "seed": 0,
                    "rate": lr_trial["rate"],
                    "validation": lr_trial["validation"],
                    **common,
                    **spent,
                }
            )
        for seed in seeds[: len(each["values"])]:
            summaries.append(
                {
                    "name": f"{each['name']}/seed-{seed}",
                    "kind": "train",
                    "seed": seed,
                    "rate": each["learning_rate"],
                    "validation": each["mean"],
                    **common,
                    **spent,
                }
            )
    return summaries


def answers(names: Sequence[str], texts: Sequence[str], values: Sequence[float]) -> Values:
    return {name: {"text": text, "value": value} for name, text, value in zip(names, texts, values)}


def normal() -> Values:
    """Five families and the baseline, language, three seeds."""
    ngram = family(
        "ngram",
        "perplexity",
        [4.9],
        is_baseline=True,
        learning_rate=None,
        lr_trials=[],
        training=None,
        curves=[],
        memory=None,
    )
    means = {"gru": 3.12, "lstm": 3.16, "transformer": 3.55, "rnn": 3.74, "attentive-rnn": 3.41}
    families = [family(name, "perplexity", [end, end * 1.013, end * 0.99]) for name, end in means.items()]
    passage = (
        "The for statement is used to iterate over the elements of a sequence (such as a string, tuple or list). " * 2
    )
    names = [*means, "ngram"]
    examples = [
        {"input": passage, "expected": "", "answers": answers(names, [""] * 6, [2.1, 2.4, 5.2, 3.9, 3.3, 9.4])},
        {
            "input": "2.3.4. Formatted string literals\n\n    f_string: ...",
            "expected": "",
            "answers": answers(names, [""] * 6, [12.1, 8.4, 7.2, 14.9, 10.3, 39.4]),
        },
    ]
    return report("language", "perplexity", [*families, ngram], examples=examples)


def with_failures() -> Values:
    """Higher is better; one family failed, one lost a seed, one is probably worse than the best."""
    reason = "the loss became infinite at update 212; nothing was saved after update 200. Try a smaller learning rate."
    families = [
        family("lstm", "accuracy", [0.842, 0.848, 0.839]),
        family("feedforward", "accuracy", [0.804, 0.800, 0.814]),
        family("gru", "accuracy", [0.846, 0.851], status="partly", reason="seed 2: the process was killed."),
    ]
    texts = ["a charming, quietly moving film", "it never quite decides what it wants to be"]
    examples = [
        {"input": text, "expected": expected, "answers": answers(["lstm", "feedforward", "gru"], predictions, right)}
        for text, expected, predictions, right in (
            (texts[0], "positive", ["positive", "negative", "positive"], [1.0, 0.0, 1.0]),
            (texts[1], "negative", ["positive", "negative", "negative"], [0.0, 1.0, 1.0]),
        )
    ]
    baseline = {"name": "most frequent label", "value": 0.5523, "about": "It always answers 'positive'."}
    return report(
        "classify",
        "accuracy",
        [*families, failed("transformer", reason)],
        data="reviews.csv",
        examples=examples,
        baselines=[baseline],
    )


def one_seed() -> Values:
    """No interval over seeds, no search for a rate, values instead of tokens."""
    families = [
        family(name, "mse", [value], lr_trials=[])
        for name, value in {"lstm": 0.4213, "rnn": 0.4391, "transformer": 0.612}.items()
    ]
    examples = [
        {
            "input": "ETTh1, 2018-02-20 03:00",
            "expected": "12.1 11.8 11.9",
            "answers": {
                "lstm": {"text": "12.0 11.7 11.6", "value": 0.31, "values": [12.0, 11.7, 11.6]},
                "rnn": {"text": "10.0 9.1 9.4", "value": 1.7, "values": [10.0, 9.1, 9.4]},
            },
            "history": [11.0, None, 12.4, 12.5],
            "actual": [12.1, 11.8, 11.9],
        }
    ]
    rules = {
        "budget": "5M tokens",
        "match": "tokens",
        "parameters": None,
        "seeds": [0],
        "lr_trials": 1,
        "lr_trial_budget": None,
        "training_budget": "5M tokens",
        "sentences": ["One training each."],
    }
    return report("forecast", "mse", families, unit="values", rules=rules, data="ETTh1.csv", examples=examples)


def twelve_families() -> Values:
    """Twelve families with long names; long answers, some written from right to left."""
    names = [
        "rnn",
        "gru",
        "lstm",
        "attentive-rnn",
        "transformer",
        "feedforward",
        "wide-gru",
        "deep-lstm-with-layer-norm",
        "gru_reset.before",
        "transformer-rotary-8-heads",
        "narrow",
        "a-rather-long-name-that-a-user-chose-for-a-variant",
    ]
    families = [family(name, "bleu", [base, base + 0.7, base - 0.5]) for name, base in zip(names, range(20, 44, 2))]
    texts = ["شاهد الرجل القطة على السطح"] * 6 + ["האיש ראה את החתול על הגג"] * 6
    examples = [
        {
            "input": "A man sees a cat on the roof. " * 30,
            "expected": "رأى رجل قطة على السطح",
            "answers": answers(names, texts, [value / 2 for value in range(12)]),
        },
        *(
            {
                "input": f"sentence {number}",
                "expected": "Satz",
                "answers": answers(names, ["Satz " * 90] * 12, range(12)),
            }
            for number in range(5)
        ),
    ]
    return report("translate", "bleu", families, data="multi30k", examples=examples)


def hostile() -> Values:
    """Text that would be markup wherever text of the user can come from."""
    families = [
        family(HOSTILE, "accuracy", [0.9, 0.91, 0.92], settings={HOSTILE: {HOSTILE: HOSTILE}, "x": [HOSTILE]}),
        family("__proto__", "accuracy", [0.7, 0.71, 0.72], status="partly", reason=HOSTILE),
    ]
    examples = [
        {
            "input": HOSTILE,
            "expected": HOSTILE,
            "answers": answers([HOSTILE, "__proto__"], [HOSTILE, HOSTILE], [1.0, 0.0]),
        }
    ]
    metric = {
        "key": "accuracy",
        "name": HOSTILE,
        "definition": HOSTILE,
        "lower_is_better": False,
        "example_unit": HOSTILE,
    }
    values = report(
        "classify",
        "accuracy",
        [*families, failed("lstm", HOSTILE)],
        data=HOSTILE,
        baselines=[{"name": HOSTILE, "value": 0.5, "about": HOSTILE}],
        command=HOSTILE,
        examples=examples,
        split_rule=HOSTILE,
        about=[HOSTILE],
        unit=HOSTILE,
    )
    values["metric"] = metric
    values["verdict"]["sentences"] = [HOSTILE]
    values["machine"]["in_words"] = HOSTILE
    values["rules"]["sentences"] = [HOSTILE]
    return values


def extreme() -> Values:
    """Numbers far from 1 in both directions, and many that do not exist."""
    tiny = family(
        "gru", "mse", [3.1e-9, 2.9e-9, 3.3e-9], learning_rate=1e-7, latency=3e-7, memory=1_900_000_000_000, parameters=3
    )
    huge = family(
        "rnn", "mse", [4e14, 5e14, 4.5e14], parameters=1_750_000_000_000, weights=7_000_000_000_000, latency=512.0
    )
    huge["training"] = {"tokens": 9e12, "seconds": 432_000.0, "tokens_per_second": 0.02, "updates": 1}
    zero = family(
        "lstm",
        "mse",
        [0.5, 0.5, 0.5],
        sampling=None,
        memory=None,
        latency=None,
        evaluation_seconds=None,
        curves=[],
        metrics={},
    )
    broken = family("transformer", "mse", [2.0, 2.0, 2.0])
    for point in broken["curves"][0]["points"][3:]:
        point["value"] = None
    broken["curves"][1]["points"] = broken["curves"][1]["points"][:1]
    broken["curves"][2]["points"] = []
    return report("forecast", "mse", [tiny, huge, zero, broken])


def all_failed() -> Values:
    """Every family failed."""
    return report("tag", "accuracy", [failed("gru", "out of memory"), failed("lstm", "out of memory")])


def single_family() -> Values:
    """A single family with a single seed."""
    return report("masked", "perplexity", [family("transformer", "perplexity", [14.2])])


SAMPLES: dict[str, Callable[[], Values]] = {
    sample.__name__: sample
    for sample in (normal, with_failures, one_seed, twelve_families, hostile, extreme, all_failed, single_family)
}
