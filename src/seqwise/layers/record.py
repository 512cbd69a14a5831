"""Records interior values of a model: each has a dotted name and can be read without changing the layer.

    with record(model) as recording:
        model(batch)
    recording["backbone.stack.layer.0.lstm.forget"]   # (B, T, U)

A layer calls `record_value(self, "forget", f)` where the value exists. Outside `record` that costs one check of an
empty tuple. A layer with a fast kernel asks `is_recorded(self)`: whether a value with one of its names may be recorded.
The kernel then returns the value too, or, where it never computes it, the reference implementation runs too, for the
recording only: the result stays that of the kernel, to the bit.
With `transform`, each value is reduced as soon as it is computed, and only what the function returns is kept.
With `live=True` the result is computed *from* the recorded values instead, so that gradients flow through them.

This module knows nothing of any particular layer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.errors import check_type, suggest
from seqwise.layers.old_names import current_name

MAX_NAMES = 8  # in a message

Transform = Callable[[str, Tensor], Any]

_active: ContextVar[tuple[Recording, ...]] = ContextVar("seqwise_recordings", default=())


class Recording(Mapping[str, Tensor]):
    """Dotted name → tensor. A layer that ran several times keeps every value; `recording[name]` is the last."""

    def __init__(self, model: nn.Module, pattern: str, live: bool, transform: Transform | None = None):
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.modules = {module for module, path in self.paths.items() if can_match_below(path, pattern)}
        self.pattern, self.live, self.transform = pattern, live, transform
        self._values: dict[str, list[Tensor]] = {}
        self._other_names: dict[str, None] = {}  # that do not match the pattern

    def add(self, module: nn.Module, name: str, value: Tensor) -> None:
        path = self.paths.get(id(module))
        if path is None:
            return
        full_name = f"{path}.{name}" if path else name
        if fnmatchcase(full_name, self.pattern):
            value = value if self.live else value.detach()
            result = value if self.transform is None else self.transform(full_name, value)
            self._values.setdefault(full_name, []).append(result)
        else:
            self._other_names[full_name] = None

    def every(self, name: str) -> list[Tensor]:
        """Returns all values recorded under the name, in the order in which the layer computed them."""
        return self._values[name]

    def __getitem__(self, name: str) -> Tensor:
        name = name if name in self._values else current_name(name)
        if name not in self._values:
            raise KeyError(f"nothing was recorded under {name!r}. {suggest(name, self._values)}")
        return self._values[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shapes = [f"{name} {_describe(self[name])}" for name in islice(self, MAX_NAMES)]
        more = f", and {len(self) - MAX_NAMES:,} more" if len(self) > MAX_NAMES else ""
        return f"<Recording of {len(self):,} values: {', '.join(shapes) or 'none'}{more}>"

    def explain_missing(self, model: nn.Module) -> str:
        """Returns why nothing was recorded, or less than the pattern asks for, as sentences; "" if all was recorded."""
        compiled = [path for path, module in model.named_modules() if is_compiled(module)]
        missing = [path for path in compiled if not any(name.startswith(path) for name in self) and self._covers(path)]
        if missing:
            which = "the model is" if "" in missing else f"{missing[0]!r} is"
            return f"{which} compiled, and compiled layers record nothing: record a model that is not compiled."
        if self._values:
            return ""
        if self._other_names:
            names = ", ".join(islice(self._other_names, MAX_NAMES))
            return f"no name matches {self.pattern!r}. {suggest(self.pattern, self._other_names)} Names: {names}, …"
        advice = ""
        if not any(type(module).__module__.startswith("seqwise.") for module in model.modules()):
            advice = (
                " Layers of torch.nn record nothing: use seqwise.layers, or call record_value in a module of yours."
            )
        paths = [path for path in self.paths.values() if path]
        names = (
            f" Its modules: {', '.join(paths[:MAX_NAMES])}{', …' if len(paths) > MAX_NAMES else '.'}" if paths else ""
        )
        return f"nothing was recorded for {self.pattern!r}: was the model called inside the block?{advice}{names}"

    def _covers(self, path: str) -> bool:
        """Returns whether the pattern can match a name below the path of a compiled module."""
        return can_match_below(path.replace("_orig_mod", "*"), self.pattern)


def can_match_below(path: str, pattern: str) -> bool:
    """Whether a name below `path` can match: some prefix of the pattern must match the whole path and its dot."""
    start = f"{path}." if path else ""
    return any(fnmatchcase(start, pattern[:end]) for end in range(len(pattern) + 1))


@contextmanager
def record(
    model: nn.Module, pattern: str = "*", *, live: bool = False, transform: Transform | None = None
) -> Iterator[Recording]:
    """Records the interior values of `model` whose dotted name matches `pattern` while the block runs.

    With `transform`, the recording keeps `transform(name, value)` instead of each value, such as its mean.
    A warning says why, if nothing can be recorded.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module, such as trained_model.model")
    check_type("pattern", pattern, str, "a pattern of names, such as '*.forget'")
    recording = Recording(model, pattern, live, transform)
    token = _active.set((*_active.get(), recording))
    try:
        yield recording
    finally:
        _active.reset(token)
    if reason := recording.explain_missing(model):
        warnings.warn(reason, stacklevel=3)


def is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile was applied to a module: as a wrapper, or by `module.compile()`."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


@contextmanager
def pause_recording() -> Iterator[None]:
    """Records nothing inside the block: a kernel computes values there in another order and returns them afterwards."""
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
    """Adds one interior value of `module` to the active recordings whose pattern matches its name."""
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


def _describe(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def _recordings() -> tuple[Recording, ...]:
    """The active recordings; none inside torch.compile, which cannot read a context variable."""
    return () if torch.compiler.is_compiling() else _active.get()
