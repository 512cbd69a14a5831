"""Which unit and how many tokens a translation gets, and that special tokens stay special."""

from __future__ import annotations

import random

import numpy as np
import pytest

from seqwise.config import Settings
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.reader import Pair, builtin_dates
from seqwise.tasks.translate.vocabularies import (
    SPECIALS,
    decode,
    encode,
    get_boundaries,
    share_alphabet,
    train_tokenizers,
)

DE, BOTH = Languages("en", ("de",)), Languages("en", ("de", "fr"))


def sentences(count: int, letters: str, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(letters, k=draw.randint(2, 8))) for _ in range(300)]
    return [" ".join(draw.choices(words, k=draw.randint(4, 12))) for _ in range(count)]


def pairs_of(*sides: list[str]) -> list[Pair]:
    return [Pair(source, tuple(targets), "f", line) for line, (source, *targets) in enumerate(zip(*sides), start=1)]


def learn(pairs, languages=DE, **settings):
    chosen, said = Settings(**settings), []
    return train_tokenizers(pairs, languages, chosen, said.append), chosen, " ".join(said)


def test_dates_are_spelled():
    found, chosen, said = learn(builtin_dates()[:3000], Languages())
    assert (chosen.text.tokenizer, chosen.translate.vocabulary) == ("characters", "separate")
    assert list(found) == ["text", "target"]
    assert len(found["target"]) == len(SPECIALS) + 1 + 11  # <unk>, ten digits, the dash
    assert "characters" in said


def test_little_text_is_spelled_and_more_is_cut_into_parts_of_words():
    latin = pairs_of(sentences(200, "abcde"), sentences(200, "abcde", 1))
    assert learn(latin)[1].text.tokenizer == "characters"
    many = pairs_of(sentences(8_000, "abcde"), sentences(8_000, "abcde", 1))
    found, chosen, _ = learn(many)
    assert (chosen.text.tokenizer, chosen.translate.vocabulary) == ("bpe", "shared")
    assert found["text"] is found["de"]
    assert len(found["text"]) <= 2_048


def test_another_alphabet_has_a_vocabulary_of_its_own():
    many = pairs_of(sentences(8_000, "abcde"), sentences(8_000, "абвгд", 1))
    assert not share_alphabet(many)
    found, chosen, _ = learn(many)
    assert chosen.translate.vocabulary == "separate"
    assert found["text"] is not found["de"]


def test_text_that_is_tokenised_already_stays_so():
    texts = ["a <unk> b c", "d e <unk> f"] * 5
    assert learn(pairs_of(texts, texts))[1].text.tokenizer == "spaces"


@pytest.mark.parametrize("kind", ["characters", "words", "spaces", "bpe", "wordpiece"])
def test_text_that_spells_a_special_token_does_not_get_it(kind: str):
    texts = ["here <eos> stands", "<pad> and <bos> too", "nothing of the kind"] * 4
    found, _, _ = learn(pairs_of(texts, texts), text={"tokenizer": kind})
    assert found["text"].specials == SPECIALS
    for ids in encode(found["text"], texts):
        assert len(ids)
        assert ids.min() >= len(SPECIALS)
    ids = encode(found["de"], ["nothing of the kind"])[0]
    assert decode(found["de"], [1, *ids, 2, 0]) == "nothing of the kind"


def test_one_decoder_is_told_the_target_by_a_token():
    pairs = pairs_of(sentences(50, "abcd"), sentences(50, "abcd", 1), sentences(50, "abcd", 2))
    found, chosen, _ = learn(pairs, BOTH, translate={"targets": "token"})
    assert found["de"] is found["fr"] is not found["text"]
    boundaries = get_boundaries(found, BOTH.targets, chosen)
    assert found["de"].tokens([begin for begin, _ in boundaries]) == ["<de>", "<fr>"]
    found, chosen, _ = learn(pairs, BOTH)
    assert found["de"] is not found["fr"]
    assert [begin for begin, _ in get_boundaries(found, BOTH.targets, chosen)] == [1, 1]


def test_an_empty_text_has_no_ids():
    found, _, _ = learn(pairs_of(sentences(20, "abcd"), sentences(20, "abcd", 1)))
    assert encode(found["text"], [""])[0].tolist() == np.array([]).tolist()
