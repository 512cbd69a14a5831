"""The embeddings inside a trained model, as words with vectors. It knows nothing of figures.

A model reads tokens by its input embedding and, unless the two are tied, scores them by another matrix, the output
embedding: the rows of its softmax. A translator has both for each of its vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from seqwise.layers.embedding import Embedding
from seqwise.layers.output import FullSoftmax, MixtureSoftmax
from seqwise.tasks.inspection import name_tokens
from seqwise.tasks.tag.model import TagVocabulary
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.api import TrainedModel
from seqwise.vectors.keyed import KeyedVectors


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of one vocabulary with their vectors. Special tokens and the unknown token are left out."""

    name: str  # "", or of a translator such as "source"
    tokenizer: Tokenizer
    embeddings: dict[str, KeyedVectors]  # "input", and "output" if it is another matrix; words are token names
    encode: Callable[[str], Sequence[int]]  # a word → ids of its tokens
    ids: dict[int, str]  # token id → its name in `embeddings`
    frequencies: np.ndarray | None = None  # (V,) larger for tokens that are more frequent in the training split

    def find(self, word: str) -> list[str]:
        """Returns the tokens of a word; none if it is unknown."""
        return [self.ids[token] for token in self.encode(word) if token in self.ids]

    def rank_tokens(self) -> list[str]:
        """Returns the tokens, most frequent first; if that is unknown, by id, as most tokenisers sort them."""
        if self.frequencies is None:
            return [self.ids[token] for token in sorted(self.ids)]
        counts = self.frequencies
        return [self.ids[token] for token in sorted(self.ids, key=lambda token: (-counts[token], token))]


def list_vocabularies(trained: TrainedModel) -> list[Vocabulary]:
    """Returns the vocabularies of a model that have embeddings; none of a forecaster or an n-gram model."""
    model: Any = trained.model
    preprocessor = trained.run.preprocessor
    task = str(trained.settings.task)
    training = trained.bundle.training
    counts = None if training is None else training.arrays.get("token_counts")
    if task == "translate":
        names = preprocessor.attributes["targets"][: len(model.decoders)]
        decoders = {name: model.get_decoder(index) for index, name in enumerate(names)}
        if all(decoder.embedding is model.embedding for decoder in decoders.values()):
            outputs = [decoder.output for decoder in decoders.values()]
            return [build_vocabulary("", preprocessor.tokenizer, model.embedding, outputs[0])]
        source = build_vocabulary("source", preprocessor.tokenizer, model.embedding, None)
        return [
            source,
            *(
                build_vocabulary(f"target {name}", preprocessor.tokenizers[name], decoder.embedding, decoder.output)
                for name, decoder in decoders.items()
            ),
        ]
    holder = model.decoder if task == "caption" else model
    embedding = getattr(holder, "embedding", None)
    if not isinstance(embedding, Embedding) or "text" not in preprocessor.tokenizers:
        return []
    output = getattr(getattr(holder, "head", None), "output", None) or getattr(holder, "output", None)
    vocabulary = build_vocabulary("", preprocessor.tokenizer, embedding, output, counts)
    if task == "tag":
        words = TagVocabulary.from_preprocessor(preprocessor)
        return [Vocabulary(**{**vars(vocabulary), "encode": lambda word: [words.get_word_id(word)]})]
    return [vocabulary]


def build_vocabulary(
    name: str, tokenizer: Tokenizer, embedding: Embedding, output: Any, frequencies: np.ndarray | None = None
) -> Vocabulary:
    """Returns the tokens of a tokeniser with their input vectors and, if the softmax has its own, output vectors."""
    rows = [token for token in range(len(tokenizer)) if token >= len(tokenizer.specials) and token != tokenizer.unknown]
    names = name_uniquely(tokenizer, rows)
    matrices = {"input": embedding.weight}
    if isinstance(output, FullSoftmax | MixtureSoftmax) and not output.tied:
        matrices["output"] = output.weight
    if isinstance(output, FullSoftmax | MixtureSoftmax) and frequencies is None:
        frequencies = to_array(output.bias)  # which training starts from the log-frequencies
    embeddings = {kind: KeyedVectors(names, to_array(matrix)[rows]) for kind, matrix in matrices.items()}
    return Vocabulary(
        name, tokenizer, embeddings, lambda word: encode_word(tokenizer, word), dict(zip(rows, names)), frequencies
    )


def to_array(matrix: Tensor) -> np.ndarray:
    return matrix.detach().float().cpu().numpy()


def name_uniquely(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Returns a readable name of each token; where two would be equal, the spelling in the vocabulary."""
    names = name_tokens(tokenizer, ids)
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            names[index] = f"{name} ({tokenizer.token(ids[index])})"
        seen.add(names[index])
    return names


def encode_word(tokenizer: Tokenizer, word: str) -> list[int]:
    """Returns the tokens of a word; in bpe the one with a space before it, as in the middle of a text, if there is one.

    Punctuation marks around a word are left out, unless the word has nothing else.
    """
    ids = [int(token) for token in tokenizer.encode(word).ids]
    if tokenizer.kind == "bpe":
        with_space = [int(token) for token in tokenizer.encode(f" {word}").ids]
        ids = with_space if len(with_space) <= len(ids) else ids
    without_punctuation = [token for token in ids if any(map(str.isalnum, tokenizer.decode([token])))]
    return without_punctuation or ids
