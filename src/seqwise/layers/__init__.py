"""Layers: vectors → vectors. They know nothing of tokens, tasks or training.

One dimension legend for the whole project:

    B  batch size            D  model width           V  vocabulary size
    T  time                  H  attention heads       K  width of one head
    S  source time           U  hidden units of a recurrent cell

Where a letter has another meaning in a module, its docstrings say so. Every tensor is batch first, also a recurrent
state; the exceptions are inputs and states in `rnn.py`, which follows `torch.nn`. Masks are boolean; True means "may be
attended to".

The layers can be imported from here, as in `from seqwise.layers import Recurrent, LSTMCell`. A module is imported when
one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Module → the public names in it.
_NAMES_BY_MODULE = {
    "attention": "Additive Dot General MultiHeadAttention ScaledDot attend attend_with_weights causal_mask "
    "padding_mask",
    "attentive": "AttentiveRecurrent StateAttention",
    "cells": "CappedLSTMCell Cell EarlyResetGRUCell EarlyResetReplacingGRUCell GRUCell LayerNormGRUCell "
    "LayerNormLSTMCell LayerNormRNNCell LayerNormReplacingGRUCell LSTMCell ReplacingGRUCell RNNCell make_cell",
    "dropout": "VariationalDropout drop_rows drop_weights",
    "embedding": "CharacterCNN Embedding OneHot",
    "initialise": "forget_bias_ he_ orthogonal_ xavier_",
    "norm": "LayerNorm",
    "output": "AdaptiveSoftmax FullSoftmax MixtureSoftmax SampledSoftmax",
    "positions": "LearnedPositions Rotary SinusoidalPositions rotary",
    "recurrent": "Bidirectional Recurrent StackedRecurrent",
    "rnn": "GRU LSTM RNN",
    "transformer": "Decoder DecoderLayer Encoder EncoderDecoder EncoderLayer FeedForward PreNormDecoderLayer "
    "PreNormEncoderLayer",
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}  # name → module

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqwise.layers' has no attribute {name!r}")
    value = getattr(import_module(f"seqwise.layers.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
