"""Compile a kernel for Hopper, without a GPU, and list the polled tiles that several warps load. Run as a program:

    python polled_tiles.py layer_norm_rnn 256 8

prints nothing if there are none. A tile that is polled must not be loaded twice: see `gpu/sync.py`.
"""

from __future__ import annotations

import math
import os
import re
import sys
from inspect import signature as get_signature
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.gpu.launch import build_options, choose_tiling
from seqwise.kernels.recurrence.gpu.packed_rows import UNSPECIALIZED_BACKWARD
from seqwise.kernels.recurrence.gpu.persistent import get_scan

CELLS = {
    "rnn": CellSpec("rnn"),
    "lstm": CellSpec("lstm"),
    "gru": CellSpec("gru"),
    "gru_reset_before": CellSpec("gru", reset="before"),
    "layer_norm_rnn": CellSpec("rnn", layer_norm=True),
    "layer_norm_lstm": CellSpec("lstm", layer_norm=True),
    "layer_norm_gru": CellSpec("gru", layer_norm=True),
}
INTEGERS = ("lengths", "step_offsets", "ring", "statistics_ring")
FLOATS = ("gains", "biases", "statistics", "grad_norms")
OPTIONAL = {"gru": "bias", "gru_reset_before": "reset_hidden"}  # the optional arguments of cells without layer norm
PUBLISHED = {"forward": ("hidden", "reset_hidden"), "backward": ("grad_inputs", "grad_gates", "grad_products")}


def compile_kernel(kernel: Any, constants: dict[str, Any], warps: int, published: tuple[str, ...]) -> str:
    """Returns the kernel as TritonGPU IR."""
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    kinds = dict.fromkeys(INTEGERS, "*i32") | dict.fromkeys(FLOATS, "*fp32") | dict.fromkeys(published, "*i16")
    signature = {
        name: "constexpr"
        if name in constants
        else "i32"
        if name in UNSPECIALIZED_BACKWARD
        else kinds.get(name, "*bf16")
        for name in kernel.arg_names
    }
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ttgir"]


def find_shared_tiles(code: str) -> list[str]:
    """Returns the shapes of volatile loads with fewer elements than threads that load them."""
    layout_pattern = (
        r"^#(\w+) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\], "
        r"warpsPerCTA = \[([\d, ]+)\]"
    )
    layouts = {
        m[1]: [[int(n) for n in m[i].split(",")] for i in (2, 3, 4)] for m in re.finditer(layout_pattern, code, re.M)
    }
    shapes = []
    for load in re.finditer(r"(%\S+) = tt\.load .*isVolatile = true\} : tensor<([\dx]+)x!tt\.ptr<i\d+>, #(\w+)>", code):
        size = [int(n) for n in load[2].split("x")]
        per_thread, threads, warps = layouts[load[3]]
        copies = math.prod(max(1, e * t * w // n) for n, e, t, w in zip(size, per_thread, threads, warps, strict=True))
        if copies > 1 and len(size) > 1:  # probes, one value per program, are only waited for
            shapes.append(load[2])
    return shapes


def main(name: str, units: int, batch: int) -> None:
    scan, device = get_scan(CELLS[name]), torch.device("cpu")
    tiling = choose_tiling(units, scan.own_units, batch, 1, 2, device)
    assert tiling is not None
    options = build_options(tiling, scan.own_units, torch.bfloat16, False, "tf32")
    constants = {
        **scan.constants, "SAVE": scan.saves_gates, "NUM_PROGRAMS": triton.next_power_of_2(tiling.unit_blocks),
        "lengths": None, "step_offsets": None,
    }  # fmt: skip
    backward_options = scan.adapt_backward_options(options, units, torch.empty(0, dtype=torch.bfloat16))
    for kernel, extra, published in (
        (scan.forward_kernel, options, PUBLISHED["forward"]),
        (scan.backward_kernel, backward_options, PUBLISHED["backward"]),
    ):
        optional = {
            parameter.name for parameter in get_signature(kernel.fn).parameters.values() if parameter.default is None
        }
        plain = set(OPTIONAL.values())
        absent = dict.fromkeys(optional & plain if scan.norm else optional - {OPTIONAL.get(name)})
        code = compile_kernel(kernel, {**absent, **constants, **extra}, extra["num_warps"], published)
        for tile in find_shared_tiles(code):
            sys.stdout.write(f"{kernel.__name__} {units} units, {batch} sequences: {tile} is loaded by several warps\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
