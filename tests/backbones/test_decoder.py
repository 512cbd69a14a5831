"""Every decoder through the same checks, each equation by hand, and comparisons with PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seqwise.backbones.decoder import (
    BahdanauDecoder,
    InitialStateDecoder,
    InputFeedingDecoder,
    LuongDecoder,
    build_decoder,
)
from seqwise.backbones.memory import Decoder, Memory, concat_memories
from seqwise.backbones.transformer import TransformerDecoder
from seqwise.errors import UsageError
from seqwise.layers.attention import Additive, Dot, General, ScaledDot
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings

WIDTH, TIME, SOURCE = 8, 5, 6
VARIANTS = {
    "lstm none": {"model": "lstm", "translate": {"attention": "none"}},
    "gru none": {"model": "gru", "translate": {"attention": "none"}},
    "lstm additive": {"model": "lstm", "translate": {"attention": "additive"}},
    "gru reset before additive": {"model": "gru", "recurrent": {"reset": "before"}},
    "lstm layer norm additive": {"model": "lstm", "recurrent": {"layer_norm": True}},
    "gru layer norm additive": {"model": "gru", "recurrent": {"layer_norm": True}},
    "rnn dot": {"model": "rnn", "translate": {"attention": "dot"}},
    "lstm general": {"model": "lstm", "translate": {"attention": "general"}},
    "lstm general input feeding": {"model": "lstm", "translate": {"attention": "general", "input_feeding": True}},
    "gru layer norm dot input feeding": {
        "model": "gru",
        "recurrent": {"layer_norm": True},
        "translate": {"attention": "dot", "input_feeding": True},
    },
    "attentive none": {
        "model": "attentive-rnn",
        "recurrent": {"attention_span": 3},
        "translate": {"attention": "none"},
    },
    "attentive additive": {"model": "attentive-rnn", "recurrent": {"attention_span": 3}},
    "attentive general": {"model": "attentive-rnn", "translate": {"attention": "general"}},
    "feedforward additive": {"model": "feedforward", "context": {"length": 3}},
    "transformer": {"model": "transformer"},
    "transformer post-norm": {
        "model": "transformer",
        "transformer": {"norm": "post", "positions": "sinusoidal", "activation": "relu"},
    },
    "transformer learned positions": {"model": "transformer", "transformer": {"positions": "learned"}},
}
WITH_ATTENTION = [name for name in VARIANTS if "none" not in name]
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str, depth: int = 2, inputs: int = WIDTH, memory: int = WIDTH, **network) -> Decoder:
    settings = ResolvedSettings.model_validate(
        VARIANTS[variant] | {"network": {"width": WIDTH, "depth": depth, **network}}
    )
    settings.transformer.heads = 2
    torch.manual_seed(0)
    return build_decoder(settings, inputs, memory, max_length=20).double().eval()


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build_memory(rows: int = 2, width: int = WIDTH) -> Memory:
    return Memory(random_tensor(rows, SOURCE, width, seed=2), torch.tensor([SOURCE, 4, 1][:rows]))


def step_by_step(decoder: Decoder, x: Tensor, state) -> Tensor:
    outputs = []
    for t in range(x.shape[1]):
        states = decoder(x[:, t : t + 1], state)
        state = states.state
        outputs.append(states.vectors)
    return torch.cat(outputs, dim=1)


@each_variant
def test_inputs_and_memory_may_have_any_width(variant):
    memory_width = WIDTH if "dot" in variant else 6  # dot products need one width
    decoder = build(variant, inputs=5, memory=memory_width)
    states = decoder(random_tensor(2, TIME, 5), None, build_memory(width=memory_width))
    assert states.vectors.shape == (2, TIME, decoder.width)


@each_variant
def test_decoding_step_by_step_equals_the_whole_sequence(variant):
    decoder, x, memory = build(variant), random_tensor(2, TIME, WIDTH), build_memory()
    torch.testing.assert_close(step_by_step(decoder, x, decoder.start(memory)), decoder(x, None, memory).vectors)


@each_variant
def test_a_forced_prefix_may_be_read_at_once_and_continued(variant):
    decoder, x, memory = build(variant), random_tensor(2, TIME, WIDTH), build_memory()
    first = decoder(x[:, :3], decoder.start(memory))
    second = decoder(x[:, 3:], first.state)
    outputs = torch.cat([first.vectors, second.vectors], dim=1)
    torch.testing.assert_close(outputs, decoder(x, None, memory).vectors)


@each_variant
def test_outputs_do_not_depend_on_later_inputs(variant):
    decoder, x, memory = build(variant), random_tensor(2, TIME, WIDTH), build_memory()
    changed = x.clone()
    changed[:, 3:] += 1
    before, after = decoder(x, None, memory).vectors, decoder(changed, None, memory).vectors
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


@each_variant
def test_padding_of_the_memory_changes_nothing(variant):
    decoder, x, memory = build(variant), random_tensor(2, TIME, WIDTH), build_memory()
    noisy = memory.vectors.clone()
    noisy[1, 4:] = 100.0
    without_padding = decoder(x[1:], None, Memory(memory.vectors[1:, :4])).vectors
    torch.testing.assert_close(decoder(x, None, Memory(noisy, memory.lengths)).vectors[1:], without_padding)


@each_variant
def test_outputs_depend_on_the_memory(variant):
    decoder, x = build(variant), random_tensor(1, TIME, WIDTH)
    first, second = (decoder(x, None, Memory(random_tensor(1, SOURCE, WIDTH, seed=seed))).vectors for seed in (2, 3))
    assert (first - second).abs().max() > 1e-3


@each_variant
def test_beams_attend_to_the_memory_of_their_row(variant):
    """Three beams per row, reordered and partly removed, equal sequences that were read alone."""
    decoder, memory, beams = build(variant), build_memory(3), 3
    x = random_tensor(9, TIME, WIDTH)  # row r belongs to memory row r // 3
    state = decoder(x[::3, :1], decoder.start(memory)).state
    state = decoder.select(state, torch.arange(3).repeat_interleave(beams))
    x[:, 0] = x[::3, 0].repeat_interleave(beams, dim=0)
    state = decoder(x[:, 1:2], state).state
    parents = torch.tensor([2, 0, 0, 5, 5, 4, 6, 8, 7])
    state, x[:, :2] = decoder.select(state, parents), x[parents, :2]
    state = decoder(x[:, 2:3], state).state
    memory_rows, rows = torch.tensor([0, 2]), torch.tensor([0, 1, 2, 6, 7, 8])
    state, x = decoder.select(state, rows, memory_rows), x[rows]
    last = decoder(x[:, 3:], state).vectors
    memory_of_beam = memory_rows.repeat_interleave(beams)
    expected = decoder(x, None, Memory(memory.vectors[memory_of_beam], memory.lengths[memory_of_beam])).vectors
    torch.testing.assert_close(last, expected[:, 3:])


@pytest.mark.parametrize("variant", WITH_ATTENTION)
def test_attention_weights_sum_to_one_over_valid_positions(variant):
    decoder, x, memory = build(variant), random_tensor(2, TIME, WIDTH), build_memory()
    with torch.no_grad():
        states = decoder(x, None, memory, need_weights=True)
    assert states.weights.shape == (2, TIME, SOURCE)
    torch.testing.assert_close(states.weights.sum(-1), torch.ones(2, TIME, dtype=torch.float64))
    assert states.weights[1, :, 4:].abs().max() == 0
    torch.testing.assert_close(states.vectors, decoder(x, None, memory).vectors)


@pytest.mark.parametrize("variant", WITH_ATTENTION)
def test_returning_the_weights_does_not_change_gradients(variant):
    """In single precision and with several rows, where beam search would use packed copies of the weights."""
    decoder, x = build(variant).float(), random_tensor(4, TIME, WIDTH).float()
    memory = Memory(random_tensor(4, SOURCE, WIDTH, seed=2).float())
    gradients = []
    for need_weights in (False, True):
        decoder.zero_grad()
        decoder(x, None, memory, need_weights=need_weights).vectors.square().sum().backward()
        gradients.append({name: weight.grad for name, weight in decoder.named_parameters()})
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-4, rtol=1e-4)


@each_variant
def test_recording_changes_nothing(variant):
    decoder, x, memory = build(variant), random_tensor(2, TIME, WIDTH), build_memory()
    expected = decoder(x, None, memory).vectors
    with record(decoder) as recording:
        recorded = decoder(x, None, memory).vectors
        step_outputs = step_by_step(decoder, x, decoder.start(memory))
    torch.testing.assert_close(expected, recorded)
    torch.testing.assert_close(expected, step_outputs)
    assert len(recording) > 0


def test_recorded_names_are_stable():
    x, memory = random_tensor(2, TIME, WIDTH), build_memory()
    names = {
        "lstm additive": ("weights", "first.lstm.forget"),
        "lstm general": ("weights", "backbone.stack.layer.1.lstm.cell"),
        "lstm general input feeding": ("weights", "layer.1.lstm.cell"),
        "transformer": ("decoder.layer.1.cross_attention.weights", "decoder.layer.0.attention.weights"),
    }
    for variant, expected in names.items():
        decoder = build(variant)
        with record(decoder) as recording:
            decoder(x, None, memory)
        assert set(expected) <= set(recording)
        assert recording[expected[0]].shape[-2:] == (TIME, SOURCE)


@each_variant
def test_gradients_match_finite_differences(variant):
    decoder = build(variant, depth=1, inputs=4, memory=4, width=4)
    x, source = random_tensor(1, 2, 4), random_tensor(1, 3, 4, seed=2)
    parts = [x.requires_grad_(), source.requires_grad_(), *decoder.parameters()][:4]

    def run(*_: Tensor) -> Tensor:
        return decoder(x, None, Memory(source)).vectors

    assert torch.autograd.gradcheck(run, parts)


@each_variant
def test_every_parameter_gets_a_gradient(variant):
    decoder, x, memory = build(variant).train(), random_tensor(2, TIME, WIDTH), build_memory()
    decoder(x, None, memory).vectors.square().sum().backward()
    assert [name for name, weight in decoder.named_parameters() if weight.grad is None] == []


@each_variant
def test_dropout_acts_in_training_only(variant):
    decoder, x, memory = build(variant, dropout=0.5), random_tensor(2, TIME, WIDTH), build_memory()
    assert torch.equal(decoder(x, None, memory).vectors, decoder(x, None, memory).vectors)
    if variant != "feedforward additive":
        decoder.train()
        assert not torch.equal(decoder(x, None, memory).vectors, decoder(x, None, memory).vectors)


# Each equation by hand


def test_the_memory_summary_is_first_last_and_mean():
    vectors = torch.tensor([[[1.0], [2.0], [6.0], [9.0]], [[1.0], [2.0], [6.0], [9.0]]])
    assert Memory(vectors).compute_summary().tolist() == [[1, 9, 4.5]] * 2
    assert Memory(vectors, torch.tensor([3, 2])).compute_summary().tolist() == [[1, 6, 3], [1, 2, 1.5]]


def test_memories_are_concatenated():
    parts = [Memory(torch.ones(2, 3, 1)), Memory(torch.full((1, 4, 1), 2.0), torch.tensor([2]))]
    concatenated = concat_memories(parts)
    assert concatenated.vectors.shape == (3, 4, 1)
    assert concatenated.lengths.tolist() == [3, 3, 2]
    assert concatenated.vectors[0, :, 0].tolist() == [1, 1, 1, 0]


def compute_softmax(scores: list[float]) -> list[float]:
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


def build_one_unit_decoder(attention: str, input_feeding: bool = False) -> Decoder:
    """Returns a vanilla RNN of width 1, all weights 0.5; the initial state is tanh(0.1) = 0.0997."""
    values = {"attention": attention, "input_feeding": input_feeding}
    settings = ResolvedSettings.model_validate(
        {"model": "rnn", "network": {"width": 1, "depth": 1}, "translate": values}
    )
    decoder = build_decoder(settings, 1, 1, max_length=9).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.fill_(0.5)
        for name, weight in decoder.named_parameters():
            if name == "bridge.linear.weight":
                weight.zero_()
            if name == "bridge.linear.bias":
                weight.fill_(0.1)
    return decoder


X, SOURCES = [0.3, -0.8], [1.0, -2.0, 0.4]


def run_one_unit_decoder(decoder: Decoder) -> list[float]:
    x = torch.tensor(X, dtype=torch.float64).view(1, 2, 1)
    memory = Memory(torch.tensor(SOURCES, dtype=torch.float64).view(1, 3, 1))
    return decoder(x, None, memory).vectors.flatten().tolist()


def test_bahdanau_attention_equals_a_hand_computed_result():
    s, expected = math.tanh(0.1), []
    for x in X:
        weights = compute_softmax([0.5 * math.tanh(0.5 * s + 0.5 * h) for h in SOURCES])  # from the previous state
        c = sum(w * h for w, h in zip(weights, SOURCES))
        s = math.tanh(0.5 * x + 0.5 * c + 0.5 * s + 0.5)
        expected.append(math.tanh(0.5 * c + 0.5 * s))
    assert isinstance(build_one_unit_decoder("additive"), BahdanauDecoder)
    assert run_one_unit_decoder(build_one_unit_decoder("additive")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("attention", "factor"), [("dot", 1.0), ("general", 0.5)])
def test_luong_attention_equals_a_hand_computed_result(attention, factor):
    s, expected = math.tanh(0.1), []
    for x in X:
        s = math.tanh(0.5 * x + 0.5 * s + 0.5)
        weights = compute_softmax([factor * s * h for h in SOURCES])  # from the new state
        c = sum(w * h for w, h in zip(weights, SOURCES))
        expected.append(math.tanh(0.5 * c + 0.5 * s))
    assert isinstance(build_one_unit_decoder(attention), LuongDecoder)
    assert run_one_unit_decoder(build_one_unit_decoder(attention)) == pytest.approx(expected, rel=1e-12)


def test_input_feeding_equals_a_hand_computed_result():
    s, attentional, expected = math.tanh(0.1), 0.0, []
    for x in X:
        s = math.tanh(0.5 * x + 0.5 * attentional + 0.5 * s + 0.5)
        weights = compute_softmax([s * h for h in SOURCES])
        c = sum(w * h for w, h in zip(weights, SOURCES))
        attentional = math.tanh(0.5 * c + 0.5 * s)
        expected.append(attentional)
    assert isinstance(build_one_unit_decoder("dot", input_feeding=True), InputFeedingDecoder)
    assert run_one_unit_decoder(build_one_unit_decoder("dot", input_feeding=True)) == pytest.approx(expected, rel=1e-12)


def test_the_initial_state_decoder_equals_a_hand_computed_result():
    s, expected = math.tanh(0.1), []
    for x in X:
        s = math.tanh(0.5 * x + 0.5 * s + 0.5)
        expected.append(s)
    assert isinstance(build_one_unit_decoder("none"), InitialStateDecoder)
    assert run_one_unit_decoder(build_one_unit_decoder("none")) == pytest.approx(expected, rel=1e-12)


def test_an_lstm_decoder_without_attention_equals_pytorch():
    decoder, x, memory = build("lstm none", depth=2), random_tensor(2, TIME, WIDTH), build_memory()
    torch_layer = torch.nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True).double()
    with torch.no_grad():
        for depth, layer in enumerate(decoder.backbone.stack.layer):
            getattr(torch_layer, f"weight_ih_l{depth}").copy_(layer.cell.weight_input)
            getattr(torch_layer, f"weight_hh_l{depth}").copy_(layer.cell.weight_hidden)
            getattr(torch_layer, f"bias_ih_l{depth}").copy_(layer.cell.bias)
            getattr(torch_layer, f"bias_hh_l{depth}").zero_()
    _, layer_states = decoder.start(memory)
    state = tuple(torch.stack([layer[part] for layer in layer_states]) for part in (0, 1))
    torch.testing.assert_close(decoder(x, None, memory).vectors, torch_layer(x, state)[0])


def test_the_transformer_decoder_equals_pytorch():
    settings = ResolvedSettings.model_validate({"model": "transformer", "network": {"width": WIDTH, "depth": 1}})
    settings.transformer.heads, settings.transformer.positions = 2, "none"
    decoder, memory = build_decoder(settings, WIDTH, WIDTH, 9).double().eval(), build_memory()
    x = random_tensor(2, TIME, WIDTH)
    assert isinstance(decoder, TransformerDecoder)
    torch_layer = torch.nn.TransformerDecoderLayer(
        WIDTH, 2, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    layer = decoder.decoder.layer[0]
    with torch.no_grad():
        for ours, theirs in (
            (layer.attention, torch_layer.self_attn),
            (layer.cross_attention, torch_layer.multihead_attn),
        ):
            theirs.in_proj_weight.copy_(ours.in_proj.weight)
            theirs.in_proj_bias.copy_(ours.in_proj.bias)
            theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
        torch_layer.linear1.load_state_dict(layer.feedforward.in_proj.state_dict())
        torch_layer.linear2.load_state_dict(layer.feedforward.out_proj.state_dict())
    mask = torch.nn.Transformer.generate_square_subsequent_mask(TIME, dtype=torch.float64)
    padding = torch.arange(SOURCE) >= memory.lengths[:, None]
    expected = decoder.decoder.norm(torch_layer(x, memory.vectors, mask, memory_key_padding_mask=padding))
    torch.testing.assert_close(decoder(x, None, memory).vectors, expected)


@pytest.mark.parametrize("score", [Dot(), ScaledDot(), General(3, 3), Additive(3, 3, 5)])
def test_prepared_keys_give_the_same_scores(score):
    queries, keys = random_tensor(2, 4, 3), random_tensor(2, 6, 3, seed=2)
    score = score.double()
    torch.testing.assert_close(score.compare(queries, score.prepare(keys)), score(queries, keys))


# What is refused


def test_dot_attention_with_different_widths_is_rejected():
    with pytest.raises(UsageError, match="the decoder's is 8, the encoder's 6"):
        build("rnn dot", memory=6)


def test_a_feedforward_decoder_without_attention_is_rejected():
    settings = ResolvedSettings.model_validate(
        {"model": "feedforward", "network": {"width": 4}, "translate": {"attention": "none"}}
    )
    with pytest.raises(UsageError, match="needs attention"):
        build_decoder(settings, 4, 4, 9)


def test_a_task_with_its_own_attention_uses_input_feeding_only_on_request():
    settings = ResolvedSettings.model_validate(
        {"model": "gru", "network": {"width": 4}, "translate": {"input_feeding": True}}
    )
    assert isinstance(build_decoder(settings, 4, 4, 9, attention="general"), LuongDecoder)
    assert isinstance(build_decoder(settings, 4, 4, 9, attention="general", input_feeding=True), InputFeedingDecoder)


def test_a_decoder_needs_a_state_or_a_memory():
    with pytest.raises(ValueError, match="a state or a memory"):
        build("lstm additive")(random_tensor(1, 2, WIDTH))
