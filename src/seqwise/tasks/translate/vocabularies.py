"""The tokenisers of a translation task: their kind and size, and whether all languages share one.

They are trained on the training split only. The module knows nothing of models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from seqwise.callbacks import LogFunction
from seqwise.config import Settings
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import BosEosIds
from seqwise.tasks.translate.reader import Pair
from seqwise.text.pipelines import choose_tokenizer
from seqwise.text.tokenizer import Tokenizer

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
SPECIALS = (PAD, BOS, EOS)

MIN_SUBWORD_BYTES = 500_000  # of all languages; in smaller texts most subwords are too rare to learn
MIN_SUBWORD_WORDS = 3  # per text; names, dates and scripts without spaces are split into characters
BYTES_PER_ENTRY = 400  # text per vocabulary entry: 8,192 for the 29,000 pairs of Multi30k
MIN_VOCABULARY, MAX_VOCABULARY = 1_024, 32_768
MIN_SHARED_LETTERS = 0.9  # share of the letters of each language that the other one has too, for a shared vocabulary
SAMPLE_SIZE = 2_000  # pairs on which these choices are based


def train_tokenizers(
    pairs: Sequence[Pair], languages: Languages, settings: Settings, log: LogFunction
) -> dict[str, Tokenizer]:
    """Returns the tokeniser of the source as "text", and of each target by its name.

    The kind and size of the vocabularies are written into `settings` unless they are set.
    """
    text, translate = settings.text, settings.translate
    if text.tokenizer is None:
        text.tokenizer, limit, reason = _choose_tokenizer_kind(pairs, settings.vectors is not None)  # type: ignore[assignment]
        text.vocabulary = text.vocabulary or limit
        log(f"tokeniser: {reason}")
    if translate.vocabulary is None:
        is_shared = text.tokenizer == "bpe" and has_shared_alphabet(pairs)
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
    targets = {name: [pair.targets[index] for pair in pairs] for index, name in enumerate(names)}
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
    """Returns the first token of a target if one decoder generates all languages (Johnson et al. 2017)."""
    return f"<{target}>"


def get_bos_eos_ids(tokenizers: dict[str, Tokenizer], targets: Sequence[str], settings: Settings) -> BosEosIds:
    """Returns the ids of the first token, usually <bos>, and of <eos> of each target."""
    uses_target_token = settings.translate.targets == "token"
    bos_tokens = [get_target_token(name) if uses_target_token else BOS for name in targets]
    return [(tokenizers[name].id(bos), tokenizers[name].id(EOS)) for name, bos in zip(targets, bos_tokens)]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Returns the ids of each text, without ids of special tokens, even if a text contains "<eos>"."""
    num_specials = len(tokenizer.specials)
    encodings = tokenizer.encode_many(texts)
    return [ids[ids >= num_specials] if len(ids) and ids.min() < num_specials else ids for ids in encodings]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Returns the text of some ids, without special tokens."""
    num_specials = len(tokenizer.specials)
    return tokenizer.decode([token for token in ids if token >= num_specials]).strip()


def has_shared_alphabet(pairs: Sequence[Pair]) -> bool:
    """Returns whether sources and targets have mostly the same letters, so that they may share words too."""
    sample = _sample_pairs(pairs)
    texts = ([pair.source for pair in sample], [text for pair in sample for text in pair.targets])
    source_letters, target_letters = (Counter(filter(str.isalpha, "\n".join(each).lower())) for each in texts)
    shared = source_letters.keys() & target_letters.keys()
    fractions = [
        sum(counts[letter] for letter in shared) / max(1, counts.total()) for counts in (source_letters, target_letters)
    ]
    return min(fractions) >= MIN_SHARED_LETTERS


def _choose_tokenizer_kind(pairs: Sequence[Pair], has_word_vectors: bool) -> tuple[str, int | None, str]:
    """Returns the kind of tokeniser, the limit of its vocabulary if there is one, and the reason."""
    sample = _sample_pairs(pairs)
    texts_by_language = list(zip(*(pair.texts for pair in sample)))
    all_texts = "\n".join(text for texts in texts_by_language for text in texts)
    kind, limit, reason = choose_tokenizer(all_texts, 0, has_word_vectors)
    if kind == "spaces" or has_word_vectors:
        return kind, limit, reason
    mean_words = min(sum(len(text.split()) for text in texts) / len(texts) for texts in texts_by_language)
    if mean_words < MIN_SUBWORD_WORDS:
        reason = f"characters, because the texts of one language have {mean_words:.1f} words on average."
        return "characters", None, reason
    num_bytes = sum(len(text.encode()) for pair in pairs for text in pair.texts)
    if num_bytes < MIN_SUBWORD_BYTES:
        return "characters", None, f"characters, because the text is smaller than {MIN_SUBWORD_BYTES / 1e6:g} MB."
    return "bpe", None, f"bpe, one token per {BYTES_PER_ENTRY} bytes of text, rounded down to a power of two."


def _sample_pairs(pairs: Sequence[Pair]) -> Sequence[Pair]:
    return pairs[:: max(1, len(pairs) // SAMPLE_SIZE)]
