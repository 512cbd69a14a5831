"""`Tokenizer`: text ↔ token ids. Five kinds, one interface, one file format. `TextStream` decodes token by token.

    characters   Unicode code points
    words        words and punctuation marks, by the rules of `patterns.py`
    spaces       the strings between whitespace, for text that is already tokenised
    bpe          byte-level byte-pair encoding
    wordpiece    parts of words; one that continues a word begins with ##

Every kind works line by line: a text cut after a line break has the same tokens as the whole text. In the kinds
characters, words and spaces, the ids after the specials are sorted by falling frequency, which the adaptive softmax
needs. The module knows nothing of text files or tensors.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import numpy as np
import tokenizers

from seqwise.config import TOKENIZERS
from seqwise.digests import add_digest, read_object
from seqwise.errors import DataError, UsageError, suggest
from seqwise.files import write_text
from seqwise.text import pipelines
from seqwise.text.patterns import END, REPLACEMENT, UNKNOWN, join_pieces, join_spaces, join_words, replace_surrogates

FORMAT = 1
RARE_CHARACTER = "\ue000"  # for private use: in no vocabulary
MAX_BATCH_CHARACTERS = 2_000_000  # of texts that are encoded at once
MAX_PATTERN = 10_000  # characters of a regular expression, whose compilation takes quadratic time; ours have hundreds


@dataclass(frozen=True)
class Encoding:
    """Token ids and their character offsets: `text[start:stop]`."""

    ids: np.ndarray  # (n,) int64
    offsets: np.ndarray  # (n, 2) int64, characters of the original text

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class EncodedText:
    """The token ids of a text, and what is counted in it."""

    ids: np.ndarray
    words: int  # strings between whitespace
    unknown: int  # ids of <unk>


def _batch_by_size(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields consecutive texts of some million characters in total: an encoding takes 40 bytes per character."""
    start = num_characters = 0
    for index, text in enumerate(texts):
        num_characters += len(text)
        if num_characters > MAX_BATCH_CHARACTERS and index > start:
            yield texts[start:index]
            start, num_characters = index, len(text)
    yield texts[start:]


def _check_patterns(value: object) -> None:
    """Raises an error if a part of a saved pipeline is a regular expression that takes too long to compile."""
    if isinstance(value, list):
        for item in value:
            _check_patterns(item)
    elif isinstance(value, dict):
        pattern = value.get("Regex")
        if isinstance(pattern, str) and len(pattern) > MAX_PATTERN:
            found = f"a regular expression of {len(pattern):,} characters"
            raise DataError(f"the tokeniser file is damaged: {found}; expected at most {MAX_PATTERN:,}.")
        for name, item in value.items():
            if name != "model":  # the vocabulary, which is large and has no patterns
                _check_patterns(item)


