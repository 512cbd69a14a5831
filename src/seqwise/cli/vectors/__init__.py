"""`seqwise vectors COMMAND …`: runs the subcommand."""

from __future__ import annotations

from seqwise.cli.subcommands import Subcommands

# Subcommand → its description.
COMMANDS = {
    "train": "train vectors on a corpus: skip-gram, CBOW, GloVe",
    "nearest": "list the words nearest to a word",
    "analogy": "solve an analogy: a is to b as c is to …",
    "different": "find the word that does not belong to the others",
    "evaluate": "measure accuracy on analogies and correlation with human similarity scores",
    "convert": "convert between file formats",
    "plot": "draw a map of words: a picture or an interactive page",
}
SUBCOMMANDS = Subcommands(
    command="vectors",
    description="Train, query, evaluate, convert and plot word vectors.",
    purposes=COMMANDS,
    modules=dict.fromkeys(("nearest", "analogy", "different"), "query"),
    example="seqwise vectors nearest vectors.safetensors king --n 5",
)
main = SUBCOMMANDS.run
