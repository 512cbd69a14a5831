"""What training tells while it runs: the same stream for a terminal, a file or a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VectorStep:
    """How far training is. `loss` is the mean per pair of the epoch so far; None before the first pair."""

    stage: str  # "compiling", "counting" or "training"
    epoch: int  # from 0
    progress: float  # of the stage, 0 … 1
    speed: float  # of `unit` per second, since the stage began
    loss: float | None = None
    finished: bool = False  # this epoch is over
    unit: str = "words"  # words of the corpus, or pairs counted in it


def amount(number: int, noun: str) -> str:
    """1 epoch, 2 epochs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
