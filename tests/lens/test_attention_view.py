"""The view of attention: weights as recorded, numbers and roles of planted matrices, and one weight step by step."""

import math
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from seqwise.backbones.decoder import build_decoder
from seqwise.backbones.encoder import SeparateDirections, build_backbone
from seqwise.backbones.memory import Memory
from seqwise.backbones.transformer import TransformerBackbone
from seqwise.errors import UsageError
from seqwise.layers.attention import MultiHeadAttention
from seqwise.layers.attentive import AttentiveRecurrent
from seqwise.layers.cells import RNNCell
from seqwise.layers.diagnostics import LayerName
from seqwise.layers.record import record
from seqwise.layers.transformer import DecoderLayer
from seqwise.lens.attention import attention
from seqwise.lens.attention_layers import list_attention
from seqwise.lens.heads import measure_head, reduce_names, reduce_weights
from seqwise.lens.subject import Subject
from seqwise.page.figures import HeatmapGrid, ImageOverlay
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.token_decoder import TokenDecoder


def build_settings(width: int = 8, depth: int = 2, heads: int = 2, **settings) -> ResolvedSettings:
    resolved = ResolvedSettings.model_validate({"network": {"width": width, "depth": depth}} | settings)
    resolved.transformer.heads = heads
    return resolved


def build_transformer(**settings) -> TransformerBackbone:
    torch.manual_seed(0)
    return TransformerBackbone(build_settings(model="transformer", **settings), 8, 64)


