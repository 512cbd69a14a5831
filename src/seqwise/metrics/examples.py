"""What a metric is made of, example by example: sums that add up, so that it can be computed for any choice of them.

That is what a comparison on the same examples needs: draw some, add their sums, and `value_of` gives the metric. It
knows nothing of models, tasks or of how examples are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from seqwise.errors import RunError
from seqwise.files import explain_write_errors, write_bytes, write_text

SCORES, REST = "scores.safetensors", "examples.json"
BLOCK = 128  # tokens of a row where the text is one long stream
LONGEST = 400  # characters of a text that is shown
ORDERS = 4  # BLEU counts runs of up to so many words
FLOAT_LIMIT = 700  # e to a higher power is infinite here, as in `perplexity.exp`

# Metrics of which less is better.
LOWER = frozenset({
    "perplexity", "word_perplexity", "bits_per_character", "unknown_tokens", "loss", "two_way_perplexity",
    "forward_perplexity", "backward_perplexity", "mse", "mae", "mase", "quantile_loss",
    *(f"{who}_{metric}" for who in ("naive", "seasonal_naive") for metric in ("mse", "mae", "mase")),
})  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """An example for people to read: what was given, what was wanted, what the model made of it; "" for nothing."""

    input: str
    expected: str = ""
    answer: str = ""

    @classmethod
    def of(cls, *texts: str) -> Self:
        """Texts on one line each, cut where they are long, and with nothing that a file cannot hold."""
        return cls(*(_short(" ".join(text[: 2 * LONGEST].split()), len(text)) for text in texts))

    @classmethod
    def passages(cls, *texts: str) -> Self:
        """The same, but line breaks and blanks stay: in a long text they are to be predicted like everything else."""
        return cls(*(_short(text[: 2 * LONGEST], len(text)) for text in texts))


def _short(text: str, length: int) -> str:
    """`text` is the beginning of what has that length."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= LONGEST and length <= 2 * LONGEST else f"{text[: LONGEST - 1]}…"


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows that do not depend on each other, in an order that is the same for every model on the same data.

    A metric that is a mean over several targets has the parts of each target side by side.
    """

    metric: str  # its key in `Evaluation.metrics`
    unit: str  # what a row is, in words, plural
    sums: np.ndarray  # (examples, parts) float64
    shown: tuple[Shown, ...]

    def __post_init__(self) -> None:
        if self.sums.ndim != 2 or len(self.sums) != len(self.shown):
            raise ValueError(f"sums {self.sums.shape} do not belong to {len(self.shown)} texts")

    def save(self, folder: Path) -> None:
        """Two files. The second one is written last: where it is, both are whole."""
        rest = {"metric": self.metric, "unit": self.unit, "shown": [asdict(each) for each in self.shown]}
        scores = save({"sums": np.ascontiguousarray(self.sums, dtype=np.float64)})
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / REST).unlink(missing_ok=True)
            write_bytes(folder / SCORES, scores, concurrent=True)
            write_text(folder / REST, json.dumps(rest, ensure_ascii=False), concurrent=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote."""
        try:
            rest = json.loads((folder / REST).read_text(encoding="utf-8"))
            sums = load((folder / SCORES).read_bytes())["sums"]
            return cls(rest["metric"], rest["unit"], sums, tuple(Shown(**each) for each in rest["shown"]))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            problem = f"the scores of examples are missing or damaged: {error}."
            raise RunError(problem, repair="Evaluate again.", file=folder) from None


class Tally:
    """Rows of (amount, count) that are added up in whatever order they come."""

    def __init__(self, rows: int):
        self.sums = np.zeros((rows, 2))

    def add(self, rows: np.ndarray, amounts: np.ndarray, counts: np.ndarray | float = 1.0) -> None:
        """`amounts` (N,), each to the row at the same place of `rows` (N,)."""
        np.add.at(self.sums[:, 0], rows, amounts)
        np.add.at(self.sums[:, 1], rows, counts)


def hits(right: Iterable[bool]) -> np.ndarray:
    """(N, 2): whether each is right, out of one."""
    found = np.fromiter(right, dtype=np.float64)
    return np.stack([found, np.ones_like(found)], axis=1)


def value_of(metric: str, sums: np.ndarray) -> np.ndarray:
    """The metric of added sums (…, parts) → (…); many at once, as a bootstrap has them.

    Where there are the parts of several targets, it is the mean over these.
    """
    if metric not in _FORMULAS:
        raise ValueError(f"{metric!r} is not made of sums; those are {', '.join(_FORMULAS)}")
    parts, formula = _FORMULAS[metric]
    sums = np.asarray(sums, dtype=np.float64)
    if not sums.shape[-1] or sums.shape[-1] % parts:
        raise ValueError(f"{metric} is made of {parts} sums for each target; received {sums.shape[-1]}")
    return formula(sums.reshape(*sums.shape[:-1], -1, parts)).mean(axis=-1)


def _share(sums: np.ndarray) -> np.ndarray:
    """amount / count; 0 where there is nothing to divide by."""
    amount, count = sums[..., 0], sums[..., 1]
    return np.divide(amount, count, out=np.zeros_like(amount), where=count > 0)


def _perplexity(sums: np.ndarray) -> np.ndarray:
    loss = _share(sums)
    return np.where(loss < FLOAT_LIMIT, np.exp(np.minimum(loss, FLOAT_LIMIT)), np.inf)


def _f1(sums: np.ndarray) -> np.ndarray:
    """2 · precision · recall / (precision + recall), of (correct, predicted, true)."""
    correct, predicted, true = sums[..., 0], sums[..., 1], sums[..., 2]
    return _share(np.stack([2 * correct, predicted + true], axis=-1))


def _bleu(sums: np.ndarray) -> np.ndarray:
    """As sacreBLEU scores a corpus (Post 2018), of (matches of 1 … 4 words, all runs, our length, the references').

    The k-th order without a match counts as 1 / 2^k matches. Without any match, or any run of four words, it is 0.
    """
    matches, runs = sums[..., :ORDERS], sums[..., ORDERS : 2 * ORDERS]
    ours, theirs = sums[..., -2], sums[..., -1]
    none = matches == 0
    smoothed = np.where(none, 0.5 ** np.cumsum(none, axis=-1), matches)
    scored = (matches > 0).any(axis=-1) & (runs > 0).all(axis=-1)
    precision = np.divide(smoothed, runs, out=np.ones_like(runs), where=runs > 0)
    brevity = np.minimum(0.0, 1 - np.divide(theirs, ours, out=np.ones_like(ours), where=ours > 0))
    return np.where(scored, 100 * np.exp(brevity + np.log(precision).mean(axis=-1)), 0.0)


Formula = Callable[[np.ndarray], np.ndarray]

# Metric → how many sums it is made of, and how. What they are, in their order:
_FORMULAS: dict[str, tuple[int, Formula]] = {
    "perplexity": (2, _perplexity),  # nats, tokens
    "accuracy": (2, _share),  # right, all
    "token_accuracy": (2, _share),
    "exact_match": (2, _share),
    "span_f1": (3, _f1),  # correct, predicted, true
    "bleu": (2 * ORDERS + 2, _bleu),
    "mse": (2, _share),  # squared errors, values
}
