"""Tagging schemes BIO, IOB1 and BIOES: detection, conversion and validation. It knows nothing of files or models.

A span is (type, start, end): the index of its first token and the index after its last. Tags are read as the program
conlleval of the CoNLL shared tasks reads them, also where a tag violates its scheme, so that every tag sequence has
exactly one reading:

    a span starts at B- and S-, at I- and E- after O, S- or E-, and where the type changes;
    it ends after E- and S-, before B-, S- and O, and where the type changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}  # BILOU is BIOES with other letters
SCHEME_NAMES = {"bio": "BIO", "iob1": "IOB1", "bioes": "BIOES", "plain": "plain"}

Span = tuple[str, int, int]


def parse_tag(tag: str) -> tuple[str, str] | None:
    """Returns (prefix, type) of a span tag, ("O", "") for O, and None for any other tag."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, span_type = tag.partition("-")
    return (PREFIXES[prefix], span_type) if dash and span_type and prefix in PREFIXES else None


def extract_spans(tags: Iterable[str]) -> list[Span]:
    """Returns the spans of one sentence, as conlleval reads its tags."""
    spans: list[Span] = []
    start: int | None = None
    previous_prefix, previous_type = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, span_type = parse_tag(tag) or (OUTSIDE, "")
        type_changes = span_type != previous_type
        ends = previous_prefix in "ES" or (previous_prefix in "BI" and (type_changes or prefix in "BSO"))
        starts = prefix in "BS" or (prefix in "IE" and (type_changes or previous_prefix in "OES"))
        if start is not None and ends:
            spans.append((previous_type, start, index))
            start = None
        if starts:
            start = index
        previous_prefix, previous_type = prefix, span_type
    return spans


def to_bio(spans: Iterable[Span], length: int) -> list[str]:
    """Returns the BIO tags of a sentence with these spans: every span starts with B-."""
    tags = [OUTSIDE] * length
    for span_type, start, end in spans:
        tags[start] = f"B-{span_type}"
        tags[start + 1 : end] = [f"I-{span_type}"] * (end - start - 1)
    return tags


def to_bioes(spans: Sequence[Span], length: int) -> list[str]:
    """Returns the BIOES tags: as BIO, with E- on the last token of a span and S- on a span of one token."""
    tags = to_bio(spans, length)
    for span_type, start, end in spans:
        tags[end - 1] = f"S-{span_type}" if end - start == 1 else f"E-{span_type}"
    return tags


def bioes_tags(span_types: Iterable[str]) -> list[str]:
    """Returns all BIOES tags of these span types, O first."""
    return [OUTSIDE, *(f"{prefix}-{span_type}" for span_type in span_types for prefix in "BIES")]


def allowed_transitions(tags: Sequence[str]) -> tuple[list[list[bool]], list[bool], list[bool]]:
    """Returns what BIOES allows: [i][j] for tag j after tag i, [i] for tag i as the first, and [i] as the last."""

    def opens(tag: str) -> bool:
        return tag[0] in "BI"

    def continues(tag: str) -> bool:
        return tag[0] in "IE"

    pairs = [
        [previous[2:] == tag[2:] and continues(tag) if opens(previous) else not continues(tag) for tag in tags]
        for previous in tags
    ]
    return pairs, [not continues(tag) for tag in tags], [not opens(tag) for tag in tags]


@dataclass(frozen=True)
class SchemeGuess:
    """The scheme of a data set, and the reason for the guess."""

    scheme: str
    reason: str


def guess_scheme(sentences: Iterable[Sequence[str]]) -> SchemeGuess:
    """Returns the scheme that the tags of these sentences follow."""
    tag_names: set[str] = set()
    first_prefixes: Counter[str] = Counter()  # of spans that do not directly follow a span of the same type
    for tags in sentences:
        tag_names.update(tags)
        previous_type = ""
        for tag in tags:
            prefix, span_type = parse_tag(tag) or (OUTSIDE, "")
            if span_type and span_type != previous_type:
                first_prefixes[prefix] += 1
            previous_type = span_type
    tag_names.discard(OUTSIDE)
    prefixes = [parsed[0] for parsed in map(parse_tag, tag_names) if parsed]
    if 2 * len(prefixes) <= len(tag_names):
        return SchemeGuess("plain", "the tags have no prefixes such as B- and I-")
    if any(prefix in "ES" for prefix in prefixes):
        return SchemeGuess("bioes", "there are tags that end a span")
    counts = f"{first_prefixes['B']:,} spans begin with B-, {first_prefixes['I']:,} with I-"
    return SchemeGuess("iob1" if first_prefixes["I"] > first_prefixes["B"] else "bio", counts)


def find_violations(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Yields (index, description) of each tag that the scheme does not allow at its position."""
    previous_prefix, previous_type = OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, span_type = parse_tag(tag) or (OUTSIDE, "")
        follows_same_type = previous_prefix in "BI" and span_type == previous_type
        if scheme == "bio" and prefix == "I" and not follows_same_type:
            yield index, f"I-{span_type} without a B-{span_type} before it"
        elif scheme == "iob1" and prefix == "B" and not follows_same_type:
            yield index, f"B-{span_type} where no span of type {span_type} ends"
        elif scheme == "bioes":
            if previous_prefix in "BI" and not (follows_same_type and prefix in "IE"):
                yield index - 1, f"{previous_prefix}-{previous_type} whose span has no end"
            if prefix in "IE" and not follows_same_type:
                yield index, f"{prefix}-{span_type} without a B-{span_type} before it"
        previous_prefix, previous_type = prefix, span_type
