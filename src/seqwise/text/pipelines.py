"""Trains tokenisers: a stream of texts → a vocabulary → a pipeline of the `tokenizers` library.

Only counts are in memory, never the texts; equal texts give equal vocabularies. Encoding is in `tokenizer.py`.
`choose_tokenizer` chooses a kind, `split_words` splits by the rules of `patterns.py` without a vocabulary.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from seqwise.config import TOKENIZERS
from seqwise.errors import DataError, UsageError, suggest
from seqwise.text.patterns import END, UNKNOWN, WORD, split_into_chunks

DEFAULT_SUBWORDS = 8_192  # vocabulary of bpe and wordpiece unless set
MAX_REPEATS = 10_000  # of a word in one text that bpe and wordpiece are trained on
MIN_COMPILED_CHARACTERS = 8_000_000  # in shorter texts compiled loops save less time than importing them takes, 2 s
SEGMENTS_PER_CALL = 10_000  # of the library, which is slow for many short texts
BYTE_NEWLINE = "Ċ"  # a line break in the alphabet of byte-level BPE
MIN_SUBWORD_BYTES = 2_000_000  # in smaller texts each subword is too rare to learn its vector
BYTES_PER_ENTRY = 1_000  # of text per vocabulary entry
MIN_SUBWORDS, MAX_SUBWORDS = 1_024, 16_384
MAX_WORDS = 50_000

_UNKNOWN_WORD = re.compile(rf"(?:^|\s){re.escape(UNKNOWN)}(?:\s|$)")


def choose_tokenizer(sample: str, size_bytes: int, has_word_vectors: bool = False) -> tuple[str, int | None, str]:
    """Returns (kind, vocabulary size or None for no limit, the rule as a sentence).

    If the embedding starts from pretrained word vectors, the tokens are words.
    """
    if _UNKNOWN_WORD.search(sample):
        return "spaces", None, f"spaces, because the text is already tokenised: it contains {UNKNOWN}."
    if has_word_vectors:
        return "words", MAX_WORDS, f"words, at most {MAX_WORDS:,}, because --vectors has vectors of words."
    if size_bytes < MIN_SUBWORD_BYTES:
        return "characters", None, f"characters, because the text is smaller than {MIN_SUBWORD_BYTES / 1e6:g} MB."
    entries = min(MAX_SUBWORDS, max(MIN_SUBWORDS, size_bytes // BYTES_PER_ENTRY))
    size = 1 << (entries.bit_length() - 1)
    rule = f"one per {BYTES_PER_ENTRY:,} bytes of text, rounded down to a power of two"
    return "bpe", size, f"bpe with {size:,} tokens: {rule}, between {MIN_SUBWORDS:,} and {MAX_SUBWORDS:,}."


def train_pipeline(
    kind: str,
    texts: Iterable[str],
    size: int | None,
    min_count: int,
    lowercase: bool,
    specials: Sequence[str],
    extra_words: Sequence[str] = (),
) -> tuple[tokenizers.Tokenizer, int]:
    """Returns a pipeline whose vocabulary is learned from the texts, and how many of `extra_words` it contains.

    Specials get the first ids. `extra_words` get the last ids, where tokens are words and a text can contain them.
    """
    if kind not in TOKENIZERS:
        raise UsageError(f"there is no tokeniser of kind {kind!r}.", fix=suggest(kind, TOKENIZERS))
    texts = _check_texts(texts)
    if kind == "bpe":
        return _train_bpe(texts, size or DEFAULT_SUBWORDS, min_count, lowercase, specials), 0
    if kind == "wordpiece":
        return _train_wordpiece(texts, size or DEFAULT_SUBWORDS, min_count, lowercase, specials), 0
    if kind == "characters":
        tokens = _choose_tokens(count_characters(texts, lowercase), size, min_count, specials)
        return build_pipeline(kind, tokens, lowercase), 0
    tokens = _choose_tokens(_count_words(texts, kind, lowercase), size, min_count, specials)
    known_tokens, split = set(tokens), _build_splitter(kind, lowercase)
    new_words = [word for word in dict.fromkeys(extra_words) if word not in known_tokens and split(word) == [word]]
    return build_pipeline(kind, [*tokens, *new_words], lowercase), len(new_words)


def build_pipeline(
    kind: str, tokens: Iterable[str], lowercase: bool, merges: Sequence[Any] = ()
) -> tokenizers.Tokenizer:
    """Returns the pipeline of a kind whose vocabulary is the tokens, numbered in their order."""
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    model: Any
    if kind in ("characters", "bpe"):
        unknown = UNKNOWN if kind == "characters" else None
        model = models.BPE(vocabulary, list(merges), unk_token=unknown, fuse_unk=False)
    else:
        model_class = models.WordPiece if kind == "wordpiece" else models.WordLevel
        model = model_class(vocabulary, unk_token=UNKNOWN)
    pipeline = tokenizers.Tokenizer(model)
    steps: list[Any] = [normalizers.Lowercase()] if lowercase else []
    if kind == "bpe":
        # Line breaks are tokens of their own, so that a text cut at a line break has the tokens of the whole text.
        lines = pre_tokenizers.Split("\n", "isolated")
        pipeline.pre_tokenizer = pre_tokenizers.Sequence([lines, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        pipeline.decoder = decoders.ByteLevel()
    elif kind != "characters":
        steps.append(normalizers.Replace("\n", f" {END} "))
        pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit() if kind == "spaces" else _get_word_splitter()
    if steps:
        pipeline.normalizer = normalizers.Sequence(steps)
    return pipeline


def get_codepoints(text: str) -> np.ndarray:
    """Returns the Unicode code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def lowercase_character(character: str) -> str:
    """Returns the lower case of a character as one character."""
    return character.lower()[0]


