"""Exercises: equations to fill in, graded against the solution and finite differences."""

from __future__ import annotations

from seqwise.lab.exercises.catalogue import EXERCISES, get_exercise
from seqwise.lab.exercises.grading import Grade, grade

__all__ = ["EXERCISES", "Grade", "get_exercise", "grade"]
