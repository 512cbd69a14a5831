"""The map of words: projections, clusters, labels, the picture and the page."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from seqwise.errors import UsageError
from seqwise.printable import make_printable
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.map.page import NUM_NEIGHBOURS, build_page, find_neighbours
from seqwise.vectors.map.picture import SCALE, WIDTH, choose_font, draw_picture, place_labels
from seqwise.vectors.map.projection import (
    TSNE_MAX_WORDS,
    compute_affinities,
    compute_divergence,
    compute_gradient,
    compute_principal_axes,
    project_vectors,
    run_tsne,
)
from seqwise.vectors.map.word_map import (
    COLOURS,
    COLOURS_ON_DARK,
    MAX_CLUSTERS,
    WordMap,
    build_word_map,
    choose_neighbourhood,
    choose_num_clusters,
    cluster_vectors,
)

ODD_WORDS = [
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "{{DATA}}",
    "a\nb",
    "\x1b[31mred",
    "\ud800",
    "",
    "日本語",
    "x" * 300,
]


def normalize_rows(matrix: np.ndarray) -> np.ndarray:
    return (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    """Three tight clusters of 20 unit vectors in 10 dimensions, one after the other."""
    rng = np.random.default_rng(0)
    return normalize_rows(np.repeat(np.eye(10)[:3], 20, axis=0) + 0.1 * rng.normal(size=(60, 10)))


@pytest.fixture(scope="module")
def keyed(clusters) -> KeyedVectors:
    return KeyedVectors([f"w{number}" for number in range(60)], clusters, counts=np.arange(60, 0, -1))


def compute_distances(points: np.ndarray) -> np.ndarray:
    """Returns the distances of all pairs."""
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


# --- projections


def test_pca_preserves_distances_of_points_in_a_plane():
    rng = np.random.default_rng(1)
    plane = rng.normal(size=(30, 2))
    axes, _ = np.linalg.qr(rng.normal(size=(7, 2)))
    points, shares = compute_principal_axes(plane @ axes.T + 5)
    assert np.allclose(compute_distances(points), compute_distances(plane))
    assert shares.sum() == pytest.approx(1)
    assert shares[0] >= shares[1]


def test_the_shares_of_pca_are_those_of_the_covariance(clusters):
    _, shares = compute_principal_axes(clusters)
    eigenvalues = np.sort(np.linalg.eigvalsh(np.cov(clusters.T.astype(np.float64))))[::-1]
    assert np.allclose(shares, eigenvalues[:2] / eigenvalues.sum())
    assert f"{shares.sum():.0%} of the variance" in project_vectors(clusters, "pca")[1]


def test_the_gradient_of_tsne_is_that_of_its_divergence(clusters):
    p = compute_affinities(clusters[::4].astype(np.float64), 5)
    points = np.random.default_rng(2).normal(size=(len(p), 2))
    grad = compute_gradient(points, p)
    for index in [(0, 0), (7, 1), (14, 0)]:
        step = np.zeros_like(points)
        step[index] = 1e-5
        expected = (compute_divergence(points + step, p) - compute_divergence(points - step, p)) / 2e-5
        assert grad[index] == pytest.approx(expected, rel=1e-5)


def test_affinities_have_the_requested_perplexity():
    vectors = np.random.default_rng(3).normal(size=(25, 4))
    squares = np.square(compute_distances(vectors))
    conditional = np.zeros((25, 25))
    for i in range(25):
        low, high = 0.0, 1000.0
        for _ in range(100):
            beta = (low + high) / 2
            p = np.exp(-np.maximum(0, squares[i] - np.delete(squares[i], i).min()) * beta)
            p[i] = 0
            p /= p.sum()
            entropy = -np.sum(p[p > 0] * np.log2(p[p > 0]))
            low, high = (beta, high) if 2**entropy > 6 else (low, beta)
        conditional[i] = p
    assert np.allclose(compute_affinities(vectors, 6), (conditional + conditional.T) / 50, atol=1e-5)


def test_tsne_keeps_clusters_together(clusters):
    points, description = project_vectors(clusters)
    assert "perplexity 19.7" in description
    assert "seed 0" in description
    distances = compute_distances(points) + np.diag(np.full(60, np.inf))
    nearest = distances.argsort(axis=1)[:, :5] // 20
    assert (nearest == np.arange(60)[:, None] // 20).all()


def test_tsne_reaches_the_divergence_of_scikit_learn(clusters):
    manifold = pytest.importorskip("sklearn.manifold")
    start, _ = compute_principal_axes(clusters)
    _, ours = run_tsne(clusters, start, 10)
    theirs = manifold.TSNE(method="exact", perplexity=10, random_state=0).fit(clusters.astype(np.float64))
    assert ours < 1.05 * theirs.kl_divergence_


def test_the_same_seed_gives_the_same_map(clusters):
    first, second, other_seed = (project_vectors(clusters, "tsne", seed)[0] for seed in (0, 0, 1))
    assert (first == second).all()
    assert not np.allclose(first, other_seed)


def test_progress_reaches_the_end(clusters):
    reports = []
    project_vectors(clusters, "tsne", progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (1000, 1000)


@pytest.mark.parametrize("by", ["pca", "tsne"])
@pytest.mark.parametrize(
    "vectors",
    [np.eye(3), np.ones((5, 4)), np.zeros((4, 3)), np.arange(6.0)[:, None], np.vstack([np.eye(4)] * 5)],
    ids=["three", "equal", "zero", "one dimension", "repeated"],
)
def test_any_three_or_more_vectors_can_be_projected(vectors: np.ndarray, by):
    points, _ = project_vectors(vectors.astype(np.float32), by)
    assert points.shape == (len(vectors), 2)
    assert np.isfinite(points).all()


@pytest.mark.parametrize(("count", "by"), [(9, "PCA"), (10, "t-SNE"), (TSNE_MAX_WORDS + 1, "PCA")])
def test_the_projection_is_chosen_by_the_number_of_words(count: int, by: str):
    _, description = project_vectors(np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32))
    assert description.startswith(f"{by} of unit vectors")


def test_tsne_of_too_many_words_is_an_error():
    with pytest.raises(UsageError, match="at most 2,000 words; received 2,001"):
        project_vectors(np.ones((TSNE_MAX_WORDS + 1, 2)), "tsne")


# --- clusters


def test_clusters_are_sorted_by_size(clusters):
    labels, members = cluster_vectors(clusters[5:], 3)  # 15, 20 and 20 of each
    expected = np.arange(5, 60) // 20
    assert len({(a, b) for a, b in zip(labels, expected)}) == 3
    assert np.bincount(labels).tolist() == [20, 20, 15]
    assert [len(rows) for rows in members] == [20, 20, 15]


def test_the_most_central_member_comes_first(clusters):
    labels, members = cluster_vectors(clusters, 3)
    for number, rows in enumerate(members):
        vectors = clusters[labels == number]
        cosines = clusters[list(rows)] @ vectors.sum(axis=0)
        assert (np.diff(cosines) <= 1e-5).all()


def test_equal_and_zero_vectors_can_be_clustered():
    assert cluster_vectors(np.ones((6, 2)), 4)[0].tolist() == [0] * 6
    assert set(cluster_vectors(np.zeros((3, 2)), 2)[0].tolist()) <= {0, 1}


def test_there_is_a_colour_for_every_cluster():
    assert [choose_num_clusters(count) for count in (3, 50, 300, 9999)] == [2, 4, 9, MAX_CLUSTERS]
    assert len(set(COLOURS)) == len(set(COLOURS_ON_DARK)) == MAX_CLUSTERS


# --- labels


def test_labels_cover_neither_each_other_nor_dots_and_stay_inside():
    rng = np.random.default_rng(4)
    dots = rng.uniform(0, 600, size=(250, 2))
    boxes = place_labels(dots, [3.0] * 250, [(50, 12)] * 250, (0, 0, 600, 600))
    visible = np.array([box for box in boxes if box])
    assert 60 < len(visible) < 250
    assert (visible >= 0).all()
    assert (visible <= 600).all()
    left, top, right, bottom = visible.T
    overlap = (left[:, None] < right) & (right[:, None] > left) & (top[:, None] < bottom) & (bottom[:, None] > top)
    assert overlap.sum() == len(visible)  # each with itself only
    x, y = dots.T
    assert not ((x > left[:, None]) & (x < right[:, None]) & (y > top[:, None]) & (y < bottom[:, None])).any()


def test_a_required_label_may_cover_a_dot():
    ring = [(100 + 20 * np.cos(angle), 100 + 20 * np.sin(angle)) for angle in np.arange(0, 6.3, 0.2)]
    dots = np.array([(100.0, 100.0), *ring])
    sizes = [(40.0, 12.0)] + [(9999.0, 9999.0)] * len(ring)
    assert place_labels(dots, [3.0] * len(dots), sizes, (0, 0, 200, 200))[0] is None
    assert place_labels(dots, [3.0] * len(dots), sizes, (0, 0, 200, 200), num_required=1)[0] is not None


# --- which words


def test_named_words_come_first_and_neighbours_are_not_repeated(keyed: KeyedVectors):
    words = choose_neighbourhood(keyed, ["w25", "w26", "w25"], 3)
    near = {neighbour.word for word in ("w25", "w26") for neighbour in keyed.nearest(word, 3)}
    assert words[:2] == ("w25", "w26")
    assert set(words[2:]) == near - {"w25", "w26"}
    assert choose_neighbourhood(keyed, ["w1"], 0) == ("w1",)


def test_the_longer_side_of_a_word_map_is_2(keyed: KeyedVectors):
    word_map = build_word_map(keyed, keyed.words, "t", by="pca", num_clusters=3)
    assert np.ptp(word_map.points, axis=0).max() == pytest.approx(2)
    assert np.abs(word_map.points).max() == pytest.approx(1)
    assert len(word_map.cluster_names) == 3
    assert all(re.fullmatch(r"w\d+, w\d+", name) for name in word_map.cluster_names)


# --- the picture


def get_colours(image: Image.Image) -> set[str]:
    return {f"#{bytes(pixel).hex()}" for _, pixel in image.getcolors(1 << 24) or []}


def test_the_picture_is_a_png_of_twice_the_size_with_a_colour_per_cluster(keyed: KeyedVectors):
    picture = draw_picture(build_word_map(keyed, keyed.words[::2], "a title", by="pca", num_clusters=3))
    image = Image.open(io.BytesIO(picture.png))
    assert (image.format, image.width) == ("PNG", WIDTH * SCALE)
    assert {*COLOURS[:3]} <= get_colours(image)
    assert not {*COLOURS[3:]} & get_colours(image)
    assert 0 < picture.num_labels <= 30
    assert picture.num_unreadable == 0


def test_words_that_cannot_be_printed_can_be_drawn():
    points = np.random.default_rng(0).uniform(-1, 1, size=(len(ODD_WORDS), 2))
    word_map = WordMap(
        "a\ntitle", "how", tuple(ODD_WORDS), points, np.zeros(len(ODD_WORDS), int), ("a\nb",), num_highlighted=2
    )
    assert draw_picture(word_map).png.startswith(b"\x89PNG")


def test_characters_missing_from_all_fonts_are_detected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seqwise.vectors.map.picture.FONT_FILES", ("no such typeface.ttf",))
    assert choose_font(frozenset("plain日本")) == (None, {"日", "本"})


# --- the page


class PageParser(HTMLParser):
    """The tags of a page, and the text of its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, text):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += text


