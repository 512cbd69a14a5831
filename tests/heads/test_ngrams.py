"""Scores of n-grams: values by hand, padding, hashing, log-count ratios, gradients, and weights that are saved."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from seqwise.errors import UsageError
from seqwise.heads.ngrams import SCALE, NGramHead, choose_buckets
from seqwise.layers.record import record

TEXTS = [np.array([1, 2, 3]), np.array([1, 2]), np.array([3, 2, 2])]
LABELS = np.array([0, 0, 1])


def build_head(order: int = 2, buckets: int = 1024, labels: int = 2) -> NGramHead:
    torch.manual_seed(0)
    head = NGramHead(5, labels, order, buckets)
    head.count_ratios(TEXTS, LABELS)
    torch.nn.init.normal_(head.weight)
    torch.nn.init.normal_(head.bias)
    return head


def find_row(head: NGramHead, *ids: int) -> int:
    """Returns the row of one n-gram, which is the last of a text that consists of it."""
    rows, _ = head.find_rows(torch.tensor([ids]), torch.tensor([len(ids)]))
    return int(rows[0, -1])


def test_scores_equal_their_equation():
    head = build_head()
    rows = [1, 2, 3, find_row(head, 1, 2), find_row(head, 2, 3)]
    total = sum(head.weight[row] * head.ratios[row] for row in rows)
    expected = head.bias + SCALE / math.sqrt(5) * total
    with record(head) as values:
        scores = head(torch.tensor([[1, 2, 3]]), torch.tensor([3]))
    assert scores[0].tolist() == pytest.approx(expected.tolist())
    assert values["products"].shape == (1, 5, 2)
    assert values["scores"].tolist() == scores.tolist()


def test_ratios_equal_hand_computed_values():
    head = build_head()
    # Of the two texts of label 0, one has token 3; so has the text of label 1. Distinct n-grams per text, with
    # bigrams: 5 and 3 of label 0, 4 of label 1; 7 n-grams in all: 1, 2, 3, (1, 2), (2, 3), (3, 2), (2, 2).
    expected = math.log((1 + 1) / (8 + 7)) - math.log((1 + 1) / (4 + 7))
    assert head.ratios[3].tolist() == pytest.approx([expected, -expected])
    expected = math.log((2 + 1) / (8 + 7)) - math.log((0 + 1) / (4 + 7))
    assert head.ratios[find_row(head, 1, 2)].tolist() == pytest.approx([expected, -expected])
    assert head.ratios[4].tolist() == [0, 0], "not in the training data"
    assert int((head.ratios != 0).any(1).sum()) == 7


def test_a_ratio_of_several_labels_compares_each_with_all_others():
    head = NGramHead(5, 3, order=1)
    head.count_ratios([*TEXTS, np.array([1])], np.array([0, 0, 1, 2]))
    p, q = (2 + 1) / (5 + 3), (1 + 1) / (3 + 3)  # of token 1: two of 5 tokens of label 0, one of 3 of the others
    assert float(head.ratios[1, 0]) == pytest.approx(math.log(p / q))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("buckets", [7, 1024])
def test_ratios_equal_those_counted_text_by_text(order: int, buckets: int):
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 9, size=length) for length in (4, 0, 1, 12, 2, 0, 7, 3, 1, 9)]
    labels = rng.integers(0, 3, size=len(texts))
    head = NGramHead(10, 3, order, buckets)
    counts: Counter[tuple[int, int]] = Counter()
    for text, label in zip(texts, labels.tolist()):
        starts = [(start, size) for size in range(1, order + 1) for start in range(len(text) - size + 1)]
        rows = {find_row(head, *text[start : start + size].tolist()) for start, size in starts}
        counts.update((row, label) for row in rows)
    seen = {row for row, _ in counts}
    expected = torch.zeros(head.ratios.shape, dtype=torch.float64)
    for label in range(3):
        p = {row: counts[row, label] + 1 for row in seen}
        q = {row: sum(counts[row, other] for other in range(3) if other != label) + 1 for row in seen}
        for row in seen:
            expected[row, label] = math.log(p[row] / sum(p.values())) - math.log(q[row] / sum(q.values()))
    head.ratios.fill_(5.0)
    head.count_ratios(texts, labels)
    torch.testing.assert_close(head.ratios, expected.float(), rtol=1e-6, atol=1e-7)
    assert (head.ratios != 0).any(1).nonzero()[:, 0].tolist() == (expected != 0).any(1).nonzero()[:, 0].tolist()


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_padding_changes_nothing(order: int):
    head = build_head(order)
    single = [head(torch.from_numpy(ids)[None], torch.tensor([len(ids)])) for ids in TEXTS]
    for padding in (0, 4):
        ids = torch.full((3, 7), padding)
        for row, text in zip(ids, TEXTS):
            row[: len(text)] = torch.from_numpy(text)
        scores = head(ids, torch.tensor([len(text) for text in TEXTS]))
        torch.testing.assert_close(scores, torch.cat(single))


def test_an_absent_token_removes_its_ngrams():
    head, ids, lengths = build_head(), torch.tensor([[1, 2, 3]]), torch.tensor([3])
    presence = torch.tensor([[1.0, 1.0, 0.0]])
    rows = [1, 2, find_row(head, 1, 2)]
    total = sum(head.weight[row] * head.ratios[row] for row in rows)
    expected = head.bias + SCALE / math.sqrt(5) * total
    assert head(ids, lengths, presence)[0].tolist() == pytest.approx(expected.tolist())
    torch.testing.assert_close(head(ids, lengths, torch.ones(1, 3)), head(ids, lengths))
    assert head.multiply_presence(torch.tensor([[0.5, 0.5, 0.2]]))[0].tolist() == pytest.approx(
        [0.5, 0.5, 0.2, 0.25, 0.1]
    )


def test_an_empty_text_has_the_scores_of_the_biases():
    head = build_head(3)
    assert head(torch.zeros(1, 0, dtype=torch.int64), torch.tensor([0])).tolist() == [head.bias.tolist()]
    assert head(torch.zeros(1, 4, dtype=torch.int64), torch.tensor([0])).tolist() == [head.bias.tolist()]


def test_order_matters_for_bigrams_only():
    ids, swapped, lengths = torch.tensor([[1, 2]]), torch.tensor([[2, 1]]), torch.tensor([2])
    words, bigrams = build_head(order=1), build_head(order=2)
    torch.testing.assert_close(words(ids, lengths), words(swapped, lengths))
    assert words.weight.shape == (5, 2), "without n-grams there are no buckets"
    assert find_row(bigrams, 1, 2) != find_row(bigrams, 2, 1)
    assert not torch.allclose(bigrams(ids, lengths), bigrams(swapped, lengths))


@pytest.mark.parametrize("order", [2, 3])
def test_the_hash_spreads_ngrams_evenly(order: int):
    head = NGramHead(300, 2, order, buckets=4096)
    ids = torch.cartesian_prod(*[torch.arange(64 if order == 2 else 16)] * order)  # 4,096 different n-grams
    rows, _ = head.find_rows(ids, torch.full((len(ids),), order))
    used = rows[:, -1]
    assert int(used.min()) >= 300
    assert int(used.max()) < 300 + 4096
    assert len(used.unique()) >= 0.95 * (1 - 1 / math.e) * 4096, "random rows would leave 1/e of the buckets empty"


def test_gradients_equal_finite_differences():
    head = build_head(buckets=8).double()
    ids, lengths = torch.tensor([[1, 2, 3], [2, 3, 0]]), torch.tensor([3, 2])

    def compute(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(head, {"weight": weight, "bias": bias}, (ids, lengths))

    assert torch.autograd.gradcheck(compute, (head.weight, head.bias))


def test_ratios_are_saved_with_the_weights():
    head, loaded = build_head(), NGramHead(5, 2, 2, 1024)
    loaded.load_state_dict(head.state_dict())
    ids, lengths = torch.tensor([[1, 2, 3]]), torch.tensor([3])
    assert loaded(ids, lengths).tolist() == head(ids, lengths).tolist()


def test_an_untrained_head_predicts_the_frequencies_of_the_labels():
    head = NGramHead(5, 2, 1, frequencies=torch.tensor([0.25, 0.75]))
    scores = head(torch.tensor([[1, 2]]), torch.tensor([2]))
    assert scores.softmax(-1).tolist() == [pytest.approx([0.25, 0.75])]


def test_the_number_of_buckets_is_that_of_tokens_and_lengths_up_to_a_limit_of_weights():
    assert choose_buckets(0, 2, 2) == choose_buckets(10, 2, 2) == choose_buckets(1024, 2, 2) == 1024
    assert choose_buckets(1025, 2, 2) == 2048
    assert choose_buckets(100_000, 2, 2) == 2**17
    assert choose_buckets(100_000, 3, 2) == 2**18
    assert choose_buckets(10**9, 2, 2) == 2**21, "2²² weights"
    assert choose_buckets(10**9, 5, 3) == 2**20, "2²⁰ · 3 weights; 2²¹ · 3 would be more than 2²²"
    assert choose_buckets(10**9, 2, 4096) == choose_buckets(10**9, 2, 10**7) == 1024


@pytest.mark.parametrize("order", [2, 5])
def test_ngrams_without_buckets_are_an_error(order: int):
    with pytest.raises(UsageError, match=f"n-grams of up to {order} tokens need at least one bucket; received 0"):
        NGramHead(5, 2, order)
    assert NGramHead(5, 2, 1).weight.shape == (5, 2)
