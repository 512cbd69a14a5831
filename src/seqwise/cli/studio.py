"""`seqwise studio`: shows runs in the browser, as they train, and opens their inside."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.errors import UsageError

DEFAULT_FOLDER = Path("runs")
EXAMPLES = """seqwise studio
seqwise studio runs experiments/october --port 9000"""


@dataclass
class Studio:
    """Show runs and comparisons in the browser: as they train, side by side, in use, and from the inside.

    FOLDER is a folder of runs, a run or a comparison; runs/ unless given. The page is served on this machine only,
    until Ctrl-C. Trainings that were started from the page go on.
    """

    main_options: ClassVar = ("port", "host", "token", "browser")

    folders: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER …]", help_behavior_hint="")
    ] = ()
    """Folders with runs."""
    port: Annotated[int | None, UNSET] = None
    """Port of the server; the first free one from 8600 on unless set."""
    host: str = "127.0.0.1"
    """Address of the server. If it is not 127.0.0.1, others can open the page, with the token that is printed."""
    token: bool = False
    """Require a token also on 127.0.0.1, on a machine that several people use."""
    browser: bool = True
    """Open the page in the browser."""


def main(argv: Sequence[str]) -> int:
    args = parse(Studio, argv, prog="seqwise studio", example=EXAMPLES)
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the studio needs {' and '.join(missing)}.", fix="Install it: pip install 'seqwise[studio]'")
    from seqwise.cli.check import Check
    from seqwise.cli.compare import Compare
    from seqwise.cli.train import Train
    from seqwise.studio.forms import register_commands
    from seqwise.studio.server import serve

    register_commands(train=Train, compare=Compare, check=Check)
    folders = args.folders or (DEFAULT_FOLDER,)
    for folder in folders:
        if folder == DEFAULT_FOLDER and not args.folders:
            folder.mkdir(exist_ok=True)
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}.", fix="Name a folder that contains runs.")
    opens_browser = args.browser and bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.name != "posix"
    )

    def show_address(address: str) -> None:
        console.log(f"the studio shows {', '.join(map(str, folders))} at {address}")
        console.log("Ctrl-C ends it; trainings go on.")

    serve(folders, args.host, args.port, show_address, opens_browser, args.token)
    return 0
