"""Deliberately wrong variants of chapter H's experiments: each must change the verdict."""

from __future__ import annotations

import math

import numpy as np
import torch

from seqwise.lab.words.grammar import SenseLanguage
from seqwise.lab.words.h1_one_hot import OneHotVectors
from seqwise.lab.words.h2_embedding import EmbeddingIsProduct
from seqwise.lab.words.h3_contexts import SharedContexts
from seqwise.lab.words.h4_analogies import Analogies
from seqwise.lab.words.h5_rare_words import RareWords
from seqwise.lab.words.h6_objectives import Objectives
from seqwise.lab.words.h7_negative_sampling import SoftmaxCost
from seqwise.lab.words.h8_h9_perplexity import PerplexityAsOptions, PerplexityBases
from seqwise.lab.words.h10_senses import Senses
from seqwise.lab.words.h11_tagging import DirectionsOfTagging
from seqwise.lab.words.h12_teacher_forcing import TeacherForcing
from seqwise.lab.words.h13_similarities import Similarities
from seqwise.lab.words.h14_ngram import CountingModel
from seqwise.lab.words.h15_entropy import EntropyAndPerplexity
from seqwise.lab.words.h16_elmo import WithoutAttention
from seqwise.lab.words.sense_models import TwoDirectionModel
from seqwise.layers import OneHot
from seqwise.vectors import KeyedVectors


class BinaryCode(OneHotVectors):
    """Writes the number of a word in binary digits: narrower, but no longer orthogonal."""

    def encode(self, ids, vocabulary):
        places = torch.arange(math.ceil(math.log2(vocabulary)))
        return ((ids[:, None] >> places) & 1).double()


class NextRow(EmbeddingIsProduct):
    """Counts words from 1, so that the product picks the row after the one that the lookup returns."""

    def multiply(self, embedding, ids):
        return OneHot(embedding.vocabulary).double()((ids + 1) % embedding.vocabulary) @ embedding.weight


class ShuffledNouns(SharedContexts):
    """Exchanges the nouns between sentences at random, so that contexts say nothing about them."""

    def choose_sentences(self, language):
        words = [sentence.split() for sentence in language.sentences]
        middle = len(words[0]) // 2
        nouns = np.random.default_rng(0).permutation([sentence[middle] for sentence in words])
        return [" ".join([*each[:middle], noun, *each[middle + 1 :]]) for each, noun in zip(words, nouns, strict=True)]


class AlwaysExcluding(Analogies):
    """Excludes the query words in both cases, as most programs do without saying so."""

    def score(self, vectors, questions, exclude):
        return super().score(vectors, questions, True)


class AveragedGradientOnly(RareWords):
    """Forgets to switch to the update of word2vec, so that CBOW never loses."""

    def get_methods(self):
        return {**super().get_methods(), "cbow_word2vec": {"method": "cbow"}}


class SkipGramTwice(Objectives):
    """Trains skip-gram a second time and calls it GloVe, so that the objectives look the same."""

    def train_glove(self, text):
        return self.train_skipgram(text[text >= 0]), np.zeros((self.vocabulary, self.vocabulary))


class AllWordsAsNegatives(SoftmaxCost):
    """Draws as many negatives as there are words, which saves nothing."""

    def build_objective(self, loss, vocabulary):
        return super().build_objective("softmax", vocabulary)


class MixedBases(PerplexityBases):
    """Raises 2 to a loss in nats."""

    def compute_forms(self, log_probabilities):
        _, from_nats, inverse_mean = super().compute_forms(log_probabilities)
        return 2.0 ** float(-log_probabilities.mean()), from_nats, inverse_mean


class EntropyInBits(PerplexityAsOptions):
    """Takes e to an entropy in bits, so that not even the uniform distribution scores its number of options."""

    def compute_perplexity(self, mixture):
        return super().compute_perplexity(mixture) ** (1 / math.log(2))


class TextOfTheModel(EntropyAndPerplexity):
    """Scores each model on a text that it has generated itself: then cross-entropy is its own entropy."""

    def choose_source(self, log_q, logits):
        return log_q.exp()


class NormalizedVectors(Similarities):
    """Divides all vectors by their norms first, after which dot product and cosine are the same."""

    def prepare(self, vectors):
        return KeyedVectors(vectors.words, vectors.matrix / vectors.norms[:, None])


class MaskedContext(Senses):
    """Hides all words but "bank" from the model, so that there is no context to tell the senses apart."""

    def read(self, ids):
        return ids.where(ids == SenseLanguage.BANK, SenseLanguage.MASK)


class TagsByPast(DirectionsOfTagging):
    """Lets all ambiguous tags depend on the word before, so that nothing is gained by reading ahead."""

    def choose_neighbours(self, ids):
        before, _ = super().choose_neighbours(ids)
        return before, before


class ForcedTwice(TeacherForcing):
    """Feeds the true tokens in free running too, so that both losses are the same."""

    def compute_losses(self, model, mode, ids):
        return super().compute_losses(model, "force", ids)


class RelativeFrequencies:
    """Bigram counts without smoothing: a pair that was never seen has probability 0."""

    def __init__(self, ids, vocabulary_size):
        counts = np.zeros((vocabulary_size, vocabulary_size))
        np.add.at(counts, (ids[:-1], ids[1:]), 1)
        self.probabilities = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def score_tokens(self, ids):
        with np.errstate(divide="ignore"):
            return np.log(self.probabilities[ids[:-1], ids[1:]])

    def compute_distribution(self, history):
        return self.probabilities[history[-1]]


class WithoutSmoothing(CountingModel):
    """Takes relative frequencies as probabilities."""

    def count(self, text, order):
        return RelativeFrequencies(text.train, text.vocabulary_size)


class EmbeddingLayer(WithoutAttention):
    """Takes the vectors of ELMo from its lowest layer, the embedding, which is static."""

    def get_builders(self, size):
        class LowestLayer(TwoDirectionModel):
            def encode(self, ids):
                return self.embedding(ids)

        return {**super().get_builders(size), "elmo": lambda: LowestLayer(size, self.width)}


VARIANTS = {
    "H1": BinaryCode,
    "H2": NextRow,
    "H3": ShuffledNouns,
    "H4": AlwaysExcluding,
    "H5": AveragedGradientOnly,
    "H6": SkipGramTwice,
    "H7": AllWordsAsNegatives,
    "H8": MixedBases,
    "H9": EntropyInBits,
    "H10": MaskedContext,
    "H11": TagsByPast,
    "H12": ForcedTwice,
    "H13": NormalizedVectors,
    "H14": WithoutSmoothing,
    "H15": TextOfTheModel,
    "H16": EmbeddingLayer,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {
    "H3": "holds",
    "H4": "holds if",  # the query words are excluded as answers
    "H5": "holds if",  # CBOW gives each neighbour the whole gradient, as word2vec does
    # Dot and scaled dot product differ by a constant factor, so they rank alike; only the cosine differs.
    "H13": "holds if",
}