def count_characters(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """Returns how often each character occurs, in lower case if requested."""
    totals = np.zeros(0x110000, dtype=np.int64)
    for text in texts:
        text_counts = np.bincount(get_codepoints(text))
        totals[: len(text_counts)] += text_counts
    counts: Counter[str] = Counter()
    for code in np.flatnonzero(totals):
        character = chr(code)
        counts[lowercase_character(character) if lowercase else character] += int(totals[code])
    return counts


def _count_words(texts: Iterable[str], kind: str, lowercase: bool) -> Counter[str]:
    """Returns how often each word occurs. Strings between spaces are counted first, so that each is split only once."""
    first_texts, texts = _split_off_first(texts)
    string_counts: Counter[str] = Counter()
    for text in first_texts:
        string_counts.update(text.replace("\n", f" {END} ").split(" "))
    split = _build_splitter(kind, lowercase)
    counts: Counter[str] = Counter()
    first_counts = list(string_counts), list(string_counts.values())
    for parts, part_counts in [first_counts, *_count_segments([text] for text in texts)]:
        for part, count in zip(parts, part_counts):
            for word in split(part):
                counts[word] += count
    return counts


def _split_off_first(texts: Iterable[str]) -> tuple[list[str], Iterator[str]]:
    """Returns the first texts, too few for compiled loops to save time, and all others."""
    first_texts, size, iterator = [], 0, iter(texts)
    while size < MIN_COMPILED_CHARACTERS and (text := next(iterator, None)) is not None:
        first_texts.append(text)
        size += len(text)
    return first_texts, iterator


def _count_segments(batches: Iterator[Iterable[str]]) -> Iterator[tuple[list[str], list[int]]]:
    """Yields the distinct segments of texts and their counts; numba is imported only if there are any texts."""
    for batch in batches:
        from seqwise.text.segments import count_segments

        yield from count_segments(chain([batch], batches))


def _build_splitter(kind: str, lowercase: bool) -> Callable[[str], list[str]]:
    """Returns the function that splits a text into words as the pipeline of a kind does."""
    pipeline = build_pipeline(kind, [UNKNOWN], lowercase)
    normalize, split = pipeline.normalizer.normalize_str, pipeline.pre_tokenizer.pre_tokenize_str
    return lambda text: [word for word, _ in split(normalize(text))]


def _choose_tokens(counts: Counter[str], size: int | None, min_count: int, specials: Sequence[str]) -> list[str]:
    """Returns specials, then tokens by falling frequency (ties by spelling). Dropped tokens are counted as <unk>."""
    frequencies = Counter({t: count for t, count in counts.items() if count >= min_count or t in (UNKNOWN, END)})
    frequencies.setdefault(UNKNOWN, 0)
    for special in specials:
        frequencies.pop(special, None)

    def rank(token: str) -> tuple[int, str]:
        return -frequencies[token], token

    required_tokens = [token for token in (UNKNOWN, END) if token in frequencies]
    order = sorted(frequencies.keys() - set(required_tokens), key=rank)
    if size is not None:
        room = size - len(specials) - len(required_tokens)
        if room < 2:
            problem = f"a vocabulary of {size} has no room beside {', '.join([*specials, *required_tokens])}."
            raise UsageError(problem, fix="Choose a larger --text.vocabulary.")
        order = order[:room]
    order += required_tokens
    frequencies[UNKNOWN] += counts.total() - sum(counts[token] for token in order)
    if len(set(order) - {UNKNOWN, END, "\n"}) < 2:
        raise _build_single_symbol_error()
    return [*specials, *sorted(order, key=rank)]


def _train_bpe(
    texts: Iterable[str], size: int, min_count: int, lowercase: bool, specials: Sequence[str]
) -> tokenizers.Tokenizer:
    """Trains byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): every byte is a token, so none is unknown."""
    _require_size("bpe", size, len(specials) + 257)
    pipeline = build_pipeline("bpe", (), lowercase)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(specials),
        min_frequency=max(2, min_count),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    first_texts, texts = _split_off_first(texts)
    counts: Counter[str] = Counter()
    for segments, segment_counts in _count_segments(map(split_into_chunks, texts)):
        _count_byte_words(pipeline, segments, segment_counts, counts)
    if counts:
        for segments, segment_counts in _count_segments(map(split_into_chunks, first_texts)):
            _count_byte_words(pipeline, segments, segment_counts, counts)
        # The merges depend only on how often each word occurs, and words of one symbol have no pair to merge.
        pipeline = tokenizers.Tokenizer(models.BPE())
        pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        parts = _repeat_words(counts, (word for word in counts if len(word) > 1))
    else:
        parts = (part for text in first_texts for part in split_into_chunks(text))
    _train_interruptibly(pipeline, parts, trainer)
    model = json.loads(pipeline.to_str())["model"]
    tokens = [*specials, *sorted(model["vocab"], key=model["vocab"].get)]
    return build_pipeline("bpe", tokens, lowercase, [tuple(pair) for pair in model["merges"]])


def _count_byte_words(
    pipeline: tokenizers.Tokenizer, segments: list[str], segment_counts: list[int], counts: Counter[str]
) -> None:
    """Adds how often each word of byte-level BPE occurs. Segments are split many at a time, as lines of a text."""
    lines = [(segment, count) for segment, count in zip(segments, segment_counts) if segment != "\n"]
    for start in range(0, len(lines), SEGMENTS_PER_CALL):
        part = lines[start : start + SEGMENTS_PER_CALL]
        text = "\n".join(segment for segment, _ in part)
        if pipeline.normalizer is not None:
            text = pipeline.normalizer.normalize_str(text)
        line_counts = iter(count for _, count in part)
        count = next(line_counts)
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text):
            if word == BYTE_NEWLINE:
                count = next(line_counts)
            else:
                counts[word] += count


