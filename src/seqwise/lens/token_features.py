"""Simple features of each token, with which the activations of units are compared. The module knows nothing of models.

Features of the token itself (capital, digits) can be read from its embedding. Those that need memory (position, inside
quotes, bracket depth) depend on the tokens before it. All are the value after the token has been read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from seqwise.tasks.inspection import UNKNOWN_MARK, InspectedInput

Features = dict[str, np.ndarray]  # name → (T,)

# Features that depend on more than the token itself.
MEMORY_FEATURES = (
    "position in text",
    "position in line",
    "position in window",
    "inside quotes",
    "bracket depth",
    "change",
)
OPENING, CLOSING = "([{", ")]}"
OPENING_QUOTES, CLOSING_QUOTES, PLAIN_QUOTE = "“«„", "”»", '"'
PENN_TREEBANK = {
    "``": "“",
    "''": "”",
    "-lrb-": "(",
    "-rrb-": ")",
    "-lsb-": "[",
    "-rsb-": "]",
    "-lcb-": "{",
    "-rcb-": "}",
}
LINE_BREAK, UNKNOWN, MASKS = "<eos>", "<unk>", ("<mask>", "[MASK]")
REGION = re.compile(r"(?:frame (\d+) )?\((\d+), (\d+)\)")


def compute_text_features(tokens: Sequence[str], is_spaced: bool) -> Features:
    """Returns the features of the tokens of a text; `is_spaced`: each token is a word, unless it begins with ##."""
    tokens = [UNKNOWN if token.endswith(UNKNOWN_MARK) else token for token in tokens]
    special = ("<bos>", LINE_BREAK, UNKNOWN, *MASKS)
    texts = ["" if token in special else PENN_TREEBANK.get(token.strip().lower(), token) for token in tokens]
    if is_spaced:
        texts = ["0" if text == "N" else text for text in texts]  # a number in the Penn Treebank of language models
    bodies = [text.strip().removeprefix("##") for text in texts]
    is_break = [token == LINE_BREAK or "\n" in token for token in tokens]
    lengths, starts = measure_words(texts, is_spaced)
    if is_spaced and not any(text.startswith("##") for text in texts):
        starts = [False] * len(texts)  # every word starts a word
    features = {
        "position in text": range(len(tokens)),
        "position in line": compute_line_positions(is_break),
        "inside quotes": find_open_quotes(texts, is_break),
        "bracket depth": compute_bracket_depths(texts, is_break),
        "capital": [body[:1].isupper() for body in bodies],
        "digits": [any(map(str.isdigit, body)) for body in bodies],
        "length of the word so far": lengths,
        "start of word": starts,
        "punctuation": [bool(body) and not any(map(str.isalnum, body)) for body in bodies],
        "end of sentence": [bool(body) and all(character in ".!?…" for character in body) for body in bodies],
        "line break": is_break,
        "unknown word": [token == UNKNOWN for token in tokens],
        "masked": [token in MASKS for token in tokens],
    }
    return {name: np.array(values, float) for name, values in features.items()}


def compute_line_positions(is_break: Sequence[bool]) -> list[int]:
    """Returns the position of each token in its line, from 0; the line break is the last of its line."""
    positions, position = [], 0
    for ends in is_break:
        positions.append(position)
        position = 0 if ends else position + 1
    return positions


def find_open_quotes(texts: Sequence[str], is_break: Sequence[bool]) -> list[bool]:
    """Returns whether a quotation is open after each token. An empty line ends it, as it does a paragraph."""
    states, is_open = [], False
    for text, ends_paragraph in zip(texts, _find_paragraph_ends(is_break)):
        is_open = is_open and not ends_paragraph
        for character in text:
            if character in OPENING_QUOTES or character in CLOSING_QUOTES:
                is_open = character in OPENING_QUOTES
            elif character == PLAIN_QUOTE:
                is_open = not is_open
        states.append(is_open)
    return states


