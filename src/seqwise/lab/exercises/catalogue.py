"""The exercises by id."""

from __future__ import annotations

from seqwise.errors import UsageError, suggest
from seqwise.lab.exercises.attention_and_language import ATTENTION_AND_LANGUAGE
from seqwise.lab.exercises.exercise import Exercise
from seqwise.lab.exercises.recurrent import RECURRENT

EXERCISES = {exercise.id: exercise for exercise in (*RECURRENT, *ATTENTION_AND_LANGUAGE)}


def get_exercise(name: str) -> Exercise:
    """Returns an exercise by its id, in upper or lower case."""
    identifier = name.strip().upper()
    if identifier not in EXERCISES:
        listed = ", ".join(f"{each.id} ({each.title})" for each in EXERCISES.values())
        raise UsageError(
            f"there is no exercise {name!r}.", fix=f"{suggest(identifier, EXERCISES)} Exercises: {listed}."
        )
    return EXERCISES[identifier]
