"""Tags and spans: BIO, IOB1 and BIOES as conlleval reads them; metrics equal hand-computed ones and seqeval's."""

from __future__ import annotations

import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from seqwise.tasks.tag.spans import (
    DEFINITIONS,
    SpanCounts,
    compute_allowed_transitions,
    compute_f1,
    convert_to_bio,
    convert_to_bioes,
    extract_spans,
    find_violations,
    guess_scheme,
    list_bioes_tags,
    parse_tag,
)

ANY_TAGS = st.lists(
    st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "ORG"))]), max_size=12
)


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-PER I-PER O B-ORG", [("PER", 0, 2), ("ORG", 3, 4)]),
        ("I-PER I-PER O I-ORG", [("PER", 0, 2), ("ORG", 3, 4)]),  # IOB1
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),  # IOB1: B- separates two spans of one type
        ("S-PER B-PER E-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("U-PER B-PER L-PER", [("PER", 0, 1), ("PER", 1, 3)]),  # BILOU
        ("B-PER I-ORG", [("PER", 0, 1), ("ORG", 1, 2)]),  # the type changes
        ("O I-ORG", [("ORG", 1, 2)]),
        ("O E-ORG", [("ORG", 1, 2)]),
        ("B-geo-loc I-geo-loc", [("geo-loc", 0, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_extracted_spans_equal_a_hand_computed_result(tags: str, spans: list):
    assert extract_spans(tags.split()) == spans


@given(ANY_TAGS)
def test_spans_of_any_sequence_equal_those_of_seqeval(tags: list[str]):
    assert extract_spans(tags) == [(kind, first, last + 1) for kind, first, last in get_entities(tags)]


@given(ANY_TAGS)
def test_spans_survive_conversion_to_bio_and_bioes(tags: list[str]):
    spans = extract_spans(tags)
    for convert, scheme in ((convert_to_bio, "bio"), (convert_to_bioes, "bioes")):
        converted_tags = convert(spans, len(tags))
        assert extract_spans(converted_tags) == spans
        assert list(find_violations(converted_tags, scheme)) == []
        assert len(converted_tags) == len(tags)


def test_converted_tags_equal_a_hand_computed_result():
    spans = [("PER", 0, 3), ("ORG", 4, 5)]
    assert convert_to_bio(spans, 5) == ["B-PER", "I-PER", "I-PER", "O", "B-ORG"]
    assert convert_to_bioes(spans, 5) == ["B-PER", "I-PER", "E-PER", "O", "S-ORG"]


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["B-PER I-PER O B-ORG", "O O"], "bio"),
        (["I-PER I-PER O I-ORG", "I-PER B-PER"], "iob1"),
        (["B-PER E-PER O S-ORG"], "bioes"),
        (["B-PER L-PER O U-ORG"], "bioes"),
        (["NN VB NN", "DT NN O"], "plain"),
        (["B-PER I-PER Q-PER O"], "bio"),  # one malformed tag does not make it plain
        (["B-X I-X B-X"], "bio"),  # B- after a span of its type says nothing; the first one does
        (["O O"], "plain"),
    ],
)
def test_the_scheme_is_guessed(sentences: list[str], scheme: str):
    assert guess_scheme([tags.split() for tags in sentences])[0] == scheme


@pytest.mark.parametrize(
    ("tags", "scheme", "positions"),
    [
        ("O I-ORG I-ORG", "bio", [1]),
        ("B-PER I-ORG", "bio", [1]),
        ("B-PER I-PER B-PER", "bio", []),
        ("O B-PER", "iob1", [1]),
        ("I-PER B-PER", "iob1", []),
        ("O E-PER", "bioes", [1]),
        ("B-PER O", "bioes", [0]),
        ("B-PER", "bioes", [0]),
        ("B-PER I-ORG E-ORG", "bioes", [0, 1]),
        ("B-PER I-PER E-PER S-PER", "bioes", []),
    ],
)
def test_violations_are_found_at_their_positions(tags: str, scheme: str, positions: list[int]):
    assert [index for index, _ in find_violations(tags.split(), scheme)] == positions


@pytest.mark.parametrize("tag", ["Q-PER", "B", "B-", "-PER", "", "PER"])
def test_a_malformed_tag_cannot_be_parsed(tag: str):
    assert parse_tag(tag) is None


def test_allowed_transitions_agree_with_violations():
    tags = list_bioes_tags(["A", "B"])
    pairs, first, last = compute_allowed_transitions(tags)
    for i, before in enumerate(tags):
        assert first[i] == (not [text for _, text in find_violations([before], "bioes") if "without" in text])
        assert last[i] == (not [text for _, text in find_violations([before], "bioes") if "no end" in text])
        for j, tag in enumerate(tags):
            # The pair is completed to whole spans, so that only the transition between the two can violate the scheme.
            opening = [] if before[0] in "OBS" else [f"B-{before[2:]}"]
            ending = [] if tag[0] in "OES" else [f"E-{tag[2:]}"]
            assert pairs[i][j] == (list(find_violations([*opening, before, tag, *ending], "bioes")) == [])


# Metrics

TAGS = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("PER", "ORG", "LOC"))]


