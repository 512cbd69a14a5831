"""Continues a text token by token, with the probability of each token and the alternatives to it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.data.shuffle import hash_integers
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.trace import NextTokens, trace_decoding
from seqwise.errors import UsageError
from seqwise.studio.work.predictions import load_task, warn_about_unknown
from seqwise.studio.worker import Context
from seqwise.tasks.inspection import get_device, name_tokens
from seqwise.tasks.language.inspection import compute_log_probabilities, get_max_length
from seqwise.text.tokenizer import Encoding, TextStream, Tokenizer

NUM_ALTERNATIVES = 10
MAX_SCORED = 256  # tokens at the end of a prompt whose probability is shown
CONTINUATION_PREFIX = "##"  # of a wordpiece token that continues a word


class PieceStream:
    """The text that each token adds to a continuation. Joined, it is the text that `predict` yields."""

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int], strip_space: bool):
        self.tokenizer, self.stream = tokenizer, TextStream(tokenizer, ids)
        self.strip_space = strip_space and not self.stream.has_spaces_in_tokens  # of the first word after the prompt
        self.is_line_start = not ids or ids[-1] == tokenizer.end

    def spell(self, token: int) -> str:
        """Returns the text that a token would add."""
        if self.tokenizer.kind == "wordpiece":  # whose stream waits for the next token
            text = self._spell_wordpiece(token)
        else:
            stream = copy(self.stream)
            stream.pending_ids = list(stream.pending_ids)
            text = stream.add(token)
        return text.removeprefix(" ") if self.strip_space else text

    def _spell_wordpiece(self, token: int) -> str:
        name = self.tokenizer.token(token)
        if token == self.tokenizer.end:
            return "\n"
        if name.startswith(CONTINUATION_PREFIX) or self.is_line_start:
            return name.removeprefix(CONTINUATION_PREFIX)
        return f" {name}"

    def add(self, token: int) -> str:
        """Adds a token; returns its text."""
        text = self.spell(token)
        self.stream.add(token)
        self.strip_space, self.is_line_start = False, token == self.tokenizer.end
        return text


def continue_text(
    context: Context,
    run: str,
    text: str,
    prefix: Sequence[int] = (),
    length: int = 40,
    seed: int = 0,
    greedy: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> dict[str, Any]:
    """Emits the tokens of the prompt, then each token of its continuation.

    prefix: ids of tokens that the continuation begins with: those of another one up to a point, then an alternative
    """
    trained = load_task(context, run, "language")
    model, tokenizer = trained.bundle.model.eval(), trained.run.preprocessor.tokenizer
    if any(token >= len(tokenizer) for token in prefix):
        raise UsageError(f"the vocabulary has {len(tokenizer):,} tokens; received the id {max(prefix):,}.")
    encoding = tokenizer.encode(text)
    context.emit(describe_prompt(model, tokenizer, text, encoding))
    prompt = encoding.ids if len(encoding) else tokenizer.encode("\n").ids
    ids = np.concatenate([prompt, np.asarray(prefix, dtype=np.int64)])
    pieces = PieceStream(tokenizer, prompt.tolist(), strip_space=text[-1:].isspace())
    for token in prefix:
        pieces.add(token)
    sampling = SamplingOptions(greedy=greedy, temperature=temperature, top_k=top_k, top_p=top_p)
    seed = hash_integers(seed, *prefix) % 2**63 if prefix else seed  # else a branch repeats the choices of its parent
    with trace_decoding(NUM_ALTERNATIVES) as trace:
        tokens = generate(model, torch.tensor(ids[None], device=get_device(model)), sampling, seed)
    for _ in islice(tokens, length):
        context.check_cancelled()
        step = trace.token_steps.pop()
        values = describe_token(step.log_prob, step.rank)
        values |= {"id": step.token, "token": name_tokens(tokenizer, [step.token])[0]}
        values["alternatives"] = list_alternatives(tokenizer, step.next_tokens, 0, pieces)
        context.emit({"step": values | {"text": pieces.add(step.token)}})
    return {"num_tokens": length}


def describe_token(log_prob: float, rank: int) -> dict[str, Any]:
    """Returns the probability of a token, and its rank from 1."""
    return {"probability": float(np.exp(log_prob)), "rank": rank}


def list_alternatives(
    tokenizer: Tokenizer, next_tokens: NextTokens, row: int, pieces: PieceStream | None = None
) -> list[dict[str, Any]]:
    """Returns the most probable tokens at one position, with the text that each would add."""
    ids = next_tokens.ids[row].tolist()
    names, probabilities = name_tokens(tokenizer, ids), np.exp(next_tokens.log_probs[row]).tolist()
    texts = names if pieces is None else [pieces.spell(token) for token in ids]
    return [
        {"id": token, "token": name, "text": text, "probability": probability}
        for token, name, text, probability in zip(ids, names, texts, probabilities)
    ]


def describe_prompt(model: Any, tokenizer: Tokenizer, text: str, encoding: Encoding) -> dict[str, Any]:
    """Returns the tokens of a prompt; of the last ones also how probable they are, given those before them."""
    tokens: list[dict[str, Any]] = []
    end = 0
    for token, (start, stop) in zip(encoding.ids.tolist(), encoding.offsets.tolist()):
        is_unknown = token == tokenizer.unknown
        values = {"is_unknown": is_unknown, "start": start, "stop": stop, "probability": None, "alternatives": []}
        tokens.append(values | {"text": text[end:stop]})
        end = max(end, stop)
    if tokens:
        tokens[-1]["text"] += text[end:]  # spaces after the last word
    for token, values in zip(reversed(tokens), reversed(score_tokens(model, tokenizer, encoding.ids))):
        token |= values
    unknown = [text[token["start"] : token["stop"]] for token in tokens if token["is_unknown"]]
    return {"prompt": tokens, "warnings": warn_about_unknown(unknown)}


@torch.no_grad()
def score_tokens(model: Any, tokenizer: Tokenizer, ids: np.ndarray) -> list[dict[str, Any]]:
    """Returns the probability of each of the last tokens but the first of them, and what was more probable there."""
    limit = min(MAX_SCORED, get_max_length(model) or MAX_SCORED)
    last = torch.from_numpy(ids[-limit:])[None].to(get_device(model))
    if last.shape[1] < 2:
        return []
    log_probs: Tensor = compute_log_probabilities(model, last[:, :-1]).float().log_softmax(-1)
    values = log_probs.gather(1, last[0, 1:, None])
    ranks = 1 + (log_probs > values).sum(1)
    next_tokens = NextTokens.of(log_probs, NUM_ALTERNATIVES)
    return [
        describe_token(float(values[row]), int(ranks[row]))
        | {"alternatives": list_alternatives(tokenizer, next_tokens, row)}
        for row in range(len(values))
    ]
