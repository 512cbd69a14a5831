"""The n-gram model against hand-computed numbers, a reference implementation, and the published perplexity."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import open_corpus
from seqwise.errors import RunError, UsageError
from seqwise.tasks.language.ngram import FALLBACK_DISCOUNTS, NGram, estimate_max_memory
from seqwise.text.tokenizer import Tokenizer

A, B, C, D = range(4)
texts = st.lists(st.integers(0, 4), min_size=1, max_size=60)
ends = st.sampled_from([None, 0])


class ReferenceNGram:
    """The same model computed by its definition: one dictionary per order, one token at a time."""

    def __init__(self, ids: list[int], vocabulary: int, order: int, end: int | None):
        self.vocabulary, self.order, self.end = vocabulary, order, end
        occurrences: Counter[tuple[int, ...]] = Counter()
        before: dict[tuple[int, ...], set[int]] = defaultdict(set)
        unpreceded: Counter[tuple[int, ...]] = Counter()
        for t, token in enumerate(ids):
            history = self.history(ids[:t])
            for n in range(len(history) + 1):
                gram = (*history[len(history) - n :], token)
                occurrences[gram] += 1
                if n < len(history):
                    before[gram].add(history[len(history) - n - 1])
                elif n < order - 1:
                    unpreceded[gram] += 1
        self.counts = {
            gram: times if len(gram) == order else len(before[gram]) + unpreceded[gram]
            for gram, times in occurrences.items()
        }
        self.discounts = {n: self.estimate_discounts(n) for n in range(1, order + 1)}

    def history(self, ids: list[int]) -> list[int]:
        if self.end is not None:
            ids = [self.end, *ids]
            ids = ids[len(ids) - 1 - ids[::-1].index(self.end) :]
        return ids[-(self.order - 1) :] if self.order > 1 else []

    def estimate_discounts(self, n: int) -> list[float]:
        times = Counter(c for gram, c in self.counts.items() if len(gram) == n)
        if any(times[i] == 0 for i in range(1, 5)):
            return [0.5, 1.0, 1.5]
        y = times[1] / (times[1] + 2 * times[2])
        discounts = [i - (i + 1) * y * times[i + 1] / times[i] for i in (1, 2, 3)]
        return discounts if min(discounts) > 0 else [0.5, 1.0, 1.5]

    def probability(self, token: int, history: list[int]) -> float:
        n = len(history) + 1
        shorter = self.probability(token, history[1:]) if history else 1 / self.vocabulary
        followers = [self.counts.get((*history, w), 0) for w in range(self.vocabulary)]
        if not sum(followers):
            return shorter
        discount = [self.discounts[n][min(c, 3) - 1] if c else 0.0 for c in followers]
        return (followers[token] - discount[token] + sum(discount) * shorter) / sum(followers)

    def score_tokens(self, ids: list[int]) -> list[float]:
        return [np.log(self.probability(token, self.history(ids[:t]))) for t, token in enumerate(ids)]


def draw_zipf_text(length: int, vocabulary: int, seed: int) -> np.ndarray:
    """Tokens with the frequencies of words, each correlated with the one before it."""
    rng = np.random.default_rng(seed)
    noise = np.minimum(rng.zipf(1.5, length), vocabulary) - 1
    return (noise + np.where(rng.random(length) < 0.5, np.roll(noise, 1), 0)) % vocabulary


def test_a_bigram_model_equals_a_hand_computed_one():
    # Bigrams of "a b a b a c": ab 2, ba 2, ac 1; too few to estimate discounts, so these are 0.5 and 1.
    # Continuation counts: a 2 (after b, and where the text begins), b 1, c 1, with the same discounts.
    model = NGram.count(np.array([A, B, A, B, A, C]), vocabulary_size=4, order=2, end_id=None)
    assert model.levels[0].discounts == model.levels[1].discounts == FALLBACK_DISCOUNTS
    floor = (2 / 4) / 4  # three tokens gave 1, 0.5 and 0.5 of a total of 4; a quarter of that for each of V = 4
    unigram = [1 / 4 + floor, 0.5 / 4 + floor, 0.5 / 4 + floor, floor]
    assert model.compute_distribution([]) == pytest.approx(unigram)
    leftover = 1.5 / 3  # ab and ac gave 1 and 0.5 of the 3 times a was followed
    after_a = [
        leftover * unigram[A],
        1 / 3 + leftover * unigram[B],
        0.5 / 3 + leftover * unigram[C],
        leftover * unigram[D],
    ]
    assert model.compute_distribution([A]) == pytest.approx(after_a)
    assert model.compute_distribution([C]) == pytest.approx(unigram)  # nothing followed c


def test_the_three_discounts_equal_hand_computed_values():
    # Four tokens once, two twice, one three times, one four times: Y = 4 / (4 + 2·2) = 0.5.
    text = np.array([0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7])
    model = NGram.count(text, vocabulary_size=9, order=1, end_id=None)
    assert model.levels[0].discounts == pytest.approx((1 - 0.5 * 2 * 2 / 4, 2 - 0.5 * 3 * 1 / 2, 3 - 0.5 * 4 * 1 / 1))
    floor = (4 * 0.5 + 2 * 1.25 + 2 * 1.0) / 15 / 9
    expected = [0.5 / 15] * 4 + [0.75 / 15] * 2 + [2 / 15, 3 / 15, 0]
    assert model.compute_distribution([3, 1]) == pytest.approx(np.array(expected) + floor)


def test_negative_discounts_are_replaced_by_fixed_ones():
    # One token twice but four tokens three times: D₂ = 2 − 3 · (4 / 6) · 4 / 1 = −6.
    text = np.repeat(np.arange(10), [1, 1, 1, 1, 2, 3, 3, 3, 3, 4])
    model = NGram.count(text, vocabulary_size=11, order=1, end_id=None)
    assert model.levels[0].discounts == (0.5, 1.0, 1.5)
    assert model.compute_distribution([])[4] == pytest.approx((2 - 1) / 22 + (4 * 0.5 + 1.0 + 5 * 1.5) / 22 / 11)


@given(texts, texts, st.integers(1, 6), ends)
@settings(max_examples=60, deadline=None)
def test_the_probabilities_of_any_text_equal_those_of_a_reference_with_dictionaries(train, test, order, end):
    fast = NGram.count(np.array(train), 6, order, end)
    slow = ReferenceNGram(train, 6, order, end)
    assert fast.score_tokens(np.array(test)) == pytest.approx(slow.score_tokens(test))


@pytest.mark.parametrize("end", [None, 2])
def test_estimated_discounts_equal_those_of_a_reference_with_dictionaries(end):
    train, test = draw_zipf_text(4000, 40, seed=1), draw_zipf_text(300, 40, seed=2)
    fast = NGram.count(train, 40, 4, end)
    slow = ReferenceNGram(train.tolist(), 40, 4, end)
    assert all(level.discounts != FALLBACK_DISCOUNTS for level in fast.levels[1:])
    assert fast.score_tokens(test) == pytest.approx(slow.score_tokens(test.tolist()))


@given(texts, texts, st.integers(1, 16), ends)
@settings(max_examples=100, deadline=None)
def test_the_distribution_after_any_history_sums_to_one_and_leaves_nothing_out(train, history, order, end):
    p = NGram.count(np.array(train), 7, order, end).compute_distribution(history)
    assert p.shape == (7,)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p.min() > 0


@given(texts, texts, st.integers(1, 6), ends)
@settings(max_examples=60, deadline=None)
def test_log_probabilities_agree_with_the_distribution_after_each_history(train, test, order, end):
    model = NGram.count(np.array(train), 6, order, end)
    each = [np.log(model.compute_distribution(test[:t])[token]) for t, token in enumerate(test)]
    assert model.score_tokens(np.array(test)) == pytest.approx(each)


def test_order_one_ignores_the_history():
    model = NGram.count(np.array([A, B, A]), 4, order=1, end_id=None)
    assert np.array_equal(model.compute_distribution([A, B]), model.compute_distribution([]))
    assert model.score_tokens(np.array([B, B]))[1] == np.log(model.compute_distribution([])[B])


def test_tokens_never_seen_share_the_floor_equally():
    model = NGram.count(draw_zipf_text(500, 20, seed=0), 24, order=3, end_id=None)
    unseen = np.exp(model.score_tokens(np.array([20, 21, 22, 23])))
    assert unseen == pytest.approx(np.full(4, model.interpolation_weights[0][0] / 24))
    assert unseen[0] > 0


def test_history_stops_at_the_end_of_a_line():
    train = draw_zipf_text(2000, 20, seed=3)
    first_text, second_text = np.array([5, 6, 0, 1, 2, 3]), np.array([7, 8, 0, 1, 2, 3])
    lines = NGram.count(train, 20, 4, end_id=0)
    assert np.array_equal(lines.score_tokens(first_text)[3:], lines.score_tokens(second_text)[3:])
    assert np.array_equal(lines.score_tokens(first_text)[3:], lines.score_tokens(first_text[3:]))
    stream = NGram.count(train, 20, 4, end_id=None)
    assert not np.allclose(stream.score_tokens(first_text)[3:], stream.score_tokens(second_text)[3:])


def test_a_text_in_chunks_is_counted_and_scored_like_one_array():
    text = draw_zipf_text(1000, 20, seed=4)
    of_one_array = NGram.count(text, 20, 4, end_id=0)
    of_chunks = NGram.count(iter(np.split(text.astype(np.uint16), [300, 301, 700])), 20, 4, end_id=0)
    assert np.array_equal(of_chunks.score_tokens(np.split(text, [11, 500])), of_one_array.score_tokens(text))


@pytest.mark.parametrize("end", [None, 0])
def test_a_saved_model_is_loaded_unchanged(tmp_path, end):
    text = draw_zipf_text(1000, 20, seed=5)
    model = NGram.count(text, 21, 3, end)
    save_file(model.get_tensors(), tmp_path / "model.safetensors")
    loaded = NGram.from_tensors(load_file(tmp_path / "model.safetensors"))
    assert (loaded.order, loaded.vocabulary_size, loaded.end_id) == (3, 21, end)
    assert loaded.describe() == model.describe()
    assert np.array_equal(loaded.score_tokens(text), model.score_tokens(text))


def test_a_saved_model_without_its_highest_order_is_an_error():
    model = NGram.count(draw_zipf_text(100, 20, seed=6), 20, 3, None)
    tensors = {name: tensor for name, tensor in model.get_tensors().items() if name != "keys.3"}
    with pytest.raises(RunError, match="order 3"):
        NGram.from_tensors(tensors)


@pytest.mark.parametrize(
    ("name", "value", "order"),
    [("keys.2", 10**15, "order 2"), ("keys.3", -1, "order 3"), ("vocabulary", 10**12, "order 1")],
)
def test_a_saved_model_with_numbers_out_of_range_is_an_error(name, value, order):
    tensors = NGram.count(draw_zipf_text(100, 20, seed=6), 20, 3, None).get_tensors()
    key = next(each for each in tensors if each.endswith(name))
    old = tensors[key]
    tensors[key] = np.append(old[:-1], value) if old.ndim else np.array(value)
    with pytest.raises(RunError, match=order):
        NGram.from_tensors(tensors)


@pytest.mark.parametrize("value", [None, np.array([2, 3]), np.array(2.5)])
@pytest.mark.parametrize("name", ["vocabulary", "order", "end"])
def test_a_saved_model_without_a_setting_is_an_error(name, value):
    tensors = NGram.count(draw_zipf_text(100, 20, seed=6), 20, 3, None).get_tensors()
    del tensors[f"setting.{name}"]
    if value is not None:
        tensors[f"setting.{name}"] = value
    with pytest.raises(RunError, match=f"lacks the setting '{name}'"):
        NGram.from_tensors(tensors)


def test_the_description_counts_the_ngrams_of_each_order():
    model = NGram.count(np.array([A, B, A, B, A, C]), 10, order=3, end_id=None)
    assert "9 n-grams (by order: 3, 3, 3)" in model.describe()  # a b c, ab ba ac, aba bab bac


def test_a_vocabulary_of_one_is_certain():
    model = NGram.count(np.zeros(5, np.int64), 1, order=3, end_id=None)
    assert model.score_tokens(np.zeros(4, np.int64)) == pytest.approx([0, 0, 0, 0])


@pytest.mark.parametrize(
    ("ids", "order", "end", "message"),
    [
        ([0, 1], 0, None, "order from 1 to 16, received 0"),
        ([0, 1], 17, None, "received 17"),
        ([0, 4], 2, None, "ids from 0 to 3, received 0 to 4"),
        ([0, -1], 2, None, "received -1 to 0"),
        ([], 2, 0, "at least one token"),
    ],
)
def test_the_error_about_a_wrong_argument_says_what_was_expected(ids, order, end, message):
    with pytest.raises(UsageError, match=message):
        NGram.count(np.array(ids, np.int64), 4, order, end)


@pytest.mark.parametrize("order", [1, 2, 5, 16])
@pytest.mark.parametrize(("tokens", "vocabulary"), [(50_000, 5000), (100, 50_000)])
def test_counting_stays_under_its_memory_bound_even_where_no_ngram_occurs_twice(tokens, vocabulary, order):
    text = np.random.default_rng(0).integers(0, vocabulary, tokens)
    tracemalloc.start()
    NGram.count(text, vocabulary, order, end_id=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < estimate_max_memory(tokens, vocabulary, order)


def test_probabilities_of_text_files_equal_hand_computed_values(tmp_path):
    """As the Penn Treebank is read: words, <eos> per line, what training has not seen is <unk>."""
    for split, text in {"train": "a b\na b\na c\n", "valid": "a\n", "test": " a b \na d"}.items():
        (tmp_path / f"{split}.txt").write_text(text)
    corpus = open_corpus(tmp_path)
    tokenizer = Tokenizer.train("spaces", corpus.texts("train"))
    stores = prepare_stores(corpus, tokenizer)
    train, test = (store.read(0, len(store)) for store in (stores["train"], stores["test"]))
    assert (len(tokenizer), len(train), len(test)) == (5, 9, 6)  # <eos> a b c <unk>
    model = NGram.count(train, len(tokenizer), 2, end_id=tokenizer.end)
    # Too few n-grams to estimate discounts: 0.5, 1.0 and 1.5. Different tokens before each: <eos> 2, a 1, b 1, c 1.
    floor = (1.0 + 3 * 0.5) / 5 / 5
    unigram = {"<eos>": (2 - 1) / 5 + floor, "a": 0.5 / 5 + floor, "b": 0.5 / 5 + floor, "<unk>": floor}
    a_first = (3 - 1.5) / 3 + 1.5 / 3 * unigram["a"]  # all three lines begin with a
    leftover = (1.0 + 0.5) / 3  # b came twice after a, c once
    line_1 = [a_first, (2 - 1) / 3 + leftover * unigram["b"], (2 - 1) / 2 + 1 / 2 * unigram["<eos>"]]
    line_2 = [a_first, leftover * unigram["<unk>"], unigram["<eos>"]]  # nothing ever followed <unk>
    assert np.exp(model.score_tokens(test)) == pytest.approx([*line_1, *line_2])
    assert [*line_1, *line_2] == pytest.approx([0.6, 0.4333333, 0.65, 0.6, 0.05, 0.3])


def read_penn_treebank() -> tuple[dict[str, int], list[np.ndarray]]:
    if "SEQWISE_DATA" not in os.environ:
        pytest.skip("set SEQWISE_DATA to the folder that holds ptb/ptb.train.txt.gz")
    vocabulary: dict[str, int] = {}
    splits = []
    for split in ("train", "valid", "test"):
        with gzip.open(Path(os.environ["SEQWISE_DATA"]) / "ptb" / f"ptb.{split}.txt.gz", "rt") as lines:
            words = [word for line in lines for word in [*line.split(), "<eos>"]]
        splits.append(np.array([vocabulary.setdefault(word, len(vocabulary)) for word in words]))
    return vocabulary, splits


def test_five_grams_on_the_penn_treebank_reach_the_published_perplexity():
    vocabulary, (train, valid, test) = read_penn_treebank()
    assert (len(train), len(valid), len(test), len(vocabulary)) == (929_589, 73_760, 82_430, 10_000)
    model = NGram.count(train, len(vocabulary), 5, end_id=vocabulary["<eos>"])
    perplexity = np.exp(-model.score_tokens(test).mean())
    assert perplexity == pytest.approx(141.2, abs=0.1)  # Mikolov et al. 2011: 141.2
    assert np.exp(-model.score_tokens(valid).mean()) == pytest.approx(148.0, abs=0.1)
    assert model.parameters == 2_317_233
