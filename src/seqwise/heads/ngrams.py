"""The n-gram head: the ids of a text → a score per label, linear in its n-grams. It knows nothing of encoders.

Unigrams have a row of weights each. Longer n-grams share rows, which a hash function selects (Joulin et al. 2017,
§2.2), so that no table of n-grams is needed. K is the number of labels, N that of the n-grams of a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.layers.attention import sequence_mask
from seqwise.layers.record import record_value

HASH_FACTOR = -0x61C8864680B583EB  # 2⁶⁴ divided by the golden ratio, as a signed integer (Knuth, vol. 3, §6.4)
HASH_SHIFT = 24  # the low bits of a product are mixed least
SMOOTHING = 1.0  # added to each count (Wang & Manning 2012, §2.1)
# The weights start at 0 and have the learning rate of the network: without a factor their steps are too small. SST-2,
# mean validation accuracy of network and n-grams together, ten seeds: 80.5 % with 0.5, 81.3 % with 9 (docs/log.md).
SCALE = 9.0
MIN_BUCKETS = 2**10
MAX_BUCKET_WEIGHTS = 2**22  # of all labels together: 16 MiB, and as much again for the ratios


class NGramHead(nn.Module):
    """Logistic regression on n-grams, each scaled by the log-count ratio of naive Bayes (Wang & Manning 2012).

    s_k = b_k + SCALE / √n · Σ_g r_gk w_gk   over the n n-grams g of the text, of 1 to `order` tokens

    The ratios r are counted in the training data and saved with the weights. Rows of which no n-gram occurs there have
    the ratio 0: those of unseen tokens, and of unseen longer n-grams unless they share the row of one that occurs.
    `frequencies` (K,) of the labels make the scores of an untrained head their logarithms.
    """

    ratios: Tensor

    def __init__(
        self, vocabulary: int, labels: int, order: int, buckets: int = 0, frequencies: Tensor | None = None
    ) -> None:
        super().__init__()
        if order > 1 and buckets < 1:
            problem = f"n-grams of up to {order} tokens need at least one bucket; received {buckets}."
            raise UsageError(problem, fix="Set classify.ngram_buckets, or resolve the settings, which chooses it.")
        self.vocabulary, self.order, self.buckets = vocabulary, order, buckets
        num_rows = vocabulary + (buckets if order > 1 else 0)
        self.weight = nn.Parameter(torch.zeros(num_rows, labels))
        self.bias = nn.Parameter(torch.zeros(labels))
        self.register_buffer("ratios", torch.zeros(num_rows, labels))
        if frequencies is not None:
            with torch.no_grad():
                self.bias.copy_(frequencies.log())

    def forward(self, ids: Tensor, lengths: Tensor, presence: Tensor | None = None) -> Tensor:
        """Returns scores (B, K) for ids (B, T); padding has no effect.

        presence: (B, T) from 0 to 1; an n-gram has the product of its tokens'. 0 removes the n-grams with this token
        from the sum; n stays.
        """
        rows, is_valid = self.find_rows(ids, lengths)
        products = F.embedding(rows, self.weight) * F.embedding(rows, self.ratios)  # (B, N, K)
        products = products.masked_fill(~is_valid[..., None], 0.0)
        if presence is not None:
            products = products * self.multiply_presence(presence)[..., None]
        record_value(self, "products", products)
        scores = self.bias + SCALE * products.sum(1) / is_valid.sum(1).clamp(min=1).sqrt()[:, None]
        record_value(self, "scores", scores)
        return scores

    def find_rows(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the rows (B, N) of all n-grams, the shortest first, and which of them lie inside their text."""
        rows, mask = self.find_rows_by_length(ids), sequence_mask(lengths, ids.shape[1])
        return torch.cat(rows, dim=1), torch.cat([mask[:, index:] for index in range(len(rows))], dim=1)

    def find_rows_by_length(self, ids: Tensor) -> list[Tensor]:
        """Returns the rows of the n-grams of 1, 2, … tokens that start at each position of ids (B, T)."""
        rows, keys = [ids], ids + 1
        for size in range(2, min(self.order, ids.shape[1]) + 1):
            keys = keys[:, :-1] * HASH_FACTOR + ids[:, size - 1 :] + 1  # integers wrap around
            mixed = (keys * HASH_FACTOR) >> HASH_SHIFT
            rows.append(self.vocabulary + mixed.remainder(self.buckets))
        return rows

    def multiply_presence(self, presence: Tensor) -> Tensor:
        """Returns the product of the presence of the tokens of each n-gram, (B, N), in the order of `find_rows`."""
        products = [presence]
        for size in range(2, min(self.order, presence.shape[1]) + 1):
            products.append(products[-1][:, :-1] * presence[:, size - 1 :])
        return torch.cat(products, dim=1)

    @torch.no_grad()
    def count_ratios(self, texts: Sequence[np.ndarray], labels: np.ndarray) -> None:
        """Computes the ratios from the token ids and the label ids of the training texts.

        r_gk = log (p_gk / Σ_h p_hk) − log (q_gk / Σ_h q_hk), where p_gk is the number of texts with label k that have
        the n-gram g, and q_gk that of the other texts, plus `SMOOTHING` each; h runs over all n-grams that occur
        (Wang & Manning 2012, eq. 2). N-grams that share a row count as one.
        """
        if self.ratios.is_meta:
            return
        counts = self.count_texts(texts, labels)
        is_seen = counts.sum(1) > 0
        p, q = counts[is_seen] + SMOOTHING, counts[is_seen].sum(1, keepdim=True) - counts[is_seen] + SMOOTHING
        self.ratios.zero_()
        self.ratios[is_seen] = ((p / p.sum(0)).log() - (q / q.sum(0)).log()).to(self.ratios)

    def count_texts(self, texts: Sequence[np.ndarray], labels: np.ndarray) -> Tensor:
        """Returns how many texts of each label have an n-gram of each row, as float64 of the shape of the ratios."""
        num_rows, num_labels = self.ratios.shape
        ids = torch.from_numpy(np.concatenate(texts).astype(np.int64))
        numbers = torch.from_numpy(np.repeat(np.arange(len(texts)), [len(text) for text in texts]))
        pairs = []  # of text and row, as one integer each
        for index, rows in enumerate(self.find_rows_by_length(ids[None])):
            first, last = numbers[: len(numbers) - index], numbers[index:]  # the texts of an n-gram's end tokens
            pairs.append((first * num_rows + rows[0])[first == last])
        distinct = torch.cat(pairs).unique()
        text_labels = torch.from_numpy(np.asarray(labels, dtype=np.int64))[distinct // num_rows]
        cells = distinct % num_rows * num_labels + text_labels
        return cells.bincount(minlength=num_rows * num_labels).view(num_rows, num_labels).double()


def choose_buckets(num_tokens: int, order: int, num_labels: int) -> int:
    """Returns one row per training token and length of two or more, rounded up to a power of two.

    There are at least `MIN_BUCKETS`, and otherwise at most `MAX_BUCKET_WEIGHTS` weights of all labels together.
    """
    num_ngrams = num_tokens * max(1, order - 1)
    needed = 1 << max(0, num_ngrams - 1).bit_length()
    return max(MIN_BUCKETS, min(needed, limit_buckets(num_labels)))


def limit_buckets(num_labels: int) -> int:
    """Returns the largest power of two with at most `MAX_BUCKET_WEIGHTS` weights, but at least `MIN_BUCKETS`."""
    limit = MAX_BUCKET_WEIGHTS // max(1, num_labels)
    return max(MIN_BUCKETS, 1 << max(0, limit.bit_length() - 1))
