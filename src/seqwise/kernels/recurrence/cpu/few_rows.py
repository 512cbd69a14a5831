"""Generates the product of a few rows with a weight that is not rearranged: a step of generation for one sequence.

It takes as long as reading the weight once. Every vector of the weight is multiplied with the same columns of x, and
the sums of as many rows of the weight as a vector has lanes are added up together. It knows nothing of tensors.
"""

from __future__ import annotations

from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import INT32, INT64, Code, CompiledFunction, Int, Vec
from seqwise.kernels.recurrence.decorators import thread_safe_cache

GROUP_ROWS = 8  # rows of the weight that are read together: more of them would evict each other from the cache


@thread_safe_cache
def compile_few_rows(precision: str) -> CompiledFunction:
    """Compiles a function of the address of three integers: the address of the product's integers, `first` and `end`.

    The product's integers are x, rows, K, weight, bias, result and N. The function computes the columns from `first` to
    before `end` of result (rows, N) = x (rows, K) · weight (N, K)ᵀ + bias (N).
    """
    code = Code(precision)
    with code.function("few_rows", 1) as (arguments,):
        product, first, end = (code.load_int(arguments, i) for i in range(3))
        x, rows, depth, weight, bias, result, width = (code.load_int(product, i) for i in range(7))
        with code.loop(first, end, code.lanes) as column:
            last_lane = (end - column - 1).minimum(code.lanes - 1)
            # If fewer rows of the weight are left, the last one is repeated.
            addresses = [weight + (column + last_lane.minimum(i)) * depth * code.size for i in range(code.lanes)]
            with code.loop(0, rows) as row:
                x_row, sums = x + row * depth * code.size, []
                for group in range(0, code.lanes, GROUP_ROWS):
                    sums += _multiply(code, x_row, addresses[group : group + GROUP_ROWS], depth)
                total = _sum_lanes(code, sums)
                with code.mask_lanes(last_lane + 1):
                    code.store(total + code.load(bias, column), result, row * width + column)
    return code.build()["few_rows"]


def _multiply(code: Code, x_row: Int, addresses: list[Int], depth: Int) -> list[Vec]:
    """Returns the products of a row of x with each row of the weight, each as a vector whose lanes are to be added."""
    builder, before = code.builder, code.builder.block
    head, body, tail = (builder.append_basic_block() for _ in range(3))
    full = depth // code.lanes * code.lanes
    builder.branch(head)
    builder.position_at_end(head)
    k, sums = builder.phi(INT64), [builder.phi(code.vector) for _ in addresses]
    column = Int(code, k)
    builder.cbranch(column < full, body, tail)
    builder.position_at_end(body)
    new_sums = _add_products(code, x_row, addresses, column, sums)
    k.add_incoming(INT64(0), before)
    k.add_incoming((column + code.lanes).value, body)
    for total, value in zip(sums, new_sums, strict=True):
        total.add_incoming(code.as_vec(0.0).value, before)
        total.add_incoming(value, body)
    builder.branch(head)
    builder.position_at_end(tail)
    with code.mask_lanes(depth - full):  # lanes after the last column are zero
        return [Vec(code, value) for value in _add_products(code, x_row, addresses, full, sums)]


def _add_products(code: Code, x_row: Int, addresses: list[Int], column: Int, sums: list[ir.Value]) -> list[ir.Value]:
    x = code.load(x_row, column)
    return [code.fma(x, code.load(row, column), Vec(code, total)).value for row, total in zip(addresses, sums)]


def _sum_lanes(code: Code, vectors: list[Vec]) -> Vec:
    """Returns a vector whose lanes are the sums of all lanes of each vector.

    In each round, the halves of the blocks of two vectors are added, and the results of both share one vector.
    """
    width, indices = code.lanes, ir.VectorType(INT32, code.lanes)
    while (block := len(vectors) // 2) > 0:
        low_order = [c - block + width if c & block else c for c in range(width)]
        high_order = [c + width if c & block else c + block for c in range(width)]
        halves = [
            [Vec(code, code.builder.shuffle_vector(a.value, b.value, ir.Constant(indices, order)))
             for a, b in zip(vectors[:block], vectors[block:], strict=True)]
            for order in (low_order, high_order)
        ]  # fmt: skip
        vectors = [low + high for low, high in zip(*halves, strict=True)]
    return vectors[0]
