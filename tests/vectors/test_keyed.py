"""`KeyedVectors`: lookup, similarity, search and immutability, compared with gensim."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import gensim
import numpy as np
import pytest

from seqwise.errors import UsageError
from seqwise.vectors.keyed import KeyedVectors, Neighbour, Subwords
from seqwise.vectors.search import compute_edit_distance, find_similar_words, find_top_rows

WORDS = ["the", "king", "queen", "man", "woman", "apple", "apples", "Paris"]


def draw_vectors(rows: int = 200, dim: int = 12, seed: int = 0) -> KeyedVectors:
    matrix = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return KeyedVectors([f"w{number}" for number in range(rows)], matrix)


def to_gensim(keyed: KeyedVectors) -> gensim.models.KeyedVectors:
    gensim_vectors = gensim.models.KeyedVectors(keyed.dim)
    gensim_vectors.add_vectors(list(keyed.words), keyed.matrix)
    return gensim_vectors


@pytest.fixture
def plane() -> KeyedVectors:
    """Four words in a plane, and one with a zero vector."""
    return KeyedVectors(["east", "north", "far", "west", "zero"], np.array([[1, 0], [0, 1], [9, 9], [-2, 0], [0, 0]]))


def to_pairs(ranking: list[Neighbour]) -> list[tuple[str, float]]:
    return [(each.word, pytest.approx(each.score, abs=1e-5)) for each in ranking]


def test_words_are_looked_up(plane: KeyedVectors):
    assert (len(plane), plane.dim, list(plane)[1], plane.index("far")) == (5, 2, "north", 2)
    assert "west" in plane
    assert "West" not in plane
    assert plane["west"].tolist() == [-2, 0]
    assert plane.matrix.dtype == np.float32


def test_keyed_vectors_are_immutable(plane: KeyedVectors):
    with pytest.raises(AttributeError, match="cannot assign"):
        plane.matrix = np.zeros((5, 2))
    with pytest.raises(AttributeError, match="cannot delete"):
        del plane.words
    with pytest.raises(ValueError, match="read-only"):
        plane["east"][0] = 5
    with pytest.raises(ValueError, match="read-only"):
        plane.norms[0] = 5


@pytest.mark.parametrize("make_copy", [lambda it: it, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_of_keyed_vectors_are_immutable_too(make_copy):
    about = {"losses": [2.0, 1.0], "settings": {"dim": 2}}
    keyed = make_copy(KeyedVectors(["a"], np.ones((1, 2)), None, Subwords(3, 4, np.ones((5, 2))), about))
    with pytest.raises(ValueError, match="read-only"):
        keyed.subwords.matrix[0] = 5
    with pytest.raises(TypeError, match="does not support item assignment"):
        keyed.about["losses"] = []
    about["settings"]["dim"] = 3
    assert keyed.about == {"losses": [2.0, 1.0], "settings": {"dim": 2}}
    assert KeyedVectors(["a"], np.ones((1, 2)), about=keyed.about).about == keyed.about


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_very_large_and_very_small_numbers_have_cosines(scale: float):
    matrix = np.array([[1, 0], [1, 1], [0, 2], [-3, 0]])
    keyed, unscaled = (KeyedVectors(["a", "b", "c", "d"], matrix * factor) for factor in (scale, 1))
    assert to_pairs(keyed.nearest("a")) == [(each.word, each.score) for each in unscaled.nearest("a")]
    assert to_pairs(keyed.analogy("a", "b", "d")) == [
        (each.word, each.score) for each in unscaled.analogy("a", "b", "d")
    ]
    assert keyed.similarity("a", "b") == pytest.approx(2**-0.5)
    assert keyed.similarity("a", "b", "dot") == pytest.approx(scale**2)
    assert [each.word for each in keyed.nearest("a", by="dot")] == ["b", "c", "d"]
    assert keyed.nearest("a", 1, by="dot")[0].score == pytest.approx(scale**2)


@pytest.mark.parametrize(("by", "score"), [("cosine", 2**-0.5), ("dot", 9.0), ("scaled", 9 / 2**0.5)])
def test_similarities_by_cosine_dot_and_scaled_dot_equal_hand_computed_values(plane: KeyedVectors, by, score: float):
    assert plane.similarity("east", "far", by) == pytest.approx(score, rel=1e-6)


def test_a_zero_vector_has_similarity_zero_and_no_nan(plane: KeyedVectors):
    assert plane.similarity("zero", "east") == 0.0
    assert [each.score for each in plane.nearest("zero", 4)] == [0, 0, 0, 0]
    assert np.isfinite([each.score for each in plane.analogy("zero", "east", "north", by="multiply")]).all()
    assert plane.rank_by_centrality(["zero", "east", "far"])[0] == Neighbour("zero", 0.0)


def test_the_nearest_come_first_without_the_word_itself(plane: KeyedVectors):
    assert [each.word for each in plane.nearest("east")] == ["far", "north", "zero", "west"]
    assert [each.word for each in plane.nearest("east", 2, by="dot")] == ["far", "north"]
    assert plane.nearest("west", 1, by="scaled", exclude=["zero", "unheard"])[0].word == "north"
    assert [each.word for each in plane.nearest(np.array([3.0, 0.1]), 2)] == ["east", "far"]


def test_nearest_words_equal_those_of_gensim():
    keyed = draw_vectors()
    gensim_vectors = to_gensim(keyed)
    for word in ("w0", "w77"):
        assert to_pairs(keyed.nearest(word, 7)) == gensim_vectors.most_similar(word, topn=7)


@pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning")
def test_analogies_equal_those_of_gensim():
    keyed = draw_vectors()
    gensim_vectors = to_gensim(keyed)
    expected = gensim_vectors.most_similar(positive=["w2", "w3"], negative=["w1"], topn=5)
    assert to_pairs(keyed.analogy("w1", "w2", "w3", 5)) == expected
    expected = gensim_vectors.most_similar_cosmul(positive=["w2", "w3"], negative=["w1"], topn=5)
    assert to_pairs(keyed.analogy("w1", "w2", "w3", 5, by="multiply")) == expected


def test_the_words_of_an_analogy_are_excluded_from_its_answers_unless_allowed():
    matrix = np.array([[1, 0, 0], [1, 0.2, 0], [1, 0, 0.1], [0.1, 1, 0.1], [0, 0.1, 1]])
    keyed = KeyedVectors(["a", "b", "c", "x", "y"], matrix)
    assert keyed.analogy("a", "b", "c", 1, exclude=False)[0].word == "b"
    assert keyed.analogy("a", "b", "c", 1)[0].word == "x"


def test_the_least_fitting_word_comes_first_as_in_gensim():
    keyed = draw_vectors(30, 5)
    words = ["w1", "w5", "w9", "w20"]
    ranking = keyed.rank_by_centrality(words)
    expected = sorted((float(score), word) for score, word in to_gensim(keyed).rank_by_centrality(words))
    assert to_pairs(ranking) == [(word, score) for score, word in expected]
    assert ranking[0].word == to_gensim(keyed).doesnt_match(words)


def test_of_equal_scores_the_earlier_row_wins():
    assert find_top_rows(np.array([1, 3, 3, 2, 3.0]), 2).tolist() == [1, 2]
    assert find_top_rows(np.array([1, 3, 3, 2, 3.0]), 3, exclude={2}).tolist() == [1, 4, 3]
    assert find_top_rows(np.array([1.0, 2.0]), 10).tolist() == [1, 0]


def test_an_unknown_word_is_composed_where_there_are_ngrams():
    grams = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float32)
    keyed = KeyedVectors(["walk"], np.ones((1, 3)), subwords=Subwords(3, 4, grams))
    assert keyed.vector("walk").tolist() == [1, 1, 1]
    assert keyed.vector("walking") == pytest.approx(grams[keyed.subwords.bucket_ids("walking")].mean(axis=0), abs=1e-6)
    assert "walking" not in keyed
    assert [each.word for each in keyed.nearest("walking")] == ["walk"]
    with pytest.raises(UsageError, match="too short for its n-grams"):
        keyed.vector("")
    for query in (keyed.index, keyed.__getitem__):
        with pytest.raises(UsageError, match=r"not among the 1 words\.\nvector\('walked'\) composes one") as excinfo:
            query("walked")
        assert "too short" not in str(excinfo.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("qeen", "'qeen' is not among the 8 words.\nPerhaps you meant 'queen'."),
        ("aples", "Perhaps you meant 'apples'."),
        ("KING", "Words are case-sensitive: 'king' is known."),
        ("paris", "Words are case-sensitive: 'Paris' is known."),
        ("xylophone", "'xylophone' is not among the 8 words."),
    ],
)
def test_an_unknown_word_is_reported_with_suggestions(word: str, message: str):
    keyed = KeyedVectors(WORDS, np.eye(8))
    for query in (keyed.vector, keyed.nearest, keyed.index, keyed.__getitem__):
        with pytest.raises(UsageError) as excinfo:
            query(word)
        assert str(excinfo.value).endswith(message)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [("king", "king", 0), ("kign", "king", 1), ("teh", "then", 2), ("", "ab", 2), ("kitten", "sitting", 3)],
)
def test_the_damerau_levenshtein_distance_equals_hand_computed_values(a: str, b: str, distance: int):
    assert compute_edit_distance(a, b) == compute_edit_distance(b, a) == distance


def test_the_most_similarly_spelt_words_are_suggested():
    assert find_similar_words("Teh", ["The", "Tea", "Athens", ""]) == ["The", "Tea"]
    assert find_similar_words("a", WORDS) == []
    assert find_similar_words("q" * 100, WORDS) == []


@pytest.mark.parametrize(
    ("words", "matrix", "options", "message"),
    [
        (["a"], np.ones((2, 3)), {}, "a row for each of 1 words"),
        (["a"], np.ones(3), {}, "shape"),
        ([], np.ones((0, 3)), {}, "at least one word"),
        (["a", "b", "a"], np.ones((3, 2)), {}, "'a' occurs twice"),
        (["a", "b"], np.array([[1, 2], [3, np.nan]]), {}, "the vector of 'b'"),
        (["a"], np.ones((1, 2)), {"counts": np.ones(3)}, "1 counts"),
        (["a"], np.ones((1, 2)), {"subwords": Subwords(3, 6, np.ones((4, 5)))}, "n-gram vectors of 2"),
        (["a"], np.ones((1, 2)), {"subwords": Subwords(3, 6, np.full((4, 2), np.inf))}, "a vector of an n-gram"),
        (["a"], np.ones((1, 2)), {"about": {"made": {1, 2}}}, "about: .*JSON.*set"),
        (["a"], np.ones((1, 2)), {"about": ["made"]}, "about: expected a dictionary"),
    ],
)
def test_inconsistent_arguments_raise_an_error(words, matrix, options, message):
    with pytest.raises(UsageError, match=message):
        KeyedVectors(words, matrix, **options)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (lambda keyed: keyed.nearest("east", 0), "at least 1"),
        (lambda keyed: keyed.nearest("east", by="cosin"), "Perhaps you meant 'cosine'"),
        (lambda keyed: keyed.similarity("east", "far", by="xyz"), "Choose from: cosine, dot, scaled"),
        (lambda keyed: keyed.analogy("east", "far", "west", by="adding"), "'add'"),
        (lambda keyed: keyed.nearest(np.ones(3)), "a vector of 2 numbers"),
        (lambda keyed: keyed.nearest(np.array([1, np.inf])), "finite"),
        (lambda keyed: keyed.rank_by_centrality(["east"]), "at least two words"),
    ],
)
def test_invalid_queries_raise_an_error(plane: KeyedVectors, query, message: str):
    with pytest.raises(UsageError, match=message):
        query(plane)


def test_vectors_are_used_without_loading_torch_or_numba():
    names = ("evaluation", "formats.text", "formats.binary", "training", "word2vec.trainer")
    modules = ", ".join(f"seqwise.vectors.{name}" for name in names)
    code = f"import sys, {modules}; assert not {{'torch', 'numba'}} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_old_name_of_the_norms_warns():
    keyed = KeyedVectors(WORDS, np.eye(8))
    with pytest.warns(FutureWarning, match="lengths is now called norms"):
        assert keyed.lengths is keyed.norms
