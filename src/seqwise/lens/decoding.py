"""`decoding`: how a model generates a text, step by step.

It is the search of `seqwise predict`, recorded while it runs (`decoding/trace.py`), so that it shows exactly the same
result: beam search for translate and caption, sampling or greedy search for language. At each step it shows what the
model predicts, and of a beam search all candidates with the reason why they were pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.trace import DecodingTrace, NextTokens, trace_decoding
from seqwise.errors import UsageError, check_type
from seqwise.lens.beam_tree import (
    build_candidates,
    describe_stop,
    get_length_penalty,
    get_path,
    get_path_tokens,
    list_hypotheses,
)
from seqwise.lens.decoding_figures import describe_decoding, draw_decoding
from seqwise.lens.subject import Subject, check_target, choose_example, evaluation_mode, inspect_text, name_run
from seqwise.lens.view import View
from seqwise.tasks.inspection import InspectedInput, name_tokens
from seqwise.tasks.task import InferenceOptions
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.api import TrainedModel

TASKS = ("language", "translate", "caption")
NEW_TOKENS = 20  # of a language model, whose text has no end, unless `max_length` is set


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    task = None if subject.trained is None else str(subject.trained.settings.task)
    return None if subject.trained is not None and task in TASKS else explain_missing(subject.name, task)


def explain_missing(name: str, task: str | None) -> str:
    """Returns why there is no search to show."""
    if task is None:
        return f"{name} is not a trained run, so it has no vocabulary to generate from."
    if task == "masked":
        return f"{name} predicts all masked tokens at once: there are no steps, and no search."
    return f"{name} generates no text: its task is {task}."


@dataclass(frozen=True)
class DecodingResult:
    """The output of a search, with its trace."""

    name: str  # of the run
    text: str  # what was read
    output: str
    trace: DecodingTrace
    method: str  # such as "beam 5, length penalty 1"
    tokenizer: Tokenizer  # of the output


def decoding(
    model: Any,
    text: Any = None,
    *,
    beam: int | None = None,
    top: int = 5,
    max_length: int | None = None,
    length_penalty: float | None = None,
    greedy: bool = False,
    seed: int | None = None,
    target: str | None = None,
) -> View:
    """Returns each step of the search of `predict`, with the most probable tokens, and the tree of a beam search.

    beam, length_penalty: of translate and caption, as in `predict`; those of `predict` unless set
    greedy: choose the most probable token at each step; a language model samples unless set
    seed: of sampling, 0 unless set
    max_length: the maximum number of tokens; of a language model 20 unless set
    top: how many tokens each step shows
    target: the language of a translator that has several; the first unless set

    `data`: `text`, `output` (equal to that of `predict`), `method`, `target` (None unless it translates), and `steps`:
    per token of the output its `token`, `probability`, `log_probability`, `total` (the log-probability up to here),
    `entropy` in nats, `rank`, and `top`, a list of tokens, probabilities and whether the search forbids them. Of a beam
    search also `hypotheses`, best first, each with `text`, `log_probability`, `length`, `length_penalty`, `score`,
    `state` and `is_best`; `candidates`, each with its `step`, `token`, `parent` (an index into this list, -1 for the
    root), `log_probability`, `token_log_probability`, `state` and `reason`; and `stopped`, why the search stopped.
    """
    if top < 1:
        raise UsageError(f"top must be at least 1; received {top}.")
    check_type("model", model, TrainedModel, "a trained model (seqwise.load)")
    check_target(model, target)
    options = build_options(model, beam, length_penalty, greedy, seed, max_length)
    if options.target is not None:
        options = replace(options, target=target or options.target)
    with evaluation_mode(model.model):
        decoded = run_search(model, text, options, top)
    data: dict[str, Any] = {"text": decoded.text, "output": decoded.output, "method": decoded.method}
    data["target"] = options.target
    if decoded.trace.options is not None:
        data |= summarize_beam_search(decoded)
    else:
        data["steps"] = list_token_steps(decoded)
    title = f"Decoding by {decoded.name}"
    return View("decoding", title, describe_decoding(data), draw_decoding(data, decoded.trace), data)


def build_options(
    trained: TrainedModel,
    beam: int | None,
    length_penalty: float | None,
    greedy: bool,
    seed: int | None,
    max_length: int | None,
) -> InferenceOptions:
    """Returns the options with which `predict` runs; raises an error for those that do not fit the task."""
    task, name = str(trained.settings.task), name_run(trained)
    if task not in TASKS:
        raise UsageError(explain_missing(name, task), fix="Choose a run of language, translate or caption.")
    if max_length is not None and max_length < 1:
        raise UsageError(f"max-length must be at least 1; received {max_length}.")
    if task == "language":
        if beam is not None or length_penalty is not None:
            problem = "beam search applies to translate and caption; a language model samples, or chooses greedily."
            raise UsageError(problem, fix="Leave --beam and --length-penalty out, or pass --greedy instead.")
        sampling = SamplingOptions(greedy=greedy)
        return InferenceOptions(sampling=sampling, seed=seed or 0, max_length=max_length or NEW_TOKENS)
    if seed is not None:
        raise UsageError(f"the search of {task} is not random: a seed has no effect.", fix="Leave --seed out.")
    if greedy and beam not in (None, 1):
        raise UsageError(f"greedy search has a beam of 1; received {beam}.", fix="Leave --greedy or --beam out.")
    search = BeamSearchOptions() if greedy else trained.task.beam_search
    search = search if beam is None else replace(search, beam=beam)
    search = search if length_penalty is None else replace(search, length_penalty=length_penalty)
    target = trained.run.preprocessor.attributes["targets"][0] if task == "translate" else None
    return InferenceOptions(beam_search=search, max_length=max_length, target=target)


def run_search(trained: TrainedModel, text: Any, options: InferenceOptions, top: int) -> DecodingResult:
    """Runs `predict` on one input and records its search."""
    task, tokenizers = str(trained.settings.task), trained.run.preprocessor.tokenizers
    inspected = choose_example(trained, target=options.target) if text is None else None
    if inspected is None and task != "language":
        inspected = inspect_text(trained, text, options.target)  # also checks the length, and reads the image
    if inspected is None:
        check_type("text", text, str, "a text")
        if not text.strip():
            raise UsageError("the text is empty.", fix="Pass a text, or none: then a validation example is chosen.")
    source = text if inspected is None else inspected.text
    with trace_decoding(top) as trace:
        if task == "language":
            output = "".join(trained.predict(source, options=options))
            method = "greedy" if options.sampling and options.sampling.greedy else f"sampled, seed {options.seed}"
        else:
            is_caption = task == "caption"
            output = (
                caption_image(trained, inspected, options)
                if is_caption
                else trained.predict(source, options=options).text
            )
            method = options.describe_decoding()
    tokenizer = tokenizers[options.target] if options.target is not None else tokenizers["text"]
    name = name_run(trained)
    if inspected is not None and inspected.target:
        name += f", target {inspected.target}"
    return DecodingResult(name, source, output, trace, method, tokenizer)


def caption_image(trained: TrainedModel, inspected: InspectedInput | None, options: InferenceOptions) -> str:
    """Returns the caption of an image that has been read: an example of the data need not have a path."""
    from seqwise.tasks.caption.generation import generate_captions, get_trained_kind
    from seqwise.tasks.caption.images import ImageSet

    batch: Any = None if inspected is None else inspected.batch
    images = ImageSet(get_trained_kind(trained.run.preprocessor.attributes), [batch.images[0].cpu().numpy()])
    return generate_captions(trained.bundle, images, [0], options)[0][0].text


# Numbers


def list_token_steps(decoded: DecodingResult) -> list[dict[str, Any]]:
    """Returns the steps of a language model."""
    steps, total = [], 0.0
    for step in decoded.trace.token_steps:
        total += step.log_prob
        top = list_top(decoded.tokenizer, step.next_tokens, 0)
        entropy = float(step.next_tokens.entropy[0])
        steps.append(build_step(decoded.tokenizer, step.token, step.log_prob, total, step.rank, entropy, top))
    return steps


def build_step(
    tokenizer: Tokenizer, token: int, log_prob: float, total: float, rank: int, entropy: float, top: list[dict]
) -> dict[str, Any]:
    """Returns one step of the output."""
    return {
        "token": name_tokens(tokenizer, [token])[0],
        "probability": float(np.exp(log_prob)),
        "log_probability": log_prob,
        "total": total,
        "entropy": entropy,
        "rank": rank,
        "top": top,
    }


def list_top(
    tokenizer: Tokenizer, next_tokens: NextTokens, row: int, is_forbidden: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Returns the most probable next tokens of one sequence."""
    names = name_tokens(tokenizer, next_tokens.ids[row])
    flags = np.zeros(len(names), dtype=bool) if is_forbidden is None else is_forbidden[row]
    return [
        {"token": name, "probability": float(np.exp(log_prob)), "forbidden": bool(flag)}
        for name, log_prob, flag in zip(names, next_tokens.log_probs[row], flags)
    ]


