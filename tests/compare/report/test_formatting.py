"""Numbers as they are shown: no more digits than the noise allows, and never a bare fraction for a per cent."""

from __future__ import annotations

import math

import pytest

from seqwise.compare.report import formatting


@pytest.mark.parametrize(
    ("metric", "value", "spread", "text"),
    [
        ("perplexity", 3.1234, 0.07, "3.12"),
        ("perplexity", 3.1234, 0.21, "3.12"),
        ("perplexity", 3.1234, 0.4, "3.1"),
        ("perplexity", 112.34, 4.0, "112"),
        ("perplexity", 112.34, 2.0, "112.3"),
        ("perplexity", 1234.5, 35.0, "1,234"),
        ("perplexity", 1234.5, 350.0, "1,234"),
        ("perplexity", 3.1234567, 1e-9, "3.1235"),  # at most five digits
        ("perplexity", 3.1234, None, "3.123"),
        ("perplexity", 3.1234, 0.0, "3.123"),
        ("perplexity", 98765.4, None, "98,765"),
        ("mse", 0.38214, 0.012, "0.382"),
        ("mse", 0.0, 0.01, "0.000"),
        ("mse", 0.0, None, "0"),
        ("mse", 3.1e-9, 5e-10, "3.1 × 10⁻⁹"),
        ("mse", 4.2e14, None, "4.200 × 10¹⁴"),
        ("accuracy", 0.84236, None, "84.2 %"),
        ("accuracy", 0.84236, 0.004, "84.2 %"),
        ("accuracy", 0.84236, 0.04, "84 %"),
        ("span_f1", 0.9, 0.0011, "90.00 %"),
        ("exact_match", 1.0, 0.0, "100.0 %"),
        ("token_accuracy", 0.0, None, "0.0 %"),
        ("bleu", 36.94, None, "36.9"),
        ("bleu", 36.94, 0.6, "36.9"),
        ("perplexity", None, 0.1, "–"),
        ("accuracy", math.nan, None, "–"),
        ("perplexity", math.inf, 0.1, "–"),
    ],
)
def test_a_value_has_the_digits_that_its_spread_allows(metric, value, spread, text):
    assert formatting.format_metric(metric, value, spread) == text


def test_intervals_and_differences_are_formatted():
    assert formatting.format_interval("perplexity", 3.0512, 3.1934) == "3.05 to 3.19"
    assert formatting.format_interval("accuracy", 0.831, 0.853) == "83.1 to 85.3 %"
    assert formatting.format_interval("accuracy", None, 0.9) == "–"
    assert formatting.format_interval("accuracy", 0.9956, 1.0) == "99.56 to 100.00 %"
    assert formatting.format_difference("perplexity", -0.214, 0.1) == "0.21"
    assert formatting.format_difference("accuracy", -0.0214, 0.01) == "2.1 percentage points"
    assert formatting.format_difference("accuracy", None) == "–"


def test_an_interval_with_equal_texts_becomes_a_dash():
    assert formatting.format_interval("exact_match", 1.0, 1.0) == "–"
    assert formatting.format_interval("perplexity", 3.1 - 1e-16, 3.1 + 1e-16) == "–"
    assert formatting.format_interval("perplexity", 3.1, 3.1002) == "3.1000 to 3.1002"


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.00001, "p < 0.001"), (0.0042, "p = 0.0042"), (0.01, "p = 0.01"), (0.048, "p = 0.048"), (0.0499, "p < 0.05"),
     (0.05, "p = 0.05"),
     (0.213, "p = 0.21"), (1.0, "p = 1"), (None, "p = –")],
)  # fmt: skip
def test_p_values_are_formatted(p, text):
    assert formatting.format_p(p) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (8e-5, "80 µs"), (0.00213, "2.1 ms"), (0.0999, "100 ms"), (0.9996, "1.0 s"), (9.96, "10 s"), (15.0, "15 s"),
        (59.97, "1 min"), (125.2, "2 min 5 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h"), (3780.0, "1 h 3 min"),
        (3839.0, "1 h 4 min"), (None, "–"), (math.inf, "–"),
    ],
)  # fmt: skip
def test_durations_are_formatted(seconds, text):
    assert formatting.format_seconds(seconds) == text


