"""Searching for sequences: against all that there are, against a plain slow search, and constraint by constraint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.decoding.beam import coverage_penalty, length_penalty, topk
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sequences import Hypothesis, StepOutput, apply_constraints
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder

BEGIN, END = 1, 2
VARIANTS = {
    "lstm none": {"model": "lstm", "translate": {"attention": "none"}},
    "lstm additive": {"model": "lstm"},
    "gru general": {"model": "gru", "translate": {"attention": "general"}},
    "lstm fed": {"model": "lstm", "translate": {"attention": "general", "input_feeding": True}},
    "attentive": {"model": "attentive-rnn"},
    "feedforward": {"model": "feedforward", "context": {"length": 2}, "translate": {"attention": "general"}},
    "transformer": {"model": "transformer"},
    "transformer post": {"model": "transformer", "transformer": {"norm": "post", "positions": "learned"}},
}
every = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str, vocabulary: int = 12, sharpness: float = 3.0) -> TokenDecoder:
    """A small writer with random weights whose choices are clear: no two sequences are equally good."""
    settings = ResolvedSettings.model_validate(
        VARIANTS[variant] | {"network": {"width": 8, "depth": 2, "tie_weights": False}}
    )
    settings.transformer.heads = 2
    torch.manual_seed(3)
    decoder = TokenDecoder(settings, vocabulary, 8, 20).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            if weight.dim() == 2:
                weight.normal_(std=1.5 * weight.shape[1] ** -0.5)
        decoder.output.weight.normal_(std=sharpness * 8**-0.5)
    return decoder


def memory_of(rows: int = 5) -> Memory:
    generator = torch.Generator().manual_seed(7)
    vectors = 2 * torch.randn(rows, 6, 8, dtype=torch.float64, generator=generator)
    return Memory(vectors, torch.tensor([6, 2, 4, 1, 5])[:rows])


def row_of(memory: Memory, row: int) -> Memory:
    return Memory(memory.vectors[row : row + 1, : int(memory.lengths[row])])


def find(decoder, memory: Memory, options: BeamSearchOptions, max_length=6, **more) -> list[list[Hypothesis]]:
    return decode_sequences(decoder, memory, begin=BEGIN, end=END, options=options, max_length=max_length, **more)


def ids_of(results: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in row] for row in results]


# Slow twins


@torch.no_grad()
def steps(decoder: TokenDecoder, memory: Memory, prefix: list[int]) -> tuple[list[float], Tensor]:
    """Log-probabilities after the prefix, all read anew; and what each source position lacks of a weight of 1."""
    states = decoder.read(torch.tensor([[BEGIN, *prefix]]), None, memory, weights=True)
    looked = 0.0 if states.weights is None else states.weights[0].sum(0)
    return decoder.head(states.vectors[0, -1]).tolist(), 1 - looked


def score_of(options: BeamSearchOptions, total: float, length: int, missing: Tensor) -> float:
    score = total / ((5 + length) / 6) ** options.length_penalty
    if options.coverage_penalty:
        score += options.coverage_penalty * sum(math.log(max(min(1 - m, 1.0), 1e-6)) for m in missing.tolist())
    return score


def exhaustive(decoder: TokenDecoder, memory: Memory, options: BeamSearchOptions, max_length: int) -> list[list[int]]:
    """All sequences there are, best first: those that end, then those that are cut."""
    vocabulary = decoder.output.vocabulary
    others = [token for token in range(vocabulary) if token != END]
    ended, cut = [], []
    for length in range(max_length + 1):
        for ids in product(others, repeat=length):
            total = sum(steps(decoder, memory, list(ids[:t]))[0][ids[t]] for t in range(length))
            after, missing = steps(decoder, memory, list(ids))
            if length < max_length:
                ended.append((score_of(options, total + after[END], length + 1, missing), list(ids)))
            else:
                missing = steps(decoder, memory, list(ids[:-1]))[1]
                cut.append((score_of(options, total, length, missing), list(ids)))
    return [ids for _, ids in sorted(ended, reverse=True)] + [ids for _, ids in sorted(cut, reverse=True)]


@dataclass
class Open:
    ids: list[int]
    total: float


def slow(
    decoder: TokenDecoder, memory: Memory, options: BeamSearchOptions, max_length: int, prefix: tuple[int, ...] = ()
) -> list[tuple[list[int], float]]:
    """Beam search as one writes it first: one row, lists, no cache."""
    beams, pool = [Open([*prefix], 0.0)], []
    for length in range(len(prefix), max_length):
        found = []
        for beam in beams:
            after, missing = steps(decoder, memory, beam.ids)
            if length < options.min_length:
                after[END] = -math.inf
            found += [(beam.total + value, beam, token, missing) for token, value in enumerate(after)]
        found.sort(key=lambda each: -each[0])
        for total, beam, token, missing in found[: options.beam]:
            if token == END and total > -math.inf:
                pool.append((score_of(options, total, length + 1, missing), beam.ids))
        going = [each for each in found if each[2] != END][: options.beam]
        beams = [Open([*beam.ids, token], total) for total, beam, token, _ in going]
        pool.sort(reverse=True)
        worst = pool[options.n_best - 1][0] if len(pool) >= options.n_best else -math.inf
        enough = options.beam == 1 or beams[0].total / ((5 + length + 2) / 6) ** options.length_penalty <= worst
        if len(pool) >= options.beam and enough:
            break
    else:
        cut = []
        for beam in beams:
            missing = steps(decoder, memory, beam.ids[:-1])[1]
            cut.append((score_of(options, beam.total, max_length, missing), beam.ids))
        pool += sorted(cut, reverse=True)
    return [(ids, score) for score, ids in pool[: options.n_best]]


# Right


@pytest.mark.parametrize("variant", ["lstm additive", "transformer"])
@pytest.mark.parametrize("penalties", [(0.0, 0.0), (1.0, 0.0), (0.6, 0.5)])
def test_a_beam_of_everything_finds_the_best_of_all_sequences(variant, penalties):
    decoder, memory, max_length = build(variant, vocabulary=4, sharpness=2.0), memory_of(2), 3
    options = BeamSearchOptions(beam=64, length_penalty=penalties[0], coverage_penalty=penalties[1], n_best=64)
    found = ids_of(find(decoder, memory, options, max_length))
    for row in range(2):
        assert found[row][:20] == exhaustive(decoder, row_of(memory, row), options, max_length)[:20]


@every
@pytest.mark.parametrize(
    "options",
    [
        BeamSearchOptions(beam=1),
        BeamSearchOptions(beam=3, n_best=3),
        BeamSearchOptions(beam=4, n_best=2, length_penalty=0.0),
        BeamSearchOptions(beam=3, n_best=2, length_penalty=0.6, coverage_penalty=0.4, min_length=2),
    ],
    ids=["greedy", "beam", "no penalty", "coverage"],
)
@pytest.mark.parametrize(("prefix"), [(), (5, 7)], ids=["free", "started"])
def test_the_search_equals_a_plain_slow_one(variant, options, prefix):
    """Cached equals uncached, batched equals one by one, beams in slots equal lists."""
    decoder, memory = build(variant), memory_of()
    if options.coverage_penalty and variant == "lstm none":
        with pytest.raises(UsageError, match="has no attention"):
            find(decoder, memory, options)
        return
    for row, found in enumerate(find(decoder, memory, options, prefix=prefix)):
        expected = slow(decoder, row_of(memory, row), options, max_length=6, prefix=prefix)
        assert [each.ids for each in found] == [ids for ids, _ in expected]
        assert [each.score for each in found] == pytest.approx([score for _, score in expected], rel=1e-4)


@every
def test_a_beam_of_one_is_greedy_to_the_token(variant):
    decoder, memory = build(variant), memory_of()
    drawn = decode_sequences(
        decoder, memory, begin=BEGIN, end=END, sampling=SamplingOptions(greedy=True), max_length=12
    )
    searched = find(decoder, memory, BeamSearchOptions(), max_length=12)
    assert ids_of(searched) == ids_of(drawn)
    for one, other in zip(searched, drawn):
        assert one[0].log_probability == pytest.approx(other[0].log_probability, rel=1e-5)
        assert one[0].ended == other[0].ended


@every
def test_a_batch_equals_its_rows_one_by_one_in_their_order(variant):
    decoder, memory, options = build(variant), memory_of(), BeamSearchOptions(beam=4, n_best=3)
    together = find(decoder, memory, options, max_length=9)
    alone = [find(decoder, row_of(memory, row), options, max_length=9)[0] for row in range(5)]
    assert ids_of(together) == ids_of(alone)
    assert [[each.score for each in row] for row in together] == [
        pytest.approx([each.score for each in row], rel=1e-5) for row in alone
    ]


@every
def test_single_precision_with_packed_weights_finds_the_same(variant):
    """Rows enough for packed copies of the weights; float64 has none."""
    decoder, memory, options = build(variant), memory_of(), BeamSearchOptions(beam=3)
    exact = find(decoder, memory, options)
    single = find(decoder.float(), Memory(memory.vectors.float(), memory.lengths), options)
    assert ids_of(single) == ids_of(exact)
    for one, other in zip(single, exact):
        assert one[0].log_probability == pytest.approx(other[0].log_probability, rel=1e-4)


@every
def test_products_in_16_bits_do_not_disturb_the_search(variant):
    """As on a GPU: the products are in bfloat16, the sums of log-probabilities are not."""
    decoder, memory = build(variant).float(), memory_of()
    memory = Memory(memory.vectors.float(), memory.lengths)
    exact = find(decoder, memory, BeamSearchOptions(beam=3))
    with torch.autocast("cpu", torch.bfloat16):
        rough = find(decoder, memory, BeamSearchOptions(beam=3))
    for one, other in zip(rough, exact):
        assert one[0].score == pytest.approx(other[0].score, abs=0.5)


@every
def test_the_log_probability_is_that_of_the_sequence(variant):
    decoder, memory = build(variant), memory_of()
    for row, found in enumerate(find(decoder, memory, BeamSearchOptions(beam=3, n_best=3), max_length=5)):
        for each in found:
            ids = [*each.ids, END] if each.ended else each.ids
            read = (steps(decoder, row_of(memory, row), ids[:t])[0][ids[t]] for t in range(len(ids)))
            assert each.log_probability == pytest.approx(sum(read), rel=1e-5)
            assert each.ended == (len(each.ids) < 5)


# What is asked for


def test_each_row_has_its_own_longest_length():
    decoder, memory = build("transformer"), memory_of()
    max_length = torch.tensor([1, 7, 3, 0, 5])
    found = find(decoder, memory, BeamSearchOptions(beam=3), max_length, banned=(END,))
    assert [len(row[0].ids) for row in found] == max_length.tolist()
    assert not any(row[0].ended for row in found)


def test_a_least_length_is_kept():
    decoder, memory = build("gru general", sharpness=1.0), memory_of()
    with torch.no_grad():
        decoder.output.bias[END] += 3
    assert min(len(row[0].ids) for row in find(decoder, memory, BeamSearchOptions(beam=3))) < 3
    longer = find(decoder, memory, BeamSearchOptions(beam=3, n_best=3, min_length=3), max_length=8)
    assert min(len(each.ids) for row in longer for each in row) == 3


@every
def test_no_run_of_tokens_comes_twice(variant):
    decoder, memory = build(variant), memory_of()
    options = BeamSearchOptions(beam=3, n_best=3, no_repeat_ngram=2, min_length=9)
    for row in find(decoder, memory, options, max_length=10):
        for each in row:
            pairs = list(zip(each.ids, each.ids[1:]))
            assert len(pairs) == len(set(pairs)) >= 8


def test_a_forced_start_is_followed():
    decoder, memory = build("transformer"), memory_of()
    free = find(decoder, memory, BeamSearchOptions(beam=3, n_best=3))
    forced = find(decoder, memory, BeamSearchOptions(beam=3, n_best=3), prefix=[5, 7])
    assert all(each.ids[:2] == [5, 7] for row in forced for each in row)
    assert ids_of(free) != ids_of(forced)
    row = row_of(memory, 0)
    ids = [*forced[0][0].ids, END] if forced[0][0].ended else forced[0][0].ids
    read = (steps(decoder, row, ids[:t])[0][ids[t]] for t in range(2, len(ids)))
    assert forced[0][0].log_probability == pytest.approx(sum(read), rel=1e-5)  # the start was no choice


def test_a_start_as_long_as_the_longest_is_all_there_is():
    found = find(build("lstm additive"), memory_of(2), BeamSearchOptions(beam=2), max_length=2, prefix=[5, 7, 4])
    assert ids_of(found) == [[[5, 7, 4]]] * 2


def test_some_tokens_are_never_written():
    decoder, memory = build("lstm additive"), memory_of()
    used = {token for row in find(decoder, memory, BeamSearchOptions(beam=3)) for token in row[0].ids}
    banned = tuple(used)[:2]
    found = find(decoder, memory, BeamSearchOptions(beam=3, n_best=3), banned=banned)
    assert not any(token in each.ids for row in found for each in row for token in banned)


def test_where_nothing_may_be_written_the_start_is_the_answer():
    decoder, memory = build("lstm additive", vocabulary=4), memory_of(2)
    for prefix in ([], [3]):
        found = find(decoder, memory, BeamSearchOptions(beam=2), prefix=prefix, banned=(0, 1, 2, 3))
        assert found == [[Hypothesis(prefix, -math.inf, -math.inf, ended=False)]] * 2


def test_no_rows_give_no_results():
    empty = Memory(torch.zeros(0, 3, 8, dtype=torch.float64), torch.zeros(0, dtype=torch.long))
    assert find(build("lstm additive"), empty, BeamSearchOptions(beam=2)) == []


def test_a_beam_wider_than_the_vocabulary_returns_what_there_is():
    found = find(build("transformer", vocabulary=4), memory_of(2), BeamSearchOptions(beam=9, n_best=9), max_length=1)
    assert [sorted(ids) for ids in ids_of(found)] == [[[], [0], [1], [3]]] * 2


class Sure:
    """Writes 3, 4, 5 and the end with probability 0.9; every other token, the end among them, is equally unlikely."""

    def start(self, memory):
        return torch.zeros(len(memory.vectors), dtype=torch.long)

    def step(self, ids, state, weights=False):
        wanted = torch.where(state < 3, state + 3, END)
        scores = torch.full((len(ids), 6), 0.02).log()
        return StepOutput(scores.scatter(1, wanted[:, None], math.log(0.9)), state + 1)

    def select(self, state, rows, sources=None):
        return state[rows]


def test_early_ends_of_a_sure_model_do_not_stop_what_is_better():
    """At each step some of the five best continuations end too soon; five of them are no reason to give up."""
    (row,) = decode_sequences(
        Sure(), Memory(torch.zeros(1, 1, 1)), begin=1, end=END, options=BeamSearchOptions(beam=5), max_length=9
    )
    assert row[0].ids == [3, 4, 5]
    assert row[0].log_probability == pytest.approx(4 * math.log(0.9), rel=1e-5)
    assert row[0].score == pytest.approx(4 * math.log(0.9) / (9 / 6), rel=1e-5)


def test_penalties_by_hand():
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(7, 0.0) == 1.0
    assert length_penalty(19, 0.5) == 2.0
    missing = torch.tensor([0.5, 0.0, -0.7, 0.75])  # looked at with 0.5, 1, 1.7 and 0.25
    assert coverage_penalty(missing).item() == pytest.approx(math.log(0.5) + math.log(0.25))


def test_a_length_penalty_prefers_longer_sequences():
    decoder, memory = build("gru general"), memory_of()
    lengths = [
        sum(
            len(row[0].ids)
            for row in find(decoder, memory, BeamSearchOptions(beam=5, length_penalty=alpha), max_length=15)
        )
        for alpha in (0.0, 1.0, 2.0)
    ]
    assert lengths[0] < lengths[1] < lengths[2]


# Sampling


def draw(decoder, seed: int, sampling: SamplingOptions = SamplingOptions(), **more) -> list[list[Hypothesis]]:
    return decode_sequences(
        decoder, memory_of(), begin=BEGIN, end=END, sampling=sampling, max_length=8, seed=seed, **more
    )


@every
def test_the_same_seed_draws_the_same_sequences(variant):
    decoder = build(variant)
    assert ids_of(draw(decoder, 1)) == ids_of(draw(decoder, 1)) != ids_of(draw(decoder, 2))


def test_several_draws_per_row_have_their_own_log_probabilities():
    decoder, memory = build("transformer"), memory_of()
    for row, found in enumerate(draw(decoder, 0, options=BeamSearchOptions(beam=4, n_best=4))):
        assert len(found) == 4
        assert len({tuple(each.ids) for each in found}) > 1
        for each in found:
            ids = [*each.ids, END] if each.ended else each.ids
            read = (steps(decoder, row_of(memory, row), ids[:t])[0][ids[t]] for t in range(len(ids)))
            assert each.log_probability == pytest.approx(sum(read), rel=1e-5)


def test_draws_follow_the_distribution():
    memory = Memory(torch.zeros(4000, 1, 1))
    found = decode_sequences(Sure(), memory, begin=1, end=END, sampling=SamplingOptions(), max_length=1)
    share = sum(row[0].ids == [3] for row in found) / 4000
    assert share == pytest.approx(0.9, abs=0.02)


def test_draws_keep_the_least_length_the_start_and_what_may_not_come():
    decoder = build("lstm additive", sharpness=0.5)
    options = BeamSearchOptions(min_length=4, no_repeat_ngram=1)
    for row in draw(decoder, 0, options=options, prefix=[5], banned=(0, 1)):
        ids = row[0].ids
        assert ids[0] == 5
        assert len(ids) >= 4
        assert len(set(ids)) == len(ids)
        assert not {0, 1} & set(ids[1:])


def test_a_repetition_penalty_makes_draws_vary():
    decoder = build("lstm none")
    plain = sum(len(set(row[0].ids)) for row in draw(decoder, 0, SamplingOptions(greedy=True)))
    varied = sum(len(set(row[0].ids)) for row in draw(decoder, 0, SamplingOptions(greedy=True, repetition_penalty=5.0)))
    assert varied > plain


def test_a_seed_beyond_64_bits_is_refused():
    with pytest.raises(UsageError, match="the seed must lie between"):
        draw(build("lstm none"), -1)


# Small parts


def test_the_best_of_many_scores_are_those_of_topk():
    scores = torch.randn(7, 1000, generator=torch.Generator().manual_seed(0))
    scores[3, 990:] += 9  # behind the last whole block
    scores[4, 64:70] += 9  # several in one block
    values, places = topk(scores, 5)
    expected = scores.topk(5)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def test_the_best_of_few_scores_are_all():
    values, places = topk(torch.tensor([[3.0, 1.0, 2.0]]), 9)
    assert values.tolist() == [[3, 2, 1]]
    assert places.tolist() == [[0, 2, 1]]


def test_repeated_runs_are_forbidden_row_by_row():
    scores = torch.zeros(2, 5)
    apply_constraints(scores, torch.tensor([[3, 4, 3], [3, 1, 4]]), end=2, min_length=0, no_repeat_ngram=2)
    assert scores[0].tolist() == [0, 0, 0, 0, -math.inf]
    assert scores[1].tolist() == [0] * 5


def test_the_end_is_allowed_where_nothing_else_is_left():
    scores = torch.zeros(1, 3)
    apply_constraints(scores, torch.tensor([[0, 1]]), end=2, min_length=5, no_repeat_ngram=1)
    assert scores.tolist() == [[-math.inf, -math.inf, 0.0]]
