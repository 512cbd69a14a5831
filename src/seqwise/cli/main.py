"""`seqwise COMMAND …`: dispatches to a command and turns every error into one message and an exit status.

0 success, 1 failure, 2 usage error, 130 interrupted, 141 the reader of a pipe has closed it. Only the command that runs
is imported, so that `seqwise --help` is fast. This module does not know what the commands do.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from seqwise.cli import console
from seqwise.environment import get_version, limit_spinning
from seqwise.errors import SaveError, SeqwiseError, UsageError, in_command, suggest
from seqwise.signals import is_due_to_interrupt

# Command → description. Each is a module of this folder with `main(argv) -> int`.
COMMANDS = {
    "demo": "compare five model families on built-in data: a table, a verdict, a report",
    "train": "train a model on your data and save it as a run folder",
    "compare": "train several model families under one budget and report which suits your data",
    "evaluate": "compute the metrics of a run on data",
    "predict": "predict with a run: continue, label, tag, translate, caption, forecast, fill in",
    "inspect": "look inside a run: attention, attribution, gates, gradients",
    "embed": "write contextual vectors of texts to a file",
    "vectors": "train and query word vectors: nearest, analogy, evaluate, plot",
    "lab": "run the statements of textbooks as experiments: claim, numbers, verdict, figure",
    "studio": "show runs in the browser: as they train, compared, in use, and from the inside",
    "recipes": "list the published results that can be reproduced with seqwise train --recipe",
    "check": "check data before training: errors with file, line, cause and fix",
    "doctor": "report versions, device, memory and optional packages, and what to install",
}

OPTIONS = ("--help", "--version", "--debug", "--print-completion")
EXAMPLE = "seqwise train builtin:docs --model lstm --budget 2m --out runs/first"
OUTPUT_ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF)
BROKEN_PIPE = 141  # exit status: 128 + SIGPIPE
INTERRUPTED = 130  # exit status: 128 + SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status."""
    limit_spinning()
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)  # there are no options after a bare --
    debug = "--debug" in words[:end]
    words[:end] = [word for word in words[:end] if word != "--debug"]
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # print ? for characters that the terminal cannot encode
    token, format_warning = in_command.set(True), warnings.formatwarning
    warnings.formatwarning = lambda *warning: console.make_printable(format_warning(*warning))
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
        _close_output()
        return BROKEN_PIPE
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in OUTPUT_ERRORS:
            # Errors of other files are a `SaveError` with the name of the file.
            _close_output()
            console.fail(f"cannot write to standard output: {error.strerror}.\nRedirect it to another file or disk.")
            return SaveError.exit_status
        if debug:
            sys.stderr.write(console.make_printable(traceback.format_exc()))
        if is_due_to_interrupt(error):
            console.log("interrupted.")
            return INTERRUPTED
        console.fail(error if isinstance(error, SeqwiseError) else _describe_unexpected_error(error, debug))
        return error.exit_status if isinstance(error, SeqwiseError) else 1
    finally:
        in_command.reset(token)
        warnings.formatwarning = format_warning


def _close_output() -> None:
    """Discards what is left of standard output: the interpreter flushes it at exit, which must not fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_overview() -> str:
    """Returns the text of `seqwise --help`."""
    width = max(map(len, (*COMMANDS, *OPTIONS))) + 2
    commands = "\n".join(f"  {name:{width}}{purpose}" for name, purpose in COMMANDS.items())
    return f"""usage: seqwise COMMAND [OPTIONS]

Train, compare and inspect sequence models on your own data.

commands:
{commands}

options:
  {"--help":{width}}this page; after a command, its main options and examples
  {"--help-all":{width}}after a command: all of its options
  {"--version":{width}}the version of Seqwise
  {"--debug":{width}}show the traceback of an error
  {"--print-completion":{width}}bash or zsh: a script that completes commands and options

example:
  {EXAMPLE}"""


def _dispatch(words: list[str]) -> int:
    if not words:
        console.log(build_overview())
        return UsageError.exit_status
    command, *rest = words
    if command in ("--help", "-h"):
        console.write(build_overview())
        return 0
    if command in ("--version", "-V"):
        console.write(f"seqwise {get_version()}")
        return 0
    if command == "--print-completion":
        from seqwise.cli.completion import build_script

        console.write(build_script(rest, COMMANDS))
        return 0
    if command not in COMMANDS:
        kind, known = ("option", OPTIONS) if command.startswith("-") else ("command", tuple(COMMANDS))
        raise UsageError(f"unknown {kind} {command!r}.", fix=f"{suggest(command, known)} See seqwise --help.")
    return import_module(f"seqwise.cli.{command}").main(rest)


def _describe_unexpected_error(error: Exception, debug: bool) -> str:
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("seqwise"):
        fix = f"Run {sys.executable} -m pip install seqwise, or make install in a clone."
        return f"the package {error.name!r} is missing.\n{fix}"
    is_out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # of a GPU
    if is_out_of_memory or "can't allocate memory" in str(error):  # what PyTorch's allocator on the CPU says
        return (
            "there is not enough memory.\nUse a smaller file, model (--network.width) or batch "
            "(--training.batch-size); seqwise doctor reports how much memory there is."
        )
    if isinstance(error, RecursionError):
        return "the input is nested too deeply.\nUse a file with fewer levels of nested lists, objects or formulas."
    problem = f"unexpected {type(error).__name__}: {str(error) or 'no message'}"
    fix = "Please report it with the traceback above." if debug else "Report it with the traceback of --debug."
    return f"{problem}\nThis is a bug in Seqwise. {fix}"
