"""`seqwise vectors plot`: a map of words, as a picture or as a page to explore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET
from seqwise.cli.vectors.arguments import parse_words
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors
    from seqwise.vectors.map.word_map import WordMap

EXAMPLE = "seqwise vectors plot vectors.safetensors --skip 50 --out map.html"
SUFFIXES = (".png", ".html")
NAMED = 5  # so many words of the request stand in the title


@dataclass
class Plot:
    """Draw a map on which words with similar vectors lie together: each WORD with its neighbours, or without any the
    most frequent words. Colours are groups found by k-means among the vectors themselves, not on the map."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[WORD …]", help_behavior_hint="")
    ] = ()
    """Words to show with their neighbours."""
    out: Annotated[Path | None, UNSET] = None
    """File to write: .png is a picture; .html a page with zoom, search and neighbours that needs no network."""
    n: int = 300
    """Without WORD: how many of the most frequent words."""
    skip: int = 0
    """Without WORD: leave out so many of the most frequent, which are mostly function words."""
    neighbours: int = 20
    """With WORD: how many of the nearest words of each."""
    by: Annotated[Literal["pca", "tsne"] | None, UNSET] = None
    """tsne keeps neighbours together, pca shows the directions of most variance; tsne for 10 to 2,000 words unless
    set, otherwise pca."""
    seed: int = 0
    """Of t-SNE and k-means. On the same machine the same seed draws the same map."""
    clusters: Annotated[int | None, UNSET] = None
    """Number of groups, at most 12; half the root of the number of words unless set."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there: words, places, groups."""


def main(argv: Sequence[str]) -> int:
    asked = parse_words(Plot, argv, prog="seqwise vectors plot", example=EXAMPLE)
    if asked.out is None:
        raise UsageError("--out is missing: the file for the map.", repair=f"For example: {EXAMPLE}")
    _check(asked)
    from seqwise.cli.progress import ProgressBar
    from seqwise.cli.vectors.output import check_words, load_with_progress, report_composed
    from seqwise.files import check_output_path
    from seqwise.vectors.map.word_map import chart, choose_frequent, choose_neighbourhood

    check_output_path(asked.out, SUFFIXES)
    keyed = load_with_progress(asked.file)
    check_words(keyed, asked.words)
    if asked.words:
        words, named = choose_neighbourhood(keyed, asked.words, asked.neighbours), len(set(asked.words))
    else:
        words, named = choose_frequent(keyed, asked.n, asked.skip), 0
    with ProgressBar("placing") as bar:
        made = chart(
            keyed, words, _title(asked, len(words)), asked=named,
            by=asked.by, seed=asked.seed, clusters=asked.clusters, progress=bar,
        )  # fmt: skip
    labelled = _write(asked.out, made, keyed)
    report_composed(keyed, dict.fromkeys(asked.words))
    if asked.json:
        console.print_json({"out": asked.out, **_plain(made)})
        return 0
    shown = f", {labelled:,} of them with a label" if labelled is not None else ""
    console.write(f"{asked.out}: {len(made.words):,} words{shown}; {made.how}")
    return 0


def _check(asked: Plot) -> None:
    """Refuse numbers that give no map, before anything is read."""
    from seqwise.vectors.map.clusters import MAX_CLUSTERS
    from seqwise.vectors.map.projection import MIN_WORDS

    least = {"seed": 0, "skip": 0, "neighbours": 0, "n": MIN_WORDS}
    for name, number in least.items():
        if getattr(asked, name) < number:
            raise UsageError(f"--{name}: expected {number} or more; received {getattr(asked, name)}.")
    if asked.clusters is not None and not 1 <= asked.clusters <= MAX_CLUSTERS:
        raise UsageError(f"--clusters: expected 1 to {MAX_CLUSTERS} groups; received {asked.clusters}.")


def _title(asked: Plot, count: int) -> str:
    name = f"Word map of {asked.file.name}"
    if not asked.words:
        first, last = f"{asked.skip + 1:,}", f"{asked.skip + count:,}"
        return f"{name}: {f'words {first} to {last} by frequency' if asked.skip else f'the {last} most frequent words'}"
    words = list(dict.fromkeys(asked.words))
    named = ", ".join(words[:NAMED]) + (f" and {len(words) - NAMED} more" if len(words) > NAMED else "")
    return f"{name}: {named}, each with its {asked.neighbours} nearest" if asked.neighbours else f"{name}: {named}"


def _write(out: Path, made: WordMap, keyed: KeyedVectors) -> int | None:
    """Write the picture or the page; returns how many words of a picture have a label."""
    from seqwise.vectors.formats.vector_table import written

    if out.suffix.lower() == ".html":
        from seqwise.cli.progress import ProgressBar
        from seqwise.vectors.map.page import page

        with ProgressBar("neighbours") as bar:
            content, labelled = page(made, keyed, bar).encode("utf-8", "replace"), None
    else:
        from seqwise.vectors.map.picture import draw

        picture = draw(made)
        content, labelled = picture.png, picture.labelled
        if picture.unreadable:
            console.warn(f"no typeface here has all letters of {picture.unreadable:,} words; an .html page has them.")
    with written(out) as file:
        file.write(content)
    return labelled


def _plain(made: WordMap) -> dict[str, Any]:
    rows = zip(made.words, made.points.tolist(), made.groups.tolist())
    return {
        "title": made.title,
        "how": made.how,
        "groups": made.names,
        "words": [{"word": word, "x": x, "y": y, "group": group} for word, (x, y), group in rows],
    }
