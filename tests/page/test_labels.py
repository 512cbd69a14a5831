"""Names and numbers as figures show them."""

from __future__ import annotations

import math

import pytest

from seqwise.page.labels import (
    are_numbered,
    format_number,
    format_tick,
    isolate,
    measure_cells,
    measure_pixels,
    shorten,
    show_name,
    show_text,
    simplify_clusters,
    wrap,
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("word", "word"),
        ("\n", "↵"),
        ("a\tb\r\n", "a⇥b␍↵"),
        (" the", "␣the"),
        ("   ", "␣␣␣"),
        ("a b", "a b"),
        ("", "''"),
        ("\x00\x1b[31m", "␀␛[31m"),
        ("\ud800", "⟨U+D800⟩"),
        ("\u202eabc", "⟨U+202E⟩abc"),  # an override of the direction would reverse the rest of the line
        ("\u202e", "⟨U+202E⟩"),
        ("\ue000", "⟨U+E000⟩"),  # for private use: no font has it
        ("\u00ad", r"\xad"),  # a soft hyphen is left out, unless it is all there is
        ("a\u00a0b", "a b"),
    ],
)
def test_special_characters_of_a_name_are_visible(name: str, shown: str):
    assert show_name(name) == shown


def test_spaces_at_the_ends_of_a_sentence_stay():
    assert show_text(" a\n") == " a↵"


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("👨\u200d👩\u200d👧", "👨"),
        ("🇩🇪", "DE"),
        ("❤\ufe0f", "❤"),
        ("👍🏽", "👍"),
        ("e\u0301", "e\u0301"),
        ("日本", "日本"),
    ],
)
def test_emoji_and_flags_have_a_width_that_all_terminals_agree_on(text: str, simple: str):
    assert simplify_clusters(text) == simple


def test_a_long_name_ends_with_an_ellipsis_within_the_limit():
    assert shorten("newspaper", 9) == "newspaper"
    assert shorten("newspaper", 6) == "newsp…"
    assert shorten("日本語の名前", 6) == "日本…"
    assert shorten("e\u0301" * 9, 4) == "e\u0301" * 3 + "…"
    assert measure_pixels(shorten("W" * 50, 100, measure_pixels)) <= 100


def test_wide_characters_count_twice_and_marks_not_at_all():
    assert [measure_cells(text) for text in ("ab", "日本", "e\u0301", "\u200e")] == [2, 4, 1, 0]
    assert measure_pixels("日") > measure_pixels("W") > measure_pixels("i")
    assert measure_pixels("e\u0301") == measure_pixels("e")


def test_lines_break_at_spaces_and_long_words_inside():
    assert wrap("the loss is stuck", 9) == ["the loss", "is stuck"]
    assert wrap("a abcdefgh b", 4) == ["a", "abcd", "efgh", "b"]
    assert wrap("日本語日本語", 4) == ["日本", "語日", "本語"]
    assert wrap("", 10) == [""]


def test_text_continues_from_left_to_right_after_hebrew_and_arabic():
    assert isolate("שלום") == "שלום\u200e"
    assert isolate("مرحبا") == "مرحبا\u200e"
    assert isolate("abc") == "abc"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12345, "0.123"),
        (-12.345, "-12.3"),
        (9.9996, "10.0"),
        (12345.6, "12,300"),
        (0.5, "0.500"),
        (0.0, "0"),
        (3.0, "3"),
        (1234567, "1,234,567"),
        (1.5e-7, "1.50e-7"),
        (2.25e9, "2.25e9"),
        (None, ""),
        (math.nan, "–"),
        (-math.inf, "-∞"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str):
    assert format_number(value) == text


def test_ticks_are_short():
    assert [format_tick(value) for value in (0.25, 20000.0, 1e-5, 1e6, -0.1)] == [
        "0.25",
        "20,000",
        "1e-5",
        "1e6",
        "-0.1",
    ]


def test_names_that_differ_in_a_number_can_stand_for_each_other():
    assert are_numbered(["unit 1", "unit 20"])
    assert are_numbered(["0", "1"])
    assert not are_numbered(["the", "cat"])
    assert not are_numbered(["unit 1", "cell 2"])
