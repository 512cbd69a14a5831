"""Beam search and sampling of sequences, compared with exhaustive search and with a reference implementation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch

from seqwise.backbones.memory import Memory
from seqwise.decoding.beam import compute_coverage_penalty, compute_length_penalty, topk
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sequences import Hypothesis, StepOutput, apply_constraints
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder

BEGIN, END = 1, 2
VARIANTS = {
    "lstm without attention": {"model": "lstm", "translate": {"attention": "none"}},
    "lstm additive": {"model": "lstm"},
    "gru general": {"model": "gru", "translate": {"attention": "general"}},
    "lstm input feeding": {"model": "lstm", "translate": {"attention": "general", "input_feeding": True}},
    "attentive-rnn": {"model": "attentive-rnn"},
    "feedforward": {"model": "feedforward", "context": {"length": 2}, "translate": {"attention": "general"}},
    "transformer": {"model": "transformer"},
    "transformer post-norm": {"model": "transformer", "transformer": {"norm": "post", "positions": "learned"}},
}
for_each_variant = pytest.mark.parametrize("variant", VARIANTS)


MEMORY_WIDTH, MAX_POSITIONS = 8, 20


def build_decoder(variant: str, vocabulary: int = 12, output_std: float = 3.0) -> TokenDecoder:
    """Returns a small decoder with random weights, whose scale makes no two sequences equally likely."""
    settings = ResolvedSettings.model_validate(
        VARIANTS[variant] | {"network": {"width": 8, "depth": 2, "tie_weights": False}}
    )
    settings.transformer.heads = 2
    torch.manual_seed(3)
    decoder = TokenDecoder(settings, vocabulary, MEMORY_WIDTH, MAX_POSITIONS).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            if weight.dim() == 2:
                weight.normal_(std=1.5 * weight.shape[1] ** -0.5)
        decoder.output.weight.normal_(std=output_std * 8**-0.5)
    return decoder


def create_memory(rows: int = 5) -> Memory:
    generator = torch.Generator().manual_seed(7)
    vectors = 2 * torch.randn(rows, 6, MEMORY_WIDTH, dtype=torch.float64, generator=generator)
    return Memory(vectors, torch.tensor([6, 2, 4, 1, 5])[:rows])


def select_row(memory: Memory, row: int) -> Memory:
    return Memory(memory.vectors[row : row + 1, : int(memory.lengths[row])])


def search(
    decoder, memory: Memory, options: BeamSearchOptions, max_length=6, **decoding_options
) -> list[list[Hypothesis]]:
    return decode_sequences(
        decoder, memory, begin=BEGIN, end=END, options=options, max_length=max_length, **decoding_options
    )


def get_ids(results: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in row] for row in results]


# Slow reference implementations


@torch.no_grad()
def score_prefix(decoder: TokenDecoder, memory: Memory, prefix: list[int]) -> tuple[list[float], list[float]]:
    """Returns the log-probabilities of the next token, and Σ_j p_ij for each source position i; without a cache.

    p_ij is the attention of step j to position i (Wu et al. 2016, eq. 14). Without attention there are no positions.
    """
    states = decoder.decode(torch.tensor([[BEGIN, *prefix]]), None, memory, need_weights=True)
    attention_sums = [] if states.weights is None else states.weights[0].sum(0).tolist()
    return decoder.head(states.vectors[0, -1]).tolist(), attention_sums


def compute_score(
    options: BeamSearchOptions, log_probability: float, length: int, attention_sums: list[float]
) -> float:
    score = log_probability / ((5 + length) / 6) ** options.length_penalty
    if options.coverage_penalty:
        score += options.coverage_penalty * sum(math.log(max(min(each, 1.0), 1e-6)) for each in attention_sums)
    return score


def search_exhaustively(
    decoder: TokenDecoder, memory: Memory, options: BeamSearchOptions, max_length: int
) -> list[list[int]]:
    """Returns all possible sequences, best first: those that end, then those cut at the maximum length."""
    other_tokens = [token for token in range(decoder.output.vocabulary) if token != END]
    ended, truncated = [], []
    unfinished = [([], 0.0)]  # ids and their log-probability
    for length in range(1, max_length + 1):
        extended = []
        for ids, log_probability in unfinished:
            log_probs, attention_sums = score_prefix(decoder, memory, ids)
            ended.append((compute_score(options, log_probability + log_probs[END], length, attention_sums), ids))
            extended += [([*ids, token], log_probability + log_probs[token]) for token in other_tokens]
            if length == max_length:
                truncated += [
                    (compute_score(options, value, length, attention_sums), longer)
                    for longer, value in extended[-len(other_tokens) :]
                ]
        unfinished = extended
    return [ids for _, ids in sorted(ended, reverse=True)] + [ids for _, ids in sorted(truncated, reverse=True)]


def compute_token_log_probs(decoder: TokenDecoder, memory: Memory, ids: list[int], start: int = 0) -> list[float]:
    """Returns the log-probability of each token from `start` on, given the tokens before it."""
    return [score_prefix(decoder, memory, ids[:t])[0][ids[t]] for t in range(start, len(ids))]


@dataclass
class PartialHypothesis:
    ids: list[int]
    log_probability: float


def reference_beam_search(
    decoder: TokenDecoder, memory: Memory, options: BeamSearchOptions, max_length: int, prefix: tuple[int, ...] = ()
) -> list[tuple[list[int], float]]:
    """Returns the ids and scores of beam search for one source, computed with Python lists and without a cache."""
    beams, finished = [PartialHypothesis([*prefix], 0.0)], []
    for length in range(len(prefix), max_length):
        candidates = []  # log-probability, hypothesis to extend, next token, attention sums
        for beam in beams:
            log_probs, attention_sums = score_prefix(decoder, memory, beam.ids)
            if length < options.min_length:
                log_probs[END] = -math.inf
            candidates += [
                (beam.log_probability + value, beam, token, attention_sums) for token, value in enumerate(log_probs)
            ]
        candidates.sort(key=lambda candidate: -candidate[0])
        for log_probability, beam, token, attention_sums in candidates[: options.beam]:
            if token == END and log_probability > -math.inf:
                finished.append((compute_score(options, log_probability, length + 1, attention_sums), beam.ids))
        unfinished = [candidate for candidate in candidates if candidate[2] != END][: options.beam]
        beams = [PartialHypothesis([*beam.ids, token], value) for value, beam, token, _ in unfinished]
        finished.sort(reverse=True)
        nth_best = finished[options.n_best - 1][0] if len(finished) >= options.n_best else -math.inf
        # The best score that can still be reached: with the token just appended and the end token.
        best_possible = compute_score(replace(options, coverage_penalty=0.0), beams[0].log_probability, length + 2, [])
        cannot_improve = options.beam == 1 or best_possible <= nth_best
        if len(finished) >= options.beam and cannot_improve:
            break
    else:
        truncated = []
        for beam in beams:
            _, attention_sums = score_prefix(decoder, memory, beam.ids[:-1])
            truncated.append((compute_score(options, beam.log_probability, max_length, attention_sums), beam.ids))
        finished += sorted(truncated, reverse=True)
    return [(ids, score) for score, ids in finished[: options.n_best]]


# Correctness


@pytest.mark.parametrize("variant", ["lstm additive", "transformer"])
@pytest.mark.parametrize("penalties", [(0.0, 0.0), (1.0, 0.0), (0.6, 0.5)])
def test_a_beam_of_all_sequences_equals_exhaustive_search(variant, penalties):
    decoder, memory, max_length = build_decoder(variant, vocabulary=4, output_std=2.0), create_memory(2), 3
    options = BeamSearchOptions(beam=64, length_penalty=penalties[0], coverage_penalty=penalties[1], n_best=64)
    results = get_ids(search(decoder, memory, options, max_length))
    for row in range(2):
        expected = search_exhaustively(decoder, select_row(memory, row), options, max_length)
        assert results[row][:20] == expected[:20]  # the 13 sequences that end, and the best that are truncated


@for_each_variant
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
@pytest.mark.parametrize("prefix", [(), (5, 7)], ids=["no prefix", "prefix"])
def test_the_search_equals_the_reference_implementation(variant, options, prefix):
    """Caches, batching and beams as tensors change no result."""
    decoder, memory = build_decoder(variant), create_memory()
    if options.coverage_penalty and variant == "lstm without attention":
        with pytest.raises(UsageError, match="has no attention"):
            search(decoder, memory, options)
        return
    for row, hypotheses in enumerate(search(decoder, memory, options, prefix=prefix)):
        expected = reference_beam_search(decoder, select_row(memory, row), options, max_length=6, prefix=prefix)
        assert [each.ids for each in hypotheses] == [ids for ids, _ in expected]
        assert [each.score for each in hypotheses] == pytest.approx([score for _, score in expected], rel=1e-4)


@for_each_variant
def test_a_beam_of_one_equals_greedy_decoding(variant):
    decoder, memory = build_decoder(variant), create_memory()
    greedy = decode_sequences(
        decoder, memory, begin=BEGIN, end=END, sampling=SamplingOptions(greedy=True), max_length=12
    )
    beam = search(decoder, memory, BeamSearchOptions(), max_length=12)
    assert get_ids(beam) == get_ids(greedy)
    for (beam_best,), (greedy_best,) in zip(beam, greedy):
        assert beam_best.log_probability == pytest.approx(greedy_best.log_probability, rel=1e-5)
        assert beam_best.ended == greedy_best.ended


@for_each_variant
def test_a_batch_gives_the_results_of_single_sources_in_order(variant):
    decoder, memory, options = build_decoder(variant), create_memory(), BeamSearchOptions(beam=4, n_best=3)
    batched = search(decoder, memory, options, max_length=9)
    one_by_one = [search(decoder, select_row(memory, row), options, max_length=9)[0] for row in range(5)]
    assert get_ids(batched) == get_ids(one_by_one)
    assert [[each.score for each in row] for row in batched] == [
        pytest.approx([each.score for each in row], rel=1e-5) for row in one_by_one
    ]


@for_each_variant
def test_float32_with_packed_weights_finds_the_same_sequences_as_float64(variant):
    """Weights are packed by oneDNN (`kernels/packed_linear.py`), which needs float32 and at least 4 sequences."""
    decoder, memory, options = build_decoder(variant), create_memory(), BeamSearchOptions(beam=3)
    float64 = search(decoder, memory, options)
    float32 = search(decoder.float(), Memory(memory.vectors.float(), memory.lengths), options)
    assert get_ids(float32) == get_ids(float64)
    for (actual,), (expected,) in zip(float32, float64):
        assert actual.log_probability == pytest.approx(expected.log_probability, rel=1e-4)


@for_each_variant
def test_autocast_to_bfloat16_changes_scores_by_less_than_half_a_nat(variant):
    """As on a GPU: matrix products are in bfloat16, sums of log-probabilities are not."""
    decoder, memory = build_decoder(variant).float(), create_memory()
    memory = Memory(memory.vectors.float(), memory.lengths)
    float32 = search(decoder, memory, BeamSearchOptions(beam=3))
    with torch.autocast("cpu", torch.bfloat16):
        bfloat16 = search(decoder, memory, BeamSearchOptions(beam=3))
    for (actual,), (expected,) in zip(bfloat16, float32):
        assert actual.score == pytest.approx(expected.score, abs=0.5)


@for_each_variant
def test_the_log_probability_is_the_sum_over_the_tokens(variant):
    decoder, memory = build_decoder(variant), create_memory()
    for row, hypotheses in enumerate(search(decoder, memory, BeamSearchOptions(beam=3, n_best=3), max_length=5)):
        for each in hypotheses:
            ids = [*each.ids, END] if each.ended else each.ids
            token_log_probs = compute_token_log_probs(decoder, select_row(memory, row), ids)
            assert each.log_probability == pytest.approx(sum(token_log_probs), rel=1e-5)
            assert each.ended == (len(each.ids) < 5)


# Options


def test_each_source_has_its_own_maximum_length():
    decoder, memory = build_decoder("transformer"), create_memory()
    max_length = torch.tensor([1, 7, 3, 0, 5])
    results = search(decoder, memory, BeamSearchOptions(beam=3), max_length, banned=(END,))
    assert [len(row[0].ids) for row in results] == max_length.tolist()
    assert not any(row[0].ended for row in results)


def test_no_sequence_is_shorter_than_the_minimum_length():
    decoder, memory = build_decoder("gru general", output_std=1.0), create_memory()
    with torch.no_grad():
        decoder.output.bias[END] += 3
    assert min(len(row[0].ids) for row in search(decoder, memory, BeamSearchOptions(beam=3))) < 3
    longer = search(decoder, memory, BeamSearchOptions(beam=3, n_best=3, min_length=3), max_length=8)
    assert min(len(each.ids) for row in longer for each in row) == 3


@for_each_variant
def test_no_ngram_occurs_twice(variant):
    decoder, memory = build_decoder(variant), create_memory()
    options = BeamSearchOptions(beam=3, n_best=3, no_repeat_ngram=2, min_length=9)
    for row in search(decoder, memory, options, max_length=10):
        for each in row:
            bigrams = list(zip(each.ids, each.ids[1:]))
            assert len(bigrams) == len(set(bigrams)) >= 8


def test_every_sequence_begins_with_the_forced_prefix():
    decoder, memory = build_decoder("transformer"), create_memory()
    unforced = search(decoder, memory, BeamSearchOptions(beam=3, n_best=3))
    forced = search(decoder, memory, BeamSearchOptions(beam=3, n_best=3), prefix=[5, 7])
    assert all(each.ids[:2] == [5, 7] for row in forced for each in row)
    assert get_ids(unforced) != get_ids(forced)
    best = forced[0][0]
    ids = [*best.ids, END] if best.ended else best.ids
    log_probs_after_prefix = compute_token_log_probs(decoder, select_row(memory, 0), ids, start=2)
    assert best.log_probability == pytest.approx(sum(log_probs_after_prefix), rel=1e-5)


def test_a_prefix_longer_than_the_maximum_length_is_the_result():
    results = search(
        build_decoder("lstm additive"), create_memory(2), BeamSearchOptions(beam=2), max_length=2, prefix=[5, 7, 4]
    )
    assert get_ids(results) == [[[5, 7, 4]]] * 2


def test_banned_tokens_do_not_occur():
    decoder, memory = build_decoder("lstm additive"), create_memory()
    tokens = {token for row in search(decoder, memory, BeamSearchOptions(beam=3)) for token in row[0].ids}
    banned = tuple(tokens)[:2]
    results = search(decoder, memory, BeamSearchOptions(beam=3, n_best=3), banned=banned)
    assert not any(token in each.ids for row in results for each in row for token in banned)


def test_if_all_tokens_are_banned_the_prefix_is_the_result():
    decoder, memory = build_decoder("lstm additive", vocabulary=4), create_memory(2)
    for prefix in ([], [3]):
        results = search(decoder, memory, BeamSearchOptions(beam=2), prefix=prefix, banned=(0, 1, 2, 3))
        assert results == [[Hypothesis(prefix, -math.inf, -math.inf, ended=False)]] * 2


def test_an_empty_memory_gives_no_results():
    empty_memory = Memory(torch.zeros(0, 3, 8, dtype=torch.float64), torch.zeros(0, dtype=torch.long))
    assert search(build_decoder("lstm additive"), empty_memory, BeamSearchOptions(beam=2)) == []


def test_a_beam_wider_than_the_vocabulary_returns_all_sequences():
    results = search(
        build_decoder("transformer", vocabulary=4), create_memory(2), BeamSearchOptions(beam=9, n_best=9), max_length=1
    )
    assert [sorted(ids) for ids in get_ids(results)] == [[[], [0], [1], [3]]] * 2


class ConfidentDecoder:
    """Predicts 3, 4, 5 and then the end, each with probability 0.9; all other tokens are equally unlikely."""

    def start(self, memory):
        return torch.zeros(len(memory.vectors), dtype=torch.long)

    def step(self, ids, state, need_weights=False):
        likely = torch.where(state < 3, state + 3, END)
        scores = torch.full((len(ids), 6), 0.02).log()
        return StepOutput(scores.scatter(1, likely[:, None], math.log(0.9)), state + 1)

    def select(self, state, rows, sources=None):
        return state[rows]


def test_the_search_continues_after_k_poor_hypotheses_have_finished():
    """At each step some of the five best extensions end; the search continues even when five have ended."""
    (row,) = decode_sequences(
        ConfidentDecoder(),
        Memory(torch.zeros(1, 1, 1)),
        begin=1,
        end=END,
        options=BeamSearchOptions(beam=5),
        max_length=9,
    )
    assert row[0].ids == [3, 4, 5]
    assert row[0].log_probability == pytest.approx(4 * math.log(0.9), rel=1e-5)
    assert row[0].score == pytest.approx(4 * math.log(0.9) / (9 / 6), rel=1e-5)


def test_penalties_equal_hand_computed_values():
    assert compute_length_penalty(7, 1.0) == 2.0
    assert compute_length_penalty(7, 0.0) == 1.0
    assert compute_length_penalty(19, 0.5) == 2.0
    uncovered = torch.tensor([0.5, 0.0, -0.7, 0.75])  # attention of 0.5, 1, 1.7 and 0.25
    assert compute_coverage_penalty(uncovered).item() == pytest.approx(math.log(0.5) + math.log(0.25))


def test_a_length_penalty_prefers_longer_sequences():
    decoder, memory = build_decoder("gru general"), create_memory()
    lengths = [
        sum(
            len(row[0].ids)
            for row in search(decoder, memory, BeamSearchOptions(beam=5, length_penalty=alpha), max_length=15)
        )
        for alpha in (0.0, 1.0, 2.0)
    ]
    assert lengths[0] < lengths[1] < lengths[2]


# Sampling


def sample(
    decoder, seed: int, sampling: SamplingOptions = SamplingOptions(), **decoding_options
) -> list[list[Hypothesis]]:
    return decode_sequences(
        decoder, create_memory(), begin=BEGIN, end=END, sampling=sampling, max_length=8, seed=seed, **decoding_options
    )


@for_each_variant
def test_the_same_seed_samples_the_same_sequences(variant):
    decoder = build_decoder(variant)
    assert get_ids(sample(decoder, 1)) == get_ids(sample(decoder, 1)) != get_ids(sample(decoder, 2))


def test_several_samples_of_a_row_have_their_own_log_probabilities():
    decoder, memory = build_decoder("transformer"), create_memory()
    for row, hypotheses in enumerate(sample(decoder, 0, options=BeamSearchOptions(beam=4, n_best=4))):
        assert len(hypotheses) == 4
        assert len({tuple(each.ids) for each in hypotheses}) > 1
        for each in hypotheses:
            ids = [*each.ids, END] if each.ended else each.ids
            token_log_probs = compute_token_log_probs(decoder, select_row(memory, row), ids)
            assert each.log_probability == pytest.approx(sum(token_log_probs), rel=1e-5)


def test_samples_follow_the_distribution():
    memory = Memory(torch.zeros(4000, 1, 1))
    results = decode_sequences(ConfidentDecoder(), memory, begin=1, end=END, sampling=SamplingOptions(), max_length=1)
    share = sum(row[0].ids == [3] for row in results) / 4000
    assert share == pytest.approx(0.9, abs=0.02)


def test_sampling_respects_minimum_length_prefix_banned_tokens_and_ngrams():
    decoder = build_decoder("lstm additive", output_std=0.5)
    options = BeamSearchOptions(min_length=4, no_repeat_ngram=1)
    for row in sample(decoder, 0, options=options, prefix=[5], banned=(0, 1)):
        ids = row[0].ids
        assert ids[0] == 5
        assert len(ids) >= 4
        assert len(set(ids)) == len(ids)
        assert not {0, 1} & set(ids[1:])


def test_a_repetition_penalty_gives_more_distinct_tokens():
    decoder = build_decoder("lstm without attention")

    def count_distinct_tokens(repetition_penalty: float) -> int:
        options = SamplingOptions(greedy=True, repetition_penalty=repetition_penalty)
        return sum(len(set(row[0].ids)) for row in sample(decoder, 0, options))

    assert count_distinct_tokens(5.0) > count_distinct_tokens(1.0)


def test_a_negative_seed_is_rejected():
    with pytest.raises(UsageError, match="the seed must lie between"):
        sample(build_decoder("lstm without attention"), -1)


# Top-k and constraints


def test_topk_by_blocks_equals_that_of_pytorch():
    scores = torch.randn(7, 1000, generator=torch.Generator().manual_seed(0))
    scores[3, 990:] += 9  # after the last full block
    scores[4, 64:70] += 9  # several in one block
    values, indices = topk(scores, 5)
    expected = scores.topk(5)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


def test_topk_of_fewer_scores_returns_all_of_them():
    values, indices = topk(torch.tensor([[3.0, 1.0, 2.0]]), 9)
    assert values.tolist() == [[3, 2, 1]]
    assert indices.tolist() == [[0, 2, 1]]


def test_repeated_ngrams_are_forbidden_in_each_row():
    scores = torch.zeros(2, 5)
    apply_constraints(scores, torch.tensor([[3, 4, 3], [3, 1, 4]]), end=2, min_length=0, no_repeat_ngram=2)
    assert scores[0].tolist() == [0, 0, 0, 0, -math.inf]
    assert scores[1].tolist() == [0] * 5


def test_the_end_is_allowed_if_no_other_token_is():
    scores = torch.zeros(1, 3)
    apply_constraints(scores, torch.tensor([[0, 1]]), end=2, min_length=5, no_repeat_ngram=1)
    assert scores.tolist() == [[-math.inf, -math.inf, 0.0]]