def test_sizes_and_ratios_are_formatted():
    assert [formatting.format_bytes(count) for count in (0, 512, 1_650_000, 512e6, 3.2e9, None)] == [
        "0 B", "512 B", "1.6 MB", "512 MB", "3.2 GB", "–",
    ]  # fmt: skip
    assert [formatting.format_factor(ratio) for ratio in (1.26, 4.0, 9.97, 14.6, 1234.0)] == [
        "1.3",
        "4.0",
        "10",
        "15",
        "1,234",
    ]


def test_names_are_joined():
    assert [formatting.join_names(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]


def test_metrics_have_bounds():
    assert formatting.get_bounds("span_f1") == (0, 1)
    assert formatting.get_bounds("bleu") == (0, 100)
    assert formatting.get_bounds("perplexity") == (1, math.inf)
    assert formatting.get_bounds("mse") == (0, math.inf)
    assert not formatting.is_ratio("f1000")


def test_noticeable_steps_depend_on_the_metric():
    assert formatting.is_noticeable("accuracy", 0.01, 0.5)
    assert not formatting.is_noticeable("accuracy", 0.004, 0.5)
    assert formatting.is_noticeable("mse", 2.0, 100.0)
    assert not formatting.is_noticeable("mse", 0.5, 100.0)
    assert formatting.is_noticeable("perplexity", math.log(102 / 100), 100.0)
    assert not formatting.is_noticeable("perplexity", math.log(100.5 / 100), 100.0)
    assert not formatting.is_noticeable("bleu", -3.0, 20.0)


def test_perplexities_are_scaled_by_their_logarithm():
    assert formatting.is_perplexity("word_perplexity")
    assert not formatting.is_perplexity("bits_per_character")
    assert formatting.convert_to_progress_scale("perplexity", 400) - formatting.convert_to_progress_scale(
        "perplexity", 200
    ) == pytest.approx(math.log(2))
    assert formatting.convert_to_progress_scale("mse", 0.4) == 0.4
    assert formatting.format_gain("perplexity", math.log(400 / 300)) == "25 %"  # from 400 to 300
    assert formatting.format_gain("perplexity", -0.1) == "0 %"
    assert formatting.format_gain("accuracy", 0.0123) == "1.2 percentage points"
    assert formatting.format_gain("mse", 0.019) == "0.019"


def test_signed_differences_are_formatted():
    assert formatting.format_signed("perplexity", -0.214, 0.1) == "−0.21"
    assert formatting.format_signed("accuracy", 0.0214, 0.01) == "+2.1"
    assert formatting.format_signed("perplexity", -0.0001, 0.1) == "0.00"
    assert formatting.format_signed("perplexity", None) == "–"
    assert formatting.choose_difference_spread(0.004, 0.07) == 0.004
    assert formatting.choose_difference_spread(0.4, 0.07) == formatting.choose_difference_spread(0.0, 0.07) == 0.07
    assert formatting.choose_difference_spread(0.4, None) is None


def test_ranges_of_times_share_their_unit():
    assert formatting.format_seconds_range(0.0019, 0.0024) == "1.9 to 2.4 ms"
    assert formatting.format_seconds_range(0.0009, 0.0024) == "900 µs to 2.4 ms"
    assert formatting.format_seconds_range(59.0, 125.0) == "59 s to 2 min 5 s"
    assert formatting.format_seconds_range(0.00191, 0.00192) == formatting.format_seconds_range(None, 1.0) == "–"


def test_counts_and_rates_are_formatted():
    counts = (0, 7, 412_001, 26_739_178, 1.75e12, 0.021, 54_012.3, None)
    assert [formatting.format_count(count) for count in counts] == [
        "0", "7", "412,001", "26,739,178", "1.75 T", "0.021", "54,012", "–",
    ]  # fmt: skip
    rates = (0.006, 0.00525, 6e-5, 1e-7, 1.0, None)
    assert [formatting.format_rate(rate) for rate in rates] == ["0.006", "0.00525", "0.00006", "1.0 × 10⁻⁷", "1", "–"]
