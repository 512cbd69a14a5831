"""The sentences and figures of the view `decoding`, from its `data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqwise.decoding.trace import DecodingTrace
from seqwise.page.figures import Figure, LineChart, Series, Table, TokenText, Tree, TreeNode
from seqwise.page.labels import show_name

MAX_PRUNED = 2  # pruned candidates of each step in the tree, and rows of the table that says why: the most probable
MAX_ROWS = 40  # of the table that says why
MAX_STEPS = 400  # in the table of steps


def describe_decoding(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns sentences: the output and its probability, where the model preferred another token, and the search."""
    steps = data["steps"]
    if not steps:
        return (f"The output is empty ({data['method']}): no token was generated.",)
    total, rarest = steps[-1]["total"], min(steps, key=lambda step: step["log_probability"])
    summary = [
        f"{data['output'].strip()!r} ({data['method']}): log-probability {format_log(total)} in {len(steps)} steps, "
        f"{format_log(total / len(steps))} per token; the mean entropy of a step is "
        f"{format_log(np.mean([step['entropy'] for step in steps]))} nats.",
        f"The least probable token is {show_name(rarest['token'])!r} at step {steps.index(rarest) + 1}: probability "
        f"{format_probability(rarest['probability'])}, rank {rarest['rank']:,}.",
    ]
    summary.append(describe_preferences(steps))
    if "hypotheses" in data:
        summary += describe_search(data)
    return tuple(summary)


