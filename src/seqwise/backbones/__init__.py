"""Backbones: vectors → States. They know nothing of vocabularies, heads or losses.

Every backbone is called as `backbone(vectors, state, lengths)`, has a `width`, and says in `stateful` whether training
passes the state of one window to the next.
"""
