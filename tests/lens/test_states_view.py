"""The map of states is the PCA or t-SNE of the layer's states, coloured by what is known of each."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from seqwise.errors import DataError, UsageError
from seqwise.layers.cells import GRUCell, RNNCell
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.layers.transformer import Encoder, EncoderLayer
from seqwise.lens.states import (
    StatePoints,
    compare_neighbours,
    compute_dimension,
    group_points,
    project_by_tsne,
    states,
)
from seqwise.lens.states_figures import order_points
from seqwise.vectors.map.projection import compute_affinities, compute_divergence, compute_gradient, run_tsne


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    """Three clusters of 30 states in 12 dimensions, one after the other."""
    rng = np.random.default_rng(0)
    return np.repeat(4 * rng.normal(size=(3, 12)), 30, axis=0) + rng.normal(size=(90, 12))


def make_points(labels: list[str], tokens: list[str]) -> StatePoints:
    count = len(labels)
    return StatePoints(np.zeros((count, 2)), tokens, labels, np.arange(count), [0] * count, "layer 1, state")


def test_pca_is_that_of_numpy(x: torch.Tensor):
    layer = Recurrent(GRUCell(4, 6))
    view = states(layer, x)
    outputs = layer(x)[0].detach().double().numpy().reshape(-1, 6)
    np.testing.assert_allclose(view.data["states"], outputs, atol=1e-6)
    u, singular, _ = np.linalg.svd(outputs - outputs.mean(0), full_matrices=False)
    shares = singular**2 / (singular**2).sum()
    np.testing.assert_allclose(view.data["explained_variance"], shares, rtol=1e-5)
    np.testing.assert_allclose(np.abs(view.data["points"]), np.abs(u[:, :2] * singular[:2]), atol=1e-5)
    assert f"{shares[:2].sum():.0%} of the variance" in view.summary[0]
    np.testing.assert_allclose(view.figures[1].values, 100 * shares, rtol=1e-5)


def test_the_dimension_of_a_plane_is_two():
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(4000, 2)) @ np.linalg.qr(rng.normal(size=(9, 2)))[0].T
    assert compute_dimension(plane) == pytest.approx(2, abs=0.01)
    assert compute_dimension(np.outer(np.arange(5.0), [1.0, 2.0])) == pytest.approx(1)


def test_tsne_separates_clusters_and_lowers_its_divergence(clusters: np.ndarray):
    start = clusters[:, :2]
    points, divergence = project_by_tsne(clusters, start, lambda done, total: None)
    nearest = np.linalg.norm(points[:, None] - points, axis=-1) + np.diag(np.full(90, np.inf))
    assert (nearest.argsort(axis=1)[:, :10] // 30 == np.arange(90)[:, None] // 30).all()
    scaled = (clusters - clusters.mean(0)) / clusters.std()
    _, early = run_tsne(scaled, start, (90 - 1) / 3, steps=300)
    assert divergence < early
    again, _ = project_by_tsne(clusters, start, lambda done, total: None)
    np.testing.assert_array_equal(points, again)


def test_the_gradient_of_tsne_is_that_of_finite_differences(clusters: np.ndarray):
    p = compute_affinities(clusters[::9], 3)
    points = np.random.default_rng(1).normal(size=(len(p), 2))
    expected = np.zeros_like(points)
    for index in np.ndindex(points.shape):
        step = np.zeros_like(points)
        step[index] = 1e-5
        expected[index] = (compute_divergence(points + step, p) - compute_divergence(points - step, p)) / 2e-5
    np.testing.assert_allclose(compute_gradient(points, p), expected, rtol=1e-4, atol=1e-9)


def test_neighbours_of_separate_clusters_have_their_label(clusters: np.ndarray):
    names = [str(number // 30) for number in range(90)]
    same, chance = compare_neighbours(clusters, names)
    assert same == 1.0
    assert chance == pytest.approx(3 * 30 * 29 / (90 * 89))
    shuffled = list(np.random.default_rng(0).permutation(names))
    assert compare_neighbours(clusters, shuffled)[0] == pytest.approx(chance, abs=0.05)


def test_both_directions_of_a_layer_are_shown_together(x: torch.Tensor):
    both = Bidirectional(Recurrent(RNNCell(4, 3)), Recurrent(RNNCell(4, 3)))
    view = states(both, x)
    np.testing.assert_allclose(view.data["states"], both(x)[0].detach().reshape(-1, 6), atol=1e-6)
    assert view.data["layer"] == "layer 1, state"
    assert states(both, x, layer="layer 1, backward, state").data["states"].shape == (60, 3)


def test_blocks_of_a_transformer_are_shown(x: torch.Tensor):
    stack = Encoder([EncoderLayer(4, 2, 8, "relu"), EncoderLayer(4, 2, 8, "relu")])
    np.testing.assert_allclose(states(stack, x).data["states"], stack(x)[0].detach().reshape(-1, 4), atol=1e-6)
    assert states(stack, x, layer=1).data["layer"] == "layer 1, output"
    assert states(stack, x, layer="layer 1, feed-forward").data["states"].shape == (60, 8)


def test_rare_groups_are_one_group_and_drawn_first():
    names = [*"aaabbbccddeeffgghi"]
    groups = group_points(make_points(names, names), "label")
    assert groups == [*"aaabbbccddeeffgg", "(other)", "(other)"]
    order = order_points(groups)
    assert sorted(order) == list(range(18))
    drawn = [groups[index] for index in order]
    assert list(dict.fromkeys(drawn)) == [*"abcdefg", "(other)"], "the eighth colour is grey"
    assert drawn[7:9] == ["(other)", "(other)"]
    eight = [*"abcdefgh"]
    assert group_points(make_points(eight, eight), "token") == eight


def test_one_text_is_coloured_by_time(small_run):
    view = states(small_run("language", "gru"), "the old model reads every word")
    (scatter, _) = view.figures
    np.testing.assert_array_equal(scatter.values, np.arange(6))
    assert list(scatter.names) == ["the", "old", "model", "reads", "every", "word"]
    assert scatter.is_labelled


def test_several_texts_are_coloured_by_token(small_run):
    trained = small_run("language", "gru")
    view = states(trained, ["the old model", "the state"])
    assert view.data["texts"] == [0, 0, 0, 1, 1]
    assert view.data["tokens"] == ["the", "old", "model", "the", "state"]
    scatter = view.figures[0]
    for name, group in zip(scatter.names, scatter.groups):
        assert name.startswith(group)
    alone = states(trained, "the old model").data["states"]
    np.testing.assert_allclose(view.data["states"][:3], alone, atol=1e-6)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_classifier_has_one_point_per_validation_text(small_run, family: str):
    trained = small_run("classify", family)
    view = states(trained)
    examples = trained.task.inspect_split(trained.bundle, trained.run.metadata.data, "valid", 500)
    assert len(view.data["points"]) == len(examples)
    true = [next(answer.name for answer in one.answers if answer.is_correct) for one in examples]
    assert [f"label: {label}" for label in view.data["labels"]] == true
    with torch.no_grad(), record(trained.model, "head.pooled") as recording:
        trained.model(examples[1].batch)
    np.testing.assert_allclose(view.data["states"][1], recording["head.pooled"][0], atol=1e-6)
    scatter = view.figures[0]
    by_text = dict(zip(view.data["tokens"], view.data["labels"]))
    assert all(by_text[name] == group for name, group in zip(scatter.names, scatter.groups))
    final = states(trained, layer=1)
    assert len(final.data["points"]) == len(examples)


RUNS = [("language", "lstm"), ("language", "attentive-rnn"), ("masked", "gru"), ("masked", "transformer"),
        ("tag", "lstm"), ("tag", "transformer"), ("translate", "lstm"), ("translate", "transformer"),
        ("caption", "lstm"), ("forecast", "gru"), ("forecast", "transformer")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("task", "family"), RUNS)
def test_states_of_every_task_are_shown(small_run, task: str, family: str):
    view = states(small_run(task, family), method="tsne" if family == "gru" else "pca")
    assert view.data["points"].shape == (len(view.data["tokens"]), 2)
    assert np.isfinite(view.data["points"]).all()
    assert (len(view.data["labels"]) > 0) == (task == "tag")
    str(view)


def test_encoder_and_decoder_can_be_chosen(small_run):
    trained = small_run("translate", "transformer")
    text = "7 2 5"
    encoder = states(trained, text, layer="encoder, layer 1")
    decoder = states(trained, 4 * [text], layer="decoder, layer 1")
    inspected = trained.task.inspect_text(trained.bundle, text)
    assert encoder.data["tokens"] == list(inspected.tokens)
    assert decoder.data["tokens"] == 4 * list(inspected.outputs)


@pytest.mark.parametrize(
    ("texts", "arguments", "problem"),
    [
        ("the old model", {"layer": 9}, "there is no layer 9"),
        ("the old model", {"method": "umap"}, "no method 'umap'"),
        ("the old model", {"colour": "red"}, "no colour 'red'"),
        ("the old model", {"colour": "label"}, "have no labels"),
        ("the old", {}, "at least 3 states"),
        ([], {}, "there is no text"),
        (["the old model", " "], {}, "the text is empty"),
        ("the old model", {"data": "book.txt"}, "texts or data"),
    ],
)
def test_bad_arguments_are_errors(small_run, texts, arguments: dict, problem: str):
    with pytest.raises(UsageError, match=problem):
        states(small_run("language", "gru"), texts, **arguments)


def test_missing_data_is_an_error(small_run):
    with pytest.raises(DataError):
        states(small_run("language", "gru"), data="missing.txt")


def test_an_ngram_model_has_no_states(small_run):
    with pytest.raises(UsageError, match="no layer with states"):
        states(small_run("language", "ngram"), "the old model")


@pytest.mark.parametrize("chunk_rows", [1, 7, 89, 90, 1000])
def test_neighbours_are_compared_in_chunks(clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch, chunk_rows: int):
    names = [str(index % 4) for index in range(90)]
    monkeypatch.setattr(sys.modules["seqwise.lens.states"], "CHUNK_ROWS", chunk_rows)
    distances = np.square(clusters[:, None] - clusters).sum(-1) + np.diag([np.inf] * 90)
    nearest = np.argsort(distances, axis=1)[:, :10]
    same = np.mean([[names[i] == names[j] for j in row] for i, row in enumerate(nearest)])
    assert compare_neighbours(clusters, names)[0] == pytest.approx(same)