def draw(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


DECODERS = {
    "bahdanau": {"model": "gru", "translate": {"attention": "additive"}},
    "luong": {"model": "lstm", "translate": {"attention": "general", "input_feeding": False}},
    "input feeding": {"model": "lstm", "translate": {"attention": "dot", "input_feeding": True}},
    "transformer": {"model": "transformer"},
}


def build_example(name: str):
    """Returns a decoder and its arguments: 5 steps over a memory of 7."""
    torch.manual_seed(0)
    decoder = build_decoder(build_settings(**DECODERS[name]), 8, 8, max_length=20)
    return decoder, (draw(1, 5, 8), None, Memory(draw(1, 7, 8, seed=2)))


# Roles of planted matrices

T = 24
CAUSAL = torch.ones(T, T).tril()


def normalize(weights: torch.Tensor) -> torch.Tensor:
    return weights / weights.sum(-1, keepdim=True)


def plant(offset: int) -> torch.Tensor:
    """Returns weights of which most is on the key at an offset, the rest equal."""
    return normalize(0.02 * torch.ones(T, T) + torch.eye(T).roll(offset, 1))


DISTANCE = (torch.arange(T)[:, None] - torch.arange(T)).abs()
PLANTED = {
    "previous token": plant(-1),
    "first token": normalize(0.02 * CAUSAL + torch.eye(T)[0]),
    "same token": plant(0),
    "broad": normalize(CAUSAL),
    "other": normalize(torch.rand(T, T, generator=torch.Generator().manual_seed(3)) ** 8),
}


@pytest.mark.parametrize("role", PLANTED)
def test_planted_roles_are_detected(role: str):
    assert measure_head(PLANTED[role], is_self=True).role == role


@pytest.mark.parametrize("offset", [1, -3, 5])
def test_a_head_that_looks_at_one_offset_is_positional(offset: int):
    assert measure_head(plant(offset), is_self=True).role == "positional"


def test_a_mixture_of_offsets_is_positional_and_a_shuffled_one_is_not():
    weights = normalize(torch.exp(-((DISTANCE.float() - 4) ** 2) / 4))
    assert measure_head(weights, is_self=True).role == "positional"
    order = torch.randperm(T, generator=torch.Generator().manual_seed(1))
    assert measure_head(weights[order], is_self=True).role == "other"


def test_entropy_and_distance_of_equal_weights():
    head = measure_head(torch.full((4, 4), 0.25), is_self=True)
    assert head.entropy == pytest.approx(math.log(4))
    assert head.entropy_share == pytest.approx(1)
    assert head.distance == pytest.approx(1.25)  # of 16 cells, 6 at 1, 4 at 2, 2 at 3


def test_the_share_of_entropy_counts_the_keys_that_are_allowed():
    head = measure_head(normalize(CAUSAL), is_self=True)
    assert head.entropy_share == pytest.approx(1)
    assert head.entropy == pytest.approx(np.log(np.arange(1, T + 1)).mean())


def test_attention_to_another_sequence_has_neither_distance_nor_role():
    head = measure_head(torch.full((4, 4), 0.25), is_self=False)
    assert head.role is None
    assert math.isnan(head.distance)


def test_thumbnails_are_means_of_areas():
    weights = draw(8, 8)
    torch.testing.assert_close(reduce_weights(weights, 4), weights.view(4, 2, 4, 2).mean((1, 3)))
    assert reduce_names(list("abcd"), 2) == ["0: a … 1: b", "2: c … 3: d"]


# The view


def test_the_grid_shows_the_recorded_weights_of_all_heads():
    model, x = build_transformer(), draw(1, 6, 8)
    view = attention(model, x)
    with record(model.eval(), "*weights") as recording, torch.no_grad():
        model(x)
    grid = view.figures[0]
    assert isinstance(grid, HeatmapGrid)
    assert [panel.title for panel in grid.panels] == [f"encoder, layer {n}, head {h}" for n in (1, 2) for h in (1, 2)]
    for index, panel in enumerate(grid.panels):
        expected = recording[f"encoder.layer.{index // 2}.attention.weights"][0, index % 2]
        np.testing.assert_array_equal(panel.values, expected)


def test_heads_without_a_role_are_counted_last(monkeypatch: pytest.MonkeyPatch):
    roles = iter(["other", "other", "other", "first token"])
    monkeypatch.setattr("seqwise.lens.heads.choose_role", lambda *_, **__: next(roles))
    (sentence,) = (each for each in attention(build_transformer(), draw(1, 6, 8)).summary if "Roles" in each)
    assert sentence.startswith("Roles in self-attention: first token 1 (encoder, layer 2, head 2), other 3 (")


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_a_weight_computed_step_by_step_is_the_recorded_one(positions: str):
    model, x = build_transformer(transformer={"positions": positions}), draw(1, 6, 8)
    for query, key in [(5, 2), (0, 0), (3, 5)]:
        view = attention(model, x, layer=2, head=2, query=query, key=key)
        cell = view.data["cell"]
        assert cell["score"] == pytest.approx(cell["product"] / math.sqrt(4))
        assert cell["is_allowed"] == (key <= query)
        assert cell["weight"] == pytest.approx(view.data["weights"][query, key], abs=1e-5)
        np.testing.assert_allclose(cell["weights"], view.data["weights"][query], atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_weights_of_decoders_over_a_memory_are_recomputed(name: str):
    decoder, arguments = build_example(name)
    layer = "decoder, layer 1, cross" if name == "transformer" else "decoder, cross"
    view = attention(decoder, arguments, layer=layer, head=1, query=3, key=6)
    assert view.data["weights"].shape == (5, 7)
    assert view.data["cell"]["weight"] == pytest.approx(view.data["weights"][3, 6], abs=1e-5)
    assert view.data["cell"]["weight"] > 0


def test_attention_inside_a_recurrent_layer_is_recomputed():
    layer = AttentiveRecurrent(RNNCell(3, 4), attention_span=3)
    view = attention(layer, draw(1, 6, 3), query=5, key=4)
    assert view.data["cell"]["weight"] == pytest.approx(view.data["weights"][5, 4], abs=1e-5)
    assert not attention(layer, draw(1, 6, 3), query=5, key=1).data["cell"]["is_allowed"], "beyond the span"


def test_a_decoder_of_tokens_is_called_with_ids_and_a_memory():
    decoder = TokenDecoder(build_settings(model="transformer"), vocabulary_size=9, memory_width=8, max_length=20)
    view = attention(decoder, (torch.tensor([[1, 4, 3]]), None, Memory(draw(1, 7, 8))))
    names = [f"decoder, layer {number}, {kind}" for number in (1, 2) for kind in ("self", "cross")]
    assert list(view.data["layers"]) == names
    assert view.data["layers"][names[1]]["thumbnails"].shape == (2, 3, 7)
    assert view.data["layers"][names[0]]["queries"] == ["0", "1", "2"]


def test_the_self_and_cross_attention_of_a_decoder_layer_are_one_layer():
    decoder, arguments = build_example("transformer")
    parts = ["decoder, layer 2, self", "decoder, layer 2, cross"]
    for layer in (2, "decoder, layer 2"):
        assert list(attention(decoder, arguments, layer=layer).data["layers"]) == parts
    assert list(attention(decoder, arguments, layer=parts[0]).data["layers"]) == parts[:1]
    assert attention(decoder, arguments).summary[0].startswith("TransformerDecoder has 8 attention heads in 2 layers")
    with pytest.raises(UsageError) as error:
        attention(decoder, arguments, layer=2, head=1)
    assert str(error.value) == (
        "decoder, layer 2 has 2 attention modules: each has its own heads.\n"
        "Choose a layer: 'decoder, layer 2, self'; 'decoder, layer 2, cross'."
    )
    with pytest.raises(UsageError) as error:
        attention(decoder, arguments, layer=3)
    assert error.value.fix == (
        "Choose from: 1 (decoder, layer 1); 2 (decoder, layer 2); "
        "or one attention module, such as 'decoder, layer 2, cross'."
    )


def test_the_label_of_an_attention_layer_is_made_from_its_side_number_direction_and_kind():
    decoder, _ = build_example("transformer")
    twice = nn.ModuleList([MultiHeadAttention(8, 2), MultiHeadAttention(8, 2)])
    both = SeparateDirections(*(build_backbone(build_settings(model="attentive-rnn"), 8) for _ in range(2)))
    names = {
        model: [layer.name for layer in list_attention(Subject("", model, lambda: None, ()))]
        for model in (decoder, twice, both)
    }
    assert names[decoder] == [LayerName(n, "decoder", kind=kind) for n in (1, 2) for kind in ("self", "cross")]
    assert names[decoder][3].label == "decoder, layer 2, cross"
    assert names[decoder][3].get_label_without("kind") == "decoder, layer 2"
    assert names[twice] == [LayerName(1), LayerName(1, path="1")]
    assert [name.label for name in names[twice]] == ["layer 1", "layer 1 (1)"]
    assert names[both] == [LayerName("attention over past states", direction=each) for each in ("forward", "backward")]
    assert names[both][1].label == "attention over past states, backward"
    assert names[both][1].get_label_without("direction") == "attention over past states"


def test_layers_of_a_decoder_without_its_model_have_the_same_kinds():
    layer = DecoderLayer(8, 2, 16, "relu")
    view = attention(layer, (draw(1, 5, 8), draw(1, 7, 8)), layer="layer 1")
    assert list(view.data["layers"]) == ["layer 1, self", "layer 1, cross"]


def test_weights_of_a_backward_layer_are_in_the_order_of_the_text():
    model = SeparateDirections(*(build_backbone(build_settings(model="attentive-rnn"), 8) for _ in range(2)))
    layers = attention(model, draw(1, 6, 8)).data["layers"]
    forwards, backwards = (layer["thumbnails"][0] for layer in layers.values())
    assert (np.triu(forwards, 1) == 0).all()
    assert (np.tril(backwards, -1) == 0).all()
    assert list(attention(model, draw(1, 6, 8), layer=1).data["layers"]) == list(layers), (
        "one layer with two directions"
    )
    view = attention(model, draw(1, 6, 8), layer="attention over past states, backward", query=1, key=4)
    assert view.data["cell"]["weight"] == pytest.approx(view.data["weights"][1, 4], abs=1e-5)


def make_subject_with_tokens(monkeypatch: pytest.MonkeyPatch, model, arguments, **inspected) -> None:
    example = InspectedInput("an example", "", None, **inspected)  # type: ignore[arg-type]
    subject = Subject("a model", model, lambda: model(*arguments), example.tokens, example.outputs, example)
    module = import_module("seqwise.lens.attention")
    monkeypatch.setattr(module, "open_subject", lambda *arguments: subject)


def test_tokens_can_be_named(monkeypatch: pytest.MonkeyPatch):
    model, x = build_transformer(), draw(1, 4, 8)
    make_subject_with_tokens(monkeypatch, model, (x,), tokens=["the", "cat", "saw", "the"])
    assert attention(None, layer=1, head=1, query="saw", key="cat").data["cell"]["key"] == 1
    with pytest.raises(UsageError, match="occurs 2 times"):
        attention(None, layer=1, head=1, query="saw", key="the")
    with pytest.raises(UsageError, match="there is no key 'dog'"):
        attention(None, layer=1, head=1, query="saw", key="dog")


def test_words_of_a_caption_are_shown_over_the_image(monkeypatch: pytest.MonkeyPatch):
    decoder, (vectors, _, _) = build_example("bahdanau")
    arguments = (vectors, None, Memory(draw(1, 9, 8)))
    image, words = np.zeros((6, 6, 3), np.uint8), ["a", "red", "circle", ".", "</s>"]
    make_subject_with_tokens(monkeypatch, decoder, arguments, tokens=[], targets=words, image=image)
    view = attention(None)
    (overlay,) = [figure for figure in view.figures if isinstance(figure, ImageOverlay)]
    assert overlay.captions == words
    np.testing.assert_allclose(overlay.weights.reshape(5, 9), view.data["layers"]["decoder, cross"]["thumbnails"][0])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"layer": 3}, "there is no attention layer 3"),
        ({"layer": 1, "head": 3}, "encoder, layer 1 has no head 3"),
        ({"layer": 1, "head": 0}, "has no head 0"),
        ({"head": 1}, "the layer is missing: each layer has its own heads"),
        ({"layer": 1, "query": 1}, "the head is missing: each head has its own weights"),
        ({"layer": 1, "head": 1, "key": 1}, "compared with a query"),
        ({"layer": 1, "head": 1, "query": 6}, "no query at position 6"),
    ],
)
def test_unknown_layers_heads_and_tokens_are_errors(arguments: dict, problem: str):
    with pytest.raises(UsageError, match=problem):
        attention(build_transformer(), draw(1, 6, 8), **arguments)


