"""What the task contracts need to know about one task: small data, and settings of a small model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TaskRow:
    """One task. `write` writes data into an empty folder and returns its path; the data has rows of unequal
    length, and enough of them that all three splits have some. `inputs` are arguments of `predict`."""

    task: str
    write: Callable[[Path], str]
    inputs: list[str]
    settings: dict[str, Any] = field(default_factory=dict)  # small sizes, besides task and model
    families: tuple[str, ...] = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
    inputs_in_folder: Callable[[Path], list[str]] | None = None  # inputs that are files, such as images
