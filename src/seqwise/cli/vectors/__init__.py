"""`seqwise vectors COMMAND …`: finds the sub-command and runs it. It knows nothing of what they do."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from seqwise.cli import console
from seqwise.errors import UsageError
from seqwise.errors import nearest as suggestion  # `nearest` is a module of this folder

# Sub-command → what it is for. Each is a module of this folder with `main(argv) -> int`.
COMMANDS = {
    "train": "learn vectors from a corpus: skip-gram, CBOW, GloVe",
    "nearest": "the words nearest to a word",
    "analogy": "a is to b as c is to …",
    "different": "which of these words does not belong",
    "evaluate": "analogies answered, similarities beside people's judgement",
    "convert": "from one kind of file to another",
    "plot": "a map of words: a picture, or a page to explore",
}
EXAMPLE = "seqwise vectors nearest vectors.safetensors king --n 5"


def main(argv: Sequence[str]) -> int:
    if not argv:
        console.log(overview())
        return UsageError.exit_status
    command, *rest = argv
    if command in ("--help", "-h"):
        console.write(overview())
        return 0
    if command not in COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        options = ("--help",) if kind == "option" else tuple(COMMANDS)
        repair = f"{suggestion(command, options)} See seqwise vectors --help."
        raise UsageError(f"vectors has no {kind} {command!r}.", repair=repair)
    return import_module(f"seqwise.cli.vectors.{command}").main(rest)


def overview() -> str:
    """The text of `seqwise vectors --help`."""
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:{width}}{purpose}" for name, purpose in COMMANDS.items())
    return f"""usage: seqwise vectors COMMAND [OPTIONS]

Train word vectors, ask them, measure them and draw them.

commands:
{commands}

options:
  {"--help":{width}}this page; after a command, its options and an example

example:
  {EXAMPLE}"""
