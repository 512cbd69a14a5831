"""`seqwise vectors COMMAND …`: runs the subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from seqwise.cli import console
from seqwise.errors import UsageError, suggest

# Subcommand → its description. Each is a function (argv) → exit status in the module of its name, or in `query`.
COMMANDS = {
    "train": "train vectors on a corpus: skip-gram, CBOW, GloVe",
    "nearest": "list the words nearest to a word",
    "analogy": "solve an analogy: a is to b as c is to …",
    "different": "find the word that does not belong to the others",
    "evaluate": "measure accuracy on analogies and correlation with human similarity scores",
    "convert": "convert between file formats",
    "plot": "draw a map of words: a picture or an interactive page",
}
QUERIES = ("nearest", "analogy", "different")  # the subcommands in `query`
EXAMPLE = "seqwise vectors nearest vectors.safetensors king --n 5"


def main(argv: Sequence[str]) -> int:
    if not argv:
        console.log(build_overview())
        return UsageError.exit_status
    command, *rest = argv
    if command in ("--help", "--help-all", "-h"):
        console.write(build_overview())
        return 0
    if command not in COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        options = ("--help",) if kind == "option" else tuple(COMMANDS)
        fix = f"{suggest(command, options)} See seqwise vectors --help."
        raise UsageError(f"vectors has no {kind} {command!r}.", fix=fix)
    module = import_module(f"seqwise.cli.vectors.{'query' if command in QUERIES else command}")
    return getattr(module, command)(rest)


def build_overview() -> str:
    """Returns the text of `seqwise vectors --help`."""
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:{width}}{purpose}" for name, purpose in COMMANDS.items())
    return f"""usage: seqwise vectors COMMAND [OPTIONS]

Train, query, evaluate, convert and plot word vectors.

commands:
{commands}

options:
  {"--help":{width}}this page; after a command, its main options and examples

example:
  {EXAMPLE}"""
