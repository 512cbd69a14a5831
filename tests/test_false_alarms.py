"""The benchmark of false alarms computes the significance test of the package, and its error rates."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def benchmark(benchmark_script) -> ModuleType:
    pytest.importorskip("scipy")
    return benchmark_script("false_alarms")


def test_the_benchmark_computes_the_same_p_values_as_the_package(benchmark: ModuleType):
    benchmark.check_simulated_test()


def test_holm_multiplies_the_smallest_p_most(benchmark: ModuleType):
    assert benchmark.adjust_p_values(np.array([[0.04, 0.01, 0.3]]), [3, 2, 1]).tolist() == [
        pytest.approx([0.08, 0.03, 0.3])
    ]


def test_families_that_are_far_worse_are_always_found(benchmark: ModuleType):
    rates = benchmark.simulate(400, spreads=[1.0] * 5, shifts=[0.0, 99, 99, 99, 99], seeds=5, example_share=0.3)
    assert rates[benchmark.OURS] == (0.0, 1.0)  # false alarms, worse families found


def test_a_family_with_a_large_variance_causes_false_alarms_of_a_pooled_test_only(benchmark: ModuleType):
    rates = benchmark.simulate(2000, spreads=[10.0, 1, 1, 1, 1], shifts=[0.0] * 5, seeds=3, example_share=0.0)
    assert rates["pooled variance"][0] > 0.1
    assert rates[benchmark.OURS][0] < 0.05
