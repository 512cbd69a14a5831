"""Train word vectors on a text with three objectives and query them.

    python examples/10_word_vectors.py

Takes a few seconds. Skip-gram and CBOW with negative sampling classify whether two words occurred together; GloVe fits
the logarithm of how often they did.
"""
# ruff: noqa: T201

from __future__ import annotations

from seqwise import train_vectors


def main() -> None:
    for method in ("skipgram", "cbow", "glove"):
        vectors = train_vectors("builtin:docs", method=method, dim=50, epochs=10, threads=1)
        losses = vectors.about["losses"]
        print(f"{method}: {len(vectors):,} words, loss {losses[0]:.3f} → {losses[-1]:.3f}")
        for word in ("function", "raise"):
            neighbours = vectors.nearest(word, n=4)
            print(f"  nearest to {word}:", ", ".join(f"{each.word} {each.score:.2f}" for each in neighbours))
        outlier = vectors.rank_by_centrality(["list", "tuple", "dict", "exception"])[0]
        print(f"  of list, tuple, dict and exception, {outlier.word} is the outlier")

    # With subwords, a word outside the vocabulary gets a vector from its character n-grams.
    vectors = train_vectors("builtin:docs", subwords=True, buckets=20_000, dim=50, epochs=5, threads=1)
    print("with n-grams, 'subclassable' is near", [each.word for each in vectors.nearest("subclassable", n=3)])


if __name__ == "__main__":
    main()
