"""`seqwise embed`: writes contextual vectors of texts to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.inputs import get_piped_input, read_lines
from seqwise.cli.models import load_model
from seqwise.cli.options import UNSET, parse
from seqwise.config import Device
from seqwise.errors import UsageError, pluralize

EXAMPLE = "seqwise embed runs/masked lines.txt --out vectors.npy --pool mean"
PIPE = "seqwise embed RUN - --out FILE"  # reads the text from standard input


@dataclass
class Embed:
    """Write the hidden states of a masked, language, classify, tag or translate run for each token of TEXT.

    Each TEXT is one text; a file or - (standard input) has one text per line. F.npy is an array of all vectors, and
    F.json beside it lists tokens, character offsets and the rows of each text. F.jsonl has one object per text.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the folder of a comparison."""
    text: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT …]", help_behavior_hint="")
    ] = ()
    """Texts, a file, or - for standard input; without it a pipe is read."""
    out: Annotated[Path | None, UNSET] = None
    """File to write: .npy or .jsonl."""
    layer: Annotated[int | None, UNSET] = None
    """0: embeddings, 1: hidden states of the first layer, and so on; the last layer by default."""
    pool: Literal["none", "mean"] = "none"
    """none: one vector per token. mean: one vector per text, their mean."""
    device: Device = "auto"
    """Device that computes; auto: a GPU if there is one."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def main(argv: Sequence[str]) -> int:
    args = parse(Embed, argv, prog="seqwise embed", example=EXAMPLE)
    if args.out is None:
        raise UsageError("--out is missing: the file to write.", fix=f"For example: {EXAMPLE}")
    from seqwise.cli.progress import ProgressBar
    from seqwise.files import check_output_path
    from seqwise.tasks.contextual import SUFFIXES, save_vectors

    check_output_path(args.out, SUFFIXES)
    trained = load_model("embed", args.run, args.text, args.device)
    texts = [line for text in args.text or (get_piped_input() or "",) for line in read_lines(text, PIPE)]
    if not any(text.strip() for text in texts):
        raise UsageError("there is no text.", fix=f"For example: {EXAMPLE}")
    encoder = trained.contextual
    layer = encoder.depth if args.layer is None else args.layer
    with ProgressBar("embedding") as bar:
        summary = save_vectors(args.out, encoder, texts, layer, args.pool == "mean", bar)
    if empty := sum(not text.strip() for text in texts):
        result = "a vector of zeros" if args.pool == "mean" else "no vectors"
        verb = "are" if empty > 1 else "is"
        console.warn(f"{empty:,} of {pluralize(len(texts), 'lines')} {verb} empty: {result}.")
    if args.json:
        console.print_json(summary)
        return 0
    vectors = pluralize(summary["texts"] if args.pool == "mean" else summary["tokens"], "vectors")
    console.write(f"{args.out}: {vectors} of dimension {summary['width']}, layer {layer} of {encoder.depth}")
    return 0
