"""The logits of a classifier with n-grams, divided among the n-grams of a text and the network.

    logit_k = ½ network_k + ½ (b_k + Σ_g SCALE / √n · r_gk w_gk)      over the n n-grams g of the text

The logit is a sum, so the contribution of an n-gram is its term, without any approximation. The symbols are those of
`heads/ngrams.py`; K is the number of labels. The module knows nothing of gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqwise.errors import pluralize
from seqwise.heads.ngrams import SCALE, NGramHead
from seqwise.lens.subject import Subject
from seqwise.lens.units_figures import is_unspaced
from seqwise.page.figures import Table

NUM_PARTS = 2  # network and n-grams, of which the logits are the mean
MAX_NGRAMS = 20  # rows of the table: those that contribute most
MAX_LABELS = 4  # columns of the table: the answer, and the most probable others
NUM_NAMED = 3  # n-grams that the summary names


@dataclass(frozen=True)
class LogitParts:
    """The logits (K,) of a text as a sum of the network's part, the bias, and a row for each different n-gram."""

    names: list[str]
    counts: list[int]  # how often each occurs
    contributions: np.ndarray  # (n-grams, K), of all occurrences together
    bias: np.ndarray
    network: np.ndarray

    @property
    def ngrams(self) -> np.ndarray:
        """The part of the n-grams, (K,), with their bias."""
        return self.bias + self.contributions.sum(axis=0)

    def rank(self, label: int) -> np.ndarray:
        """Returns the indices of the n-grams, the largest contribution to a label first, whatever its sign."""
        return np.argsort(-np.abs(self.contributions[:, label]), kind="stable")


def divide_logits(subject: Subject) -> LogitParts | None:
    """Runs the model once and returns the parts of its logits; None if it has no n-grams."""
    head: Any = getattr(subject.module, "ngrams", None)
    if not isinstance(head, NGramHead):
        return None
    recorded, network = subject.record_each(["ngrams.products", "head.scores"])
    products = recorded["ngrams.products"][0].double().cpu().numpy()  # r w of each n-gram, (N, K)
    terms = SCALE / max(1, len(products)) ** 0.5 * products
    ngrams = list_ngrams(subject.tokens, head.order)
    counts = Counter(ngrams)
    rows = {ngram: row for row, ngram in enumerate(counts)}
    contributions = np.zeros((len(counts), terms.shape[1]))
    np.add.at(contributions, [rows[ngram] for ngram in ngrams], terms)
    bias, network_scores = (values.detach().double().cpu().numpy() for values in (head.bias, network["head.scores"][0]))
    space = "" if subject.tokens and is_unspaced(subject.tokens) else " "
    return LogitParts(
        [space.join(ngram) for ngram in counts],
        [*counts.values()],
        contributions / NUM_PARTS,
        bias / NUM_PARTS,
        network_scores / NUM_PARTS,
    )


def list_ngrams(tokens: Sequence[str], order: int) -> list[tuple[str, ...]]:
    """Returns the n-grams of 1 to `order` tokens, the shortest first, as `NGramHead.find_rows` orders them."""
    return [
        tuple(tokens[start : start + size])
        for size in range(1, min(order, len(tokens)) + 1)
        for start in range(len(tokens) - size + 1)
    ]


def describe_ngrams(parts: LogitParts, name: str, label: int) -> str:
    """Returns a sentence: how much the n-grams and the network contribute to the logit of an answer."""
    strongest = ", ".join(
        f"{parts.names[at]!r} ({parts.contributions[at, label]:+.3g})" for at in parts.rank(label)[:NUM_NAMED]
    )
    total = parts.ngrams[label] + parts.network[label]
    return (
        f"The logit of “{name}” is {total:.3g}: {parts.ngrams[label]:+.3g} from the n-grams and "
        f"{parts.network[label]:+.3g} from the network. The n-grams that contribute most are {strongest}."
    )


def draw_ngrams(parts: LogitParts, labels: Mapping[int, str], label: int) -> Table:
    """Returns the strongest n-grams with their contributions to the logits, and the sums.

    labels: index of a label → its name, the most probable first; `label` is the answer
    """
    shown = [label, *(index for index in labels if index != label)][:MAX_LABELS]
    order = parts.rank(label)
    rows: list[tuple[str | float | int | None, ...]] = [
        (parts.names[at], parts.counts[at], *parts.contributions[at, shown].tolist()) for at in order[:MAX_NGRAMS]
    ]
    others = order[MAX_NGRAMS:]
    if len(others):
        number = pluralize(len(others), "other n-grams")
        rows.append((number, None, *parts.contributions[others][:, shown].sum(axis=0).tolist()))
    sums = {"bias": parts.bias, "all n-grams and bias": parts.ngrams, "network": parts.network}
    sums["logit"] = parts.ngrams + parts.network
    rows += [(name, None, *values[shown].tolist()) for name, values in sums.items()]
    return Table(
        title="N-grams that contribute most",
        note="Contributions to the logits, which are the sum of the n-grams, their bias and the network. N-grams of "
        "two or more tokens share weights, so one that the training data lacks may have a contribution, too.",
        columns=("n-gram", "times", *(labels[index] for index in shown)),
        rows=rows,
    )
