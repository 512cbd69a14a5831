"""`seqwise vectors plot`: draws a map of words as a picture or as an interactive page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET
from seqwise.cli.vectors.query import check_minimums, load_with_progress, parse_words, report_composed
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors
    from seqwise.vectors.map.word_map import WordMap

EXAMPLE = "seqwise vectors plot vectors.safetensors --skip 50 --out map.html"
MAX_TITLE_WORDS = 5


@dataclass
class Plot:
    """Draw a map on which words with similar vectors are close together: each WORD with its neighbours, or by default
    the most frequent words. Colours are clusters, found by spherical k-means on the normalised vectors, not on the
    map."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[WORD …]", help_behavior_hint="")
    ] = ()
    """Words to show with their neighbours."""
    out: Annotated[Path | None, UNSET] = None
    """File to write: .png for a picture, .html for a page with zoom, search and neighbours, which works offline."""
    n: int = 300
    """Without WORD: number of most frequent words."""
    skip: int = 0
    """Without WORD: number of most frequent words to leave out, which are mostly function words."""
    neighbours: int = 20
    """Number of nearest neighbours of each WORD."""
    by: Annotated[Literal["pca", "tsne"] | None, UNSET] = None
    """Projection onto the plane: tsne preserves neighbours, pca shows the directions of largest variance. Default: tsne
    for 10 to 2,000 words, otherwise pca."""
    seed: int = 0
    """Seed of t-SNE and k-means. On the same machine the same seed gives the same map."""
    clusters: Annotated[int | None, UNSET] = None
    """Number of clusters, at most 12. Default: half the square root of the number of words, rounded, from 2 to 12."""
    json: bool = False
    """Print the result as one JSON document on standard output: out, title, method, groups (the names of the clusters)
    and words, each with word, x, y and group (its cluster)."""


def plot(argv: Sequence[str]) -> int:
    options = parse_words(Plot, argv, prog="seqwise vectors plot", example=EXAMPLE)
    if options.out is None:
        raise UsageError("--out is missing: the file for the map.", fix=f"For example: {EXAMPLE}")
    from seqwise.cli.progress import ProgressBar
    from seqwise.files import check_output_path
    from seqwise.vectors.map.word_map import MAX_CLUSTERS, MIN_WORDS, build_word_map, choose_neighbourhood

    check_minimums(options, seed=0, skip=0, neighbours=0, n=MIN_WORDS)
    if options.clusters is not None and not 1 <= options.clusters <= MAX_CLUSTERS:
        raise UsageError(f"--clusters: expected 1 to {MAX_CLUSTERS} clusters; received {options.clusters}.")
    check_output_path(options.out, (".png", ".html"))
    vectors = load_with_progress(options.file, words=options.words)
    if options.words:
        words = choose_neighbourhood(vectors, options.words, options.neighbours)
        num_highlighted = len(set(options.words))  # they come first
    else:
        words = tuple(vectors.words[options.skip : options.skip + options.n])
        num_highlighted = 0
    title = _build_title(options, len(words))
    with ProgressBar("projecting") as bar:
        word_map = build_word_map(
            vectors,
            words,
            title,
            num_highlighted=num_highlighted,
            by=options.by,
            seed=options.seed,
            num_clusters=options.clusters,
            progress=bar,
        )
    num_labels = _write(options.out, word_map, vectors)
    report_composed(vectors, dict.fromkeys(options.words))
    if options.json:
        rows = zip(word_map.words, word_map.points.tolist(), word_map.clusters.tolist())
        points = [{"word": word, "x": x, "y": y, "group": group} for word, (x, y), group in rows]
        method = word_map.description
        # "how" is the key that "method" had in earlier versions; it is written until 0.3.
        header = {"out": options.out, "title": word_map.title, "method": method, "how": method}
        console.print_json({**header, "groups": word_map.cluster_names, "words": points})
        return 0
    labels = "" if num_labels is None else f", {num_labels:,} of them with a label"
    console.write(f"{options.out}: {len(word_map.words):,} words{labels}; {word_map.description}")
    return 0


def _build_title(options: Plot, count: int) -> str:
    words = list(dict.fromkeys(options.words))
    first, last = f"{options.skip + 1:,}", f"{options.skip + count:,}"
    if words:
        num_more = len(words) - MAX_TITLE_WORDS
        content = ", ".join(words[:MAX_TITLE_WORDS]) + (f" and {num_more} more" if num_more > 0 else "")
        content += f", each with its {options.neighbours} nearest" if options.neighbours else ""
    else:
        content = f"words {first} to {last} by frequency" if options.skip else f"the {last} most frequent words"
    return f"Word map of {options.file.name}: {content}"


def _write(out: Path, word_map: WordMap, vectors: KeyedVectors) -> int | None:
    """Writes the picture or the page; returns the number of labels of a picture."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.formats.vector_table import open_for_writing

    if out.suffix.lower() == ".html":
        from seqwise.vectors.map.page import build_page

        with ProgressBar("neighbours") as bar:
            content, num_labels = build_page(word_map, vectors, bar).encode("utf-8", "replace"), None
    else:
        from seqwise.vectors.map.picture import draw_picture

        picture = draw_picture(word_map)
        content, num_labels = picture.png, picture.num_labels
        if picture.num_unreadable:
            problem = f"no font of this machine has all characters of {picture.num_unreadable:,} words"
            console.warn(f"{problem}; an .html page can show them.")
    with open_for_writing(out) as file:
        file.write(content)
    return num_labels
