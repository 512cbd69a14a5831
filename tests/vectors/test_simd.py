"""Operations on sixteen SIMD lanes against numpy and exact functions, with bounds on their errors."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from seqwise.vectors.jit import (
    CACHE_LINE,
    LANES,
    absolute,
    add,
    allocate_rows,
    broadcast,
    cached_njit,
    constant,
    divide,
    exponential,
    floor,
    fma,
    load,
    log1p,
    max_lanes,
    maximum,
    multiply,
    pad_width,
    power_of_two,
    prefetch,
    remove_padding,
    select_negative,
    sigmoid,
    store,
    subtract,
    sum_lanes,
)

BINARY = {"add": 0, "subtract": 1, "multiply": 2, "divide": 3, "maximum": 4}


@njit
def apply_operations(x, y, z, out):
    """Applies every operation once; each fills a row of `out` (flat, rows of 16)."""
    a, b, c = load(x, 0), load(y, 0), load(z, 0)
    prefetch(x, 0)
    store(out, 0, add(a, b))
    store(out, 16, subtract(a, b))
    store(out, 32, multiply(a, b))
    store(out, 48, divide(a, b))
    store(out, 64, maximum(a, b))
    store(out, 80, broadcast(max_lanes(a)))
    store(out, 96, absolute(a))
    store(out, 112, floor(a))
    store(out, 128, fma(a, b, c))
    store(out, 144, select_negative(a, b, c))
    store(out, 160, broadcast(y[3]))
    store(out, 176, constant(0.25))
    store(out, 192, power_of_two(floor(c)))
    return sum_lanes(a)


@njit
def apply_functions(x, exp, probability, logarithm):
    for position in range(0, len(x), LANES):
        value = load(x, position)
        lane_exp = exponential(subtract(constant(0.0), absolute(value)))
        store(exp, position, lane_exp)
        store(probability, position, sigmoid(value, lane_exp))
        store(logarithm, position, log1p(lane_exp))


def to_lanes(values) -> np.ndarray:
    values = np.asarray(values, dtype=np.float32)
    line = allocate_rows(1, len(values))[0]
    line[: len(values)] = values
    return line


def evaluate(values) -> tuple[np.ndarray, ...]:
    """Returns (x, e^−|x|, σ(x), log(1 + e^−|x|)), computed in lanes and converted to double precision."""
    x = to_lanes(values)
    results = [allocate_rows(1, len(x))[0] for _ in range(3)]
    apply_functions(x, *results)
    return tuple(array[: len(values)].astype(np.float64) for array in (x, *results))


@pytest.fixture(scope="module")
def lanes():
    random = np.random.default_rng(0)
    x, y, z = (to_lanes(random.normal(0, 3, LANES)) for _ in range(3))
    out = allocate_rows(13, LANES)
    return x, y, z, out, apply_operations(x, y, z, out.reshape(-1))


@pytest.mark.parametrize("name", BINARY)
def test_an_operation_on_two_values_works_lane_by_lane(lanes, name):
    x, y, _, out, _ = lanes
    assert np.array_equal(out[BINARY[name]], getattr(np, name)(x, y))


def test_operations_on_one_and_three_values_work_lane_by_lane(lanes):
    x, y, z, out, _ = lanes
    assert np.array_equal(out[6], np.abs(x))
    assert np.array_equal(out[7], np.floor(x))
    exact = x.astype(np.float64) * y + z
    assert out[8] == pytest.approx(exact, rel=2e-7, abs=1e-6)
    assert np.array_equal(out[9], np.where(x < 0, y, z))


def test_a_number_is_repeated_in_every_lane_and_powers_of_two_are_exact(lanes):
    _, y, z, out, _ = lanes
    assert (out[10] == y[3]).all()
    assert (out[11] == 0.25).all()
    assert np.array_equal(out[12], np.exp2(np.floor(z)))


def test_lane_sum_adds_halves(lanes):
    x, *_, total = lanes
    part = x
    while len(part) > 1:
        part = part[: len(part) // 2] + part[len(part) // 2 :]
    assert total == part[0]
    assert (lanes[3][5] == x.max()).all()


def test_zero_is_not_negative_and_neither_is_minus_zero():
    x, y, z = to_lanes([0.0, -0.0, -1e-30, 1e-30] * 4), to_lanes([1] * 16), to_lanes([2] * 16)
    out = allocate_rows(13, LANES)
    apply_operations(x, y, z, out.reshape(-1))
    assert out[9, :4].tolist() == [2, 2, 1, 2]


def test_powers_of_two_are_exact_over_the_whole_range():
    integers = np.concatenate([np.arange(-126, 128), [0, 0]])  # 256 numbers: 16 lines
    for line in integers.reshape(-1, LANES):
        out = allocate_rows(13, LANES)
        apply_operations(to_lanes(line), to_lanes(line), to_lanes(line), out.reshape(-1))
        assert np.array_equal(out[12], np.exp2(line).astype(np.float32))


GRID = np.concatenate([np.linspace(-87, 87, 40_001), np.linspace(-1, 1, 10_001), np.geomspace(1e-30, 87, 5_000)])


def test_exponential_has_a_relative_error_below_3e_7():
    x, exp, _, _ = evaluate(GRID)
    assert np.abs(exp / np.exp(-np.abs(x)) - 1).max() < 3e-7


def test_sigmoid_is_accurate_for_negative_and_positive_values():
    x, _, probability, _ = evaluate(GRID)
    exact = 1 / (1 + np.exp(-x))
    assert np.abs(probability - exact).max() < 1.5e-7
    assert np.abs(probability / exact - 1).max() < 5e-7


def test_log1p_has_an_absolute_error_below_2e_7():
    x, _, _, logarithm = evaluate(GRID)
    assert np.abs(logarithm - np.log1p(np.exp(-np.abs(x)))).max() < 2e-7


def test_extreme_values_stay_finite():
    x, exp, probability, logarithm = evaluate([0.0, -0.0, 1e-30, -1e-30, -87, 87, -200, 200, -np.inf, np.inf])
    assert exp[:4].tolist() == [1, 1, 1, 1]
    assert probability[:4].tolist() == [0.5] * 4
    assert logarithm[:4] == pytest.approx(np.log(2), abs=1e-7)
    # Beyond ±87 the exponential stays at its smallest value, so that no float becomes subnormal.
    assert ((exp[4:] > 1.17e-38) & (exp[4:] < 1.7e-38)).all()
    assert (probability[4:][x[4:] > 0] == 1).all()
    assert (probability[4:][x[4:] < 0] < 1.7e-38).all()


@pytest.mark.parametrize(("width", "padded_width"), [(1, 16), (16, 16), (17, 32), (100, 112)])
def test_rows_are_padded_and_aligned_to_cache_lines(width, padded_width):
    assert pad_width(width) == padded_width
    for rows in (1, 3):
        matrix = allocate_rows(rows, width)
        assert matrix.shape == (rows, padded_width)
        assert matrix.dtype == np.float32
        assert matrix.ctypes.data % CACHE_LINE == 0
        assert not matrix.any()


@pytest.mark.parametrize(("rows", "width"), [(5, 3), (5, 16), (10_000, 5)])
def test_padding_is_removed_in_place(rows, width):
    matrix = allocate_rows(rows, width)
    matrix[:, :width] = np.arange(rows * width).reshape(rows, width)
    compact = remove_padding(matrix, width)
    assert np.array_equal(compact, np.arange(rows * width).reshape(rows, width))
    assert compact.flags.c_contiguous
    assert np.shares_memory(compact, matrix)


def test_damaged_compiled_code_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))

    def compile_and_call() -> int:
        """Returns how many signatures were loaded from the cache."""
        compiled = cached_njit(_add)
        assert compiled(2, 3) == 5
        return sum(compiled.stats.cache_hits.values())

    assert (compile_and_call(), compile_and_call()) == (0, 1)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path.suffix for path in files] == [".nbc", ".nbi"]
    for path in files:
        content = path.read_bytes()
        for damaged in (
            b"",
            content[: len(content) // 2],
            content[:-200] + b"x" + content[-199:],
            content[:3] + b"x" + content[4:],
        ):
            path.write_bytes(damaged)
            assert (compile_and_call(), compile_and_call()) == (0, 1)


def _add(a: int, b: int) -> int:
    return a + b
