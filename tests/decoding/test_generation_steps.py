"""Generation by steps over fixed memory: the same scores and tokens as `LanguageModel.next`, for every family."""

from __future__ import annotations

import warnings
from itertools import islice

import pytest
import torch

from seqwise.decoding import steps
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.sampling import choose_token, sample
from seqwise.decoding.steps import StepGraph, TokenReader
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.model import LanguageModel

VOCABULARY, TOKENS = 40, 30
FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
SETTINGS = {family: {"model": family} for family in FAMILIES} | {
    "tied": {"model": "gru", "network": {"tie_weights": True, "embedding": 12}},
    "sampled softmax": {"model": "gru", "network": {"output": "sampled"}},
    "adaptive softmax": {"model": "gru", "network": {"output": "adaptive"}},
    "mixture of softmaxes": {"model": "gru", "network": {"output": "mixture"}},
}
GREEDY = SamplingOptions(greedy=True)
each_model = pytest.mark.parametrize("name", SETTINGS)
each_family = pytest.mark.parametrize("family", FAMILIES)


def build(name: str, device: str = "cpu") -> LanguageModel:
    values = SETTINGS[name] | {"data": {"window": 16}, "recurrent": {"attention_span": 8}}
    values["network"] = {"width": 16, "embedding": 16, "depth": 2} | values.get("network", {})
    settings = ResolvedSettings.model_validate(values)
    settings.transformer.heads = 2
    torch.manual_seed(0)
    return LanguageModel(settings, VOCABULARY).eval().to(device)


def draw_prompt(rows: int = 1, device: str = "cpu") -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, 5), generator=torch.Generator().manual_seed(1)).to(device)


class ModelWithoutStep:
    """A model that reads every token with `next`, because it has no step over fixed memory."""

    def __init__(self, model: LanguageModel):
        self.next = model.next


