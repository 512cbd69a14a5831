"""`seqwise COMMAND …`: finds the command, runs it, and turns whatever goes wrong into one message and an exit status.

0 it worked, 1 it failed, 2 it was asked wrongly, 130 interrupted. Only the command that runs is imported, so that
`seqwise --help` answers at once. This module knows nothing of what the commands do.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from seqwise.cli import console
from seqwise.environment import version
from seqwise.errors import SeqwiseError, UsageError, nearest

# Command → what it is for. Each is a module of this folder with `main(argv) -> int`.
COMMANDS = {
    "demo": "the main job on built-in data: five families, one budget, a table and a report",
    "train": "train a model on your data; everything it needs later lies in one run folder",
    "compare": "train several families under one budget, and say which suits your data",
    "evaluate": "measure a run on data it has not seen",
    "predict": "let a run answer: continue, label, tag, translate, caption, forecast, fill in",
    "embed": "write the contextual vectors of texts into a file",
    "vectors": "train word vectors, and ask them: nearest, analogy, evaluate, plot",
    "check": "read the data and say what is wrong: file, line, cause, repair",
    "doctor": "what this machine has: versions, device, memory, extras; ready, or what to install",
}

OPTIONS = ("--help", "--version", "--debug")
EXAMPLE = "seqwise train builtin:docs --model lstm --budget 2m --out runs/first"
BROKEN_PIPE = 141  # 128 + SIGPIPE, what other programs return when their reader goes away
INTERRUPTED = 130  # 128 + SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = _take(words, "--debug")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows ? for it
    try:
        status = _dispatch(words)
        sys.stdout.flush()
        return status
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except KeyboardInterrupt:
        console.log("interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if debug:
            traceback.print_exc()
        console.fail(error if isinstance(error, SeqwiseError) else _unexpected(error, debug))
        return error.exit_status if isinstance(error, SeqwiseError) else 1


def overview() -> str:
    """The text of `seqwise --help`."""
    width = max(map(len, (*COMMANDS, *OPTIONS))) + 2
    commands = "\n".join(f"  {name:{width}}{purpose}" for name, purpose in COMMANDS.items())
    return f"""usage: seqwise COMMAND [OPTIONS]

Train, compare and see inside sequence models on your own data.

commands:
{commands}

options:
  {"--help":{width}}this page; after a command, its options and an example
  {"--version":{width}}the version of Seqwise
  {"--debug":{width}}show the traceback of an error

example:
  {EXAMPLE}"""


def _dispatch(words: list[str]) -> int:
    if not words:
        console.log(overview())
        return UsageError.exit_status
    command, *rest = words
    if command in ("--help", "-h"):
        console.write(overview())
        return 0
    if command in ("--version", "-V"):
        console.write(f"seqwise {version()}")
        return 0
    if command not in COMMANDS:
        kind, known = ("option", OPTIONS) if command.startswith("-") else ("command", tuple(COMMANDS))
        raise UsageError(f"unknown {kind} {command!r}.", repair=f"{nearest(command, known)} See seqwise --help.")
    return import_module(f"seqwise.cli.{command}").main(rest)


def _take(words: list[str], flag: str) -> bool:
    """Remove `flag` wherever it stands before a bare `--`; was it there?"""
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != flag]
    found = len(kept) < end
    words[:end] = kept
    return found


def _unexpected(error: Exception, debug: bool) -> str:
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("seqwise"):
        repair = f"Run {sys.executable} -m pip install seqwise, or make install in a clone."
        return f"the package {error.name!r} is missing.\n{repair}"
    sentence = f"unexpected {type(error).__name__}: {str(error) or 'no message'}"
    advice = (
        "Please report it with the traceback above." if debug else "Run again with --debug and report the traceback."
    )
    return f"{sentence}\nThis is a mistake in Seqwise. {advice}"
