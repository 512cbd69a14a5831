"""Texts with `[MASK]` → the likeliest fillings. Each is filled in by itself; the others stay hidden meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch

from seqwise.data.buckets import pad_sequences
from seqwise.errors import UsageError
from seqwise.tasks.masked.model import MaskedModel, TwoWayModel
from seqwise.tasks.task import Prediction
from seqwise.text.tokenizer import Tokenizer

PAD, MASK = "<pad>", "<mask>"
ROWS = 32  # hidden places filled in at once
PIECE = "##"  # how a piece of kind wordpiece that continues a word begins

_HIDDEN = re.compile(r"\[MASK\]|<mask>")


@dataclass
class _Gapped:
    """A text with places to fill in: what stands between them, and ids between two line breaks."""

    text: str
    between: list[str]
    ids: np.ndarray
    places: list[int]
    unknown: list[str]
    fillings: list[list[tuple[int, float]]] = field(default_factory=list)


def fill_in(
    model: MaskedModel | TwoWayModel, tokenizer: Tokenizer, texts: Sequence[str], window: int, top: int
) -> Iterator[Prediction]:
    """One answer per text, in their order; `window` tokens around a hidden place are read."""
    if top < 1:
        raise UsageError(f"expected at least one filling to show; received {top}.", repair="Set --top to 5.")
    model.eval()
    for text in texts:
        gapped = read(tokenizer, text)
        places = iter(gapped.places)
        while some := list(islice(places, ROWS)):
            gapped.fillings += _fill(model, tokenizer, gapped.ids, some, window, top)
        yield _answer(tokenizer, gapped)


def read(tokenizer: Tokenizer, text: str) -> _Gapped:
    """The ids of a text, which stands between line breaks as lines do in the text of training."""
    between = _HIDDEN.split(text)
    if len(between) == 1:
        raise UsageError(
            f"there is nothing to fill in: expected [MASK] in the text, received {text[:60]!r}.",
            repair="Put [MASK] in the place of a word: 'the [MASK] sat'",
        )
    if tokenizer.kind == "bpe":  # its tokens begin with the blank before them
        between = [part.removesuffix(" ") for part in between[:-1]] + between[-1:]
    border = tokenizer.encode("\n").ids
    pieces, places, unknown = [border], [], []
    for number, part in enumerate(between):
        encoding = tokenizer.encode(part)
        pieces.append(encoding.ids)
        unknown += [part[start:stop] for start, stop in encoding.offsets[encoding.ids == tokenizer.unknown]]
        if number < len(between) - 1:
            places.append(sum(map(len, pieces)))
            pieces.append(np.array([tokenizer.id(MASK)]))
    return _Gapped(text, between, np.concatenate([*pieces, border]), places, unknown)


@torch.no_grad()
def _fill(
    model: MaskedModel | TwoWayModel, tokenizer: Tokenizer, ids: np.ndarray, places: list[int], window: int, top: int
) -> list[list[tuple[int, float]]]:
    """(id, probability) of the best fillings of each place."""
    starts = [max(0, min(place - window // 2, len(ids) - window)) for place in places]
    rows = [ids[start : start + window] for start in starts]
    device = model.embedding.weight.device
    lengths = torch.tensor([len(row) for row in rows], device=device)
    states = model.states(torch.from_numpy(pad_sequences(rows)).to(device), lengths)
    at = torch.tensor([place - start for place, start in zip(places, starts)], device=device)
    scores = model.scores(states, torch.arange(len(rows), device=device), at, lengths)
    none = _no_answers(tokenizer)
    scores[:, none] = -torch.inf
    best = scores.exp().topk(min(top, len(tokenizer) - len(none)))
    return [list(zip(numbers, shares)) for numbers, shares in zip(best.indices.tolist(), best.values.tolist())]


def _no_answers(tokenizer: Tokenizer) -> list[int]:
    """Specials, the unknown word and the line break, which nobody looks for inside a line."""
    none = {*range(len(tokenizer.specials)), int(tokenizer.encode("\n").ids[0])}
    return sorted(none if tokenizer.unknown is None else none | {tokenizer.unknown})


def _answer(tokenizer: Tokenizer, gapped: _Gapped) -> Prediction:
    filled = gapped.between[0]
    for fillings, behind in zip(gapped.fillings, gapped.between[1:]):
        word = spelling(tokenizer, fillings[0][0])
        if tokenizer.kind == "wordpiece" and word.startswith(PIECE):
            filled, word = filled.rstrip(" "), word.removeprefix(PIECE)
        filled += word + behind
    masks: list[list[dict[str, Any]]] = [
        [{"token": spelling(tokenizer, number), "probability": share} for number, share in fillings]
        for fillings in gapped.fillings
    ]
    lines = [filled]
    for number, best in enumerate(masks, start=1):
        listed = ", ".join(f"{_shown(each['token'])} {each['probability']:.3f}" for each in best)
        lines.append(f"  [MASK] {number}: {listed}" if len(masks) > 1 else f"  [MASK]: {listed}")
    if gapped.unknown:
        lines.append(f"  the model does not know {', '.join(map(repr, dict.fromkeys(gapped.unknown)))}")
    return Prediction(
        "\n".join(lines), {"input": gapped.text, "filled": filled, "masks": masks, "unknown": gapped.unknown}
    )


def spelling(tokenizer: Tokenizer, number: int) -> str:
    """A token as it stands in text; a part that continues a word keeps its mark."""
    if tokenizer.kind in ("characters", "bpe"):
        return tokenizer.decode([number])
    return tokenizer.token(number)


def _shown(word: str) -> str:
    """A word as it is; blanks so that they can be seen."""
    return word.strip() or repr(word)
