"""The vocabularies of a translation: which unit, how many tokens, one for all languages or one for each.

They are learned from the training split alone. This page knows nothing of models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from seqwise.config import Settings
from seqwise.tasks.task import LogFunction
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import Marks
from seqwise.tasks.translate.reader import Pair
from seqwise.text.choose import choose_tokenizer
from seqwise.text.tokenizer import Tokenizer

PAD, BEGIN, END = "<pad>", "<bos>", "<eos>"
SPECIALS = (PAD, BEGIN, END)

CHARACTERS_BELOW = 500_000  # bytes on all sides; below, most subwords would be too rare to learn
FEW_WORDS = 3  # per text; names, dates and writing without blanks are spelled
BYTES_PER_ENTRY = 400  # text per vocabulary entry: 8,192 for the 29,000 pairs of Multi30k
SMALLEST, LARGEST = 1_024, 32_768
SAME_ALPHABET = 0.9  # share of the letters that the other side has too
SAMPLE = 2_000  # pairs that are looked at to choose


def learn_vocabularies(
    pairs: Sequence[Pair], languages: Languages, settings: Settings, log: LogFunction
) -> dict[str, Tokenizer]:
    """The source's under "text", each target's under its name. What is chosen here is filled into the settings."""
    text, chosen = settings.text, settings.translate
    if text.tokenizer is None:
        text.tokenizer, most, why = _choose_unit(pairs, settings.vectors is not None)  # type: ignore[assignment]
        text.vocabulary = text.vocabulary or most
        log(f"tokeniser: {why}")
    if chosen.vocabulary is None:
        alike = text.tokenizer == "bpe" and same_alphabet(pairs)
        chosen.vocabulary = "shared" if alike else "separate"
    names, wanted = languages.targets, text.vocabulary
    everywhere = [*SPECIALS, *(map(told, names) if chosen.targets == "token" else ())]

    def learn(texts: list[str], specials: Sequence[str]) -> Tokenizer:
        size = wanted or (_size(texts) if text.tokenizer in ("bpe", "wordpiece") else None)
        return Tokenizer.train(str(text.tokenizer), texts, size, text.min_count, text.lowercase, specials)

    sources = [pair.source for pair in pairs]
    targets = [[pair.targets[number] for pair in pairs] for number in range(len(names))]
    if chosen.vocabulary == "shared":
        one = learn([*sources, *(each for texts in targets for each in texts)], everywhere)
        found = {"text": one, **dict.fromkeys(names, one)}
    elif chosen.targets == "token":
        one = learn([each for texts in targets for each in texts], everywhere)
        found = {"text": learn(sources, SPECIALS), **dict.fromkeys(names, one)}
    else:
        found = {"text": learn(sources, SPECIALS)}
        found |= {name: learn(texts, SPECIALS) for name, texts in zip(names, targets)}
    text.vocabulary = len(found["text"])
    return found


def told(target: str) -> str:
    """The token that begins a target where one decoder writes all of them."""
    return f"<{target}>"


def marks_of(tokenizers: dict[str, Tokenizer], targets: Sequence[str], settings: Settings) -> Marks:
    """What begins and what ends each target."""
    token = settings.translate.targets == "token"
    begins = [tokenizers[name].id(told(name) if token else BEGIN) for name in targets]
    return Marks(tuple(begins), tuple(tokenizers[name].id(END) for name in targets))


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """The ids of each text. One that spells out a special token does not get that token's id."""
    few = len(tokenizer.specials)
    return [ids[ids >= few] if len(ids) and ids.min() < few else ids for ids in tokenizer.encode_many(texts)]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """The text of some ids, without special tokens."""
    few = len(tokenizer.specials)
    return tokenizer.decode([number for number in ids if number >= few]).strip()


def same_alphabet(pairs: Sequence[Pair]) -> bool:
    """Are the letters of each side those of the other? Then words and parts of words may be, too."""
    some = _sample(pairs)
    source = _letters(pair.source for pair in some)
    target = _letters(text for pair in some for text in pair.targets)
    return min(_shared(source, target), _shared(target, source)) >= SAME_ALPHABET


def _choose_unit(pairs: Sequence[Pair], word_vectors: bool) -> tuple[str, int | None, str]:
    """The unit, the size of a vocabulary where it is bound, and the rule as a sentence."""
    some = _sample(pairs)
    sides = [[pair.source for pair in some], *([pair.targets[n] for pair in some] for n in range(len(some[0].targets)))]
    kind, most, why = choose_tokenizer("\n".join(text for side in sides for text in side), 0, word_vectors)
    if kind == "spaces" or word_vectors:
        return kind, most, why
    words = min(sum(len(text.split()) for text in side) / len(side) for side in sides)
    if words < FEW_WORDS:
        return "characters", None, f"characters, because the texts of one side have {words:.1f} words on average."
    size = sum(len(text.encode()) for pair in pairs for text in (pair.source, *pair.targets))
    if size < CHARACTERS_BELOW:
        return "characters", None, f"characters, because the text is smaller than {CHARACTERS_BELOW / 1e6:g} MB."
    return "bpe", None, f"bpe, one token per {BYTES_PER_ENTRY} bytes of text, rounded down to a power of two."


def _size(texts: Sequence[str]) -> int:
    entries = min(LARGEST, max(SMALLEST, sum(len(text.encode()) for text in texts) // BYTES_PER_ENTRY))
    return 1 << (entries.bit_length() - 1)


def _sample(pairs: Sequence[Pair]) -> Sequence[Pair]:
    return pairs[:: max(1, len(pairs) // SAMPLE)]


def _letters(texts: Iterable[str]) -> Counter[str]:
    return Counter(character for text in texts for character in text.lower() if character.isalpha())


def _shared(some: Counter[str], others: Counter[str]) -> float:
    return sum(count for letter, count in some.items() if letter in others) / max(1, some.total())
