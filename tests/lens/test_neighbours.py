"""The view of neighbours finds the nearest rows of the model's own matrices, by cosine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwise.errors import UsageError
from seqwise.layers.embedding import Embedding
from seqwise.layers.output import FullSoftmax
from seqwise.lens.embeddings import build_vocabulary, encode_word, list_vocabularies
from seqwise.lens.neighbour_figures import draw_table
from seqwise.lens.neighbours import (
    choose_close_words,
    compute_chance_limits,
    list_nearest,
    measure_neighbours,
    measure_random_pairs,
    neighbours,
)
from seqwise.lens.occurrences import normalize_rows
from seqwise.text.tokenizer import Tokenizer
from seqwise.vectors.keyed import KeyedVectors

WORDS = ["cat", "dog", "car", "bus", "red"]


@pytest.fixture
def planted():
    """A vocabulary whose input vectors have known angles, and output vectors in another order."""
    tokenizer = Tokenizer.train("spaces", [" ".join(WORDS)])
    embedding, output = Embedding(len(tokenizer), 2), FullSoftmax(2, len(tokenizer))
    degrees = {"cat": 0, "dog": 10, "car": 90, "bus": 95, "red": 200}
    with torch.no_grad():
        for word, angle in degrees.items():
            for matrix, degree in ((embedding.weight, angle), (output.weight, 3 * angle)):
                radians = torch.deg2rad(torch.tensor(float(degree)))
                matrix[tokenizer.id(word)] = 5 * torch.stack([radians.cos(), radians.sin()])
    return build_vocabulary("", tokenizer, embedding, output)


def test_cosines_are_those_of_the_angles_between_vectors(planted):
    data = measure_neighbours([planted], {"": ["cat", "car"]}, top=2)
    cat = data["vocabularies"]["vocabulary"]["input"]["cat"]
    assert [word for word in cat["words"] if word in WORDS][:1] == ["dog"]
    np.testing.assert_allclose(cat["cosines"][0], np.cos(np.deg2rad(10)), rtol=1e-5)
    car = data["vocabularies"]["vocabulary"]["input"]["car"]
    assert car["words"][0] == "bus"
    np.testing.assert_allclose(car["cosines"][0], np.cos(np.deg2rad(5)), rtol=1e-5)


def test_output_vectors_are_searched_beside_input_vectors(planted):
    found = measure_neighbours([planted], {"": ["car"]}, top=1)["vocabularies"]["vocabulary"]["output"]["car"]
    assert found["words"] == ["bus"]
    np.testing.assert_allclose(found["cosines"], [np.cos(np.deg2rad(15))], rtol=1e-4)


def test_a_tied_matrix_is_shown_once(planted):
    tokenizer = planted.tokenizer
    embedding = Embedding(len(tokenizer), 2)
    tied = build_vocabulary("", tokenizer, embedding, FullSoftmax(2, len(tokenizer), embedding.weight))
    assert list(tied.embeddings) == ["input"]


def test_special_and_unknown_tokens_are_no_neighbours(small_run):
    (vocabulary,) = list_vocabularies(small_run("masked", "lstm"))
    assert "<unk>" not in vocabulary.embeddings["input"]
    assert "<mask>" not in vocabulary.embeddings["input"]


def test_random_pairs_of_orthogonal_vectors_have_a_cosine_of_zero():
    vectors = KeyedVectors([f"w{i}" for i in range(50)], np.eye(50, dtype=np.float32))
    assert measure_random_pairs(vectors, vectors.words) == {"mean": 0.0, "deviation": 0.0, "percentile_99": 0.0}


def test_chosen_words_have_close_neighbours_and_are_not_close_themselves():
    rng = np.random.default_rng(1)
    tokenizer = Tokenizer.train("spaces", [" ".join(f"word{chr(97 + i)}" for i in range(20))])
    embedding = Embedding(len(tokenizer), 30)
    with torch.no_grad():
        embedding.weight.copy_(torch.from_numpy(rng.normal(size=embedding.weight.shape)))
        for pair in (("worda", "wordb", "wordc", "wordd"), ("worde", "wordf", "wordg", "wordh")):  # two close groups
            rows = [tokenizer.id(word) for word in pair]
            embedding.weight[rows] = embedding.weight[rows[0]] + 0.1 * embedding.weight[rows]
    chosen = choose_close_words(build_vocabulary("", tokenizer, embedding, None), count=2)
    assert {word[-1] in "abcd" for word in chosen} == {True, False}, "one word of each group"


@pytest.mark.parametrize("task", ["language", "masked", "classify", "tag", "translate", "caption"])
def test_every_task_that_reads_or_generates_words_has_neighbours(small_run, task):
    trained = small_run(task, "lstm")
    view = neighbours(trained, top=3)
    for vocabulary in list_vocabularies(trained):
        kinds = view.data["vocabularies"][vocabulary.name or "vocabulary"]
        for kind, vectors in vocabulary.embeddings.items():
            for word, found in kinds[kind].items():
                units = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
                cosines = units @ units[vectors.index(word)]
                cosines[vectors.index(word)] = -2
                np.testing.assert_allclose(found["cosines"], np.sort(cosines)[::-1][:3], atol=1e-5)
    assert "No words were given" in view.summary[-1]
    assert str(view)


def test_a_translator_shows_the_vocabularies_of_source_and_target(small_run):
    view = neighbours(small_run("translate", "lstm"), "3 three", top=2)
    assert list(view.data["words"].values()) == [["3"], ["three"]]
    source, target = view.data["words"]
    assert source == "source"
    assert target.startswith("target")


def test_unknown_words_are_named_and_none_known_is_an_error(small_run):
    trained = small_run("language", "lstm")
    view = neighbours(trained, "model zzzz")
    assert view.data["unknown"] == ["zzzz"]
    assert any("Not in the vocabulary: zzzz" in sentence for sentence in view.summary)
    with pytest.raises(UsageError, match=r"none of these words: 'modl'.*\n.*'model'"):
        neighbours(trained, "modl")
    with pytest.raises(UsageError, match="has no words"):
        neighbours(trained, "  ")
    with pytest.raises(UsageError, match="top must be at least 1"):
        neighbours(trained, "model", top=0)


@pytest.mark.parametrize(("task", "family"), [("forecast", "lstm"), ("language", "ngram")])
def test_models_without_an_embedding_are_an_error(small_run, task, family):
    with pytest.raises(UsageError, match="has no embedding of words"):
        neighbours(small_run(task, family))


def test_a_word_of_several_subwords_is_shown_by_its_tokens():
    tokenizer = Tokenizer.train("bpe", ["the king and the queen and the king again "] * 50, size=300)
    ids = encode_word(tokenizer, "king")
    assert tokenizer.decode(ids) == " king", "with a space, as inside a text"
    assert tokenizer.decode(encode_word(tokenizer, "kingqueen")).strip() == "kingqueen"
    assert len(encode_word(tokenizer, "kingqueen")) > 1


def test_the_nearest_of_random_vectors_are_due_to_chance_and_a_true_neighbour_is_not():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(400, 50)).astype(np.float32)
    matrix[1] = matrix[0] + 0.3 * rng.normal(size=50)
    found = list_nearest(KeyedVectors([f"w{i}" for i in range(400)], matrix), [f"w{i}" for i in range(400)], top=3)
    table = draw_table("w0", {"input": found}, "")
    assert [str(row[2]).endswith("(chance)") for row in table.rows] == [False, True, True]
    assert table.rows[0][1] == "w1"
    assert "(chance)" in table.note
    exceeding = [each["cosines"][0] > each["limit"] for each in list(found.values())[2:]]
    assert 0.01 < np.mean(exceeding) < 0.1, "by definition 5 % of words"


def test_the_limit_of_chance_is_a_cosine_also_where_all_words_lie_on_one_axis():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(300, 8)) * 0.1
    matrix[:, 0] = rng.choice([-1.0, 1.0], size=300)  # as in a classifier of two classes
    limits = compute_chance_limits(normalize_rows(matrix), range(10))
    assert ((limits > 0.95) & (limits <= 1.0)).all()


def test_more_neighbours_than_words_are_all_words_with_a_remark(small_run):
    view = neighbours(small_run("language", "lstm"), "model", top=100_000)
    num_words = len(list_vocabularies(small_run("language", "lstm"))[0].ids) - 1
    assert len(view.data["vocabularies"]["vocabulary"]["input"]["model"]["words"]) == num_words
    assert any(f"has {num_words} other words, fewer than 100,000: all are listed" in each for each in view.summary)