@pytest.fixture(scope="module")
def odd_page() -> tuple[str, KeyedVectors]:
    words = [*ODD_WORDS, *(f"w{number}" for number in range(20))]
    keyed = KeyedVectors(words, np.random.default_rng(5).normal(size=(len(words), 6)).astype(np.float32))
    return build_page(build_word_map(keyed, keyed.words, "</title><b>&amp;", num_highlighted=1), keyed), keyed


def test_the_page_loads_no_external_files(odd_page):
    page = PageParser(odd_page[0])
    assert not any({"src", "href", "action", "srcset"} & attributes.keys() for _, attributes in page.tags)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|fetch\(|XMLHttp", odd_page[0])
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")


def test_words_are_escaped_in_the_page(odd_page):
    text, keyed = odd_page
    page = PageParser(text)
    assert {"img", "b"}.isdisjoint(tag for tag, _ in page.tags)
    assert [tag for tag, _ in page.tags].count("script") == 2
    data = json.loads(page.scripts[0])
    assert data["words"] == [make_printable(word) for word in keyed.words]
    assert "innerHTML" not in text
    assert "document.write" not in text


def test_the_data_of_the_page_are_points_clusters_and_neighbours(keyed: KeyedVectors):
    word_map = build_word_map(keyed, keyed.words[:30], "t")
    data = json.loads(PageParser(build_page(word_map, keyed)).scripts[0])
    assert np.allclose(np.reshape(data["points"], (-1, 2)), word_map.points, atol=1e-4)
    assert data["clusters"] == word_map.clusters.tolist()
    assert data["counts"] == list(range(60, 30, -1))
    assert len(data["neighbours"][0]) == NUM_NEIGHBOURS
    for word, score, index in data["neighbours"][7]:
        assert score == pytest.approx(keyed.similarity("w7", word), abs=1e-3)
        assert index == (keyed.index(word) if keyed.index(word) < 30 else -1)


def test_neighbours_of_a_batch_equal_those_of_single_words(keyed: KeyedVectors, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seqwise.vectors.map.page.MAX_COSINES", 150)  # blocks of two words
    reports: list[int] = []
    neighbours = find_neighbours(keyed, keyed.words[:9], 4, lambda done, total: reports.append(done))
    assert reports == [2, 4, 6, 8, 9]
    for word, near in zip(keyed.words, neighbours):
        assert [name for name, _ in near] == [neighbour.word for neighbour in keyed.nearest(word, 4)]


def test_the_script_of_the_page_is_well_formed(odd_page, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "script.js").write_text(PageParser(odd_page[0]).scripts[1])
    assert subprocess.run([node, "--check", tmp_path / "script.js"], check=False).returncode == 0


def test_errors_of_the_map_name_no_command_line_options(keyed: KeyedVectors, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seqwise.vectors.map.word_map.MAX_WORDS", 10)
    calls = {
        "Name fewer words": lambda: build_word_map(keyed, keyed.words, "t", num_highlighted=2),
        "Show fewer words": lambda: build_word_map(keyed, keyed.words, "t"),
        "skip fewer": lambda: build_word_map(keyed, keyed.words[58:], "t"),
        "more neighbours": lambda: build_word_map(keyed, ["w1"], "t", num_highlighted=1),
        "by PCA": lambda: project_vectors(np.ones((TSNE_MAX_WORDS + 1, 2)), "tsne"),
    }
    for message, call in calls.items():
        with pytest.raises(UsageError, match=message) as excinfo:
            call()
        assert "--" not in str(excinfo.value)
