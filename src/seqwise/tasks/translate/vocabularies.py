"""The tokenisers of a translation: of which kind and size, one for all languages or one for each.

They are trained on the training split only. The module knows nothing of models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from seqwise.callbacks import LogFunction
from seqwise.config import Settings
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import Boundaries
from seqwise.tasks.translate.reader import Pair
from seqwise.text.pipelines import choose_tokenizer
from seqwise.text.tokenizer import Tokenizer

PAD, BEGIN, END = "<pad>", "<bos>", "<eos>"
SPECIALS = (PAD, BEGIN, END)

MIN_SUBWORD_BYTES = 500_000  # of all sides; in smaller texts most subwords are too rare to learn
MIN_SUBWORD_WORDS = 3  # per text; names, dates and scripts without spaces are split into characters
BYTES_PER_ENTRY = 400  # text per vocabulary entry: 8,192 for the 29,000 pairs of Multi30k
MIN_VOCABULARY, MAX_VOCABULARY = 1_024, 32_768
MIN_SHARED_LETTERS = 0.9  # share of the letters of one side that the other side has too, for one vocabulary
SAMPLE_SIZE = 2_000  # pairs on which these choices are based


def train_tokenizers(
    pairs: Sequence[Pair], languages: Languages, settings: Settings, log: LogFunction
) -> dict[str, Tokenizer]:
    """Return the tokeniser of the source as "text", and of each target by its name; fill in what is not set."""
    text, translate = settings.text, settings.translate
    if text.tokenizer is None:
        text.tokenizer, limit, reason = _choose_kind(pairs, settings.vectors is not None)  # type: ignore[assignment]
        text.vocabulary = text.vocabulary or limit
        log(f"tokeniser: {reason}")
    if translate.vocabulary is None:
        is_shared = text.tokenizer == "bpe" and have_shared_alphabet(pairs)
        translate.vocabulary = "shared" if is_shared else "separate"
    names, vocabulary_size = languages.targets, text.vocabulary
    uses_target_token = translate.targets == "token"
    target_specials = [*SPECIALS, *(map(get_target_token, names) if uses_target_token else ())]

    def train(texts: list[str], specials: Sequence[str]) -> Tokenizer:
        size = vocabulary_size
        if not size and text.tokenizer in ("bpe", "wordpiece"):
            entries = sum(len(each.encode()) for each in texts) // BYTES_PER_ENTRY
            size = 1 << (min(MAX_VOCABULARY, max(MIN_VOCABULARY, entries)).bit_length() - 1)
        return Tokenizer.train(str(text.tokenizer), texts, size, text.min_count, text.lowercase, specials)

    sources = [pair.source for pair in pairs]
    targets = {name: [pair.targets[number] for pair in pairs] for number, name in enumerate(names)}
    all_targets = [each for texts in targets.values() for each in texts]
    if translate.vocabulary == "shared":
        tokenizers = dict.fromkeys(["text", *names], train([*sources, *all_targets], target_specials))
    elif uses_target_token:
        shared = train(all_targets, target_specials)
        tokenizers = {"text": train(sources, SPECIALS), **dict.fromkeys(names, shared)}
    else:
        tokenizers = {"text": train(sources, SPECIALS)}
        tokenizers |= {name: train(texts, SPECIALS) for name, texts in targets.items()}
    text.vocabulary = len(tokenizers["text"])
    return tokenizers


def get_target_token(target: str) -> str:
    """Return the token that begins a target where one decoder generates all of them (Johnson et al. 2017)."""
    return f"<{target}>"


def get_boundaries(tokenizers: dict[str, Tokenizer], targets: Sequence[str], settings: Settings) -> Boundaries:
    """Return the ids of the begin and the end token of each target."""
    uses_target_token = settings.translate.targets == "token"
    begins = [get_target_token(name) if uses_target_token else BEGIN for name in targets]
    return [(tokenizers[name].id(begin), tokenizers[name].id(END)) for name, begin in zip(targets, begins)]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the ids of each text. A text that spells out a special token does not get its id."""
    num_specials = len(tokenizer.specials)
    encodings = tokenizer.encode_many(texts)
    return [ids[ids >= num_specials] if len(ids) and ids.min() < num_specials else ids for ids in encodings]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Return the text of some ids, without special tokens."""
    num_specials = len(tokenizer.specials)
    return tokenizer.decode([token for token in ids if token >= num_specials]).strip()


def have_shared_alphabet(pairs: Sequence[Pair]) -> bool:
    """Return whether the letters of each side are those of the other, so that words may be shared too."""
    sample = _sample(pairs)
    sides = ([pair.source for pair in sample], [text for pair in sample for text in pair.targets])
    source_letters, target_letters = (Counter(filter(str.isalpha, "\n".join(side).lower())) for side in sides)
    shared = source_letters.keys() & target_letters.keys()
    fractions = [
        sum(counts[letter] for letter in shared) / max(1, counts.total()) for counts in (source_letters, target_letters)
    ]
    return min(fractions) >= MIN_SHARED_LETTERS


def _choose_kind(pairs: Sequence[Pair], has_word_vectors: bool) -> tuple[str, int | None, str]:
    """Return the kind of tokeniser, the limit of its vocabulary if there is one, and the reason."""
    sample = _sample(pairs)
    sides = list(zip(*(pair.texts for pair in sample)))
    kind, limit, reason = choose_tokenizer("\n".join(text for side in sides for text in side), 0, has_word_vectors)
    if kind == "spaces" or has_word_vectors:
        return kind, limit, reason
    words = min(sum(len(text.split()) for text in side) / len(side) for side in sides)
    if words < MIN_SUBWORD_WORDS:
        return "characters", None, f"characters, because the texts of one side have {words:.1f} words on average."
    size = sum(len(text.encode()) for pair in pairs for text in pair.texts)
    if size < MIN_SUBWORD_BYTES:
        return "characters", None, f"characters, because the text is smaller than {MIN_SUBWORD_BYTES / 1e6:g} MB."
    return "bpe", None, f"bpe, one token per {BYTES_PER_ENTRY} bytes of text, rounded down to a power of two."


def _sample(pairs: Sequence[Pair]) -> Sequence[Pair]:
    return pairs[:: max(1, len(pairs) // SAMPLE_SIZE)]
