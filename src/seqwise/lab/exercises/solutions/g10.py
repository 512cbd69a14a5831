"""Beam search.

log_p[a, b] is the log-probability that token b follows token a. A hypothesis begins with the start token and is
finished when its last token is the end token. At each step every unfinished hypothesis is continued by every token;
the `beam` best of all continuations and finished hypotheses are kept. The score is the sum of log-probabilities.
"""

import numpy as np


def solve(log_p, start, end, beam, max_length):
    """Returns the tokens of the best hypothesis, after the start token, and its score."""
    hypotheses = [([start], 0.0)]  # tokens and score
    for _ in range(max_length):
        candidates = []
        for tokens, score in hypotheses:
            if tokens[-1] == end:
                candidates.append((tokens, score))  # blank: a finished hypothesis stays as it is
            else:
                for token in range(len(log_p)):
                    candidates.append(([*tokens, token], score + log_p[tokens[-1], token]))  # blank: one more token
        hypotheses = sorted(candidates, key=lambda item: -item[1])[:beam]  # blank: the best ones
    tokens, score = max(hypotheses, key=lambda item: item[1])
    return np.array(tokens[1:]), score
