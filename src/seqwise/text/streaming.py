"""Decodes tokens one by one: each character is returned once, as soon as later tokens cannot change it.

With each token only the current line is decoded again, so the cost per token does not grow with the text. The module
knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from seqwise.text.tokenizer import REPLACEMENT, Tokenizer


class TextStream:
    """The text after the tokens of a prompt, which is not returned again."""

    def __init__(self, tokenizer: Tokenizer, prompt: Iterable[int] = ()):
        self.tokenizer = tokenizer
        self.is_exact = tokenizer.kind in ("characters", "bpe")  # a token's text depends on no other token
        self.pending: list[int] = [] if self.is_exact else self._last_line(prompt)  # tokens of the current line
        self.returned = tokenizer.decode(self.pending)  # the part of their text that was returned

    def _last_line(self, prompt: Iterable[int]) -> list[int]:
        """Return the ids of the last line, on whose blanks earlier lines have no influence."""
        ids = [int(number) for number in prompt]
        ends = [index for index, number in enumerate(ids) if number == self.tokenizer.end]
        return ids[ends[-1] + 1 :] if ends else ids

    def add(self, number: int) -> str:
        """Add a token; return the text that is now certain, which may be empty."""
        if self.is_exact:
            return self._add_exact(number)
        piece = self.tokenizer.token(number)
        if self.tokenizer.kind == "wordpiece" and not piece.startswith("##"):
            # The next token may extend a word and change the blank before it (n, then ##'t), so a word is held back.
            text = self._advance()
            self.pending.append(number)
        else:
            self.pending.append(number)
            text = "" if self.tokenizer.kind == "wordpiece" else self._advance()
        if number == self.tokenizer.end:
            text += self._advance()
            self.pending, self.returned = [], ""
        return text

    def end(self) -> str:
        """Return the text of the pending tokens."""
        text = self._advance()
        self.pending, self.returned = [], ""
        return text

    def _add_exact(self, number: int) -> str:
        self.pending.append(number)
        text = self.tokenizer.decode(self.pending)
        if self.tokenizer.kind == "bpe" and text.endswith(REPLACEMENT):  # perhaps an incomplete character
            return ""
        self.pending = []
        return text

    def _advance(self) -> str:
        text = self.tokenizer.decode(self.pending)
        common = takewhile(lambda pair: pair[0] == pair[1], zip(text, self.returned))
        new = text[sum(1 for _ in common) :]
        self.returned = text
        return new
