"""Learning a vocabulary from a stream of texts. Only counts are kept, never the texts; equal texts give equal results.

It knows nothing of encoding: it returns a `tokenizers` pipeline that does that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from seqwise.config import TOKENIZERS
from seqwise.errors import DataError, UsageError, nearest
from seqwise.text.patterns import END, UNKNOWN, WORD

KINDS = TOKENIZERS
DEFAULT_SUBWORDS = 8_192  # vocabulary of bpe and wordpiece when no size is given
CHUNK_CHARACTERS = 1 << 16  # characters handed to the Rust side at once: bounds its memory


def train_pipeline(
    kind: str,
    texts: Iterable[str],
    size: int | None,
    min_count: int,
    lowercase: bool,
    specials: Sequence[str],
    extra_words: Sequence[str] = (),
) -> tuple[tokenizers.Tokenizer, int]:
    """A pipeline of the given kind whose vocabulary comes from the texts; specials get the first ids.

    `extra_words` get the last ids, where tokens are words and a text can contain them; also returns how many did.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no tokeniser of kind {kind!r}.", repair=nearest(kind, KINDS))
    texts = _checked(texts)
    if kind == "bpe":
        return _learn_bytes(texts, size or DEFAULT_SUBWORDS, min_count, lowercase, specials), 0
    if kind == "wordpiece":
        return _learn_pieces(texts, size or DEFAULT_SUBWORDS, min_count, lowercase, specials), 0
    if kind == "characters":
        return build_pipeline(
            kind, _ranked(count_characters(texts, lowercase), size, min_count, specials), lowercase
        ), 0
    known = _ranked(_count_words(texts, kind, lowercase), size, min_count, specials)
    more = [word for word in dict.fromkeys(extra_words) if word not in known]
    joined = list(_readable(more, kind, lowercase))
    return build_pipeline(kind, _numbered([*known, *joined]), lowercase), len(joined)


def build_pipeline(
    kind: str, vocabulary: dict[str, int], lowercase: bool, merges: Sequence[Any] = ()
) -> tokenizers.Tokenizer:
    """The pipeline of a kind around a vocabulary."""
    model: Any
    if kind in ("characters", "bpe"):
        unknown = UNKNOWN if kind == "characters" else None
        model = models.BPE(vocabulary, list(merges), unk_token=unknown, fuse_unk=False)
    elif kind == "wordpiece":
        model = models.WordPiece(vocabulary, unk_token=UNKNOWN)
    else:
        model = models.WordLevel(vocabulary, unk_token=UNKNOWN)
    pipeline = tokenizers.Tokenizer(model)
    _dress(pipeline, kind, lowercase)
    return pipeline


def _dress(pipeline: tokenizers.Tokenizer, kind: str, lowercase: bool) -> None:
    steps: list[Any] = [normalizers.Lowercase()] if lowercase else []
    if kind == "bpe":
        # Line breaks are tokens of their own, so that a text cut at a line break has the tokens of the whole text.
        lines = pre_tokenizers.Split("\n", "isolated")
        pipeline.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        pipeline.decoder = decoders.ByteLevel()
    elif kind != "characters":
        steps.append(normalizers.Replace("\n", f" {END} "))
        words = pre_tokenizers.Split(tokenizers.Regex(WORD), "removed", invert=True)
        pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit() if kind == "spaces" else words
    if steps:
        pipeline.normalizer = normalizers.Sequence(steps)


def split_into_chunks(text: str, size: int = CHUNK_CHARACTERS) -> Iterator[str]:
    """Consecutive parts of about `size` characters, cut after a line break, else at a blank, else anywhere."""
    start = 0
    while len(text) - start > size:
        stop = text.rfind("\n", start, start + size) + 1 or text.rfind(" ", start + 1, start + size)
        if stop <= start:
            stop = start + size
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


