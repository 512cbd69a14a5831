"""`seqwise vectors convert`: converts between file formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.cli.vectors.query import load_with_progress
from seqwise.errors import pluralize
from seqwise.vectors.formats import Kind, resolve_output_kind, save_vectors

EXAMPLE = "seqwise vectors convert glove.6B.100d.txt vectors.safetensors"


@dataclass
class Convert:
    """Read IN and write OUT. Suffixes determine the formats: .safetensors, .bin (word2vec binary), .vec (fastText
    text), .txt (word2vec text, or GloVe text if IN has no line with sizes). With .gz added, all but .safetensors are
    compressed."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="in")]
    """File of vectors."""
    out: Annotated[Path, tyro.conf.Positional]
    """File to write."""
    kind_in: Annotated[Kind | None, UNSET, tyro.conf.arg(name="from")] = None
    """Format of IN, if its suffix is that of another one."""
    kind_out: Annotated[Kind | None, UNSET, tyro.conf.arg(name="to")] = None
    """Format of OUT, if its suffix is that of another one."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def convert(argv: Sequence[str]) -> int:
    options = parse(Convert, argv, prog="seqwise vectors convert", example=EXAMPLE)
    kind = resolve_output_kind(options.out, options.kind_out)
    vectors = load_with_progress(options.source, options.kind_in)
    save_vectors(options.out, vectors, options.kind_out)
    only_in_safetensors = () if kind == "safetensors" else ("counts", "subwords")
    lost = [name for name in only_in_safetensors if getattr(vectors, name) is not None]
    if "subwords" in lost:
        console.warn("this format has no n-grams: vectors of unknown words can no longer be composed.")
    if options.json:
        words, dim = len(vectors), vectors.dim
        console.print_json({"in": options.source, "out": options.out, "words": words, "dim": dim, "lost": lost})
    else:
        console.write(f"{options.out}: {pluralize(len(vectors), 'words')}, vectors of dimension {vectors.dim}")
    return 0
