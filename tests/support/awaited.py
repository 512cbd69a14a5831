"""Compile a kernel for Hopper, without a GPU, and list the awaited tiles that several warps load. Run as a program:

    python awaited.py normalised_rnn 256 8

prints nothing if there are none. A tile that is awaited must not be loaded twice: see `gpu/exchange.py`.
"""

from __future__ import annotations

import math
import os
import re
import sys
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from seqwise.kernels.recurrence.gpu import (
    early_gru,
    gru,
    launch,
    lstm,
    normalised_gru,
    normalised_lstm,
    normalised_rnn,
    rnn,
)  # fmt: skip
from seqwise.kernels.recurrence.gpu.gru_scan import WHOLE, quarters
from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, OWN, ROUNDS
from seqwise.kernels.recurrence.gpu.rows import FREE

KERNELS: dict[str, tuple[Any, Any, dict[str, Any], int]] = {  # forward, backward, constants, units of a program
    "rnn": (rnn.rnn_forward, rnn.rnn_backward, {"ACTIVATION": "tanh"}, HELD_ROWS),
    "lstm": (lstm.lstm_forward, lstm.lstm_backward, {}, OWN),
    "gru": (gru.gru_forward, gru.gru_backward, {"REPLACES": False}, OWN),
    "early_gru": (early_gru.early_gru_forward, early_gru.early_gru_backward, {"REPLACES": False}, OWN),
    "normalised_rnn": (
        normalised_rnn.normalised_rnn_forward, normalised_rnn.normalised_rnn_backward,
        {"ACTIVATION": "tanh"}, HELD_ROWS,
    ),
    "normalised_lstm": (normalised_lstm.normalised_lstm_forward, normalised_lstm.normalised_lstm_backward, {}, OWN),
    "normalised_gru": (
        normalised_gru.normalised_gru_forward, normalised_gru.normalised_gru_backward, {"REPLACES": False}, OWN,
    ),
}  # fmt: skip
INTEGERS = ("lengths", "begins", "ring", "words")
FLOATS = ("gains", "biases", "statistics", "tally")


def compiled(kernel: Any, constants: dict[str, Any], warps: int, published: tuple[str, ...]) -> str:
    """The kernel in Triton's own language for GPUs."""
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    kinds = dict.fromkeys(INTEGERS, "*i32") | dict.fromkeys(FLOATS, "*fp32") | dict.fromkeys(published, "*i16")
    numbers = (*FREE, "by_scan", "by_step", "by_row")
    signature = {
        name: "constexpr" if name in constants else "i32" if name in numbers else kinds.get(name, "*bf16")
        for name in kernel.arg_names
    }
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ttgir"]


def shared(code: str) -> list[str]:
    """Shapes of volatile loads whose tile is smaller than the threads that load it."""
    form = (
        r"^#(\w+) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\], "
        r"warpsPerCTA = \[([\d, ]+)\]"
    )
    layouts = {m[1]: [[int(n) for n in m[i].split(",")] for i in (2, 3, 4)] for m in re.finditer(form, code, re.M)}
    found = []
    for load in re.finditer(r"(%\S+) = tt\.load .*isVolatile = true\} : tensor<([\dx]+)x!tt\.ptr<i\d+>, #(\w+)>", code):
        size = [int(n) for n in load[2].split("x")]
        each, threads, warps = layouts[load[3]]
        reach = math.prod(max(1, e * t * w // n) for n, e, t, w in zip(size, each, threads, warps, strict=True))
        if reach > 1 and len(size) > 1:  # one value of each program is awaited first, and not used
            found.append(load[2])
    return found


def main(name: str, units: int, batch: int) -> None:
    forward, backward, constants, own = KERNELS[name]
    shape = launch.cut(units, own, batch, 1, 2, torch.device("cpu"))
    assert shape is not None
    blocks = triton.next_power_of_2(shape.blocks)
    constants = {
        **constants, **shape.constants(units, torch.bfloat16), "OWN": own, "VARIABLE": False, "SAVE": True,
        "ROUNDS": ROUNDS, "P": blocks, "lengths": None, "begins": None,
    }  # fmt: skip
    more: dict[str, Any] = {"num_warps": shape.warps}
    if name in ("gru", "early_gru"):
        wide = -(-units // WHOLE) * WHOLE
        columns, matrices = (3 * wide, 1) if name == "gru" else (wide, 3)
        more = {"V": wide, **quarters(shape, columns, matrices, 2, torch.device("cpu"))}
    plans = (forward, constants, shape.warps, ("hidden", "shown")), (
        backward, {**constants, **more}, more["num_warps"], ("slopes",),
    )  # fmt: skip
    for kernel, values, warps, published in plans:
        for tile in shared(compiled(kernel, values, warps, published)):
            sys.stdout.write(f"{kernel.__name__} {units} units, {batch} rows: {tile} is loaded by several warps\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