def get_codepoints(text: str) -> np.ndarray:
    """The characters of a text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def lowercase_character(character: str) -> str:
    """The lower case of one character as one character."""
    return character.lower()[0]


def count_characters(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    totals = np.zeros(0x110000, dtype=np.int64)
    for text in texts:
        seen = np.bincount(get_codepoints(text))
        totals[: len(seen)] += seen
    counts: Counter[str] = Counter()
    for code in np.flatnonzero(totals):
        character = chr(code)
        counts[lowercase_character(character) if lowercase else character] += int(totals[code])
    return counts


def _count_words(texts: Iterable[str], kind: str, lowercase: bool) -> Counter[str]:
    """Words never reach over a blank, so what stands between blanks is counted first and cut into words only once."""
    pipeline = build_pipeline(kind, {UNKNOWN: 0}, lowercase)
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.replace("\n", f" {END} ").split(" "))
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(pipeline.normalizer.normalize_str(chunk)):
            counts[word] += count
    return counts


def _readable(words: Iterable[str], kind: str, lowercase: bool) -> Iterator[str]:
    """Those of the words that a text read in this way can hold as one token."""
    pipeline = build_pipeline(kind, {UNKNOWN: 0}, lowercase)
    for word in words:
        pieces = pipeline.pre_tokenizer.pre_tokenize_str(pipeline.normalizer.normalize_str(word))
        if [piece for piece, _ in pieces] == [word]:
            yield word


def _ranked(counts: Counter[str], size: int | None, min_count: int, specials: Sequence[str]) -> dict[str, int]:
    """Specials, then tokens by falling frequency (ties by spelling); what is dropped counts as unknown."""
    kept = {token: count for token, count in counts.items() if count >= min_count or token in (UNKNOWN, END)}
    kept.setdefault(UNKNOWN, 0)
    for special in specials:
        kept.pop(special, None)
    order = sorted(kept, key=lambda token: (-kept[token], token))
    if size is not None:
        always = [token for token in (UNKNOWN, END) if token in kept]
        room = size - len(specials) - len(always)
        if room < 2:
            raise UsageError(
                f"a vocabulary of {size} has no room beside {', '.join([*specials, *always])}.",
                repair="Choose a larger --text.vocabulary.",
            )
        order = [*[token for token in order if token not in always][:room], *always]
    order = [token for token in order if token not in specials]
    kept[UNKNOWN] = kept.get(UNKNOWN, 0) + sum(counts.values()) - sum(counts[token] for token in order)
    order.sort(key=lambda token: (-kept[token], token))
    if len([token for token in order if token not in (UNKNOWN, END, "\n")]) < 2:
        raise _one_symbol()
    return _numbered([*specials, *order])


def _learn_bytes(
    texts: Iterable[str], size: int, min_count: int, lowercase: bool, specials: Sequence[str]
) -> tokenizers.Tokenizer:
    """Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): every byte is a token, so nothing is unknown."""
    _require_room("bpe", size, len(specials) + 257)
    pipeline = tokenizers.Tokenizer(models.BPE())
    _dress(pipeline, "bpe", lowercase)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(specials),
        min_frequency=max(2, min_count),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator((part for text in texts for part in split_into_chunks(text)), trainer)
    model = json.loads(pipeline.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return build_pipeline(
        "bpe", _numbered([*specials, *sorted(model["vocab"], key=model["vocab"].get)]), lowercase, merges
    )


def _learn_pieces(
    texts: Iterable[str], size: int, min_count: int, lowercase: bool, specials: Sequence[str]
) -> tokenizers.Tokenizer:
    """WordPiece from the counts of words.

    The library numbers the letters in the order of a hash table, which breaks ties differently in each process. Given
    to it as fixed first entries, they have the same numbers always, and so has everything made of them.
    """
    counts = _count_words(texts, "wordpiece", lowercase)
    words = sorted(word for word in counts if word not in (END, UNKNOWN, *specials))
    letters = sorted({word[0] for word in words}) + sorted({f"##{letter}" for word in words for letter in word[1:]})
    extra = [*specials, *(token for token in (UNKNOWN, END) if token not in specials)]
    _require_room("wordpiece", size, len(extra) + len(letters))
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size - len(extra), min_frequency=max(2, min_count), special_tokens=letters, show_progress=False
    )
    pipeline.train_from_iterator((part for word in words for part in _repeated(word, counts[word])), trainer)
    learnt = pipeline.get_vocab()
    return build_pipeline("wordpiece", _numbered([*extra, *sorted(learnt, key=learnt.__getitem__)]), lowercase)


def _repeated(word: str, count: int, most: int = 10_000) -> Iterator[str]:
    for start in range(0, count, most):
        yield f"{word} " * min(most, count - start)


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _require_room(kind: str, size: int, least: int) -> None:
    if size < least:
        raise UsageError(
            f"a {kind} vocabulary of {size:,} is too small: this text needs at least {least:,}.",
            repair="Choose a larger --text.vocabulary, or --text.tokenizer characters.",
        )


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The texts as they pass by; an error at the end if they held fewer than two different characters."""
    seen: set[str] = set()
    for text in texts:
        if len(seen) < 2:
            seen |= set(text) - {"\n"}
        yield text
    if not seen:
        raise DataError("the training text is empty.", repair="Give a file with text in it.")
    if len(seen) < 2:
        raise _one_symbol(f" ({seen.pop()!r})")


def _one_symbol(which: str = "") -> DataError:
    return DataError(
        f"the training text has a vocabulary of one symbol{which}: there is nothing to predict.",
        repair="Give a text with at least two different symbols, or another --text.tokenizer.",
    )
