"""Words spelt nearly like another, found among hundreds of thousands. It knows nothing of vectors."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from itertools import pairwise

FINALISTS = 60  # words whose distance is measured; cheaper looks choose them
LONGEST = 40  # characters; what is longer is no misspelt word


def suggestion(word: str, words: Sequence[str], known: Collection[str]) -> str:
    """The sentence that says which of the words was probably meant; empty where none is near."""
    for other in (word.lower(), word.capitalize(), word.upper()):
        if other in known:
            return f"Capitals count here: {other!r} is there."
    close = close_spellings(word, words)
    return f"Perhaps you meant {_listed(close)}." if close else ""


def close_spellings(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """The n words most like this one, best first; of equally like ones the earlier, which is the more frequent."""
    if not 1 < len(word) <= LONGEST:
        return []
    wanted = word.lower()
    shortest, longest, traits = len(wanted) - 2, len(wanted) + 2, _traits(wanted)
    found = (
        (2 * len(traits & own) / (len(traits) + len(own)), -place)
        for place, other in enumerate(map(str.lower, words))
        if shortest <= len(other) <= longest
        # The first letter is seldom wrong, and then often only changed places with the second.
        and (other[:1] == wanted[0] or other[:1] == wanted[1] or other[1:2] == wanted[0])
        and (own := _traits(other))
    )
    finalists = [-place for _, place in heapq.nlargest(FINALISTS, found)]
    measured = sorted((distance(wanted, words[place].lower()), place) for place in finalists)
    return [words[place] for far, place in measured if far <= max(1, len(word) // 3)][:n]


def distance(a: str, b: str) -> int:
    """How many letters to add, drop, change or swap with their neighbour until a is b."""
    before, last = [0] * (len(b) + 1), list(range(len(b) + 1))
    for row, letter in enumerate(a, start=1):
        now = [row]
        for column, other in enumerate(b, start=1):
            least = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == b[column - 2] and a[row - 2] == other:
                least = min(least, before[column - 2] + 1)
            now.append(least)
        before, last = last, now
    return last[-1]


def _traits(word: str) -> set[str]:
    """A word's letters and its pairs of neighbours."""
    return {*word, *map("".join, pairwise(word))}


def _listed(words: Sequence[str]) -> str:
    shown = [repr(word) for word in words]
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
