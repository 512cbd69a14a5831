"""Records interior values of a model: each has a dotted name and can be read without changing the layer.

    with record(model) as recording:
        model(batch)
    recording["backbone.deep.layer.0.lstm.forget"]   # (B, T, U)

A layer calls `record_value(self, "forget", f)` where the value exists. Outside `record` that costs one check of an
empty tuple. A layer with a fast kernel asks `is_recorded(self)`: whether a value with one of its names may be recorded.
The kernel then returns the value too, or, where it never computes it, the reference implementation runs too, for the
recording only: the result stays that of the kernel, to the bit.
With `live=True` the result is computed *from* the recorded values instead, so that gradients flow through them.

This module knows nothing of any particular layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from seqwise.errors import suggest

_active: ContextVar[tuple[Recording, ...]] = ContextVar("seqwise_recordings", default=())


class Recording(Mapping[str, Tensor]):
    """Dotted name → tensor. A layer that ran several times keeps every value; `recording[name]` is the last."""

    def __init__(self, model: nn.Module, pattern: str, live: bool):
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.modules = {module for module, path in self.paths.items() if can_match_below(path, pattern)}
        self.pattern, self.live = pattern, live
        self._values: dict[str, list[Tensor]] = {}

    def add(self, module: nn.Module, name: str, value: Tensor) -> None:
        path = self.paths.get(id(module))
        if path is None:
            return
        full_name = f"{path}.{name}" if path else name
        if fnmatchcase(full_name, self.pattern):
            self._values.setdefault(full_name, []).append(value if self.live else value.detach())

    def every(self, name: str) -> list[Tensor]:
        """All values recorded under the name, in the order the layer ran."""
        return self._values[name]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            raise KeyError(f"nothing was recorded under {name!r}. {suggest(name, self._values)}")
        return self._values[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def can_match_below(path: str, pattern: str) -> bool:
    """Whether a name below `path` can match: some prefix of the pattern must match the whole path and its dot."""
    start = f"{path}." if path else ""
    return any(fnmatchcase(start, pattern[:end]) for end in range(len(pattern) + 1))


@contextmanager
def record(model: nn.Module, pattern: str = "*", *, live: bool = False) -> Iterator[Recording]:
    """Record the interior values of `model` whose dotted name matches `pattern` while the block runs."""
    recording = Recording(model, pattern, live)
    token = _active.set((*_active.get(), recording))
    try:
        yield recording
    finally:
        _active.reset(token)


@contextmanager
def pause_recording() -> Iterator[None]:
    """Record nothing inside the block: a kernel computes values there in another order and returns them afterwards."""
    if torch.compiler.is_compiling():
        yield
        return
    token = _active.set(())
    try:
        yield
    finally:
        _active.reset(token)


def is_recording() -> bool:
    """Whether any recording is active."""
    return bool(_recordings())


def record_value(module: nn.Module, name: str, value: Tensor) -> None:
    """Offer one interior value of `module` to the active recordings."""
    for recording in _recordings():
        recording.add(module, name, value)


def is_recorded(module: nn.Module) -> bool:
    """Whether an active recording may record values of this module."""
    return any(id(module) in recording.modules for recording in _recordings())


def is_recorded_within(module: nn.Module) -> bool:
    """Whether an active recording may record values of this module or of one inside it."""
    return bool(_recordings()) and any(is_recorded(part) for part in module.modules())


def is_recorded_live(module: nn.Module) -> bool:
    """Whether the result must be computed from the recorded values, so that gradients flow through them."""
    return any(recording.live and id(module) in recording.modules for recording in _recordings())


def _recordings() -> tuple[Recording, ...]:
    """The active recordings; none inside torch.compile, which cannot read a context variable."""
    return () if torch.compiler.is_compiling() else _active.get()
