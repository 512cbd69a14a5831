"""The namespace `seqwise.layers`: every layer under one name, imported when it is first used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from torch import nn

from seqwise import layers


@pytest.mark.parametrize("name", layers.__all__)
def test_every_public_name_is_the_object_of_its_module(name):
    assert getattr(layers, name) is getattr(importlib.import_module(f"seqwise.layers.{layers._MODULES[name]}"), name)


def test_every_layer_is_public():
    layer_names = set()
    for module in layers._NAMES_BY_MODULE:
        loaded = importlib.import_module(f"seqwise.layers.{module}")
        layer_names |= {
            name
            for name, value in vars(loaded).items()
            if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == loaded.__name__
        }
    layer_names = {name for name in layer_names if not name.startswith("_")}
    assert layer_names - {"GatedCell", "Stack", "TransformerLayer"} <= set(layers.__all__)  # base classes


def test_an_unknown_layer_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'seqwise\.layers' has no attribute 'Lstm'"):
        _ = layers.Lstm


def test_importing_the_namespace_imports_no_torch():
    code = "import sys, seqwise.layers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
