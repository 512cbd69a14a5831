"""The view of senses compares the vectors of one word in several sentences, layer by layer."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.errors import UsageError
from seqwise.lens.occurrences import LayerVectors, find_occurrences, find_shared_word
from seqwise.lens.sense_choice import (
    MAX_SENTENCES,
    choose_from_both_groups,
    choose_separated,
    compute_word_vectors,
    list_lowercase_words,
    measure_separation,
)
from seqwise.lens.sense_figures import describe_choice
from seqwise.lens.senses import compare_layers, compute_mean_cosine, name_senses, senses
from seqwise.lens.subject import open_subject

RIVER, MONEY = "the old model reads", "a small model writes"


def test_cosines_to_both_senses_are_those_computed_by_hand():
    vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [0.0, -1.0]])
    sentences, groups = np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1])
    data = compare_layers([LayerVectors("layer 1", vectors, np.eye(2))], sentences, groups, 2)
    half = 0.5**0.5
    np.testing.assert_allclose(data["cosines"][0][0], [1, 0, half, 0], atol=1e-12)
    # The prototype of the first sense is for the first occurrence only the second one, for the third both.
    prototype = np.array([half, half - 1]) / np.hypot(half, half - 1)  # mean of (half, half) and (0, -1)
    expected = [[0, prototype[0]], [0, prototype[1]], [1, -half], [-half, -half]]
    np.testing.assert_allclose(data["to_senses"][0], expected, atol=1e-12)
    assert data["same"][0] == pytest.approx((0 - half) / 2)
    assert data["different"][0] == pytest.approx((half + 0 + half - 1) / 4)
    assert data["nearest"][0].tolist() == [1, 0, 0, 0]


def test_a_sense_with_one_sentence_has_no_prototype_for_it():
    vectors = LayerVectors("layer 1", np.eye(3), np.eye(3))
    data = compare_layers([vectors], np.arange(3), np.array([0, 0, 1]), 2)
    assert np.isnan(data["to_senses"][0, 2, 1])
    assert data["nearest"][0, 2] == -1


def test_the_mean_cosine_of_other_tokens_leaves_out_each_with_itself():
    assert compute_mean_cosine(np.array([[1.0, 0], [0, 1], [1, 0]])) == pytest.approx(1 / 3)
    assert np.isnan(compute_mean_cosine(np.ones((1, 2))))


@pytest.mark.parametrize(
    ("task", "family"),
    [
        ("language", "lstm"),
        ("language", "transformer"),
        ("masked", "gru"),
        ("masked", "transformer"),
        ("classify", "feedforward"),
        ("tag", "lstm"),
        ("translate", "attentive-rnn"),
    ],
)
def test_static_vectors_are_equal_and_contextual_ones_are_not(small_run, task, family):
    texts = {
        "translate": ("3 1", "4 2 1"),
        "classify": ("the film is dull", "film"),
        "tag": ("Ann lives here", "she lives"),
    }
    words = {"translate": "1", "classify": "film", "tag": "lives"}
    sentences = texts.get(task, ("the old model", "a small model reads"))
    view = senses(small_run(task, family), sentences, word=words.get(task, "model"))
    np.testing.assert_allclose(view.data["cosines"][0], 1.0, atol=1e-5)
    last = view.data["cosines"][-1]
    assert np.diag(last) == pytest.approx(1.0)
    assert last[0, 1] < 0.9999
    assert str(view)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_causal_model_knows_only_what_is_before_the_word(small_run, family):
    texts = [f"the old {each}" for each in ("model reads every word", "model writes", "model learns of state")]
    causal = senses(small_run("language", family), texts, word="model")
    np.testing.assert_allclose(causal.data["cosines"], 1.0, atol=1e-5)
    assert any("knows nothing of the words after it" in sentence for sentence in causal.summary)
    both = senses(small_run("masked", family), texts, word="model")
    assert both.data["cosines"][-1][0, 1] < 0.9999, "a bidirectional model also reads what follows"
    assert not any("knows nothing" in sentence for sentence in both.summary)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_equal_sentences_form_one_sense_without_labels(small_run, family):
    view = senses(small_run("language", family), [RIVER, MONEY, RIVER, MONEY], word="model")
    assert view.data["groups"].tolist() == [0, 1, 0, 1]
    assert view.data["senses"] == ["old, reads", "small, writes"]
    np.testing.assert_allclose(view.data["same"], 1.0, atol=1e-5)
    assert view.data["different"][-1] < 0.9999
    assert view.data["nearest"][-1].tolist() == [0, 1, 0, 1]


def test_labels_name_the_senses_and_the_division_is_tested(small_run):
    trained = small_run("language", "lstm")
    view = senses(trained, [RIVER, MONEY, RIVER, MONEY], word="model", labels="water,cash,water,cash")
    assert view.data["senses"] == ["water", "cash"]
    assert "4 of 4 occurrences are closer to the other sentences of their own sense" in view.summary[0]
    wrong = senses(trained, [RIVER, MONEY, RIVER, MONEY], word="model", labels=["x", "x", "y", "y"])
    assert wrong.data["same"][-1] < wrong.data["different"][-1]
    with pytest.raises(UsageError, match="one label for each of 2 sentences; received 3"):
        senses(trained, [RIVER, MONEY], labels="a,b,c")


def test_the_shared_content_word_is_found_and_several_are_named():
    assert find_shared_word(["He sat on the bank of the river.", "The bank lends money to her."]) == "bank"
    assert find_shared_word(["it is here", "it was there"]) == "it", "a function word, if there is no other"
    with pytest.raises(UsageError, match="share several words: old, model"):
        find_shared_word(["the old model reads", "an old model"])
    with pytest.raises(UsageError, match="share no word"):
        find_shared_word(["one two", "three four"])


def test_occurrences_are_whole_words_in_any_case():
    texts = ["Bank on it, the bank said", "a banker at the bank"]
    found = find_occurrences(texts, "bank")
    assert [(each.sentence, texts[each.sentence][each.start : each.stop]) for each in found] == [
        (0, "Bank"),
        (0, "bank"),
        (1, "bank"),
    ]
    with pytest.raises(UsageError, match="sentence 2 does not contain 'Bank'"):
        find_occurrences(["the bank", "the banker"], "Bank")


def test_senses_are_named_by_the_words_that_only_their_sentences_have():
    texts = ["fish in the river bank", "the river has a bank of sand", "the bank lends money", "money in the bank"]
    occurrences = find_occurrences(texts, "bank")
    assert name_senses(texts, "bank", occurrences, np.array([0, 0, 1, 1])) == ["river, sand", "money, lends"]


def test_without_sentences_validation_examples_that_share_a_word_are_compared(small_run):
    view = senses(small_run("language", "lstm"))
    assert len(view.data["texts"]) >= 3
    assert all(view.data["word"] in text for text in view.data["texts"])
    assert view.data["choice"]["candidates"] > 1
    assert view.summary[0] == describe_choice(view.data["word"], **view.data["choice"]), "the conclusion comes first"
    assert view.summary[1].startswith("No labels were given"), "what the senses are, before their cosines"
    assert "within a sense" in view.summary[2]


def test_words_of_a_tagger_are_those_of_its_vocabulary(small_run):
    trained = small_run("tag", "lstm")
    known = next(word for word in open_subject(trained).tokens if word.isalpha())
    sentences = {word: [f"{word} one", f"two {word}", f"a {word} b"] for word in (known, "unheardof")}
    vectors = compute_word_vectors(trained, sentences)
    assert [*vectors] == [known]
    assert vectors[known].shape[0] == 3


def test_the_separation_is_the_share_of_the_variance_between_the_two_sides():
    vectors = np.array([[-3.0, 1.0], [-3.0, -1.0], [3.0, 1.0], [3.0, -1.0]])
    share, is_first = measure_separation(vectors)
    assert share == pytest.approx(36 / 40)
    assert len({*is_first[:2]}) == len({*is_first[2:]}) == 1
    assert is_first[0] != is_first[2]
    outlier = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [9.0, 9.0]])
    assert measure_separation(outlier)[0] == 0, "a single sentence is no group"


def test_the_word_with_two_groups_of_vectors_is_chosen():
    rng = np.random.default_rng(3)
    vectors = {f"word{i}": rng.normal(size=(4 + i % 8, 20)) for i in range(30)}
    assert not choose_separated(vectors)[1], "all words have one group"
    vectors["bank"] = rng.normal(size=(8, 20)) + np.repeat([[3.0], [-3.0]], 4, axis=0) * rng.normal(size=20)
    assert choose_separated(vectors) == ("bank", True)


def test_sentences_of_both_groups_are_taken():
    texts = [str(index) for index in range(10)]
    assert choose_from_both_groups(texts, [True] * 8 + [False] * 2) == ["0", "1", "2", "3", "8", "9"]
    assert choose_from_both_groups(texts, [True, False] * 5) == ["0", "1", "2", "3", "4", "5"]
    assert len(choose_from_both_groups(texts[:4], [True, True, False, False])) == 4 < MAX_SENTENCES


def test_a_word_without_several_senses_is_said_to_have_none():
    assert describe_choice("bank", 12, False).startswith("No word with several senses was found: of 12 frequent words")
    found = "Of 12 frequent words, 'bank' has the vectors in the last layer that form two groups most clearly"
    assert describe_choice("bank", 12, True).startswith(found)
    assert describe_choice("bank", 0, False).startswith("It is not known whether 'bank' has several senses.")


def test_a_word_outside_the_vocabulary_is_named_first(small_run):
    view = senses(small_run("language", "lstm"), ["the old zyxw reads", "a small zyxw"], word="zyxw")
    assert view.summary[0] == "'zyxw' is not in the vocabulary: the model reads the unknown token."


def test_a_layer_can_be_named(small_run):
    trained = small_run("language", "lstm")
    texts = [RIVER, MONEY]
    assert senses(trained, texts, word="model", layer="static").data["layer"] == 0
    assert senses(trained, texts, word="model", layer="layer 1").data["layer"] == 1


@pytest.mark.parametrize(
    ("texts", "arguments", "problem"),
    [
        (["one sentence"], {}, "at least two sentences that share a word; received 1"),
        ("one sentence", {}, "at least two sentences"),
        ([RIVER, MONEY], {"layer": 7}, "there is no layer 7"),
        ([RIVER, MONEY], {"layer": "last"}, "there is no layer last"),
        (None, {"word": "model"}, "the sentences are missing: --word needs sentences"),
        (["the model " * 20, "the model"], {"word": "model"}, "sentence 1 has 40 tokens; the model reads at most"),
    ],
)
def test_what_cannot_be_compared_is_an_error(small_run, texts, arguments, problem):
    with pytest.raises(UsageError, match=problem):
        senses(small_run("language", "transformer"), texts, **arguments)


@pytest.mark.parametrize(("task", "family"), [("forecast", "lstm"), ("caption", "lstm"), ("language", "ngram")])
def test_models_without_contextual_vectors_are_an_error(small_run, task, family):
    with pytest.raises(UsageError, match=r"does not read sentences|has no vectors"):
        senses(small_run(task, family), [RIVER, MONEY])


def test_words_are_chosen_in_one_spelling():
    assert list_lowercase_words(["SOCCER - a Soccer match", "the soccer match"]) == [
        {"a", "match"},
        {"the", "soccer", "match"},
    ]
