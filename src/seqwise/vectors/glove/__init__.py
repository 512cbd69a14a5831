"""GloVe: word vectors from co-occurrence counts (Pennington, Socher and Manning, 2014).

    blocks of ids → `PairCounter` → a file of pairs → `GloveModel` → vectors

Neither of them holds the corpus or the counts in memory. Both know ids, not words.
"""
