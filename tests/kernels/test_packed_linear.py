"""Packed products equal those of `F.linear`, which is used where packing is not possible."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn import functional as F

from seqwise.kernels import packed_linear
from seqwise.kernels.packed_linear import ACTIVATIONS, PackedLinear


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (3, 5, 40)])
def test_the_product_is_that_of_linear(activation, shape):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(70, 40), torch.randn(70), torch.randn(shape)
    with torch.inference_mode():
        outputs = PackedLinear(weight, bias, num_sequences=7, activation=activation)(x)
    torch.testing.assert_close(outputs, ACTIVATIONS[activation](F.linear(x, weight, bias)), atol=1e-5, rtol=1e-5)


def test_float64_weights_use_the_ordinary_product():
    weight = torch.randn(4, 3, dtype=torch.float64)
    with torch.inference_mode():
        assert PackedLinear(weight, None, num_sequences=8).packed_weight is None
        assert (
            PackedLinear(torch.randn(1100, 1000, dtype=torch.float64), None, num_sequences=1).multiply_few_rows is None
        )
    x = torch.randn(2, 3, dtype=torch.float64)
    assert torch.equal(PackedLinear(weight, None, num_sequences=8)(x), F.linear(x, weight))


def test_with_gradients_enabled_the_ordinary_product_is_used():
    weight, x = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3)
    assert PackedLinear(torch.randn(1100, 1000), None, num_sequences=1).multiply_few_rows is None
    layer = PackedLinear(weight, None, num_sequences=8)
    assert layer.packed_weight is None
    layer(x).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(4, 3))


def test_without_onednn_the_ordinary_product_is_used(monkeypatch):
    monkeypatch.setattr(packed_linear, "_has_packed_linear", lambda: False)
    weight, x = torch.randn(4, 3), torch.randn(2, 3)
    with torch.inference_mode():
        layer = PackedLinear(weight, None, num_sequences=8)
    assert layer.packed_weight is None
    assert torch.equal(layer(x), F.linear(x, weight))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,), (2, 4), (9,)])
@torch.inference_mode()
def test_few_rows_are_multiplied_with_the_weight_itself(activation, has_bias, shape, monkeypatch):
    monkeypatch.setattr(packed_linear, "MIN_FEW_ROWS_SIZE", 0)
    torch.manual_seed(0)
    weight, bias, x = torch.randn(70, 41), torch.randn(70) if has_bias else None, torch.randn(*shape, 41)
    layer = PackedLinear(weight, bias, num_sequences=1, activation=activation)
    assert layer.multiply_few_rows is not None
    assert layer.packed_weight is None
    torch.testing.assert_close(layer(x), ACTIVATIONS[activation](F.linear(x, weight, bias)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 33, 100])
@pytest.mark.parametrize("depth", [1, 15, 16, 17, 64])
@torch.inference_mode()
def test_any_size_can_be_multiplied_on_any_number_of_threads(width, depth, monkeypatch):
    monkeypatch.setattr(packed_linear, "MIN_PART_SIZE", 1)
    monkeypatch.setattr(packed_linear, "get_thread_choice", lambda threads, size: packed_linear.ThreadChoice(threads))
    torch.manual_seed(0)
    weight, bias = torch.randn(width, 2 * depth)[:, ::2], torch.randn(width)
    x = torch.randn(depth, 3).t()  # neither is contiguous
    num_threads = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            multiply = packed_linear.FewRowsProduct(weight, bias)
            products = [multiply(x) for _ in range(8)]  # by one thread and by all
            torch.testing.assert_close(products[0], F.linear(x, weight, bias), atol=1e-5, rtol=1e-5)
            assert all(torch.equal(products[0], product) for product in products)
    finally:
        torch.set_num_threads(num_threads)


@torch.inference_mode()
def test_a_small_weight_and_a_machine_without_compiler_use_the_ordinary_product(monkeypatch):
    weight, x = torch.randn(1100, 1000), torch.randn(1, 1000)
    assert PackedLinear(weight, None, num_sequences=1).multiply_few_rows is not None
    assert PackedLinear(weight[:9], None, num_sequences=1).multiply_few_rows is None
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    assert PackedLinear(weight, None, num_sequences=1).multiply_few_rows is None
    monkeypatch.delenv("SEQWISE_KERNELS")
    monkeypatch.setattr(packed_linear, "_can_compile", lambda: False)
    layer = PackedLinear(weight, None, num_sequences=1)
    assert layer.multiply_few_rows is None
    assert torch.equal(layer(x), F.linear(x, weight))


def count_choices(choice: packed_linear.ThreadChoice, seconds: dict[int, float], calls: int) -> dict[int, int]:
    counts = dict.fromkeys(seconds, 0)
    for _ in range(calls):
        threads = choice.choose()
        counts[threads] += 1
        choice.update(threads, seconds[threads])
    return counts


def test_the_faster_number_of_threads_is_chosen_and_the_choice_changes_with_the_load():
    choice = packed_linear.ThreadChoice(2)
    assert count_choices(choice, {1: 0.17, 2: 0.10}, 1000)[2] > 970
    choice.update(2, 5.0)  # one interruption
    assert count_choices(choice, {1: 0.17, 2: 0.10}, 1000)[2] > 970
    assert count_choices(choice, {1: 0.17, 2: 5.0}, 1000)[1] > 970  # other processes need the second core
    assert count_choices(choice, {1: 0.17, 2: 0.10}, 1000)[2] > 700
    assert count_choices(packed_linear.ThreadChoice(1), {1: 0.1}, 100) == {1: 100}


@torch.inference_mode()
def test_several_threads_may_call_one_product():
    weight = torch.randn(2048, 512)
    multiply = packed_linear.FewRowsProduct(weight, None)
    inputs = torch.randn(2, 1, 512)

    def count_errors(x: torch.Tensor) -> int:
        with torch.inference_mode():
            expected = multiply(x)
            return sum(not torch.equal(multiply(x), expected) for _ in range(300))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(count_errors, inputs)) == [0, 0]
