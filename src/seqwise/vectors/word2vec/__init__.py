"""Skip-gram and CBOW (Mikolov et al. 2013): train vectors on lines of word ids. This package knows ids, not words.

`reference.py` is skip-gram with negative sampling in plain NumPy: read it first. The other modules compute the same
with compiled loops, and add CBOW, the other losses, n-grams and the GPU.
"""
