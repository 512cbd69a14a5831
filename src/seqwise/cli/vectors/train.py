"""`seqwise vectors train`: trains word vectors on a corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, list_typed, parse
from seqwise.errors import UsageError, pluralize
from seqwise.vectors.settings import VectorSettings, check_vector_effects

if TYPE_CHECKING:
    from seqwise.vectors.training import VectorTraining

EXAMPLE = "seqwise vectors train reviews.txt.gz --method cbow --dim 200 --out vectors.safetensors"
INTERRUPTED = 130  # exit status: 128 + SIGINT


@dataclass
class Train:
    """Train a vector for every word of CORPUS: a .txt or .jsonl file (or gzip of these), a folder of them, or
    builtin:docs. The context of a word is the words around it on the same line."""

    new_names: ClassVar[dict[str, str]] = {f"--{old}": f"--{new}" for old, new in VectorSettings.new_names.items()}

    main_options: ClassVar = (
        "out", "method", "dim", "window", "min-count", "epochs", "negative", "loss", "learning-rate", "subwords",
        "lowercase", "threads", "device", "json",
    )  # fmt: skip

    corpus: Annotated[str, tyro.conf.Positional]
    """Text to train on."""
    settings: Annotated[VectorSettings, tyro.conf.arg(name="")]
    out: Annotated[Path | None, UNSET] = None
    """File to write: .safetensors (everything), .bin, .vec or .txt (words and vectors)."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def train(argv: Sequence[str]) -> int:
    options = parse(Train, argv, prog="seqwise vectors train", example=EXAMPLE)
    check_vector_effects(options.settings, list_typed(argv))
    out = options.out
    if out is None:
        raise UsageError("--out is missing: the file for the vectors.", fix=f"For example: {EXAMPLE}")
    from seqwise.cli.progress import ProgressBar
    from seqwise.signals import defer_interrupts
    from seqwise.vectors.formats import resolve_output_kind, save_vectors
    from seqwise.vectors.training import VectorTraining

    if resolve_output_kind(out) != "safetensors" and options.settings.subwords:
        console.warn(f"{out.name} has no n-grams, so unknown words will have no vector; .safetensors saves them.")
    with ProgressBar("reading") as bar:
        training = VectorTraining(options.corpus, options.settings, console.log, bar)
    with training, defer_interrupts() as has_signal:  # until the vectors are saved
        is_interrupted = _train(training, has_signal)
        if is_interrupted and out.exists():  # unfinished vectors do not replace an existing file
            out = out.with_name(f"{out.stem}.unfinished{out.suffix}")
        vectors = training.export_vectors()
        save_vectors(out, vectors)
    if options.json:
        summary = {
            "out": out,
            "vectors": len(vectors),
            "dim": vectors.dim,
            "seconds": training.seconds,
            **vectors.about,
        }
        console.print_json({**summary, "interrupted": is_interrupted})
    else:
        console.write(f"{out}: {pluralize(len(vectors), 'vectors')} of dimension {vectors.dim}")
    return INTERRUPTED if is_interrupted else 0


def _train(training: VectorTraining, has_signal: Callable[[], bool]) -> bool:
    """Trains with a progress display; returns whether it was interrupted."""
    from seqwise.cli.progress import VectorDisplay
    from seqwise.signals import is_due_to_interrupt

    trainer = training.trainer
    try:
        with VectorDisplay() as display:
            for step in training.steps():
                display.show(step)
                if has_signal() and trainer.progress < 1:
                    break
            else:
                return False
    except (KeyboardInterrupt, Exception) as error:
        if not is_due_to_interrupt(error):  # a second signal, during a long step
            raise
    if not trainer.progress:
        raise KeyboardInterrupt
    console.warn(f"interrupted after {trainer.progress:.0%} of the training; the vectors so far are saved.")
    return True
