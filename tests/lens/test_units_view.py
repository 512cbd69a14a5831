"""The view of units finds planted units and spans, and reports no correlation where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import seqwise
from seqwise.errors import DataError, UsageError
from seqwise.layers.cells import GRUCell, LSTMCell, RNNCell
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.layers.transformer import Encoder, EncoderLayer
from seqwise.lens.activations import choose_activations, list_activations, read_activations
from seqwise.lens.correlations import CorrelationSums, measure_correlation
from seqwise.lens.sample import read_sample
from seqwise.lens.spans import find_active_runs, find_span, find_span_units, rank_spans, separate_span
from seqwise.lens.subject import open_subject
from seqwise.lens.units import find_extremes, units
from seqwise.training.api import TrainedModel

QUOTE_UNIT, DEPTH_UNIT = 5, 11
WORDS = ("dog", "cat", "tree", "house", "we", "see", "small", "old", "and", "here")


@pytest.fixture(autouse=True)
def few_texts(monkeypatch) -> None:
    """Reads fewer texts, which is faster."""
    monkeypatch.setattr("seqwise.lens.sample.NUM_TEXTS", 96)


def write_quotes(path: Path, num_lines: int = 1500) -> Path:
    """Writes lines with quotations and brackets, which may be nested, at random places."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(num_lines):
        line, is_quoted, depth = [], False, 0
        for _ in range(30):
            mark = rng.random()
            if mark < 0.1:
                line.append("”" if is_quoted else "“")
                is_quoted = not is_quoted
            elif mark < 0.2 and depth < 3:
                line.append("(")
                depth += 1
            elif mark < 0.3 and depth:
                line.append(")")
                depth -= 1
            else:
                line.append(str(rng.choice(WORDS)))
        lines.append(" ".join([*line, *[")"] * depth, *(["”"] if is_quoted else [])]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> TrainedModel:
    """An LSTM of 32 units of which one counts open brackets, and one is 1 inside quotes and 0 outside."""
    folder = tmp_path_factory.mktemp("planted")
    data = write_quotes(folder / "quotes.txt")
    settings = {
        "model": "lstm",
        "network": {"width": 32, "depth": 1},
        "text": {"tokenizer": "spaces"},
        "data": {"window": 48},
        "training": {"batch_size": 4},
        "budget": "300-tokens",
        "device": "cpu",
    }
    trained = seqwise.train(str(data), settings=settings, out=folder / "run")
    plant_units(trained)
    return trained


@torch.no_grad()
def plant_units(trained: TrainedModel) -> None:
    """Writes the weights of both units. Entries 0 … 3 of a word's vector say which of “ ” ( ) it is."""
    tokenizer, embedding = trained.bundle.preprocessor.tokenizer, trained.model.embedding.weight
    embedding[:, :4] = 0
    for entry, mark in enumerate("“”()"):
        embedding[tokenizer.id(mark), entry] = 1
    cell = next(module for module in trained.model.modules() if isinstance(module, LSTMCell))
    size = cell.units
    for unit in (QUOTE_UNIT, DEPTH_UNIT):
        for gate in range(4):
            cell.weight_input[gate * size + unit] = 0
            cell.weight_hidden[gate * size + unit] = 0
            cell.bias[gate * size + unit] = 0
    i, f, g = (gate * size + QUOTE_UNIT for gate in range(3))
    cell.bias[i], cell.weight_input[i, 0] = -20, 40  # write 1 at “
    cell.bias[f] = 20  # forget at both marks
    cell.weight_input[f, :2] = -40
    cell.weight_input[g, 0] = 20
    i, f, g = (gate * size + DEPTH_UNIT for gate in range(3))
    cell.bias[i], cell.bias[f] = -20, 20  # c ← c ± 1 at brackets
    cell.weight_input[i, 2:4] = 40
    cell.weight_input[g, 2], cell.weight_input[g, 3] = 20, -20


def test_planted_units_are_found_among_many(planted: TrainedModel):
    view = units(planted)
    found = {one["feature"]: one for one in view.data["features"]}
    assert found["inside quotes"]["unit"] == QUOTE_UNIT, "of the cell c or the state tanh(c) / 2: both have two values"
    assert (found["bracket depth"]["layer"], found["bracket depth"]["unit"]) == ("layer 1, cell", DEPTH_UNIT)
    for feature in ("inside quotes", "bracket depth"):
        # Not quite 1: a few segments begin inside a line, where brackets and quotes before them are unknown.
        assert found[feature]["held_out"] > 0.98
        assert found[feature]["low"] > 0.95
    assert view.data["features"][0]["feature"] in ("inside quotes", "bracket depth")
    assert any(f"unit {DEPTH_UNIT} of layer 1, cell" in figure.title for figure in view.figures)
    assert "held-out texts" in view.summary[0]


def test_one_unit_shows_its_text_its_correlations_and_where_it_is_highest(planted: TrainedModel):
    text = "we see “ a dog ” here"
    view = units(planted, text, layer="layer 1, cell", unit=QUOTE_UNIT)
    numbers = view.data["layer 1, cell"]
    np.testing.assert_allclose(numbers["activations"], [0, 0, 1, 1, 1, 0, 0], atol=1e-6)
    feature, value, low, high = numbers["correlations"][0]
    assert (feature, round(value, 3)) == ("inside quotes", 1.0)
    assert low <= value <= high
    sample = read_sample(planted)
    for key, expected in (("highest", 1.0), ("lowest", 0.0)):
        for value, index, position in numbers[key]:
            assert value == pytest.approx(expected, abs=1e-6)
            assert sample.texts[index].features["inside quotes"][position] == expected
    assert "⟦" in str(view)


def test_a_span_finds_the_planted_unit_and_all_planted_spans(planted: TrainedModel):
    text = "we see old tree here and “ small dog we see tree ” and here we see old house and cat here"
    view = units(planted, text, layer="layer 1, cell", span="“ small dog we see tree")
    assert (view.data["start"], view.data["end"]) == (6, 12)
    assert view.data["num_expected"] < 0.01
    assert list(view.data["units"]) == [QUOTE_UNIT], "of 32 units, none other is active only there"
    assert view.data["thresholds"][0] == pytest.approx(0.5, abs=1e-6)
    assert view.data["margins"][0] == pytest.approx(1.0, abs=1e-6)
    sample = read_sample(planted)
    expected = []
    for index, one in enumerate(sample.texts):
        expected += find_active_runs(one.features["inside quotes"][:, None] > 0.5, index)
    found = {(one["text"], one["start"], one["end"]) for one in view.data["similar"]}
    assert len(expected) > 20
    assert found == {(one.text, one.start, one.end) for one in expected}
    assert view.summary[0].startswith("1 unit is active at every token of the span")
    assert view.title.startswith("Units active in “" + "“ small dog we see tree”")
    assert view.figures[0].value_label == "1 where the unit is active"
    assert view.figures[0].details[0] == "0 of 1 unit"


def test_a_span_of_characters_is_named_without_spaces_between_them(book: Path, tmp_path: Path):
    settings = {"text.tokenizer": "characters", "network.width": 8, "network.depth": 1, "device": "cpu"}
    run = seqwise.train(str(book), task="language", model="gru", budget="100-tokens", settings=settings,
                        out=tmp_path / "run")  # fmt: skip
    assert units(run, "the old model reads", span="old model").title.startswith("Units active in “old model”")


def test_random_units_have_no_correlation_on_held_out_texts():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 25, 4, generator=generator)
    features = {f"coin {number}": torch.rand(80, 25, generator=generator).round().numpy() for number in range(8)}
    view = units(Recurrent(GRUCell(4, 400)), x, features=features)
    chosen = np.array([abs(one["chosen"]) for one in view.data["features"]])
    held_out = np.array([abs(one["held_out"]) for one in view.data["features"]])
    assert len(chosen) == 8
    assert chosen.mean() > 0.06, "the maximum of 400 units is far from 0"
    assert held_out.mean() < 0.04, "1,000 tokens: a standard error of 0.03"
    assert np.mean([one["low"] <= 0 <= one["high"] for one in view.data["features"]]) >= 0.75


def test_a_known_feature_of_a_module_is_found():
    x = torch.randn(20, 12, 1, generator=torch.Generator().manual_seed(1))
    layer = Recurrent(RNNCell(1, 3, "identity"))
    with torch.no_grad():
        layer.cell.weight_hidden.zero_()
        layer.cell.weight_input.zero_()
        layer.cell.weight_hidden[1, 1] = layer.cell.weight_input[1, 0] = 1.0  # unit 1 is the sum so far
    view = units(layer, x, features={"sum": x[..., 0].cumsum(1).numpy(), "input": x[..., 0].numpy()})
    found = {one["feature"]: one for one in view.data["features"]}
    assert (found["sum"]["unit"], round(found["sum"]["held_out"], 5)) == (1, 1.0)
    row = view.data["feature_names"]["layer 1, state"].index("input")
    expected = np.corrcoef(x[..., 0].cumsum(1).ravel(), x[..., 0].ravel())[0, 1]
    assert view.data["correlations"]["layer 1, state"][row, 1] == pytest.approx(expected, abs=1e-5)
    assert view.data["correlations"]["layer 1, state"][row, 0] == 0.0, "a constant unit"


def test_correlations_of_sums_are_those_of_numpy():
    rng = np.random.default_rng(0)
    features, activations = rng.normal(size=(50, 3)), rng.normal(size=(50, 4)) + 100
    activations[:, 1] += features[:, 0]
    first, second = CorrelationSums(3, 4), CorrelationSums(3, 4)
    first.add(features[:20], activations[:20])
    second.add(features[20:35], activations[20:35])
    second.add(features[35:], activations[35:])
    expected = np.corrcoef(features.T, activations.T)[:3, 3:]
    np.testing.assert_allclose((first + second).correlate(), expected, atol=1e-9)
    value, low, high = measure_correlation(
        [features[:20, 0], features[20:, 0]], [activations[:20, 1], activations[20:, 1]]
    )
    assert value == pytest.approx(expected[0, 1])
    assert low <= value <= high


def test_the_interval_is_as_wide_as_texts_differ():
    rng = np.random.default_rng(0)
    labels = [np.full(100, float(number % 2)) for number in range(40)]  # one value per text
    constant = [np.full(100, rng.normal()) for _ in labels]
    _, low, high = measure_correlation(labels, constant)
    assert high - low > 0.4, "40 texts, not 4,000 independent tokens"


def test_activations_are_those_of_the_layers():
    x = torch.randn(2, 5, 4)
    both = Bidirectional(Recurrent(RNNCell(4, 3)), Recurrent(RNNCell(4, 3)))
    subject = open_subject(both, x)
    arrays = read_activations(both, subject.call, list_activations(subject))
    directions = ["layer 1, forward, state", "layer 1, backward, state"]
    assert [one.label for one in choose_activations(list_activations(subject), 1)] == directions
    assert [one.label for one in choose_activations(list_activations(subject), "layer 1, backward")] == directions[1:]
    outputs = both(x)[0].detach()
    np.testing.assert_allclose(arrays["layer 1, forward, state"], outputs[..., :3], atol=1e-6)
    np.testing.assert_allclose(arrays["layer 1, backward, state"], outputs[..., 3:], atol=1e-6)
    stack = Encoder([EncoderLayer(4, 2, 8, "relu"), EncoderLayer(4, 2, 8, "relu")])
    subject = open_subject(stack, x)
    layers = list_activations(subject)
    assert [one.label for one in layers] == [
        "layer 1, output", "layer 1, feed-forward", "layer 2, output", "layer 2, feed-forward"]  # fmt: skip
    arrays = read_activations(stack, subject.call, layers)
    np.testing.assert_allclose(arrays["layer 2, output"], stack(x)[0].detach(), atol=1e-6)
    assert arrays["layer 1, feed-forward"].shape == (2, 5, 8)
    assert (arrays["layer 1, feed-forward"] >= 0).all()
    assert [one.label for one in choose_activations(layers, 2)] == ["layer 2, output", "layer 2, feed-forward"]
    assert [one.label for one in choose_activations(layers, "layer 1, output")] == ["layer 1, output"]


def test_a_unit_of_a_bidirectional_layer_is_shown_in_both_directions_or_in_the_chosen_one():
    torch.manual_seed(0)
    both, x = Bidirectional(Recurrent(LSTMCell(4, 3)), Recurrent(LSTMCell(4, 3))), torch.randn(2, 5, 4)
    outputs = both(x)[0].detach()[0]
    labels = ["layer 1, forward, state", "layer 1, backward, state"]
    for layer in (1, None, "layer 1, state"):
        view = units(both, x, layer=layer, unit=2)
        assert list(view.data) == labels
        np.testing.assert_allclose(view.data[labels[0]]["activations"], outputs[:, 2], atol=1e-6)
        np.testing.assert_allclose(view.data[labels[1]]["activations"], outputs[:, 5], atol=1e-6)
        assert [value["layer"] for value in view.data.values()] == labels
        assert view.title == "Unit 2 of layer 1, state, Bidirectional"
        assert [figure.title for figure in view.figures[:2]] == [f"Text coloured by unit 2 of {one}" for one in labels]
        assert [label for label in labels if any(label in sentence for sentence in view.summary)] == labels
    alone = units(both, x, layer="layer 1, backward", unit=2)
    assert (list(alone.data), alone.title) == (labels[1:], "Unit 2 of layer 1, backward, state, Bidirectional")
    np.testing.assert_allclose(alone.data[labels[1]]["activations"], outputs[:, 5], atol=1e-6)
    assert list(units(both, x, layer="layer 1, cell", unit=0).data) == [
        "layer 1, forward, cell", "layer 1, backward, cell"]  # fmt: skip
    with pytest.raises(UsageError, match=r"layer 1, state has no unit 3\.\nChoose a number from 0 to 2\."):
        units(both, x, layer=1, unit=3)


def test_thresholds_separate_a_span_as_well_as_possible():
    activations = np.array([[0.1, 5, 1], [0.9, 1, 1], [0.8, 2, 1], [0.2, 0, 1]])
    thresholds, accuracies = separate_span(activations, 1, 3)
    assert thresholds[0] == pytest.approx(0.5)
    # Unit 1: above 0.5 are both tokens of the span and one of the other two. Unit 2 is constant.
    np.testing.assert_allclose(accuracies, [1.0, 0.75, 0.5])
    found = find_span_units({"a": activations}, 1, 3)
    assert (found.num_exclusive, list(found.units), found.num_expected) == (1, [0], 3 / 6)
    assert found.margins[0] == pytest.approx(0.6 / 0.8)


def test_spans_are_found_by_their_text_or_their_positions():
    tokens = ["The", "old", "dog", "sat", "##s", "."]
    assert find_span(tokens, "old dog") == (1, 3)
    assert find_span(tokens, "1:3") == (1, 3)
    assert find_span(tokens, "dog satss.") is None
    assert find_span(tokens, "sats.") == (3, 6)
    assert find_span(tokens, "the") == (0, 1)
    assert find_span(list("a bc d"), "bc d") == (2, 6)
    with pytest.raises(UsageError, match="not inside the 6 tokens"):
        find_span(tokens, "3:7")


def test_similar_spans_are_ranked_by_active_units_and_length():
    is_active = np.array([[1, 0], [1, 1], [1, 1], [0, 0], [1, 1], [0, 0]], bool)
    runs = find_active_runs(is_active, 7)
    assert [(run.text, run.start, run.end, round(run.share, 3)) for run in runs] == [(7, 0, 3, 0.833), (7, 4, 5, 1.0)]
    assert [run.start for run in rank_spans(runs, 3)] == [0, 4], "0.833 is more than a third"
    assert [run.start for run in rank_spans(runs, 1)] == [4, 0]


def test_extremes_are_one_per_text():
    assert find_extremes([np.array([1.0, 3, 2]), np.array([5.0, 4])], 2) == [(5.0, 1, 0), (3.0, 0, 1)]


RUNS = [("language", "gru"), ("language", "transformer"), ("language", "feedforward"), ("language", "attentive-rnn"),
        ("masked", "lstm"), ("masked", "transformer"), ("classify", "lstm"), ("classify", "feedforward"),
        ("tag", "lstm"), ("tag", "transformer"), ("translate", "gru"), ("translate", "transformer"),
        ("forecast", "gru"), ("forecast", "transformer")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("task", "family"), RUNS)
def test_units_of_every_task_are_shown(small_run, task: str, family: str, monkeypatch):
    monkeypatch.setattr("seqwise.lens.unit_search.MIN_TOKENS", 1)  # the data are tiny
    trained = small_run(task, family)
    view = units(trained)
    assert view.data["features"]
    assert all(-1 <= one["held_out"] <= 1 for one in view.data["features"])
    for label, correlations in view.data["correlations"].items():
        assert correlations.shape[0] == len(view.data["feature_names"][label])
    assert all(one["highest"] for one in units(trained, unit=0).data.values())
    assert "similar" in units(trained, span="1:3").data
    str(view)


def test_units_of_a_decoder_are_compared_with_the_output(small_run, monkeypatch):
    monkeypatch.setattr("seqwise.lens.unit_search.MIN_TOKENS", 1)
    view = units(small_run("translate", "gru"))
    for one in view.data["features"]:
        assert one["feature"].startswith("output: ") == one["layer"].startswith("decoder")


def test_looking_at_units_changes_nothing(planted: TrainedModel):
    weights = {name: value.clone() for name, value in planted.model.state_dict().items()}
    planted.model.train()
    state = torch.get_rng_state()
    units(planted, "we see “ a dog ” here", unit=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in planted.model.modules())
    planted.model.eval()
    assert all(torch.equal(value, weights[name]) for name, value in planted.model.state_dict().items())
    assert not any(module._forward_hooks for module in planted.model.modules())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"layer": 9}, "there is no layer 9"),
        ({"unit": 32}, "has no unit 32"),
        ({"unit": 1, "span": "dog"}, "a unit or a span"),
        ({"span": "elephant"}, "'elephant' is not in the text"),
        ({"span": "0:4"}, "the whole text"),
        ({"features": {}}, "for a module with tensors"),
    ],
)
def test_bad_arguments_are_errors(planted: TrainedModel, arguments: dict, problem: str):
    with pytest.raises(UsageError, match=problem):
        units(planted, "we see a dog", **arguments)


def test_features_of_another_shape_are_an_error():
    with pytest.raises(UsageError, match=r"expected values \(2, 5\)"):
        units(Recurrent(GRUCell(4, 3)), torch.randn(2, 5, 4), features={"x": np.zeros((2, 4))})


def test_missing_data_is_an_error(planted: TrainedModel):
    with pytest.raises(DataError):
        units(planted, "we see a dog", data="missing.txt")


def test_an_ngram_model_has_no_units(small_run):
    with pytest.raises(UsageError, match="no layer with units"):
        units(small_run("language", "ngram"), "the old model")
