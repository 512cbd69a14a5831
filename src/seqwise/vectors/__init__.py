"""Word vectors: trained on a corpus, saved to a file, searched. They are static: no network is needed to look one up.

    corpus → ids on disk → skip-gram, CBOW or GloVe → `KeyedVectors` → nearest, analogy, evaluation, map

Modules are imported when their names are first used. torch and numba are imported only for training; numba also to read
a large text file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqwise.vectors.formats import load_vectors as load_vectors
    from seqwise.vectors.formats import save_vectors as save_vectors
    from seqwise.vectors.keyed import KeyedVectors as KeyedVectors
    from seqwise.vectors.settings import VectorSettings as VectorSettings
    from seqwise.vectors.training import train_vectors as train_vectors

_MODULES = {  # public name → module
    "KeyedVectors": "seqwise.vectors.keyed",
    "VectorSettings": "seqwise.vectors.settings",
    "load_vectors": "seqwise.vectors.formats",
    "save_vectors": "seqwise.vectors.formats",
    "train_vectors": "seqwise.vectors.training",
}

__all__ = ["KeyedVectors", "VectorSettings", "load_vectors", "save_vectors", "train_vectors"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqwise.vectors' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
