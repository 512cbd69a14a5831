"""Features of tokens are those that a reader counts by hand."""

import numpy as np

from seqwise.lens.token_features import (
    compute_region_features,
    compute_series_features,
    compute_text_features,
    strip_tag,
)


def test_features_of_words_are_counted_after_each_token():
    tokens = ["He", "said", "“", "no", "(", "7", "[", "x", "]", ")", "”", ".", "<eos>", "Go", "<unk>"]
    features = compute_text_features(tokens, is_spaced=True)
    expected = {
        "position in text": range(15),
        "position in line": [*range(13), 0, 1],
        "inside quotes": [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
        "bracket depth": [0, 0, 0, 0, 1, 1, 2, 2, 1, 0, 0, 0, 0, 0, 0],
        "capital": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        "digits": [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "length of the word so far": [2, 4, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 0],
        "punctuation": [0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0],
        "end of sentence": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        "line break": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
        "unknown word": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(features[name], list(values), err_msg=name)


def test_features_of_characters_follow_words_and_lines():
    features = compute_text_features(list('a"bc" (d)\nEf'), is_spaced=False)
    np.testing.assert_array_equal(features["inside quotes"], [0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(features["bracket depth"], [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(features["length of the word so far"], [1, 0, 1, 2, 0, 0, 0, 1, 0, 0, 1, 2])
    np.testing.assert_array_equal(features["start of word"], [1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(features["position in line"], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])


def test_penn_treebank_quotes_and_brackets_count():
    features = compute_text_features(["``", "yes", "''", "-LRB-", "a", "-rrb-"], is_spaced=True)
    np.testing.assert_array_equal(features["inside quotes"], [1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(features["bracket depth"], [0, 0, 0, 1, 1, 0])


def test_an_empty_line_ends_what_was_never_closed():
    features = compute_text_features(list('"a(\nb\n\nc'), is_spaced=False)
    np.testing.assert_array_equal(features["inside quotes"], [1, 1, 1, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(features["bracket depth"], [0, 0, 1, 1, 1, 1, 0, 0])


def test_a_series_has_values_changes_and_hours():
    times = ["2024-01-05 00:00", "2024-01-05 06:00", "2024-01-06 12:00"]  # a Friday and a Saturday
    features = compute_series_features(times, np.array([1.0, 3.0, 2.0]))
    np.testing.assert_allclose(features["change"], [0, 2, -1])
    np.testing.assert_allclose(features["hour of day, cosine"], [1, 0, -1], atol=1e-12)
    np.testing.assert_allclose(features["hour of day, sine"], [0, 1, 0], atol=1e-12)
    np.testing.assert_array_equal(features["weekend"], [0, 0, 1])


def test_regions_have_rows_and_columns():
    features = compute_region_features(["(1, 1)", "(1, 2)", "(2, 1)"])
    np.testing.assert_array_equal(features["row"], [1, 1, 2])
    np.testing.assert_array_equal(features["column"], [1, 2, 1])


def test_the_type_of_a_tag_has_no_prefix():
    assert [strip_tag(tag) for tag in ("B-LOC", "I-LOC", "O", "NN", "B-")] == ["LOC", "LOC", "O", "NN", "B-"]
