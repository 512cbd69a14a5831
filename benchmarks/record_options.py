"""The values of the options of `records.py`, from the text on the command line."""

from __future__ import annotations

import argparse


def split_names(text: str) -> list[str]:
    """Returns the different names in a list that is separated by commas."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("expected a list separated by commas; received none")
    return names


def split_seeds(text: str) -> list[int]:
    seeds = split_names(text)
    if not all(seed.isdecimal() for seed in seeds):
        raise argparse.ArgumentTypeError(f"expected numbers such as 0,1,2; received {text!r}")
    return list(map(int, seeds))


def split_slots(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"expected RECIPE=N; received {text}")
    return name, parse_count(count)


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected at least 1; received {text}")
    return int(text)