class Tokenizer:
    """Created by `Tokenizer.train` or `Tokenizer.load`."""

    num_extra_words = 0  # how many of `extra_words` were added; not saved

    def __init__(
        self, kind: str, pipeline: tokenizers.Tokenizer, lowercase: bool = False, specials: Sequence[str] = ()
    ):
        self.kind, self.lowercase, self.specials = kind, lowercase, tuple(specials)
        self._pipeline = pipeline
        self._ids: dict[str, int] = pipeline.get_vocab()
        self._tokens = sorted(self._ids, key=self._ids.__getitem__)
        if list(range(len(self._tokens))) != [self._ids[token] for token in self._tokens]:
            raise DataError("the ids of the vocabulary are not 0, 1, 2, …")

    @classmethod
    def train(
        cls,
        kind: str,
        texts: Iterable[str],
        size: int | None = None,
        min_count: int | None = None,
        lowercase: bool = False,
        specials: Sequence[str] = (),
        extra_words: Sequence[str] = (),
    ) -> Tokenizer:
        """Learns a vocabulary. The texts are read once and not kept.

        `size` bounds the whole vocabulary, specials included. `specials` get the first ids and are never produced by
        encoding text, except where text of kind `spaces` spells them out. `<unk>` and `<eos>` in a text of kind `words`
        or `spaces` are these tokens. Tokens rarer than `min_count` (None: 1) become `<unk>`; bpe and wordpiece
        merge no pair rarer than that (nor one seen only once). A vocabulary of words also contains the `extra_words`,
        after all others and beyond `size`.
        """
        pipeline, num_extra = pipelines.train_pipeline(
            kind, texts, size, min_count or 1, lowercase, specials, extra_words
        )
        tokenizer = cls(kind, pipeline, lowercase, specials)
        tokenizer.num_extra_words = num_extra
        return tokenizer

    def __repr__(self) -> str:
        lowercase = ", lower case" if self.lowercase else ""
        first = ", ".join(map(repr, self._tokens[:5]))
        return f"<Tokenizer {self.kind}{lowercase}, {len(self._tokens):,} tokens: {first}, …>"

    # ---- text → ids

    def encode(self, text: str) -> Encoding:
        """Returns ids with the character offsets of each."""
        if self.kind == "characters":
            starts = np.arange(len(text), dtype=np.int64)
            return Encoding(self._encode_characters(text), np.stack([starts, starts + 1], axis=1))
        encoding = self._pipeline.encode(replace_surrogates(text), add_special_tokens=False)
        offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        return Encoding(np.array(encoding.ids, dtype=np.int64), offsets)

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns the ids of each text, computed on all cores, without offsets."""
        if self.kind == "characters":
            return [self._encode_characters(text) for text in texts]
        all_ids: list[np.ndarray] = []
        for batch in _batch_by_size(texts):
            encodings = self._pipeline.encode_batch_fast(
                [replace_surrogates(text) for text in batch], add_special_tokens=False
            )
            all_ids += [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        return all_ids

    def _encode_characters(self, text: str) -> np.ndarray:
        return self._character_ids[pipelines.get_codepoints(text)]

    @cached_property
    def _character_ids(self) -> np.ndarray:
        """The id of each code point: ten times faster than a pipeline, and without its memory per token."""
        table = np.full(sys.maxunicode + 1, self._ids[UNKNOWN], dtype=np.int64)
        for token, token_id in self._ids.items():
            if len(token) == 1:
                table[ord(token)] = token_id
        if self.lowercase:
            for code in range(sys.maxunicode + 1):
                lower = pipelines.lowercase_character(chr(code))
                if ord(lower) != code:
                    table[code] = table[ord(lower)]
        return table

    # ---- ids → text

    def decode(self, ids: Iterable[int]) -> str:
        """Returns readable text. It is exact for characters and bpe.

        The kind `spaces` puts a space between all tokens; words and wordpiece place spaces as in English.
        """
        if self.kind == "bpe":
            return self._decode_bytes(ids)
        tokens = self.tokens(ids)
        if self.kind == "characters":
            return "".join(REPLACEMENT if token == UNKNOWN else token for token in tokens)
        if self.kind == "spaces":
            return join_spaces(tokens)
        return join_words(join_pieces(tokens) if self.kind == "wordpiece" else tokens)

    def _decode_bytes(self, ids: Iterable[int]) -> str:
        first = len(self.specials)
        text, byte_ids = "", []
        for token_id in map(int, ids):
            if token_id >= first:
                byte_ids.append(token_id)
                continue
            text += self._pipeline.decode(byte_ids) + self._tokens[token_id]
            byte_ids = []
        return text + self._pipeline.decode(byte_ids)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the spelling of each id in the vocabulary; bpe spells bytes in its byte-level alphabet."""
        return [self._tokens[int(token_id)] for token_id in ids]

    # ---- the vocabulary

    def __len__(self) -> int:
        return len(self._tokens)

    def token(self, token_id: int) -> str:
        return self._tokens[token_id]

    def id(self, token: str) -> int:
        """Returns the id of a token; the unknown id for one outside the vocabulary, where the kind has it."""
        token_id = self._ids.get(token, self.unknown)
        if token_id is None:
            raise UsageError(f"{token!r} is not in this vocabulary.", fix="Encode the text instead.")
        return token_id

    @property
    def unknown(self) -> int | None:
        """The id of `<unk>`; None for bpe, which can spell anything."""
        return self._ids.get(UNKNOWN) if self.kind != "bpe" else None

    @property
    def end(self) -> int | None:
        """The id of `<eos>`: the line break of words, spaces and wordpiece, or a special of that name."""
        return self._ids.get(END)

    # ---- the file

    @cached_property
    def fingerprint(self) -> str:
        """Returns a hash that is equal for tokenisers that encode equally, whatever the version of the library."""
        merges = json.loads(self._pipeline.to_str())["model"].get("merges", [])
        content = [FORMAT, self.kind, self.lowercase, self.specials, self._tokens, merges]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()

    def save(self, path: str | Path) -> None:
        """Writes the file atomically, with a digest of its content."""
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "lowercase": self.lowercase,
            "specials": list(self.specials),
            "tokenizer": json.loads(self._pipeline.to_str()),
        }
        write_text(Path(path), json.dumps(add_digest(content), ensure_ascii=False))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        fix = "Copy it again from where it was made, or train the model again."
        try:
            content = read_object(Path(path))
            if not isinstance(content.get("format"), int):
                raise DataError("this is not a tokeniser file.")
            if content["format"] > FORMAT:
                problem = f"the tokeniser file has format {content['format']}; this version reads up to {FORMAT}."
                raise DataError(problem, fix="Install a newer seqwise: pip install --upgrade seqwise.")
            if content["kind"] not in TOKENIZERS:
                raise DataError(f"unknown kind {content['kind']!r}.", fix=suggest(content["kind"], TOKENIZERS))
            _check_patterns(content["tokenizer"])
            pipeline = tokenizers.Tokenizer.from_str(json.dumps(content["tokenizer"]))
            pipeline.no_padding()  # Seqwise writes none, and padding to 10^12 tokens would abort the process
            pipeline.no_truncation()
            tokenizer = cls(content["kind"], pipeline, content["lowercase"], content["specials"])
            if tokenizer.kind == "characters" and tokenizer.unknown is None:
                raise DataError(f"the vocabulary has no {UNKNOWN}.")
            pipeline.encode(RARE_CHARACTER)  # fails if the token for unknown text is missing
            return tokenizer
        except FileNotFoundError:
            problem = "the tokeniser file does not exist."
        except OSError as error:
            problem, fix = f"the tokeniser file cannot be read: {error.strerror}.", "Check its permissions."
        except DataError as error:
            problem, fix = error.problem, error.fix or fix
        except Exception as error:  # the Rust side raises bare Exceptions
            problem = f"the tokeniser file is damaged: {error}"
        raise DataError(problem, fix=fix, file=path)


