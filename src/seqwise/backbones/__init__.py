"""Backbones: vectors → States. They know nothing of vocabularies, heads or losses.

Every backbone is called as `backbone(vectors, carry, lengths)`, has a `width`, and says in `carries` whether training
should hand the carry of one window to the next.
"""
