"""Sentences about data that every task logs and reports in the same words."""

from __future__ import annotations

from collections.abc import Mapping

MAX_UNKNOWN = 0.05  # share of unknown tokens in held-out text above which there is a warning


def describe_splits(unit: str, sizes: Mapping[str, int], split_rule: str, *details: str) -> str:
    """Returns one line about the data: `texts: train 90, valid 5, test 5; vocabulary 1,000. Examples are held out …`"""
    counts = ", ".join(f"{split} {count:,}" for split, count in sizes.items())
    rule = f"{split_rule[0].upper()}{split_rule[1:]}"
    return f"{unit}: {'; '.join([counts, *details])}. {rule}"


def warn_about_unknown(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Returns a warning for each held-out split whose `counts` have many "unknown" of all "tokens"."""
    shares = {split: each["unknown"] / max(1, each["tokens"]) for split, each in counts.items() if split != "train"}
    return [
        f"{share:.1%} of the {split} tokens are <unk>: the vocabulary does not have them."
        for split, share in shares.items()
        if share > MAX_UNKNOWN
    ]


def describe_part(data: str, split: str) -> str:
    """Returns which part of the data was evaluated, such as `a.txt, the test split`."""
    return f"{data}, {'all of it' if split == 'all' else f'the {split} split'}"
