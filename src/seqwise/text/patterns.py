"""Rules that split text into chunks and words, and that join words into readable text.

Words follow the Penn Treebank where a rule, not a dictionary, decides. Punctuation, contractions and possessives are
split off (does|n't, ca|n't, it|'s, we|'re, I|'ll, John|'s); numbers (3.14, 1,000), hyphenated words
(state-of-the-art), initials (U.S.), `...` and `--` stay whole. Unlike in the Treebank, `cannot` and `gonna` stay whole
and the full stop after an abbreviation such as `Mr.` is split off, since both would need a list of words.

This module knows nothing of vocabularies or ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

UNKNOWN = "<unk>"
END = "<eos>"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # how an unknown character is written
CHUNK_CHARACTERS = 1 << 16  # per text that the library `tokenizers` encodes, which bounds its memory

_APOSTROPHE = "['’]"
_SUFFIX = rf"{_APOSTROPHE}(?i:s|re|ve|ll|d|m)(?![\p{{L}}\p{{N}}])"
_NOT = rf"(?i:n{_APOSTROPHE}t)(?![\p{{L}}\p{{N}}])"
_WORD_CHARACTER = r"[\p{L}\p{M}\p{N}_]"

# Alternatives are tried in this order. Oniguruma syntax: it is the engine inside `tokenizers`.
WORD = "|".join(
    [
        f"{END}|{UNKNOWN}",
        rf"{_WORD_CHARACTER}+?(?={_NOT})",  # does before n't
        _NOT,
        _SUFFIX,
        r"\p{N}+(?:[.,]\p{N}+)+",  # 3.14 and 1,000
        r"(?:\p{L}\.){2,}",  # U.S.
        # a word, whose parts may be joined by hyphens or by an apostrophe that starts no contraction (o'clock)
        rf"{_WORD_CHARACTER}+"
        rf"(?:(?:-|(?!{_SUFFIX}){_APOSTROPHE})(?!{_WORD_CHARACTER}+?{_NOT}){_WORD_CHARACTER}+)*",
        r"\.{2,}|-{2,}|''|``",
        r"\S",
    ]
)

_CONTRACTION = re.compile(r"(n['’]t|['’](s|re|ve|ll|d|m))", re.IGNORECASE)
_CLOSING = frozenset([*".,;:!?)]}%", "...", "''", "”", "…"])
_OPENING = frozenset([*"([{$#£€", "``", "“"])


def split_into_chunks(text: str, size: int = CHUNK_CHARACTERS) -> Iterator[str]:
    """Yields consecutive chunks of about `size` characters, cut after a line break, else at a space, else anywhere."""
    start = 0
    while len(text) - start > size:
        stop = text.rfind("\n", start, start + size) + 1 or text.rfind(" ", start + 1, start + size)
        if stop <= start:
            stop = start + size
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


def join_words(words: Iterable[str]) -> str:
    """Returns readable text: punctuation and contractions attached again, `<eos>` as a line break.

    The space before a word depends only on the words before it, so more words never change the text so far.
    """
    text: list[str] = []
    attach_next, in_quotes = True, False  # within straight double quotes
    for word in words:
        if word == END:
            text.append("\n")
            attach_next, in_quotes = True, False
            continue
        is_quote = word == '"'
        attaches = word in _CLOSING or _CONTRACTION.fullmatch(word) is not None or (is_quote and in_quotes)
        text.append(word if attach_next or attaches else f" {word}")
        attach_next = word in _OPENING or (is_quote and not in_quotes)
        in_quotes ^= is_quote
    return "".join(text)


def join_pieces(pieces: Iterable[str], prefix: str = "##") -> list[str]:
    """Returns words from WordPiece tokens: a piece with the prefix continues the word before it."""
    words: list[str] = []
    for piece in pieces:
        if piece.startswith(prefix) and len(piece) > len(prefix) and words and words[-1] != END:
            words[-1] += piece[len(prefix) :]
        else:
            words.append(piece)
    return words


def join_spaces(words: Iterable[str]) -> str:
    """Returns words separated by spaces, with `<eos>` as a line break."""
    text = " ".join("\n" if word == END else word for word in words)
    return text.replace(" \n", "\n").replace("\n ", "\n")


def replace_surrogates(text: str) -> str:
    """Returns the text with � for each lone surrogate.

    JSON can spell them, and Python represents bytes that are not UTF-8 by them, but no tokeniser accepts them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
