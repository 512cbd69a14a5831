"""`make_printable`: characters that a terminal or a browser would obey or hide become visible symbols.

Labels, column names, file names and generated texts can contain any character. An escape sequence in one of them could
change the title of the terminal or hide a line, and a bidirectional override could reverse the rest of a line.
`cli/console.py` passes everything that commands print through this function; SVG images and HTML pages do so too, and
they must not import the command line. This module knows nothing of where a text is shown.
"""

from __future__ import annotations

import re
from html import escape

# What is shown instead of line breaks and tabs where a text must stay on one line.
LINE_SYMBOLS = {"\n": "↵", "\t": "⇥", "\u2028": "↵", "\u2029": "↵"}

# Flags such as that of Scotland are spelled with tag characters; these few sequences stay.
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
# C0, DEL and C1; marks, embeddings, overrides and isolates of the direction; zero-width characters (but not the joiners
# U+200C and U+200D, which Persian, Indic scripts and emoji need); line and paragraph separators; byte order marks;
# what XML forbids; surrogates; tag characters.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_TEXT = re.compile(f"({_FLAG})|[{_UNSAFE}]")
_LINE = re.compile(f"({_FLAG})|[{_UNSAFE}\n\t]")


def make_printable(text: str, is_line: bool = False) -> str:
    """Returns a text whose control characters, bidirectional marks and invisible characters are visible: ␛, ⟨U+202E⟩.

    Line breaks and tabs stay, unless `is_line`: then the text stays on one line, with ↵ and ⇥ instead.
    """
    return _LINE.sub(_show_in_line, text) if is_line else _TEXT.sub(_show, text)


def escape_xml(text: str) -> str:
    """Returns a text on one line for an element or attribute of SVG or HTML: it is valid there, and stays text."""
    return escape(make_printable(text, is_line=True))


def escape_json(document: str) -> str:
    r"""Returns a JSON document with the same values, in which these characters are written as \uXXXX."""
    return _TEXT.sub(lambda match: match[1] or _escape_for_json(match[0]), document)


def show_code_point(character: str) -> str:
    """Returns the code point of a character that is not to be printed: ⟨U+202E⟩."""
    return f"⟨U+{ord(character):04X}⟩"


def _show_in_line(match: re.Match[str]) -> str:
    return LINE_SYMBOLS.get(match[0]) or _show(match)


def _show(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures of Unicode: ␀ to ␟
    return "␡" if code == 0x7F else show_code_point(match[0])


def _escape_for_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