def test_a_model_without_attention_is_an_error():
    with pytest.raises(UsageError, match="has no attention"):
        attention(torch.nn.Linear(3, 3), draw(1, 3))


def test_looking_inside_changes_nothing():
    model, x = build_transformer().train(), draw(1, 6, 8)
    state = torch.get_rng_state()
    attention(model, x, layer=1, head=1, query=3, key=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_transform_replaces_recorded_values():
    model, x = MultiHeadAttention(8, 2), draw(1, 6, 8)
    with record(model, transform=lambda name, value: (name, value.mean())) as recording:
        model(x)
    assert recording["weights"][0] == "weights"
    assert float(recording["weights"][1]) == pytest.approx(1 / 6)
    assert "tuple" in repr(recording)


# Alignment


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_the_alignment_of_a_reversal_is_recovered(name: str):
    """The memory holds tokens and positions; the decoder writes the tokens in reverse."""
    torch.manual_seed(0)
    length, width, words = 6, 32, 12
    settings = build_settings(width=width, depth=1, **DECODERS[name])
    settings.network.dropout = 0.0
    decoder = build_decoder(settings, width, width, max_length=20)
    source, target = torch.nn.Embedding(words, width), torch.nn.Embedding(words + 1, width)
    positions, output = torch.nn.Embedding(length, width), torch.nn.Linear(width, words)
    parts = torch.nn.ModuleList([decoder, source, target, positions, output])
    optimizer = torch.optim.Adam(parts.parameters(), lr=0.005)

    def encode(ids: torch.Tensor) -> tuple:
        reversed_ids = ids.flip(1)
        inputs = torch.cat([torch.full_like(ids[:, :1], words), reversed_ids[:, :-1]], dim=1)
        places = positions(torch.arange(length))
        return target(inputs) + places, None, Memory(source(ids) + places)

    for _ in range(300):
        ids = torch.randint(words, (32, length))
        scores = output(decoder(*encode(ids)).vectors)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss) < 0.1
    layers = attention(decoder, encode(torch.randint(words, (1, length)))).data["layers"]
    alignments = next(layer["strongest"] for label, layer in layers.items() if label.endswith("cross"))
    assert any(head.tolist() == list(range(length))[::-1] for head in alignments), alignments


@pytest.mark.slow
def test_long_texts_are_reduced_layer_by_layer():
    """Twelve layers of twelve heads over 2,000 tokens: all weights together would take 2.3 GB."""
    import resource

    model = TransformerBackbone(build_settings(width=192, depth=12, heads=12, model="transformer"), 192, 2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    view = attention(model, draw(1, 2000, 192))
    assert len(view.figures[0].panels) == 144
    assert view.figures[0].panels[0].values.shape == (64, 64)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 700e6, f"{grown / 1e6:.0f} MB"
