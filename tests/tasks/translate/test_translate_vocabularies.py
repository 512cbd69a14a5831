"""The default tokeniser and vocabulary of a translation; special tokens are never read from text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from seqwise.config import Settings
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.reader import Pair, build_date_pairs
from seqwise.tasks.translate.vocabularies import (
    SPECIALS,
    decode,
    encode,
    get_bos_eos_ids,
    has_shared_alphabet,
    train_tokenizers,
)

DE, BOTH = Languages("en", ("de",)), Languages("en", ("de", "fr"))


def create_sentences(count: int, letters: str, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    words = ["".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(300)]
    return [" ".join(rng.choices(words, k=rng.randint(4, 12))) for _ in range(count)]


def create_pairs(*sides: list[str]) -> list[Pair]:
    return [Pair(source, tuple(targets), "f", line) for line, (source, *targets) in enumerate(zip(*sides), start=1)]


def train(pairs, languages=DE, **settings):
    settings, messages = Settings(**settings), []
    return train_tokenizers(pairs, languages, settings, messages.append), settings, " ".join(messages)


def test_dates_are_tokenised_into_characters():
    tokenizers, settings, messages = train(build_date_pairs()[:3000], Languages())
    assert (settings.text.tokenizer, settings.translate.vocabulary) == ("characters", "separate")
    assert list(tokenizers) == ["text", "target"]
    assert len(tokenizers["target"]) == len(SPECIALS) + 1 + 11  # <unk>, ten digits, the dash
    assert "characters" in messages


def test_little_text_gets_characters_and_more_text_gets_bpe():
    latin = create_pairs(create_sentences(200, "abcde"), create_sentences(200, "abcde", 1))
    assert train(latin)[1].text.tokenizer == "characters"
    many = create_pairs(create_sentences(8_000, "abcde"), create_sentences(8_000, "abcde", 1))
    tokenizers, settings, _ = train(many)
    assert (settings.text.tokenizer, settings.translate.vocabulary) == ("bpe", "shared")
    assert tokenizers["text"] is tokenizers["de"]
    assert len(tokenizers["text"]) <= 2_048


def test_different_alphabets_get_separate_vocabularies():
    many = create_pairs(create_sentences(8_000, "abcde"), create_sentences(8_000, "абвгд", 1))
    assert not has_shared_alphabet(many)
    tokenizers, settings, _ = train(many)
    assert settings.translate.vocabulary == "separate"
    assert tokenizers["text"] is not tokenizers["de"]


def test_tokenised_text_is_split_at_spaces():
    texts = ["a <unk> b c", "d e <unk> f"] * 5
    assert train(create_pairs(texts, texts))[1].text.tokenizer == "spaces"


@pytest.mark.parametrize("kind", ["characters", "words", "spaces", "bpe", "wordpiece"])
def test_the_name_of_a_special_token_in_a_text_is_plain_text(kind: str):
    texts = ["here <eos> stands", "<pad> and <bos> too", "nothing of the kind"] * 4
    tokenizers, _, _ = train(create_pairs(texts, texts), text={"tokenizer": kind})
    assert tokenizers["text"].specials == SPECIALS
    for ids in encode(tokenizers["text"], texts):
        assert len(ids)
        assert ids.min() >= len(SPECIALS)
    ids = encode(tokenizers["de"], ["nothing of the kind"])[0]
    assert decode(tokenizers["de"], [1, *ids, 2, 0]) == "nothing of the kind"


def test_a_shared_decoder_gets_the_target_as_a_token():
    pairs = create_pairs(create_sentences(50, "abcd"), create_sentences(50, "abcd", 1), create_sentences(50, "abcd", 2))
    tokenizers, settings, _ = train(pairs, BOTH, translate={"targets": "token"})
    assert tokenizers["de"] is tokenizers["fr"] is not tokenizers["text"]
    bos_eos_ids = get_bos_eos_ids(tokenizers, BOTH.targets, settings)
    assert tokenizers["de"].tokens([begin for begin, _ in bos_eos_ids]) == ["<de>", "<fr>"]
    tokenizers, settings, _ = train(pairs, BOTH)
    assert tokenizers["de"] is not tokenizers["fr"]
    assert [begin for begin, _ in get_bos_eos_ids(tokenizers, BOTH.targets, settings)] == [1, 1]


def test_an_empty_text_has_no_ids():
    tokenizers, _, _ = train(create_pairs(create_sentences(20, "abcd"), create_sentences(20, "abcd", 1)))
    assert encode(tokenizers["text"], [""])[0].tolist() == np.array([]).tolist()
