"""The candidates of a beam search as a tree: which were kept, which finished, which were pruned, and why.

It reads a `DecodingTrace` and knows nothing of text or figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqwise.decoding.beam import compute_length_penalty
from seqwise.decoding.trace import BeamStep, DecodingTrace

STOP_REASONS = {
    "enough": "{beam} hypotheses were finished, and no beam would beat the best of them by ending now",
    "bound": "no beam could still reach the score of the best finished hypothesis",
    "no beam": "no token was allowed any more",
    "maximum length": "the maximum length of {max_length} tokens was reached",
}


@dataclass
class Candidate:
    """A node of the tree: a sequence of tokens, by its last one. The root stands for the beginning."""

    parent: int  # index of its node, -1 for the root
    step: int  # from 1; 0 for the root
    beam: int  # which beam of its step it continues
    token: int
    log_prob: float  # of the sequence
    token_log_prob: float
    rank: int  # of the token in the model's distribution, from 1
    length: int  # tokens, with a forced prefix and the end token
    state: Literal["kept", "pruned", "finished", "best"] = "kept"
    reason: str = ""
    score: float = np.nan  # of a hypothesis that finished, or was returned unfinished


def build_candidates(trace: DecodingTrace) -> list[Candidate]:
    """Returns the root and all candidates of all steps; parents precede children."""
    nodes = [Candidate(-1, 0, 0, -1, 0.0, 0.0, 1, len(trace.prefix))]
    beams = [0]
    for number, step in enumerate(trace.beam_steps, start=1):
        first = len(nodes)
        for index in range(len(step.tokens)):
            nodes.append(create_candidate(trace, step, number, index, beams))
        mark_dead_ends(nodes, beams, step)
        beams = [first + int(index) for index in step.beams]
    for index in beams:
        nodes[index].reason = f"unfinished when the search stopped: {describe_stop(trace)}"
    mark_best(trace, nodes, beams)
    return nodes


def create_candidate(trace: DecodingTrace, step: BeamStep, number: int, index: int, beams: Sequence[int]) -> Candidate:
    """Returns a candidate of a step, with what became of it."""
    beam = int(step.parents[index])
    log_prob, score = float(step.log_probs[index]), float(step.scores[index])
    node = Candidate(
        parent=beams[beam],
        step=number,
        beam=beam,
        token=int(step.tokens[index]),
        log_prob=log_prob,
        token_log_prob=log_prob - float(step.beam_log_probs[beam]),
        rank=int(step.ranks[index]),
        length=len(trace.prefix) + number,
        score=score,
    )
    width = trace.options.beam if trace.options is not None else 1
    if not np.isnan(score):
        node.state = "finished"
        node.reason = explain_score(trace, node)
    elif node.token == trace.end:
        node.state = "pruned"
        node.reason = f"rank {index + 1}: a candidate that ends must be among the first {width}"
    elif index not in step.beams:
        node.state = "pruned"
        last = step.log_probs[step.beams[-1]] if len(step.beams) else np.nan
        node.reason = f"rank {index + 1}, {width} kept: {log_prob:.2f} against {last:.2f}"
    return node


def explain_score(trace: DecodingTrace, node: Candidate) -> str:
    """Returns how the score of a hypothesis is computed."""
    return f"{node.log_prob:.2f} / length penalty {get_length_penalty(trace, node.length):.3f} = score {node.score:.3f}"


def get_length_penalty(trace: DecodingTrace, length: int) -> float:
    """Returns the divisor of the log-probability of a sequence of some length."""
    alpha = trace.options.length_penalty if trace.options is not None else 0.0
    return float(compute_length_penalty(max(1, length), alpha))


def mark_dead_ends(nodes: list[Candidate], beams: Sequence[int], step: BeamStep) -> None:
    """Marks the beams none of whose continuations became a candidate as pruned."""
    for beam, index in enumerate(beams):
        if index and beam not in step.parents:
            allowed = np.flatnonzero(~step.is_forbidden[beam])
            best = step.beam_log_probs[beam] + step.next_tokens.log_probs[beam, allowed[0]] if len(allowed) else np.nan
            last = step.log_probs[-1] if len(step.log_probs) else np.nan
            count, node = len(step.log_probs), nodes[index]
            node.state = "pruned"
            node.reason = f"no continuation is among the {count} candidates: {best:.2f} at best, against {last:.2f}"


def mark_best(trace: DecodingTrace, nodes: list[Candidate], beams: Sequence[int]) -> None:
    """Marks the hypothesis that the search returns, and says of the others why they lost."""
    if not trace.hypotheses or not np.isfinite(trace.hypotheses[0].log_probability):
        return
    hypothesis = trace.hypotheses[0]
    candidates = [index for index, node in enumerate(nodes) if node.state == "finished"] if hypothesis.ended else beams
    wanted = [*hypothesis.ids[len(trace.prefix) :], *([trace.end] if hypothesis.ended else [])]
    best = next((index for index in candidates if get_path_tokens(nodes, index) == wanted), None)
    if best is None:
        return
    nodes[best].state, nodes[best].score = "best", hypothesis.score
    ending = "" if hypothesis.ended else ", not ended"
    nodes[best].reason = f"{explain_score(trace, nodes[best])}, the best{ending}"
    for node in nodes:
        if node.state == "finished":
            is_by_length = node.log_prob > nodes[best].log_prob
            why = " although its log-probability is higher: the length penalty decides" if is_by_length else ""
            node.reason += f", against {nodes[best].score:.3f} of the best{why}"


def get_path(nodes: Sequence[Candidate], index: int) -> list[int]:
    """Returns the nodes from the first step to a node."""
    path = []
    while index > 0:
        path.append(index)
        index = nodes[index].parent
    return path[::-1]


def get_path_tokens(nodes: Sequence[Candidate], index: int) -> list[int]:
    """Returns the tokens of a sequence, without a forced prefix."""
    return [nodes[each].token for each in get_path(nodes, index)]


def describe_stop(trace: DecodingTrace) -> str:
    """Returns why the search stopped."""
    beam = trace.options.beam if trace.options is not None else 1
    if "enough" in trace.stop_reasons and beam == 1:
        return "the sequence ended, and greedy search keeps one"
    reasons = [STOP_REASONS[name] for name in trace.stop_reasons if name in STOP_REASONS]
    return reasons[0].format(beam=beam, max_length=trace.max_length) if reasons else ""


def list_hypotheses(trace: DecodingTrace, nodes: Sequence[Candidate]) -> list[int]:
    """Returns the finished hypotheses, best first, then the last beams, which are unfinished, most probable first."""
    finished = [index for index, node in enumerate(nodes) if not np.isnan(node.score)]
    finished.sort(key=lambda index: (nodes[index].state != "best", -nodes[index].score))
    last_step = len(trace.beam_steps)
    unfinished = [
        index for index, node in enumerate(nodes) if node.state == "kept" and node.step == last_step and index > 0
    ]
    return finished + unfinished