def _repeat_words(counts: Counter[str], words: Iterable[str]) -> Iterator[str]:
    """Yields texts that contain each word as often as it is counted."""
    for word in words:
        for start in range(0, counts[word], MAX_REPEATS):
            yield f"{word} " * min(MAX_REPEATS, counts[word] - start)


def _train_interruptibly(pipeline: tokenizers.Tokenizer, parts: Iterator[str], trainer: Any) -> None:
    """Trains in a thread, so that Ctrl-C ends the waiting: the library does not return to Python before its end."""
    is_interrupted, errors = False, []

    def iterate() -> Iterator[str]:
        for part in parts:
            if is_interrupted:
                return
            yield part

    def run() -> None:
        try:
            pipeline.train_from_iterator(iterate(), trainer)
        except BaseException as error:  # raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(timeout=0.2)
    except BaseException:
        is_interrupted = True
        raise
    for error in errors:
        raise error


def _train_wordpiece(
    texts: Iterable[str], size: int, min_count: int, lowercase: bool, specials: Sequence[str]
) -> tokenizers.Tokenizer:
    """Trains WordPiece from the counts of words.

    The library numbers the letters in the order of a hash table, which breaks ties differently in each process. As
    special tokens they always get the same numbers, so the result is the same too.
    """
    counts = _count_words(texts, "wordpiece", lowercase)
    words = sorted(word for word in counts if word not in (END, UNKNOWN, *specials))
    letters = sorted({word[0] for word in words}) + sorted({f"##{letter}" for word in words for letter in word[1:]})
    first_tokens = [*specials, *(token for token in (UNKNOWN, END) if token not in specials)]
    _require_size("wordpiece", size, len(first_tokens) + len(letters))
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size - len(first_tokens),
        min_frequency=max(2, min_count),
        special_tokens=letters,
        show_progress=False,
    )
    _train_interruptibly(pipeline, _repeat_words(counts, words), trainer)
    vocabulary = pipeline.get_vocab()
    return build_pipeline("wordpiece", [*first_tokens, *sorted(vocabulary, key=vocabulary.__getitem__)], lowercase)


def _require_size(kind: str, size: int, min_size: int) -> None:
    if size < min_size:
        problem = f"a {kind} vocabulary of {size:,} is too small: this text needs at least {min_size:,}."
        raise UsageError(problem, fix="Choose a larger --text.vocabulary, or --text.tokenizer characters.")


def _check_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yields the texts; raises at the end if they contain fewer than two different characters."""
    characters: set[str] = set()
    for text in texts:
        if len(characters) < 2:
            characters |= set(text) - {"\n"}
        yield text
    if not characters:
        raise DataError("the training text is empty.", fix="Give a file with text in it.")
    if len(characters) < 2:
        raise _build_single_symbol_error(f" ({characters.pop()!r})")


def _build_single_symbol_error(which: str = "") -> DataError:
    problem = f"the training text has a vocabulary of one symbol{which}: there is nothing to predict."
    fix = "Give a text with at least two different symbols, or another --text.tokenizer."
    return DataError(problem, fix=fix)


def find_word_offsets(text: str) -> list[tuple[int, int]]:
    """Returns (start, stop) of each word or punctuation mark: `text[start:stop]`."""
    return [offsets for _, offsets in _get_word_splitter().pre_tokenize_str(text)]


def split_words(text: str) -> list[str]:
    """Returns the words and punctuation marks."""
    return [word for word, _ in _get_word_splitter().pre_tokenize_str(text)]


@cache
def _get_word_splitter() -> Any:
    return pre_tokenizers.Split(tokenizers.Regex(WORD), "removed", invert=True)
