"""Seqwise trains, compares and inspects sequence models, from the vanilla RNN to the Transformer.

    text, values, images → tokens → batches → embedding → backbone → head → loss      (training)
                                                                        └→ decoding   (use)   → metrics

The folders of this package follow that line; a module imports only from those listed before its own:

    text, page, data, kernels, layers, backbones, heads, losses, decoding, metrics, tasks, vectors, training, compare,
    lens, lab, studio, cli

All of them may import the other modules of this folder: settings, registries, option names of other tools that
messages translate, budget, errors, environment, digests, files, locks, new_folders, callbacks, printable, svg, image,
yaml_files, metric_names, recipe_files and recipe_results.

The public names are imported when they are first used, so that `import seqwise` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqwise.compare.api import compare as compare
    from seqwise.compare.loading import load as load
    from seqwise.config import Settings as Settings
    from seqwise.errors import SeqwiseError as SeqwiseError
    from seqwise.layers.record import record as record
    from seqwise.training.api import train as train
    from seqwise.training.check import check as check
    from seqwise.vectors.formats import load_vectors as load_vectors
    from seqwise.vectors.keyed import KeyedVectors as KeyedVectors
    from seqwise.vectors.training import train_vectors as train_vectors

    __version__: str

# Public name → the module that defines it; a name that is itself a module maps to that module. `compare` is a module
# that can be called.
_PUBLIC = {
    "KeyedVectors": "seqwise.vectors.keyed",
    "Settings": "seqwise.config",
    "SeqwiseError": "seqwise.errors",
    "check": "seqwise.training.check",
    "compare": "seqwise.compare",
    "families": "seqwise.families",
    "lab": "seqwise.lab",
    "layers": "seqwise.layers",
    "lens": "seqwise.lens",
    "load": "seqwise.compare.loading",
    "load_vectors": "seqwise.vectors.formats",
    "record": "seqwise.layers.record",
    "train": "seqwise.training.api",
    "train_vectors": "seqwise.vectors.training",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from seqwise.environment import get_version

        return get_version()
    if name not in _PUBLIC:
        raise AttributeError(f"module 'seqwise' has no attribute {name!r}")
    if "torch" not in sys.modules:  # which reads the variable when it is imported
        from seqwise.environment import limit_spinning

        limit_spinning()
    module = import_module(_PUBLIC[name])
    value = module if _PUBLIC[name] == f"seqwise.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
