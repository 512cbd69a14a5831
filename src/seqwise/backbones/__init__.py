"""Backbones: vectors → `BackboneOutput`. They know nothing of vocabularies, heads or losses.

Every backbone is called as `backbone(vectors, state, lengths)`. Its `width` is the width of the output vectors;
`stateful` says whether training passes the state of one window to the next.
"""