def describe_preferences(steps: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence about the steps at which another token was more probable."""
    others = [(number, step) for number, step in enumerate(steps, start=1) if step["rank"] > 1]
    if not others:
        return "At every step the most probable token was chosen."
    number, step = max(others, key=lambda each: each[1]["top"][0]["probability"] - each[1]["probability"])
    preferred = step["top"][0]
    forbidden = ", which the search may not choose" if preferred["forbidden"] else ""
    return (
        f"At {len(others)} of {len(steps)} steps another token was more probable; the largest difference is at step "
        f"{number}: {show_name(preferred['token'])!r} {format_probability(preferred['probability'])}{forbidden}, "
        f"chosen {show_name(step['token'])!r} {format_probability(step['probability'])}."
    )


def describe_search(data: Mapping[str, Any]) -> list[str]:
    """Returns sentences about a beam search: what it discarded, and why it stopped."""
    finished = [each for each in data["hypotheses"] if each["state"] != "unfinished"]
    pruned = sum(candidate["state"] == "pruned" for candidate in data["candidates"])
    sentences = [
        f"Of {len(data['candidates'])} candidates {pruned} were pruned and {len(finished)} finished. "
        f"The search stopped because {data['stopped']}."
    ]
    best = next((each for each in data["hypotheses"] if each["is_best"]), None)
    likelier = [each for each in finished if best is not None and each["log_probability"] > best["log_probability"]]
    if best is not None and likelier:
        other = max(likelier, key=lambda each: each["log_probability"])
        sentences.append(
            f"The length penalty decided: {other['text']!r} has a higher log-probability "
            f"({other['log_probability']:.2f} against {best['log_probability']:.2f}), but a lower score "
            f"({other['score']:.3f} against {best['score']:.3f})."
        )
    return sentences


def format_probability(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def format_log(value: float, digits: int = 2) -> str:
    """Returns a log-probability; one that is rounded to zero has no sign."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def draw_decoding(data: Mapping[str, Any], trace: DecodingTrace) -> tuple[Figure, ...]:
    """Returns the output with probabilities, their course, the table of steps, and the figures of a beam search."""
    figures: list[Figure] = []
    if data["steps"]:
        figures += [draw_output(data["steps"]), draw_course(data["steps"]), draw_steps(data["steps"])]
    if "hypotheses" in data:
        figures.append(draw_hypotheses(data["hypotheses"]))
        if trace.options is not None and trace.options.beam > 1:
            figures += [draw_tree(data), draw_pruned(data["candidates"])]
    return tuple(figures)


def draw_output(steps: Sequence[Mapping[str, Any]]) -> TokenText:
    return TokenText(
        title="Output",
        tokens=[step["token"] for step in steps],
        values=-np.array([step["log_probability"] for step in steps]) + 0.0,
        value_label="−log-probability of the token in nats",
        scale="sequential",
        details=[describe_step(step) for step in steps],
    )


def describe_step(step: Mapping[str, Any]) -> str:
    """Returns the numbers of a step in one line."""
    probability = format_probability(step["probability"])
    return f"probability {probability}, rank {step['rank']}, entropy {step['entropy']:.2f} nats; {format_top(step)}"


def draw_course(steps: Sequence[Mapping[str, Any]]) -> LineChart:
    x = np.arange(len(steps))
    return LineChart(
        title="How certain each step was",
        series=[
            Series(name="−log-probability of the token", x=x, y=-np.array([s["log_probability"] for s in steps])),
            Series(name="entropy of the distribution", x=x, y=np.array([s["entropy"] for s in steps])),
        ],
        x_label="token of the output",
        y_label="nats",
        x_names=[show_name(step["token"]) for step in steps],
    )


def draw_steps(steps: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("step", "token", "rank", "log p", "Σ log p", "entropy", "most probable tokens")
    rows = [
        (
            number,
            show_name(step["token"]),
            step["rank"],
            format_log(step["log_probability"]),
            format_log(step["total"]),
            format_log(step["entropy"]),
            format_top(step),
        )
        for number, step in enumerate(steps[:MAX_STEPS], start=1)
    ]
    note = f"The first {MAX_STEPS} of {len(steps):,} steps." if len(steps) > MAX_STEPS else ""
    return Table(
        title="Steps of the output: log-probabilities and entropy in nats", columns=columns, rows=rows, note=note
    )


def format_top(step: Mapping[str, Any]) -> str:
    """Returns the most probable tokens of a step in one line; × marks those that the search may not choose."""
    return ", ".join(
        f"{'×' if each['forbidden'] else ''}{show_name(each['token'])} {format_probability(each['probability'])}"
        for each in step["top"]
    )


def draw_hypotheses(hypotheses: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("Σ log p", "tokens", "penalty", "score", "state", "hypothesis")
    rows = [
        (
            format_log(each["log_probability"], 3),
            each["length"],
            f"{each['length_penalty']:.3f}",
            "" if np.isnan(each["score"]) else format_log(each["score"], 3),
            "unfinished" if each["state"] == "unfinished" else "best" if each["is_best"] else "finished",
            each["text"],
        )
        for each in hypotheses
    ]
    note = "score = Σ log p / length penalty; tokens include the end. Hypotheses that ended are compared by score."
    return Table(title="Hypotheses", columns=columns, rows=rows, note=note)


def draw_tree(data: Mapping[str, Any]) -> Tree:
    """Returns the tree without the less probable of the pruned candidates."""
    candidates, shown = data["candidates"], choose_shown(data["candidates"])
    places = {-1: 0} | {index: place for place, index in enumerate(shown, start=1)}
    nodes = [TreeNode(parent=-1, label="(start)", value=0.0)]
    for index in shown:
        each = candidates[index]
        nodes.append(
            TreeNode(
                parent=places[each["parent"]],
                label=show_name(each["token"]),
                value=each["log_probability"],
                state=each["state"],
                detail=each["reason"],
            )
        )
    hidden = len(candidates) - len(shown)
    note = (
        f"{hidden} more candidates were pruned; each step shows at least the {MAX_PRUNED} most probable."
        if hidden
        else ""
    )
    return Tree(title="Beam search", nodes=nodes, value_label="log-probability of the sequence", note=note)


def choose_shown(candidates: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the candidates of the tree: all that were continued or finished, and a few of the pruned of each step."""
    continued = {each["parent"] for each in candidates if each["state"] != "pruned"}
    shown, counts, parents = [], dict.fromkeys((each["step"] for each in candidates), 0), set()
    for index, each in enumerate(candidates):  # the most probable of a step come first
        is_first = (
            each["parent"] not in parents and each["parent"] not in continued
        )  # else its parent looks unexplained
        if each["state"] == "pruned" and not is_first and not is_dead_end(each):
            counts[each["step"]] += 1
            if counts[each["step"]] > MAX_PRUNED:
                continue
        shown.append(index)
        parents.add(each["parent"])
    return shown


def is_dead_end(candidate: Mapping[str, Any]) -> bool:
    """Returns whether a candidate was kept, and none of its continuations."""
    return candidate["reason"].startswith("no continuation")


def draw_pruned(candidates: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the reasons for the most probable of the pruned candidates of each step."""
    rows: list[tuple[Any, ...]] = []
    counts: dict[int, int] = {}
    for index, each in enumerate(candidates):
        if each["state"] == "pruned" and counts.get(each["step"], 0) < MAX_PRUNED:
            counts[each["step"]] = counts.get(each["step"], 0) + 1
            value = f"{each['log_probability']:.2f}"
            rows.append((each["step"], spell_sequence(candidates, index), value, each["reason"]))
    note = f"The first {MAX_ROWS} of {len(rows)}." if len(rows) > MAX_ROWS else ""
    columns = ("step", "sequence", "log-probability", "reason")
    return Table(title="Why candidates were pruned", columns=columns, rows=rows[:MAX_ROWS], note=note)


def spell_sequence(candidates: Sequence[Mapping[str, Any]], index: int, count: int = 4) -> str:
    """Returns the last tokens of a sequence."""
    names: list[str] = []
    while index >= 0 and len(names) < count:
        names.append(show_name(candidates[index]["token"]))
        index = candidates[index]["parent"]
    return ("… " if index >= 0 else "") + " ".join(reversed(names))