def compute_bracket_depths(texts: Sequence[str], is_break: Sequence[bool]) -> list[int]:
    """Returns how many brackets are open after each token. An empty line closes them."""
    depths, depth = [], 0
    for text, ends_paragraph in zip(texts, _find_paragraph_ends(is_break)):
        depth = 0 if ends_paragraph else depth
        for character in text:
            depth = max(0, depth + (character in OPENING) - (character in CLOSING))
        depths.append(depth)
    return depths


def measure_words(texts: Sequence[str], is_spaced: bool) -> tuple[list[int], list[bool]]:
    """Returns the letters and digits of the current word up to each token, and whether a word begins in the token."""
    lengths, starts, length = [], [], 0
    for text in texts:
        if is_spaced and not text.startswith("##"):
            length = 0
        is_start = False
        for character in text.removeprefix("##"):
            is_start |= character.isalnum() and not length
            length = length + 1 if character.isalnum() else 0
        lengths.append(length)
        starts.append(is_start)
    return lengths, starts


def _find_paragraph_ends(is_break: Sequence[bool]) -> list[bool]:
    """Returns whether each token is the second of two line breaks."""
    return [ends and before for ends, before in zip(is_break, [False, *is_break])]


def compute_series_features(times: Sequence[str], values: np.ndarray) -> Features:
    """Returns the features of times, or of patches of several: the mean of their values (T,), hour and weekday."""
    features: Features = {"position in window": np.arange(len(times), dtype=float)}
    size = -(-len(values) // max(1, len(times)))  # of a patch; the first may be shorter
    stops = len(values) - size * np.arange(len(times))[::-1]
    means = np.array([values[max(0, stop - size) : stop].mean() for stop in stops])
    features |= {"value": means, "change": np.diff(means, prepend=means[:1])}
    moments = [_parse_time(time) for time in times]
    if all(moment is not None for moment in moments):
        hours = np.array([moment.hour + moment.minute / 60 for moment in moments if moment is not None])
        features["hour of day, cosine"] = np.cos(2 * math.pi * hours / 24)
        features["hour of day, sine"] = np.sin(2 * math.pi * hours / 24)
        features["weekend"] = np.array([float(moment.weekday() >= 5) for moment in moments if moment is not None])
    return features


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.split(" to ")[-1])  # of a patch its last time
    except ValueError:
        return None


def compute_region_features(regions: Sequence[str]) -> Features:
    """Returns the row and column of the regions of an image, and their frame in a clip."""
    matches = [REGION.fullmatch(region) for region in regions]
    numbers = np.array([[float(part or 1) for part in match.groups()] for match in matches if match])
    if len(numbers) < len(regions):
        return {"number": np.arange(len(regions), dtype=float)}
    return {"frame": numbers[:, 0], "row": numbers[:, 1], "column": numbers[:, 2]}


def compute_input_features(inspected: InspectedInput, task: str, is_spaced: bool) -> Features:
    """Returns the features of the positions that an encoder or backbone reads, and tags or labels if known."""
    if task == "forecast":
        return compute_series_features(inspected.tokens, inspected.batch.past[0].float().cpu().numpy())  # type: ignore[attr-defined]
    if task == "caption":
        return compute_region_features(inspected.tokens)
    features = compute_text_features(inspected.tokens, is_spaced)
    if task == "tag":
        features |= {f"tag {tag}": np.array([strip_tag(each) == tag for each in inspected.targets], float)
                     for tag in dict.fromkeys(map(strip_tag, inspected.targets))}  # fmt: skip
    elif (label := get_label(inspected)) is not None and task == "classify":
        features[f"label {label}"] = np.ones(len(inspected.tokens))
    return features


def strip_tag(tag: str) -> str:
    """Returns the type of a span's tag: LOC of B-LOC; other tags as they are."""
    return re.sub(r"^[BIESLU]-(?=.)", "", tag)


def get_label(inspected: InspectedInput) -> str | None:
    """Returns the true label of a classified text, or the predicted one if the truth is not known."""
    if not inspected.answers:
        return None
    known = [answer for answer in inspected.answers if answer.is_correct]
    return (known or list(inspected.answers))[0].name.removeprefix("label: ")
