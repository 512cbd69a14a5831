"""Cross-entropy and perplexity of a language model on a text.

p[t] are the probabilities that the model gives to all words at position t; words[t] is the word that follows there.
The cross-entropy is the mean of −log₂ of the probabilities of these words, in bits; the perplexity is 2 to it (H8).
"""

import numpy as np


def solve(p, words):
    """Returns the cross-entropy in bits per word and the perplexity, for p (T, V) and words (T,)."""
    word_p = p[np.arange(len(words)), words.astype(int)]  # blank: the probability of each word of the text
    cross_entropy = -np.mean(np.log2(word_p))  # blank: bits per word
    perplexity = 2**cross_entropy  # blank: the number of equally likely words
    return cross_entropy, perplexity
