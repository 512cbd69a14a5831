"""Exercises about attention, Transformers and language models (chapters F to H)."""

from __future__ import annotations

import numpy as np

from seqwise.lab.exercises.exercise import Exercise, Inputs, Mistake, draw_arrays


def _draw_masked_scores(random: np.random.Generator) -> Inputs:
    return {"scores": 3 * random.normal(size=(6, 6)), "length": int(random.integers(2, 5))}


def _draw_chain(random: np.random.Generator) -> Inputs:
    """Draws a chain in which the most likely first token leads to a less likely sequence; token 0 is the end."""
    tokens = 5
    scores = random.normal(size=(tokens, tokens))
    scores[:, 0] -= 0.5
    log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return {"log_p": log_p, "start": 1, "end": 0, "beam": 3, "max_length": 6}


def _draw_predictions(random: np.random.Generator) -> Inputs:
    scores = np.exp(random.normal(size=(8, 5)))
    return {"p": scores / scores.sum(axis=1, keepdims=True), "words": random.integers(0, 5, size=8)}


ATTENTION_AND_LANGUAGE = (
    Exercise(
        "F1",
        "Scaled dot-product attention",
        ("context", "weights"),
        draw_arrays(Q=(4, 8), K=(5, 8), V=(5, 3)),
        (
            Mistake("The scores are not divided by √d.", "Q @ K.T / np.sqrt(Q.shape[1])", "Q @ K.T"),
            Mistake("The scores are divided by d; it is √d.", "/ np.sqrt(Q.shape[1])", "/ Q.shape[1]"),
            Mistake("The scores are multiplied by √d; divide.", "/ np.sqrt(Q.shape[1])", "* np.sqrt(Q.shape[1])"),
            Mistake(
                "The scores are divided by √T, the number of queries; d is the width of a query, Q.shape[1].",
                "/ np.sqrt(Q.shape[1])",
                "/ np.sqrt(Q.shape[0])",
            ),
            Mistake(
                "The scores are divided by √S, the number of keys; d is the width of a key, K.shape[1].",
                "/ np.sqrt(Q.shape[1])",
                "/ np.sqrt(K.shape[0])",
            ),
            Mistake(
                "The scores are divided by √d_v, the width of the values; d is the width of the queries and keys.",
                "/ np.sqrt(Q.shape[1])",
                "/ np.sqrt(V.shape[1])",
            ),
            Mistake(
                "The softmax is over the keys (axis 1), not over the queries.",
                "exponentials / exponentials.sum(axis=1, keepdims=True)",
                "exponentials / exponentials.sum(axis=0, keepdims=True)",
            ),
            Mistake(
                "The weights are not normalised: each row must sum to 1.",
                "exponentials / exponentials.sum(axis=1, keepdims=True)",
                "exponentials",
            ),
        ),
    ),
    Exercise(
        "F9",
        "A causal mask and padding",
        ("weights",),
        _draw_masked_scores,
        (
            Mistake(
                "The padding is not masked: keys from `length` on are not allowed.",
                "(key <= query) & (key < length)",
                "(key <= query)",
            ),
            Mistake(
                "The mask is not causal: query t may not attend to later keys.",
                "(key <= query) & (key < length)",
                "(key < length) & (query >= 0)",
            ),
            Mistake(
                "The mask is transposed: query t attends to earlier keys, not to later ones.",
                "(key <= query)",
                "(key >= query)",
            ),
            Mistake(
                "Query t may attend to its own position t.", "(key <= query)", "((key < query) | (query + key == 0))"
            ),
            Mistake(
                "A score that is not allowed becomes −∞, not 0: exp(0) = 1 still has a weight.",
                "np.where(allowed, scores, -np.inf)",
                "np.where(allowed, scores, 0.0)",
            ),
        ),
    ),
    Exercise(
        "G2",
        "Sinusoidal position encodings",
        ("P",),
        lambda random: {"length": int(random.integers(5, 9)), "width": int(2 * random.integers(3, 6))},
        (
            Mistake(
                "Sine and cosine are exchanged: the even columns are sines.",
                "P[:, 0::2] = np.sin(angle)  # blank: the even columns\n    P[:, 1::2] = np.cos(angle)",
                "P[:, 0::2] = np.cos(angle)\n    P[:, 1::2] = np.sin(angle)",
            ),
            Mistake(
                "The exponent is 2i/D, where i is the number of the pair: the factor 2 is missing.",
                "10000 ** (2 * pair / width)",
                "10000 ** (pair / width)",
            ),
            Mistake(
                "The angle is position / 10000^(2i/D), not position · 10000^(2i/D).",
                "position / 10000",
                "position * 10000",
            ),
            Mistake("The base is 10000, not 1000.", "position / 10000", "position / 1000"),
            Mistake(
                "Positions are counted from 0: the first row is sin(0), cos(0).",
                "position / 10000",
                "(position + 1) / 10000",
            ),
        ),
    ),
    Exercise(
        "G10",
        "Beam search",
        ("tokens", "score"),
        _draw_chain,
        (
            Mistake("Only one hypothesis is kept: that is greedy search.", "[:beam]  # blank", "[:1]  # blank"),
            Mistake(
                "The worst hypotheses are kept: sort by falling score.",
                "key=lambda item: -item[1])[:beam]",
                "key=lambda item: item[1])[:beam]",
            ),
            *(
                Mistake(
                    "The hypotheses are sorted by the score per token; sort by the score, which is the sum.",
                    "key=lambda item: -item[1])[:beam]",
                    f"key=lambda item: -item[1] / {length})[:beam]",
                )
                for length in ("len(item[0])", "(len(item[0]) - 1)")  # with the start token, or without
            ),
            Mistake(
                "Finished hypotheses are lost: they compete with the others unchanged.",
                "candidates.append((tokens, score))  # blank",
                "candidates.append((tokens, -1e9))  # blank",
            ),
            Mistake(
                "Log-probabilities are added up over the steps; only the last one is used.",
                "score + log_p[tokens[-1], token]",
                "log_p[tokens[-1], token]",
            ),
            Mistake(
                "log_p is transposed: log_p[a, b] is the log-probability that b follows a.",
                "log_p[tokens[-1], token]",
                "log_p[token, tokens[-1]]",
            ),
        ),
        seeds=(0, 4, 11, 34, 37),  # chains in which greedy search and each wrong way to sort change the winner
    ),
    Exercise(
        "H7",
        "The gradient of skip-gram with negative sampling",
        ("dv", "du_o", "du_k"),
        draw_arrays(v=(6,), u_o=(6,), u_k=(4, 6)),
        (
            Mistake(
                "For the word of the context the error is σ(u_o · v) − 1; the −1 is missing.",
                "sigmoid(u_o @ v) - 1",
                "sigmoid(u_o @ v)",
            ),
            Mistake(
                "For the word of the context the sign is reversed: predicted minus wanted.",
                "sigmoid(u_o @ v) - 1",
                "1 - sigmoid(u_o @ v)",
            ),
            Mistake(
                "For a negative the wanted value is 0, not 1: its error is σ(u_k · v).",
                "error_k = sigmoid(u_k @ v)",
                "error_k = sigmoid(u_k @ v) - 1",
            ),
            Mistake(
                "The sign of the negatives is reversed.", "error_k = sigmoid(u_k @ v)", "error_k = -sigmoid(u_k @ v)"
            ),
            Mistake(
                "The negatives are missing in the gradient of v.", "error_o * u_o + error_k @ u_k", "error_o * u_o"
            ),
            Mistake(
                "The word of the context is missing in the gradient of v.",
                "error_o * u_o + error_k @ u_k",
                "error_k @ u_k",
            ),
        ),
        {"dv": ("loss", "v"), "du_o": ("loss", "u_o"), "du_k": ("loss", "u_k")},
    ),
    Exercise(
        "H8",
        "Cross-entropy and perplexity",
        ("cross_entropy", "perplexity"),
        _draw_predictions,
        (
            Mistake(
                "The cross-entropy is in bits: the logarithm to base 2.",
                "np.mean(np.log2(word_p))",
                "np.mean(np.log(word_p))",
            ),
            Mistake(
                "The cross-entropy is the mean per word, not the sum.",
                "np.mean(np.log2(word_p))",
                "np.sum(np.log2(word_p))",
            ),
            Mistake(
                "The logarithm is inside the mean: the mean of the logarithms, not the logarithm of the mean.",
                "np.mean(np.log2(word_p))",
                "np.log2(np.mean(word_p))",
            ),
            Mistake("The minus sign is missing.", "-np.mean(np.log2(word_p))", "np.mean(np.log2(word_p))"),
            Mistake(
                "The cross-entropy is in bits, so the perplexity is 2 to it, not e.",
                "2**cross_entropy",
                "np.exp(cross_entropy)",
            ),
            Mistake(
                "That is the entropy of the model's own predictions; the cross-entropy is about the words of the text.",
                "word_p = p[np.arange(len(words)), words.astype(int)]",
                "word_p = np.exp2(np.sum(p * np.log2(p), axis=1))",
            ),
        ),
    ),
)
