"""Looking inside: every interior value has a dotted name and can be recorded without touching the layer.

    with record(model) as seen:
        model(batch)
    seen["backbone.deep.layer.0.lstm.forget"]   # (B, T, U)

A layer calls `record_value(self, "forget", f)` where the value exists. Outside `record` that costs one look at an empty
tuple. A layer with a fast path asks `is_recorded(self)`. If somebody looks at a name that may be its own, the fast path
keeps the value and shows it, or, where it never forms it, the open twin runs as well, for the record only: the result
stays that of the fast path, to the bit.
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

from seqwise.errors import nearest

_active: ContextVar[tuple[Recording, ...]] = ContextVar("seqwise_recordings", default=())


class Recording(Mapping[str, Tensor]):
    """Dotted name → tensor. A layer that ran several times keeps every value; `seen[name]` is the last."""

    def __init__(self, model: nn.Module, pattern: str, live: bool):
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.wanted = {module for module, path in self.paths.items() if may_hold(path, pattern)}
        self.pattern, self.live = pattern, live
        self.values_of: dict[str, list[Tensor]] = {}

    def add(self, module: nn.Module, name: str, value: Tensor) -> None:
        path = self.paths.get(id(module))
        if path is None:
            return
        full = f"{path}.{name}" if path else name
        if fnmatchcase(full, self.pattern):
            self.values_of.setdefault(full, []).append(value if self.live else value.detach())

    def every(self, name: str) -> list[Tensor]:
        """All values recorded under the name, in the order the layer ran."""
        return self.values_of[name]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.values_of:
            raise KeyError(f"nothing was recorded under {name!r}. {nearest(name, self.values_of)}")
        return self.values_of[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_of)

    def __len__(self) -> int:
        return len(self.values_of)


def may_hold(path: str, pattern: str) -> bool:
    """Can a name below `path` match? Only if some beginning of the pattern matches all of the path and its dot."""
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
    """Nobody sees what happens in the block: values pass there in another order, and are shown afterwards."""
    if torch.compiler.is_compiling():
        yield
        return
    token = _active.set(())
    try:
        yield
    finally:
        _active.reset(token)


def is_recording() -> bool:
    """Does anybody record anything?"""
    return bool(_recordings())


def record_value(module: nn.Module, name: str, value: Tensor) -> None:
    """Offer one interior value of `module` to whoever records it."""
    for recording in _recordings():
        recording.add(module, name, value)


def is_recorded(module: nn.Module) -> bool:
    """Does anybody record values that this module may have?"""
    return any(id(module) in recording.wanted for recording in _recordings())


def is_recorded_within(module: nn.Module) -> bool:
    """Does anybody record values of this module or of one inside it?"""
    return bool(_recordings()) and any(is_recorded(part) for part in module.modules())


def is_recorded_live(module: nn.Module) -> bool:
    """Must the result be computed from the recorded values, so that gradients flow through them?"""
    return any(recording.live and id(module) in recording.wanted for recording in _recordings())


def _recordings() -> tuple[Recording, ...]:
    """Nobody looks into what torch.compile compiles: it cannot read a context variable."""
    return () if torch.compiler.is_compiling() else _active.get()
