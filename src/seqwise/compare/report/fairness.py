"""Under which rules a comparison was made, and what that means, sentence by sentence. It knows nothing of results."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from seqwise.budget import Budget
from seqwise.compare.plan.plan import Plan, factors
from seqwise.compare.report.formatting import listed
from seqwise.compare.report.noise import disturbance
from seqwise.compare.run.jobs import Job, outcome_of
from seqwise.metrics.example_scores import SCORES_FILE

Values = dict[str, Any]

WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""")  # of a command line, quoted as it is written


def rules_of(folder: Path, plan: Plan, families: list[Values]) -> Values:
    """The report's "rules"; `families` are those of the report."""
    spending = plan.spending
    return {
        "budget": amount(spending.budget, plan.unit),
        "match": plan.match,
        "parameters": plan.target,
        "seeds": list(spending.seeds),
        "tries": spending.tries,
        "try": amount(spending.a_try, plan.unit) if spending.tries > 1 else None,
        "training": amount(spending.training, plan.unit),
        "tested": _tested(folder, plan),
        "sentences": _sentences(folder, plan, families),
        "disturbed": disturbance(folder, plan),
    }


def command_of(plan: Plan) -> str:
    """What does it again, without the folder: that one is taken now."""
    if plan.command.startswith("seqwise "):
        words = iter(WORD.findall(plan.command))
        kept = []
        for word in words:
            if word == "--out":
                next(words, None)
            elif not word.startswith("--out="):
                kept.append(word)
        return " ".join(kept)
    try:
        call = ast.parse(plan.command, mode="eval").body
    except SyntaxError:
        return plan.command
    if not isinstance(call, ast.Call) or not any(each.arg == "out" for each in call.keywords):
        return plan.command
    call.keywords = [each for each in call.keywords if each.arg != "out"]
    return ast.unparse(call)


def amount(text: str, unit: str) -> str:
    """A budget in words: "2 min", "5,000 tokens"; `unit` is what the task counts as tokens."""
    budget = Budget.parse(text)
    return f"{budget.amount:,.10g} {unit}" if budget.unit == "tokens" else str(budget)


def _sentences(folder: Path, plan: Plan, families: list[Values]) -> list[str]:
    """How it was made fair."""
    return [
        "All families have the same vocabulary, the same split of the data and the same evaluation.",
        *_sizes(plan, families),
        *(sentence if sentence.endswith(".") else f"{sentence}." for sentence in plan.notes),
        _search(plan),
        *_edges(families),
        *_trainings(folder, plan),
        "The weights of the best validation were kept.",
        _tested(folder, plan),
    ]


def _sizes(plan: Plan, families: list[Values]) -> list[str]:
    counts = [each["parameters"] for each in families if each["parameters"] and not each["baseline"]]
    if plan.target is not None and counts:
        more = max(counts) / min(counts) - 1
        return [
            f"Widths were solved for {plan.target:,} parameters; the largest has {more:.1%} more than the smallest."
        ]
    if plan.match != "parameters":
        equal = plan.unit if plan.match == "tokens" else plan.match
        return [f"Each family has the size of its rules and spends equal {equal}."]
    return []


def _search(plan: Plan) -> str:
    tries = plan.spending.tries
    if tries == 1:
        return "No learning rate was searched: each family has that of its rules."
    times = [f"{factor:g}" for factor in factors(tries)]
    return (
        f"Each family tried {tries} learning rates for {amount(plan.spending.a_try, plan.unit)} each, "
        f"{listed(times)} times the rule's own; validation chose."
    )


def _edges(families: list[Values]) -> list[str]:
    """Who might have found a better rate beyond those tried."""
    found = []
    for family in families:
        rates, chosen = [each["rate"] for each in family["tries"]], family["learning_rate"]
        if chosen is not None and len(rates) > 1 and chosen in (min(rates), max(rates)):
            found.append(f"{family['name']} ({'lowest' if chosen == min(rates) else 'highest'})")
    return [f"At the edge of the rates it tried, beyond which a better one may lie: {listed(found)}."] if found else []


def _trainings(folder: Path, plan: Plan) -> list[str]:
    """How long each was trained and what ran beside it; counting is no training."""
    counted = [name for name in plan.families if plan.counted(name)]
    found = []
    if len(counted) < len(plan.families):
        seeds = plan.spending.seeds
        times = "once" if len(seeds) == 1 else f"with {len(seeds)} seeds"
        who = "each of the others" if counted else "each"
        long = amount(plan.spending.training, plan.unit)
        if Budget.parse(plan.spending.training).unit == "seconds":
            found = [f"Then {who} was trained {times}, {long} a time, validation included, {_beside(folder, plan)}."]
        else:
            found = [f"Then {who} was trained {times}, on exactly {long} a time."]
            together = _beside(folder, plan)
            if not together.startswith("one after another"):
                found.append(f"Trials ran {together}, so that speeds are not those of a trial by itself.")
    if counted:
        verb = "was" if len(counted) == 1 else "were"
        found.append(
            f"{listed(counted)} {verb} counted, not trained: the whole training split was read once, whatever the "
            "budget."
        )
    return found


def _beside(folder: Path, plan: Plan) -> str:
    """Whether trials could disturb each other."""
    found = [outcome_of(folder, "train", trial.name) for trial in plan.trials()]
    known = [outcome.values for outcome in found if outcome is not None and outcome.values]
    sharing = max((each.get("beside") or 1 for each in known), default=1)
    at_once = max((each.get("at_once") or 1 for each in known), default=1)
    nodes = {each.get("node") for each in known}
    where = "on the same machine" if len(nodes) < 2 else f"on {len(nodes)} machines"
    if max(sharing, at_once) == 1:
        return f"one after another {where}"
    if sharing == 1:
        return f"{at_once} at a time, each with a device of its own, {where}"
    if sharing >= at_once:
        return f"{sharing} at a time sharing a device {where}"
    return f"{at_once} at a time, up to {sharing} of them sharing a device, {where}"


def _tested(folder: Path, plan: Plan) -> str:
    """When the test split was read. A comparison that went on after a failure may have trained again.

    By the times of the files that training and testing write last; a copy that does not keep them may tell it wrong.
    """
    jobs = [Job("train", trial.name) for trial in plan.trials()]
    trained = _times([job.run(folder) / "metrics.jsonl" for job in jobs])
    tested = _times([job.scores(folder) / SCORES_FILE for job in jobs])
    if trained and tested and max(trained) > min(tested):
        return "The test split was read after training. Some trials were repeated after others had been tested."
    return "The test split was read once, after all training."


def _times(paths: list[Path]) -> list[float]:
    return [path.stat().st_mtime for path in paths if path.exists()]
