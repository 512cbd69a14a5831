"""The model families and what other code may ask about them, instead of comparing names.

It knows nothing of layers: `backbones/encoder.py` builds the network of a family, `tasks/language/ngram.py` the
n-gram model.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelFamily:
    """A kind of model."""

    name: str
    is_recurrent: bool = False
    has_gradients: bool = True  # trained by gradient descent; other models fit themselves in one pass, without a seed
    tasks: tuple[str, ...] = ()  # the only tasks that it can do; empty: all
    description: str = ""  # completes "the family …: it …"

    def can_do(self, task: str) -> bool:
        """Return whether the family has a model for a task."""
        return not self.tasks or task in self.tasks


MODEL_FAMILIES = {
    family.name: family
    for family in (
        ModelFamily("feedforward"),
        ModelFamily("rnn", is_recurrent=True),
        ModelFamily("gru", is_recurrent=True),
        ModelFamily("lstm", is_recurrent=True),
        ModelFamily("attentive-rnn", is_recurrent=True),
        ModelFamily("transformer"),
        ModelFamily(
            "ngram", has_gradients=False, tasks=("language",), description="predicts the next token from n-gram counts"
        ),
    )
}
RECURRENT = tuple(family.name for family in MODEL_FAMILIES.values() if family.is_recurrent)


def get_family(name: str) -> ModelFamily:
    """Return the family of a model name."""
    return MODEL_FAMILIES[name]


def families_for(task: str) -> list[str]:
    """Return the names of the families that can do a task."""
    return [family.name for family in MODEL_FAMILIES.values() if family.can_do(task)]