def read_tokens(reader: TokenReader, ids: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Returns log-probabilities (B, T, V) after the prompt and each of the tokens (B, T - 1)."""
    inputs = [ids, *tokens.split(1, dim=1)]
    return torch.stack([reader.read(each).log_softmax(-1) for each in inputs], 1)


@each_model
@pytest.mark.parametrize("rows", [1, 3, 6])
@torch.inference_mode()
def test_steps_return_the_scores_of_the_model(name, rows):
    model, ids = build(name), draw_prompt(rows)
    tokens = torch.randint(VOCABULARY, (rows, TOKENS), generator=torch.Generator().manual_seed(2))
    reader = TokenReader(model)
    scores = read_tokens(reader, ids, tokens)
    assert reader.step is not None
    torch.testing.assert_close(
        scores, read_tokens(TokenReader(ModelWithoutStep(model)), ids, tokens), atol=1e-5, rtol=1e-5
    )


@each_model
@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingOptions(repetition_penalty=1.5), SamplingOptions(top_k=5, top_p=0.9)]
)
def test_steps_generate_the_tokens_of_the_model(name, sampling):
    model = build(name)
    with_steps, without_steps = (
        torch.stack(list(islice(generate(each, draw_prompt(2), sampling, seed=3), TOKENS)), 1)
        for each in (model, ModelWithoutStep(model))
    )
    assert torch.equal(with_steps, without_steps)


@each_family
def test_a_recording_that_begins_during_generation_records_every_activation(family):
    model = build(family)
    stream, plain_stream = (
        generate(model, draw_prompt(), GREEDY),
        generate(ModelWithoutStep(model), draw_prompt(), GREEDY),
    )
    tokens, expected = list(islice(stream, 7)), list(islice(plain_stream, 7))
    with record(model) as recording:
        tokens += islice(stream, 3)
    with record(model) as plain_recording:
        expected += islice(plain_stream, 3)
    assert len(recording.every("embedding.vectors")) == 3
    assert set(recording) == set(plain_recording)
    for key in recording:
        assert len(recording.every(key)) == len(plain_recording.every(key))
        torch.testing.assert_close(recording[key], plain_recording[key], atol=1e-5, rtol=1e-5)
    tokens += islice(stream, 9)  # by steps again
    expected += islice(plain_stream, 9)
    assert tokens == expected


@torch.inference_mode()
def test_a_model_that_is_changed_has_no_step():
    model = build("gru")
    state = model.next(draw_prompt())[1]
    assert model.build_step(state) is not None
    hook = model.backbone.register_forward_hook(lambda *arguments: None)
    assert model.build_step(state) is None
    hook.remove()
    assert model.train().build_step(state) is None
    model.eval()
    with torch.inference_mode(False):
        assert model.build_step(state) is None  # gradients are enabled
    with torch.autocast("cpu", torch.bfloat16):
        assert model.build_step(state) is None
    assert model.bfloat16().build_step(state) is None

    class OtherModel(LanguageModel):
        def next(self, ids, state=None):
            return super().next(ids, state)

    model = build("gru")
    model.__class__ = OtherModel
    assert model.build_step(state) is None


def test_kernels_off_generates_without_steps(monkeypatch):
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    model = build("gru")
    monkeypatch.setattr(model, "build_step", None)  # would fail if it were called
    assert len(list(islice(generate(model, draw_prompt(), GREEDY), 3))) == 3


# ---- sampling


def test_sampling_draws_what_multinomial_draws():
    ours, torchs = (torch.Generator().manual_seed(4) for _ in range(2))
    for rows in (1, 3):
        probabilities = torch.randn(rows, 1000, generator=torch.Generator().manual_seed(5)).softmax(-1)
        probabilities[:, ::3] = 0
        for _ in range(50):
            expected = torch.multinomial(probabilities, 1, generator=torchs)[:, 0]
            assert torch.equal(sample(probabilities, ours), expected)
    assert torch.equal(ours.get_state(), torchs.get_state())


def test_invalid_probabilities_are_an_error():
    with pytest.raises(RuntimeError, match="nan"):
        sample(torch.tensor([[0.5, 0.5], [torch.nan, 1.0]]))


def test_the_first_of_equal_scores_is_the_largest():
    scores = torch.tensor([[0.0, 2.0, 2.0], [1.0, 0.0, 1.0]])
    assert choose_token(GREEDY, scores, None).tolist() == [1, 0]


# ---- CUDA graphs: a fake graph on a CPU, and the real one


class FakeGraph:
    """Runs the captured work at each replay, on the same memory as a graph would."""

    def warm_up(self, work):
        return work()

    def capture(self, work):
        self.work = work
        self.result = torch.full((1, VOCABULARY), torch.nan)
        return self.result

    def replay(self):
        self.result.copy_(self.work())


class FailingGraph(FakeGraph):
    def capture(self, work):
        raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize("graph_class", [FakeGraph, FailingGraph])
@each_family
@torch.inference_mode()
def test_a_graph_is_captured_after_the_first_steps_and_replayed(family, graph_class, monkeypatch):
    monkeypatch.setattr(steps, "replace_generator_state", lambda device: None)
    model, ids = build(family), draw_prompt()
    tokens = torch.randint(VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(2))
    reader = TokenReader(model)
    scores = [reader.read(each).log_softmax(-1) for each in (ids, tokens[:, :1])]
    reader.graph = StepGraph(reader.step, graph_class())
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        scores += [reader.read(each).log_softmax(-1) for each in tokens[:, 1:].split(1, dim=1)]
    assert (reader.graph.scores is None) == (graph_class is FailingGraph)
    assert [str(each.message) for each in messages] == (
        ["no CUDA graph of the decoding step: operation not permitted when stream is capturing. "
         "Generation continues without."] if graph_class is FailingGraph else []
    )  # fmt: skip
    expected = read_tokens(TokenReader(ModelWithoutStep(model)), ids, tokens)
    torch.testing.assert_close(torch.stack(scores, 1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@each_model
@pytest.mark.parametrize("rows", [1, 3])
@torch.inference_mode()
def test_a_cuda_graph_returns_the_scores_of_the_model(name, rows):
    model, ids = build(name, "cuda"), draw_prompt(rows, "cuda")
    tokens = torch.randint(VOCABULARY, (rows, TOKENS), generator=torch.Generator().manual_seed(2)).cuda()
    reader = TokenReader(model)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # a step multiplies in float32
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scores = read_tokens(reader, ids, tokens)
        expected = read_tokens(TokenReader(ModelWithoutStep(model)), ids, tokens)
    assert reader.graph.scores is not None
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
@each_family
def test_two_generations_on_a_gpu_do_not_disturb_each_other(family):
    model = build(family, "cuda")
    prompts = [draw_prompt(1, "cuda"), draw_prompt(1, "cuda") // 2]
    separate = [torch.cat(list(islice(generate(model, each, GREEDY), TOKENS))) for each in prompts]
    streams = [generate(model, each, GREEDY) for each in prompts]
    interleaved = [torch.cat(list(row)) for row in zip(*[[next(each) for each in streams] for _ in range(TOKENS)])]
    for expected, actual in zip(separate, interleaved, strict=True):
        assert torch.equal(expected, actual)