def count_sentences(true: list[list[str]], predicted: list[list[str]]) -> SpanCounts:
    counts = SpanCounts()
    for true_tags, predicted_tags in zip(true, predicted):
        counts.add_sentence(true_tags, predicted_tags, has_spans=True)
    return counts


def test_metrics_equal_hand_computed_values():
    true = [["B-PER", "I-PER", "O", "B-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-LOC", "O"]]
    metrics = count_sentences(true, predicted).compute_metrics(has_spans=True)
    assert metrics == {
        "span_f1": 0.5,
        "span_precision": 0.5,
        "span_recall": 0.5,
        "token_accuracy": 0.8,
        "spans": 2,
        "tokens": 5,
    }


def test_a_span_with_one_wrong_border_is_wrong():
    counts = count_sentences([["B-PER", "I-PER"]], [["B-PER", "O"]])
    assert counts.get_totals() == (0, 1, 1, 1, 2)


SENTENCES = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=8), min_size=1, max_size=6
)


@given(SENTENCES)
def test_metrics_equal_those_of_seqeval(pairs: list[list[tuple[str, str]]]):
    true, predicted = [[a for a, _ in row] for row in pairs], [[b for _, b in row] for row in pairs]
    metrics = count_sentences(true, predicted).compute_metrics(has_spans=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about divisions by zero, which are 0 there as well
        assert metrics["span_precision"] == pytest.approx(precision_score(true, predicted))
        assert metrics["span_recall"] == pytest.approx(recall_score(true, predicted))
        assert metrics["span_f1"] == pytest.approx(f1_score(true, predicted))
        true, predicted = (
            [convert_to_bio(extract_spans(tags), len(tags)) for tags in rows] for rows in (true, predicted)
        )
        assert metrics["token_accuracy"] == pytest.approx(accuracy_score(true, predicted))


def test_the_table_by_type_equals_that_of_seqeval():
    rng = random.Random(0)
    true = [rng.choices(TAGS, k=rng.randint(1, 15)) for _ in range(200)]
    predicted = [[tag if rng.random() < 0.7 else rng.choice(TAGS) for tag in row] for row in true]
    table = count_sentences(true, predicted).build_table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(true, predicted, output_dict=True)
    assert table.columns == ("precision", "recall", "f1", "spans")
    assert list(table.rows) == ["LOC", "ORG", "PER"]
    for kind, row in table.rows.items():
        expected = [report[kind][name] for name in ("precision", "recall", "f1-score", "support")]
        assert row == pytest.approx(expected)


def test_a_zero_denominator_gives_zero():
    assert compute_f1(0, 0, 0) == (0.0, 0.0, 0.0)
    assert SpanCounts().compute_metrics(has_spans=False) == {"token_accuracy": 0.0, "tokens": 0}


def test_every_metric_has_a_definition():
    assert SpanCounts().compute_metrics(has_spans=True).keys() <= DEFINITIONS.keys()
