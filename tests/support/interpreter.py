"""Triton's interpreter, with every program of a grid in its own process.

The interpreter runs programs one after another, but those of a recurrent kernel wait for each other. Here each program
is forked, and all of them work on shared memory.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


@contextmanager
def run_concurrently() -> Iterator[None]:
    """Runs interpreted programs at the same time inside the block."""
    builder = interpreter.InterpreterBuilder
    call, patch, splat = interpreter.GridExecutor.__call__, interpreter._patch_lang_tensor, builder.create_splat

    def patch_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)  # its own __index__ raises an error with new versions of NumPy
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def launch(self: Any, *arguments: Any, **options: Any) -> None:
        for argument in (*arguments, *options.values()):
            if isinstance(argument, torch.Tensor):
                argument.detach().share_memory_()
        program, children = self.fn, []

        def start(values: dict[str, Any]) -> None:
            child = os.fork()
            if child == 0:
                _run(program, values)
            children.append(child)

        self.fn = _same_signature(program, start)
        try:
            call(self, *arguments, **options)
        finally:
            self.fn = program
            failed = [os.waitpid(child, 0)[1] for child in children]
        assert not any(failed), "a program failed"

    def splat_boolean(self: Any, kind: Any, handle: Any) -> Any:
        if handle.data.dtype == bool:  # a scalar comparison, which Triton 3.9 treats as a number
            return interpreter.TensorHandle(np.full(kind.shape, handle.data), tl.int1)
        return splat(self, kind, handle)

    interpreter.GridExecutor.__call__, interpreter._patch_lang_tensor = launch, patch_index
    builder.create_splat = splat_boolean
    try:
        yield
    finally:
        interpreter.GridExecutor.__call__, interpreter._patch_lang_tensor = call, patch
        builder.create_splat = splat


def _run(program: Any, values: dict[str, Any]) -> None:
    status = 1
    try:
        program(**values)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _same_signature(program: Any, start: Any) -> Any:
    """Returns a function with the parameters of the program, which the interpreter inspects."""
    names = inspect.getfullargspec(program).args
    space = {"tl": tl, "start": start}
    pairs = ", ".join(f"{name}={name}" for name in names)
    exec(f"def child({', '.join(names)}):\n    start(dict({pairs}))", space)
    space["child"].__defaults__ = program.__defaults__
    return space["child"]
