"""The errors of models that predict tokens of a text: loss by frequency, context, kind of token and unknown tokens.

The tasks language and masked share this module. Tokens of one block of `BLOCK_TOKENS` depend on each other, so a block
is a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from torch import Tensor

from seqwise.data.corpus.store import TokenStore
from seqwise.metrics.evaluation import BLOCK_TOKENS, exp_or_inf
from seqwise.tasks.error_report import (
    NUM_WORST,
    Confidences,
    ErrorReport,
    Listing,
    Metric,
    ScoredItems,
    SliceGroup,
)
from seqwise.tasks.inspection import name_tokens
from seqwise.tasks.language.scoring import BLOCK_UNIT
from seqwise.tasks.task import ModelBundle
from seqwise.text.tokenizer import Tokenizer

LOSS = Metric("loss", lower_is_better=True, definition="mean negative log likelihood, nats per token")
CONTEXT_TOKENS = 12  # shown before a token
BOUNDS = (1, 10, 100, 1_000, 10_000)  # occurrences in training, or tokens of context, at which a slice begins
KINDS = ("words", "continuations of words", "numbers", "punctuation marks", "line breaks", "other tokens")
CHARACTER_KINDS = ("letters", "spaces", "digits", "punctuation marks", "line breaks", "other characters")
WORD, CONTINUATION, NUMBER, PUNCTUATION, LINE_BREAK, OTHER = range(6)  # indices of KINDS
LETTER, SPACE = 0, 1  # indices of CHARACTER_KINDS; its others are those of KINDS


@dataclass(frozen=True)
class TokenScores:
    """Predictions of N tokens of a text."""

    positions: np.ndarray  # (N,) in the text
    contexts: np.ndarray  # (N,) tokens before the token that the model has read, or its position in the window
    losses: np.ndarray  # (N,) nats
    predicted: np.ndarray  # (N,) the most probable token
    probabilities: np.ndarray  # (N,) its probability


def score_targets(positions: np.ndarray, contexts: np.ndarray, targets: np.ndarray, scores: Tensor) -> TokenScores:
    """Returns the predictions of tokens from their log-probabilities (N, V)."""
    best, predicted = scores.max(-1)
    losses = -scores[np.arange(len(targets)), targets.astype(np.int64)]
    arrays = (each.cpu().numpy() for each in (losses.double(), predicted, best.double().exp()))
    return TokenScores(positions, contexts, *arrays)


def join_scores(parts: Sequence[TokenScores]) -> TokenScores:
    """Returns the predictions of all parts, in the order of the text."""
    names = ("positions", "contexts", "losses", "predicted", "probabilities")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    order = np.argsort(joined["positions"], kind="stable")
    return TokenScores(**{name: values[order] for name, values in joined.items()})


def build_report(
    bundle: ModelBundle,
    store: TokenStore,
    description: str,
    scores: TokenScores,
    num_available: int,
    is_in_window: bool = False,
) -> ErrorReport:
    """Returns the errors of some of `num_available` tokens; with `is_in_window` contexts are positions in windows."""
    tokenizer = bundle.preprocessor.tokenizer
    previous, targets = store.read_sequences(scores.positions - 1, 2).astype(np.int64).T
    blocks, units = np.unique(scores.positions // BLOCK_TOKENS, return_inverse=True)
    sums = np.stack([scores.losses, np.ones(len(targets))], axis=1)
    items = ScoredItems(LOSS, "tokens", sums, units, len(blocks), BLOCK_UNIT)
    is_correct = scores.predicted == targets
    return ErrorReport(
        description,
        items,
        build_groups(items, bundle, previous, targets, scores.contexts, is_in_window),
        len(targets),
        num_available,
        "tokens",
        confidences=[Confidences("most probable token", scores.probabilities, is_correct)],
        listings=[list_worst(tokenizer, store, scores), list_confusions(tokenizer, targets, scores)],
        metrics={"perplexity": exp_or_inf(float(scores.losses.mean())), "accuracy": float(is_correct.mean())},
    )


def build_groups(
    items: ScoredItems,
    bundle: ModelBundle,
    previous: np.ndarray,
    targets: np.ndarray,
    contexts: np.ndarray,
    is_in_window: bool,
) -> list[SliceGroup]:
    """Returns slices by frequency, context, kind of token and unknown tokens; `previous` are the tokens before."""
    tokenizer = bundle.preprocessor.tokenizer
    groups = []
    if bundle.training is not None and "token_counts" in bundle.training.arrays:
        counts = bundle.training.arrays["token_counts"][targets]
        groups.append(group_by_decade(items, "frequency in training", "tokens that occur {} times in training", counts))
    if is_in_window:
        template = "tokens at positions {} of the window"
        groups.append(items.group_bands("position in the window", template, contexts))
    else:
        groups.append(group_by_decade(items, "context in tokens", "tokens with {} tokens of context", contexts))
    is_characters = tokenizer.kind == "characters"
    kinds = np.array([classify_token(tokenizer, token) for token in range(len(tokenizer))])
    groups.append(items.group("kind", CHARACTER_KINDS if is_characters else KINDS, kinds[targets]))
    is_unknown, follows_unknown = targets == tokenizer.unknown, previous == tokenizer.unknown
    if tokenizer.unknown is not None and (is_unknown | follows_unknown).any():
        names = ["unknown tokens", "tokens after an unknown one"]
        groups.append(items.group("unknown tokens", names, np.where(is_unknown, 0, np.where(follows_unknown, 1, -1))))
    return groups


def group_by_decade(items: ScoredItems, name: str, template: str, values: np.ndarray) -> SliceGroup:
    """Returns slices by the powers of ten between which values lie: 0, 1 to 9, 10 to 99 …"""
    texts = ["0", *(f"{low:,} to {high - 1:,}" for low, high in pairwise(BOUNDS)), f"{BOUNDS[-1]:,} or more"]
    return items.group(name, [template.format(text) for text in texts], np.searchsorted(BOUNDS, values, side="right"))


def classify_token(tokenizer: Tokenizer, token_id: int) -> int:
    """Returns the kind of a token, an index of KINDS; of a character, of CHARACTER_KINDS."""
    name = name_tokens(tokenizer, [token_id])[0]
    spelling = name.removeprefix("##")
    content = spelling.strip()
    if token_id == tokenizer.end:
        return LINE_BREAK
    if token_id == tokenizer.unknown or (token_id < len(tokenizer.specials) and content not in ("", "\n")):
        return OTHER
    if not content:
        return LINE_BREAK if "\n" in name or not name else SPACE if tokenizer.kind == "characters" else OTHER
    if any(character.isdigit() for character in content):
        return NUMBER
    if not any(character.isalpha() for character in content):
        return PUNCTUATION
    if tokenizer.kind == "characters":
        return LETTER
    is_continuation = name.startswith("##") if tokenizer.kind == "wordpiece" else not name[:1].isspace()
    return CONTINUATION if tokenizer.kind in ("wordpiece", "bpe") and is_continuation else WORD


def list_worst(tokenizer: Tokenizer, store: TokenStore, scores: TokenScores) -> Listing:
    """Returns the tokens with the highest loss, with the text before them."""
    rows = []
    for index in np.argsort(-scores.losses, kind="stable")[:NUM_WORST]:
        position = int(scores.positions[index])
        start = max(0, position - CONTEXT_TOKENS)
        ids = store.read(start, min(len(store), position + 1 + CONTEXT_TOKENS // 2) - start)
        before, after = (tokenizer.decode(part) for part in (ids[: position - start], ids[position - start + 1 :]))
        expected, predicted = name_tokens(tokenizer, [ids[position - start], scores.predicted[index]])
        probability = float(scores.probabilities[index])
        rows.append((float(scores.losses[index]), expected, predicted, probability, f"… {before} ▸ {after} …"))
    columns = ("loss (nats)", "expected", "predicted", "probability", "context (▸ marks the token)")
    return Listing("Worst tokens in context", columns, rows)


def list_confusions(tokenizer: Tokenizer, targets: np.ndarray, scores: TokenScores) -> Listing:
    """Returns the most frequent pairs of a true token and another that was more probable."""
    is_wrong = scores.predicted != targets
    pairs = targets[is_wrong] * len(tokenizer) + scores.predicted[is_wrong]
    unique, counts = np.unique(pairs, return_counts=True)
    totals = np.bincount(targets, minlength=len(tokenizer))
    rows = []
    for index in np.argsort(-counts, kind="stable")[:NUM_WORST]:
        true, predicted = divmod(int(unique[index]), len(tokenizer))
        names = name_tokens(tokenizer, [true, predicted])
        rows.append((*names, int(counts[index]), float(counts[index] / totals[true])))
    return Listing("Most frequent confusions", ("expected", "predicted", "tokens", "share of the expected"), rows)
