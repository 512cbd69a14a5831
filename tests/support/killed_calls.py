"""A function that kills its process at one of its calls, for tests of writes that are interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


class CallKiller:
    """Wraps functions; the process is killed at the n-th call of any of them, counted from 1."""

    def __init__(self, fatal_call: int):
        self.fatal_call, self.num_calls = fatal_call, 0

    def wrap(self, owner: Any, *names: str) -> None:
        """Replaces functions of a module or class."""
        for name in names:
            setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.num_calls += 1
            if self.num_calls == self.fatal_call:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call
