"""Text streamed token by token equals the decoded text: nothing is lost and nothing is repeated."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqwise.text.tokenizer import TextStream, Tokenizer

TEXT = (
    'He said: "it is n\'t so" (or was it?) ... well-known, 3.14 €uros.\nZwölf größere Wörter — 日本語 🙂🙂.\n'
    "the walking walkers walked; don't we'll talk talking\n"
) * 3
VOCABULARY_SIZES = {"characters": None, "words": None, "spaces": None, "bpe": 300, "wordpiece": 90}
TOKENIZERS = {kind: Tokenizer.train(kind, [TEXT], size) for kind, size in VOCABULARY_SIZES.items()}

each_kind = pytest.mark.parametrize("kind", TOKENIZERS)


def stream_tokens(tokenizer: Tokenizer, ids: list[int], prompt_length: int = 0) -> list[str]:
    stream = TextStream(tokenizer, ids[:prompt_length])
    return [*(stream.add(token) for token in ids[prompt_length:]), stream.flush()]


@each_kind
def test_the_concatenated_stream_equals_the_decoded_text(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(TEXT).ids.tolist()
    assert "".join(stream_tokens(tokenizer, ids)) == tokenizer.decode(ids)


@each_kind
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sequence_of_tokens_is_streamed_completely(kind, data):
    tokenizer = TOKENIZERS[kind]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    assert "".join(stream_tokens(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["characters", "words", "spaces", "bpe"])  # a prompt may end inside a wordpiece word
@pytest.mark.parametrize("prompt_length", [1, 5, 20, 60])
def test_a_stream_after_a_prompt_returns_only_the_new_text(kind, prompt_length):
    tokenizer = TOKENIZERS[kind]
    text = "the walking\nwalkers walked; well-known, 3.14 and the others\n" * 4
    ids = tokenizer.encode(text).ids.tolist()
    decoded, prompt = tokenizer.decode(ids), tokenizer.decode(ids[:prompt_length])
    assert prompt + "".join(stream_tokens(tokenizer, ids, prompt_length)) == decoded


def test_a_character_of_several_bpe_tokens_is_returned_as_a_whole():
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("a🙃b").ids.tolist()  # 🙃 is not in the training text, so it is encoded as bytes
    assert len(ids) > 3
    assert [piece for piece in stream_tokens(tokenizer, ids) if piece] == ["a", "🙃", "b"]


def test_an_incomplete_character_is_returned_at_the_end():
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("a🙃").ids.tolist()[:-1]
    assert "".join(stream_tokens(tokenizer, ids)) == tokenizer.decode(ids) != "a"


def test_a_wordpiece_word_is_returned_when_it_is_complete():
    tokenizer = TOKENIZERS["wordpiece"]
    ids = tokenizer.encode("talk talking").ids.tolist()
    assert [piece for piece in stream_tokens(tokenizer, ids) if piece] == ["talk", " talking"]


@each_kind
def test_the_cost_per_token_does_not_grow_with_the_number_of_lines(kind, monkeypatch):
    tokenizer = TOKENIZERS[kind]
    decoded_lengths = record_decoded_lengths(monkeypatch)
    line = tokenizer.encode(TEXT.splitlines()[2] + "\n").ids.tolist()
    stream_tokens(tokenizer, line * 10)
    assert max(decoded_lengths) <= len(line)


def record_decoded_lengths(monkeypatch) -> list[int]:
    """Returns a list to which each call of `Tokenizer.decode` adds its number of tokens."""
    lengths, original = [], Tokenizer.decode

    def record_and_decode(self, ids):
        ids = list(ids)
        lengths.append(len(ids))
        return original(self, ids)

    monkeypatch.setattr(Tokenizer, "decode", record_and_decode)
    return lengths


def test_a_long_prompt_is_decoded_once_within_seconds_of_processor_time(monkeypatch):
    decoded_lengths = record_decoded_lengths(monkeypatch)
    tokenizer, start = TOKENIZERS["spaces"], time.process_time()
    TextStream(tokenizer, [tokenizer.id("walked;")] * 150_000)
    assert decoded_lengths == [150_000]
    assert time.process_time() - start < 5  # quadratic time would be minutes
