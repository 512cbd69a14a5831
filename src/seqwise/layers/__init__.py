"""Layers: vectors → vectors. They know nothing of tokens, tasks or training.

One dimension legend for the whole project:

    B  batch (rows)          D  model width           V  vocabulary
    T  time                  H  attention heads       K  width of one head
    S  source time           U  hidden units of a recurrent cell

Every tensor is batch first, also a carried state. Masks are boolean and True means "may be looked at".
"""
