"""The view of decoding shows the search of `predict`: every probability, every candidate, and why it was pruned."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from seqwise.backbones.memory import Memory
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.options import BeamSearchOptions
from seqwise.decoding.sequences import StepOutput
from seqwise.decoding.trace import DecodingTrace, get_trace, trace_decoding
from seqwise.errors import UsageError
from seqwise.lens.beam_tree import build_candidates, describe_stop, get_path_tokens, list_hypotheses
from seqwise.lens.decoding import decoding

BEGIN, END, A, B, FORBIDDEN = 0, 1, 2, 3, 4
NEXT = {  # token → probabilities of <begin>, <end>, a, b and a token that is forbidden
    BEGIN: [0.0, 0.08, 0.48, 0.24, 0.2],
    A: [0.0, 0.5, 0.1, 0.4, 0.0],
    B: [0.0, 0.7, 0.25, 0.05, 0.0],
}


class MarkovDecoder:
    """Predicts the next token from the last one."""

    def __init__(self, table: dict[int, list[float]]):
        self.table = table

    def start(self, memory):
        return torch.zeros(len(memory.vectors))

    def step(self, ids, state, need_weights=False):
        return StepOutput(torch.tensor([self.table[int(token)] for token in ids[:, -1]]).log(), state)

    def select(self, state, beams, sources=None):
        return state


def search(
    beam: int, length_penalty: float = 0.0, max_length: int = 4, table=NEXT, banned=(BEGIN, FORBIDDEN)
) -> DecodingTrace:
    options = BeamSearchOptions(beam=beam, length_penalty=length_penalty)
    memory = Memory(torch.zeros(1, 1, 1))
    arguments = {"begin": BEGIN, "end": END, "max_length": max_length, "banned": banned}
    with trace_decoding(top=3) as trace:
        (hypotheses,) = decode_sequences(MarkovDecoder(table), memory, options=options, **arguments)
    assert trace.hypotheses == hypotheses
    return trace


def spell(nodes, index: int) -> str:
    return "".join({END: ".", A: "a", B: "b"}[token] for token in get_path_tokens(nodes, index))


def test_each_candidate_of_a_beam_of_two_is_as_computed_by_hand():
    nodes = build_candidates(search(beam=2))
    found = {spell(nodes, index): node for index, node in enumerate(nodes) if index}
    expected = {  # sequence → its probability and what became of it
        "a": (0.48, "kept"),
        "b": (0.24, "kept"),
        ".": (0.08, "pruned"),
        "a.": (0.24, "best"),
        "ab": (0.48 * 0.4, "kept"),
        "b.": (0.24 * 0.7, "pruned"),
        "ba": (0.24 * 0.25, "kept"),
    }
    assert list(found) == list(expected)
    for sequence, (probability, state) in expected.items():
        assert found[sequence].log_prob == pytest.approx(math.log(probability), rel=1e-5)
        assert found[sequence].state == state, sequence
    assert found["ab"].token_log_prob == pytest.approx(math.log(0.4), rel=1e-5)
    assert found["ab"].rank == 2
    assert found["."].rank == 4, "the forbidden token is more probable too"
    assert found["."].reason == "rank 3: a candidate that ends must be among the first 2"
    assert found["ba"].reason.startswith("unfinished when the search stopped: no beam could still reach")


def test_a_candidate_below_the_beam_is_pruned_with_both_numbers():
    nodes = build_candidates(search(beam=1))
    found = {spell(nodes, index): node for index, node in enumerate(nodes) if index}
    assert found["b"].state == "pruned"
    assert found["b"].reason == f"rank 2, 1 kept: {math.log(0.24):.2f} against {math.log(0.48):.2f}"
    assert found["a."].state == "best"
    assert describe_stop(search(beam=1)) == "the sequence ended, and greedy search keeps one"


def test_the_distribution_of_each_step_is_the_models_own_with_forbidden_tokens_marked():
    first, second = search(beam=2).beam_steps
    assert first.next_tokens.ids.tolist() == [[A, B, FORBIDDEN]]
    np.testing.assert_allclose(np.exp(first.next_tokens.log_probs), [[0.48, 0.24, 0.2]], rtol=1e-5)
    assert first.is_forbidden.tolist() == [[False, False, True]]
    entropy = -sum(p * math.log(p) for p in NEXT[BEGIN] if p)
    np.testing.assert_allclose(first.next_tokens.entropy, [entropy], rtol=1e-5)
    assert second.next_tokens.ids[:, 0].tolist() == [END, END], "after a and after b"
    np.testing.assert_allclose(second.beam_log_probs, np.log([0.48, 0.24]), rtol=1e-5)


def test_the_length_penalty_divides_the_log_probability_and_can_decide():
    trace = search(beam=2, length_penalty=4.0)
    nodes = build_candidates(trace)
    found = {spell(nodes, index): node for index, node in enumerate(nodes) if index}
    assert found["a."].score == pytest.approx(math.log(0.24) / ((5 + 2) / 6) ** 4, rel=1e-5)
    assert found["ab."].score == pytest.approx(math.log(0.48 * 0.4 * 0.7) / ((5 + 3) / 6) ** 4, rel=1e-5)
    order = [spell(nodes, index) for index in list_hypotheses(trace, nodes) if nodes[index].token == END]
    assert order[0] == max((name for name in found if not math.isnan(found[name].score)), key=lambda n: found[n].score)
    assert found["a."].log_prob > found[order[0]].log_prob
    assert found["a."].state == "finished"
    assert found["a."].reason.endswith("its log-probability is higher: the length penalty decides")


def test_a_search_cut_at_the_maximum_length_says_so():
    trace = search(beam=2, max_length=1)
    assert "maximum length of 1 tokens" in describe_stop(trace)
    nodes = build_candidates(trace)
    (best,) = [index for index, node in enumerate(nodes) if node.state == "best"]
    assert spell(nodes, best) == "a"
    assert nodes[best].reason.endswith("the best, not ended")


def test_a_beam_none_of_whose_continuations_is_a_candidate_is_pruned():
    c = FORBIDDEN  # allowed here
    table = {
        BEGIN: [0.0, 0.0001, 0.9, 0.08, 0.0199],
        A: [0.0, 0.1, 0.3, 0.31, 0.29],  # four candidates of six
        B: [0.0, 0.1, 0.3, 0.31, 0.29],  # two
        c: [0.0, 0.1, 0.3, 0.31, 0.29],  # none: 0.0199 · 0.31 < 0.08 · 0.3
    }
    trace = search(beam=3, max_length=2, table=table, banned=[BEGIN])
    nodes = build_candidates(trace)
    (dead,) = [node for node in nodes if node.step == 1 and node.token == c]
    assert sorted(trace.beam_steps[1].parents.tolist()) == [0, 0, 0, 0, 1, 1]
    assert dead.state == "pruned"
    best, last = math.log(0.0199 * 0.31), math.log(0.08 * 0.3)
    assert dead.reason == f"no continuation is among the 6 candidates: {best:.2f} at best, against {last:.2f}"


def test_no_trace_is_active_outside_the_block_and_one_sequence_is_traced_at_a_time():
    assert get_trace() is None
    with trace_decoding() as trace:
        assert get_trace() is trace
        with pytest.raises(UsageError, match="a trace is of one sequence; received 2"):
            decode_sequences(MarkovDecoder(NEXT), Memory(torch.zeros(2, 1, 1)), begin=BEGIN, end=END, max_length=3)
    assert get_trace() is None


# Trained runs: the view shows what predict returns

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
SLOW = [family if family in ("lstm", "transformer") else pytest.param(family, marks=pytest.mark.slow)
        for family in FAMILIES]  # fmt: skip


def check_beam_search(view, log_probability: float) -> None:
    """Checks that steps, hypotheses and candidates agree with the result of the search."""
    best = next(each for each in view.data["hypotheses"] if each["is_best"])
    assert best["log_probability"] == pytest.approx(log_probability, rel=1e-5)
    assert best["score"] == pytest.approx(log_probability / best["length_penalty"], rel=1e-5)
    assert best["length_penalty"] == pytest.approx((5 + best["length"]) / 6)
    assert view.data["steps"][-1]["total"] == pytest.approx(log_probability, rel=1e-5)
    assert sum(step["log_probability"] for step in view.data["steps"]) == pytest.approx(log_probability, rel=1e-4)
    scores = [each["score"] for each in view.data["hypotheses"] if not math.isnan(each["score"])]
    assert scores[0] == max(scores)
    for step in view.data["steps"]:
        probabilities = [each["probability"] for each in step["top"]]
        assert probabilities == sorted(probabilities, reverse=True)
        if step["rank"] <= len(step["top"]):
            assert step["top"][step["rank"] - 1]["probability"] == pytest.approx(step["probability"], rel=1e-4)
    for candidate in view.data["candidates"]:
        parent = view.data["candidates"][candidate["parent"]] if candidate["parent"] >= 0 else None
        total = 0.0 if parent is None else parent["log_probability"]
        assert candidate["log_probability"] == pytest.approx(total + candidate["token_log_probability"], abs=1e-5)
        assert candidate["reason"] or candidate["state"] == "kept"


@pytest.mark.parametrize("family", SLOW)
@pytest.mark.parametrize("beam", [None, 1, 3])
def test_the_translation_is_that_of_predict(small_run, family, beam):
    trained = small_run("translate", family)
    view = decoding(trained, "3 0 4 4", beam=beam)
    prediction = trained.predict("3 0 4 4", **({} if beam is None else {"beam": beam}))
    assert view.data["output"] == prediction.values["translation"]
    (hypothesis,) = prediction.values["hypotheses"]
    check_beam_search(view, hypothesis["log_probability"])
    kinds = [figure.kind for figure in view.figures]
    assert ("Tree" in kinds) == (beam != 1)


@pytest.mark.parametrize("family", SLOW)
def test_the_caption_is_that_of_predict(small_run, family):
    trained = small_run("caption", family)
    image = str(trained.run.folder.parent / "data" / "images" / "0.png")
    view = decoding(trained, image)
    prediction = trained.predict(image)
    assert view.data["output"] == prediction.values["caption"]
    check_beam_search(view, prediction.values["log_probability"])


@pytest.mark.parametrize("family", [*SLOW, "ngram"])
@pytest.mark.parametrize(("greedy", "seed"), [(True, None), (False, None), (False, 3)])
def test_the_continuation_is_that_of_predict(small_run, family, greedy, seed):
    trained = small_run("language", family)
    view = decoding(trained, "the old model", greedy=greedy, seed=seed, max_length=12)
    pieces = trained.predict("the old model", greedy=greedy, seed=seed or 0, max_length=12)
    assert view.data["output"] == "".join(pieces)
    assert len(view.data["steps"]) == 12
    tokenizer = trained.run.tokenizer
    ids = [*tokenizer.encode("the old model").ids, *(tokenizer.id(step["token"]) for step in view.data["steps"])]
    for position, step in enumerate(view.data["steps"], start=3):
        with torch.no_grad():
            log_probs = trained.model.next(torch.tensor([ids[:position]]))[0][0].log_softmax(-1)
        assert step["log_probability"] == pytest.approx(float(log_probs[ids[position]]), abs=1e-4)
        entropy = -float((log_probs.exp() * log_probs.clamp(min=-1e4)).sum())
        assert step["entropy"] == pytest.approx(entropy, rel=1e-3)
        if greedy:
            assert step["rank"] == 1


def test_a_transformer_continues_a_prompt_beyond_its_window(small_run):
    trained = small_run("language", "transformer")
    view = decoding(trained, "the " * 20, max_length=2)
    assert view.data["output"] == "".join(trained.predict("the " * 20, max_length=2))


@pytest.mark.parametrize("task", ["language", "translate", "caption"])
def test_without_a_text_a_validation_example_is_decoded(small_run, task):
    view = decoding(small_run(task, "lstm"))
    assert view.data["text"]
    assert view.summary
    assert str(view)


def test_looking_at_the_search_changes_nothing(small_run):
    trained = small_run("translate", "lstm")
    trained.model.train()
    state = torch.get_rng_state()
    try:
        decoding(trained, "1 2")
        assert torch.equal(torch.get_rng_state(), state)
        assert all(part.training for part in trained.model.modules())
    finally:
        trained.model.eval()


@pytest.mark.parametrize(
    ("task", "arguments", "problem"),
    [
        ("classify", {}, "generates no text: its task is classify"),
        ("masked", {}, "predicts all masked tokens at once"),
        ("language", {"beam": 3}, "beam search applies to translate and caption"),
        ("language", {"text": " "}, "the text is empty"),
        ("language", {"top": 0}, "top must be at least 1"),
        ("language", {"max_length": 0}, "max-length must be at least 1"),
        ("translate", {"beam": 0}, "the beam must be at least 1"),
        ("translate", {"seed": 1}, "a seed has no effect"),
        ("translate", {"greedy": True, "beam": 3}, "greedy search has a beam of 1"),
        ("language", {"greedy": True, "beam": 3}, "out, or pass --greedy instead"),
    ],
)
def test_what_cannot_be_shown_is_an_error(small_run, task, arguments, problem):
    with pytest.raises(UsageError, match=problem):
        decoding(small_run(task, "lstm"), **arguments)


def test_the_length_penalty_is_that_of_predict(small_run):
    trained = small_run("translate", "lstm")
    view = decoding(trained, "7", length_penalty=0.0)
    assert view.data["output"] == trained.predict("7", length_penalty=0.0).values["translation"]
    assert all(each["length_penalty"] == 1.0 for each in view.data["hypotheses"])
