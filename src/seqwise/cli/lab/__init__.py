"""`seqwise lab COMMAND …`: runs the subcommand."""

from __future__ import annotations

from seqwise.cli.subcommands import Subcommands

# Subcommand → its description.
COMMANDS = {
    "list": "list the experiments: id, expected time, claim",
    "run": "run experiments: numbers, verdict, figure; all as one page, a chapter as slides",
    "quiz": "predict whether a statement is true, then see the evidence",
    "exercise": "write an exercise to a file: an equation to fill in",
    "grade": "check a solved exercise, and name the term that is wrong",
}
SUBCOMMANDS = Subcommands(
    command="lab",
    description="Run the statements of textbooks about sequence models: 90 experiments in eight chapters, A to H.",
    purposes=COMMANDS,
    modules={"list": "listing", "exercise": "exercises", "grade": "exercises"},
    example="seqwise lab run C2",
)
main = SUBCOMMANDS.run
