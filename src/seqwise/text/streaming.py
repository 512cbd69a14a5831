"""Text from tokens that come one by one: each character is given out once, and as soon as it is certain.

With each token only the line at hand is decoded again, so the cost of a token does not grow with the text. It knows
nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from seqwise.text.tokenizer import REPLACEMENT, Tokenizer


class TextStream:
    """The text that follows the tokens `given`, which were shown already."""

    def __init__(self, tokenizer: Tokenizer, given: Iterable[int] = ()):
        self.tokenizer = tokenizer
        self.exact = tokenizer.kind in ("characters", "bpe")  # a token's text depends on no other token
        self.tail: list[int] = [] if self.exact else self._last_line(given)
        self.shown = tokenizer.decode(self.tail)  # the part of the tail's text that was given out

    def _last_line(self, given: Iterable[int]) -> list[int]:
        """The blanks of a line do not depend on the lines before it."""
        ids = [int(number) for number in given]
        ends = [place for place, number in enumerate(ids) if number == self.tokenizer.end]
        return ids[ends[-1] + 1 :] if ends else ids

    def add(self, number: int) -> str:
        """One more token; returns the text that is now certain, which may be none."""
        if self.exact:
            return self._add_exact(number)
        piece = self.tokenizer.token(number)
        if self.tokenizer.kind == "wordpiece" and not piece.startswith("##"):
            # A word may still grow and change the blank before it (n, then ##'t), so it waits for the next one.
            settled = self._advance()
            self.tail.append(number)
        else:
            self.tail.append(number)
            settled = "" if self.tokenizer.kind == "wordpiece" else self._advance()
        if number == self.tokenizer.end:
            settled += self._advance()
            self.tail, self.shown = [], ""
        return settled

    def end(self) -> str:
        """What is still waiting."""
        text = self._advance()
        self.tail, self.shown = [], ""
        return text

    def _add_exact(self, number: int) -> str:
        self.tail.append(number)
        text = self.tokenizer.decode(self.tail)
        if self.tokenizer.kind == "bpe" and text.endswith(REPLACEMENT):  # perhaps in the middle of a character
            return ""
        self.tail = []
        return text

    def _advance(self) -> str:
        text = self.tokenizer.decode(self.tail)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(text, self.shown))
        new = text[sum(1 for _ in same) :]
        self.shown = text
        return new