class TextStream:
    """Decodes tokens one by one: each character is returned once, as soon as later tokens cannot change it.

    With each token only the current line is decoded again, so the cost per token does not grow with the text. The text
    of `prompt`, the tokens before, is not returned.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Iterable[int] = ()):
        self.tokenizer = tokenizer
        self.has_spaces_in_tokens = tokenizer.kind in ("characters", "bpe")  # a token's text depends on no other
        self.pending_ids: list[int] = []  # tokens of the current line: earlier lines have no influence on its spaces
        if not self.has_spaces_in_tokens:
            for token_id in map(int, prompt):
                self.pending_ids.append(token_id)
                if token_id == tokenizer.end:
                    self.pending_ids = []
        self.returned_text = tokenizer.decode(self.pending_ids)  # the part of their text that was returned

    def add(self, token_id: int) -> str:
        """Adds a token; returns the text that is now certain, which may be empty."""
        kind = self.tokenizer.kind
        if self.has_spaces_in_tokens:
            self.pending_ids.append(token_id)
            text = self.tokenizer.decode(self.pending_ids)
            if kind == "bpe" and text.endswith(REPLACEMENT):  # perhaps an incomplete character
                return ""
            self.pending_ids = []
            return text
        text = ""
        # The next token may extend a word and change the space before it (n, then ##'t), so a word is held back.
        if kind == "wordpiece" and not self.tokenizer.token(token_id).startswith("##"):
            text = self._advance()
        self.pending_ids.append(token_id)
        if kind != "wordpiece":
            text = self._advance()
        return text + self.flush() if token_id == self.tokenizer.end else text

    def flush(self) -> str:
        """Returns the text of the pending tokens."""
        text = self._advance()
        self.pending_ids, self.returned_text = [], ""
        return text

    def _advance(self) -> str:
        text, returned = self.tokenizer.decode(self.pending_ids), self.returned_text
        self.returned_text = text
        if text.startswith(returned):
            return text[len(returned) :]
        common = takewhile(lambda pair: pair[0] == pair[1], zip(text, returned))
        return text[sum(1 for _ in common) :]
