"""Which family suits some data: trials under one budget, statistics, the report.

The module can be called: `seqwise.compare(...)` calls `seqwise.compare.api.compare`. The name `seqwise.compare` cannot
be that function itself, because Python binds it to this package when any module in it is imported.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from seqwise.compare.api import compare

        return compare(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of `compare`, which `help` and interactive shells show."""
        from seqwise.compare.api import compare

        return inspect.signature(compare)


sys.modules[__name__].__class__ = _CallableModule
