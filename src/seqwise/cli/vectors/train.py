"""`seqwise vectors train`: word vectors from a corpus, into a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.errors import UsageError
from seqwise.vectors.settings import VectorSettings

if TYPE_CHECKING:
    from seqwise.vectors.training import VectorTraining

EXAMPLE = "seqwise vectors train reviews.txt.gz --method cbow --dim 200 --out vectors.safetensors"
INTERRUPTED = 130


@dataclass
class Train:
    """Learn a vector for every word of CORPUS: a .txt or .jsonl file (or gzip of these), a folder of them, or
    builtin:docs. Words of one line are neighbours; a vector says in which company a word is found."""

    renamed: ClassVar[dict[str, str]] = {f"--{old}": f"--{new}" for old, new in VectorSettings.renamed.items()}

    corpus: Annotated[str, tyro.conf.Positional]
    """Text to learn from."""
    settings: Annotated[VectorSettings, tyro.conf.arg(name="")]
    out: Annotated[Path | None, UNSET] = None
    """File to write: .safetensors (everything), .bin, .vec or .txt (words and vectors)."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    options = parse(Train, argv, prog="seqwise vectors train", example=EXAMPLE)
    if options.out is None:
        raise UsageError("--out is missing: the file for the vectors.", repair=f"For example: {EXAMPLE}")
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.formats import check_out
    from seqwise.vectors.training import VectorTraining

    if check_out(options.out) != "safetensors" and options.settings.subwords:
        console.warn(f"{options.out.name} keeps no n-grams, so unknown words will have no vector; .safetensors does.")
    with ProgressBar("reading") as bar:
        training = VectorTraining(options.corpus, options.settings, console.log, bar)
    with training:
        stopped = _train(training)
        out = _free(options.out) if stopped else options.out
        made = _save(training, out)
    if options.json:
        console.print_json({**made, "interrupted": stopped})
    else:
        console.write(f"{out}: {made['vectors']:,} vectors of {made['dim']}")
    return INTERRUPTED if stopped else 0


def _free(out: Path) -> Path:
    """Where unfinished vectors go: not over a file that is there."""
    return out.with_name(f"{out.stem}.unfinished{out.suffix}") if out.exists() else out


def _train(training: VectorTraining) -> bool:
    """Train and show it; was it interrupted?"""
    from seqwise.cli.progress import VectorDisplay

    try:
        with VectorDisplay() as display:
            for step in training.steps():
                display.show(step)
    except KeyboardInterrupt:
        if not training.progress:
            raise
        console.warn(f"interrupted after {training.progress:.0%} of the training; what was learned so far is saved.")
        return True
    return False


def _save(training: VectorTraining, out: Path) -> dict[str, Any]:
    from seqwise.vectors.formats import save_vectors

    keyed = training.vectors()
    save_vectors(out, keyed)
    return {"out": out, "vectors": len(keyed), "dim": keyed.dim, "seconds": training.seconds, **keyed.about}