def summarize_beam_search(decoded: DecodingResult) -> dict[str, Any]:
    """Returns the steps of the best hypothesis, all hypotheses and all candidates of a beam search."""
    trace, tokenizer = decoded.trace, decoded.tokenizer
    nodes = build_candidates(trace)
    names = name_tokens(tokenizer, [node.token for node in nodes[1:]])
    best = next((index for index, node in enumerate(nodes) if node.state == "best"), 0)
    steps = []
    for index in get_path(nodes, best):
        node, record = nodes[index], trace.beam_steps[nodes[index].step - 1]
        top = list_top(tokenizer, record.next_tokens, node.beam, record.is_forbidden)
        entropy = float(record.next_tokens.entropy[node.beam])
        steps.append(build_step(tokenizer, node.token, node.token_log_prob, node.log_prob, node.rank, entropy, top))
    hypotheses = [
        {
            "text": decode_text(tokenizer, [*trace.prefix, *get_path_tokens(nodes, index)], trace.end),
            "log_probability": nodes[index].log_prob,
            "length": nodes[index].length,
            "length_penalty": get_length_penalty(trace, nodes[index].length),
            "score": nodes[index].score,
            "state": "unfinished" if nodes[index].token != trace.end else nodes[index].state,
            "is_best": nodes[index].state == "best",
        }
        for index in list_hypotheses(trace, nodes)
    ]
    candidates = [
        {
            "step": node.step,
            "token": name,
            "parent": node.parent - 1,  # without the root
            "log_probability": node.log_prob,
            "token_log_probability": node.token_log_prob,
            "state": node.state,
            "reason": node.reason,
        }
        for node, name in zip(nodes[1:], names)
    ]
    return {"steps": steps, "hypotheses": hypotheses, "candidates": candidates, "stopped": describe_stop(trace)}


def decode_text(tokenizer: Tokenizer, ids: Sequence[int], end: int) -> str:
    """Returns the text of a sequence, without its end."""
    return tokenizer.decode([token for token in ids if token != end]).strip()
