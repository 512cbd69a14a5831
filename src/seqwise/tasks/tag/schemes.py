"""How tags mark spans: BIO, IOB1 and BIOES, told apart, read and written. It knows nothing of files or of models.

A span is (type, first token, token behind the last). Tags are read as the conlleval program of the CoNLL tasks reads
them, whatever the scheme and also where a tag breaks its rules, so every sequence of tags has one reading:

    a span begins at B- and S-, at I- and E- behind O, S- or E-, and where the type changes;
    it ends behind E- and S-, before B-, S- and O, and where the type changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}  # BILOU is BIOES with other letters
TITLES = {"bio": "BIO", "iob1": "IOB1", "bioes": "BIOES", "plain": "plain"}

Span = tuple[str, int, int]


def parts(tag: str) -> tuple[str, str] | None:
    """(prefix, type) of a tag, ("O", "") outside of spans, None for a tag that is neither."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, kind = tag.partition("-")
    return (PREFIXES[prefix], kind) if dash and kind and prefix in PREFIXES else None


def spans_of(tags: Iterable[str]) -> list[Span]:
    """The spans of one sentence, as conlleval reads its tags."""
    found, begin, before, inside = [], None, OUTSIDE, ""
    at = -1
    for at, tag in enumerate(tags):
        prefix, kind = parts(tag) or (OUTSIDE, "")
        if begin is not None and _ends(before, prefix, kind != inside):
            found.append((inside, begin, at))
            begin = None
        if _begins(before, prefix, kind != inside):
            begin = at
        before, inside = prefix, kind
    if begin is not None:
        found.append((inside, begin, at + 1))
    return found


def _ends(before: str, prefix: str, changed: bool) -> bool:
    return before in "ES" or (before in "BI" and (changed or prefix in "BSO"))


def _begins(before: str, prefix: str, changed: bool) -> bool:
    return prefix in "BS" or (prefix in "IE" and (before in "OES" or changed))


def as_bio(spans: Iterable[Span], length: int) -> list[str]:
    """Tags of a sentence in which every span begins with B-."""
    tags = [OUTSIDE] * length
    for kind, begin, end in spans:
        tags[begin] = f"B-{kind}"
        tags[begin + 1 : end] = [f"I-{kind}"] * (end - begin - 1)
    return tags


def as_bioes(spans: Iterable[Span], length: int) -> list[str]:
    """Tags that also mark the last token of a span, E-, and a span of one token, S-."""
    spans = list(spans)
    tags = as_bio(spans, length)
    for kind, begin, end in spans:
        tags[end - 1] = f"S-{kind}" if end - begin == 1 else f"E-{kind}"
    return tags


def bioes_tags(kinds: Iterable[str]) -> list[str]:
    """All tags that spans of these types can have, O first."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in "BIES")]


def allowed(tags: Sequence[str]) -> tuple[list[list[bool]], list[bool], list[bool]]:
    """What BIOES allows: from each tag to each, as the first tag, as the last."""

    def opens(tag: str) -> bool:
        return tag[0] in "BI"

    def goes_on(tag: str) -> bool:
        return tag[0] in "IE"

    pairs = [
        [before[2:] == tag[2:] and goes_on(tag) if opens(before) else not goes_on(tag) for tag in tags]
        for before in tags
    ]
    return pairs, [not goes_on(tag) for tag in tags], [not opens(tag) for tag in tags]


@dataclass(frozen=True)
class Guess:
    """The scheme of some tags, and why."""

    scheme: str
    why: str


def guess_scheme(sentences: Iterable[Sequence[str]]) -> Guess:
    """The scheme that the tags of many sentences follow."""
    kinds: Counter[str] = Counter()
    begins: Counter[str] = Counter()  # prefix of the first tag of each span that follows no span of its type
    for tags in sentences:
        kinds.update(tags)
        before = ""
        for tag in tags:
            prefix, kind = parts(tag) or (OUTSIDE, "")
            if kind and kind != before:
                begins[prefix] += 1
            before = kind
    named = [tag for tag in kinds if tag != OUTSIDE]
    marked = [tag for tag in named if parts(tag)]
    if 2 * len(marked) <= len(named):
        return Guess("plain", "the tags have no prefixes such as B- and I-")
    if any((parts(tag) or "O")[0] in "ES" for tag in marked):
        return Guess("bioes", "there are tags that end a span")
    count = f"{begins['B']:,} spans begin with B-, {begins['I']:,} with I-"
    return Guess("iob1" if begins["I"] > begins["B"] else "bio", count)


def breaches(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """(place, what it is) of each tag that its scheme does not allow there."""
    before, inside = OUTSIDE, ""
    for at, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = parts(tag) or (OUTSIDE, "")
        goes_on = before in "BI" and kind == inside  # is there a span of this type that the tag can continue?
        if scheme == "bio" and prefix == "I" and not goes_on:
            yield at, f"I-{kind} without a B-{kind} before it"
        elif scheme == "iob1" and prefix == "B" and not goes_on:
            yield at, f"B-{kind} where no span of type {kind} ends"
        elif scheme == "bioes":
            if before in "BI" and not (goes_on and prefix in "IE"):
                yield at - 1, f"{before}-{inside} whose span has no end"
            if prefix in "IE" and not goes_on:
                yield at, f"{prefix}-{kind} without a B-{kind} before it"
        before, inside = prefix, kind
