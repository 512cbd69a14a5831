"""GloVe: word vectors from the counts of which words stand near each other (Pennington, Socher and Manning, 2014).

    blocks of ids → `count_pairs` → a file of pairs → `train_glove` → vectors

Neither step holds the corpus or the counts in memory. Both know ids only; the words are their caller's. Importing this
package is quick: numba is imported when the work starts.
"""

from __future__ import annotations

from seqwise.vectors.glove.counting import count_pairs
from seqwise.vectors.glove.entries import Counts
from seqwise.vectors.glove.training import Descent, FitSettings, train_glove

__all__ = ["Counts", "Descent", "FitSettings", "count_pairs", "train_glove"]
