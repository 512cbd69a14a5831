"""Commands that have subcommands, such as `seqwise vectors` and `seqwise lab`: their overview, and which one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from seqwise.cli import console
from seqwise.errors import UsageError, suggest


@dataclass(frozen=True)
class Subcommands:
    """The subcommands of a command. Each is a function (argv) → exit status of the same name.

    modules: subcommand → its module in `seqwise/cli/COMMAND/`, if that does not have the name of the subcommand
    """

    command: str
    description: str
    purposes: Mapping[str, str]  # subcommand → what it does
    modules: Mapping[str, str]
    example: str

    def run(self, argv: Sequence[str]) -> int:
        """Runs the subcommand that the arguments begin with, and returns its exit status."""
        if not argv:
            console.log(self.build_overview())
            return UsageError.exit_status
        name, *rest = argv
        if name in ("--help", "--help-all", "-h"):
            console.write(self.build_overview())
            return 0
        if name not in self.purposes:
            kind = "option" if name.startswith("-") else "command"
            options = ("--help",) if kind == "option" else tuple(self.purposes)
            fix = f"{suggest(name, options)} See seqwise {self.command} --help."
            raise UsageError(f"{self.command} has no {kind} {name!r}.", fix=fix)
        module = import_module(f"seqwise.cli.{self.command}.{self.modules.get(name, name)}")
        return getattr(module, name)(rest)

    def build_overview(self) -> str:
        """Returns the text of `--help`."""
        width = max(map(len, self.purposes)) + 2
        commands = "\n".join(f"  {name:{width}}{purpose}" for name, purpose in self.purposes.items())
        return f"""usage: seqwise {self.command} COMMAND [OPTIONS]

{self.description}

commands:
{commands}

options:
  {"--help":{width}}this page; after a command, its main options and examples

example:
  {self.example}"""
