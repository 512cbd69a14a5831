"""The benchmark of false alarms: it computes the test of the package, and finds what that promises."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def benchmark(benchmark_script) -> ModuleType:
    pytest.importorskip("scipy")
    return benchmark_script("false_alarms")


def test_it_computes_the_test_of_the_package(benchmark: ModuleType):
    benchmark.check_ours()


def test_holm_multiplies_the_smallest_p_most(benchmark: ModuleType):
    assert benchmark.adjust(np.array([[0.04, 0.01, 0.3]]), [3, 2, 1]).tolist() == [pytest.approx([0.08, 0.03, 0.3])]


def test_families_far_behind_are_found_and_equal_ones_rarely_differ(benchmark: ModuleType):
    far = benchmark.simulate(400, [1.0] * 5, [0.0, 99, 99, 99, 99], 5, 0.3)
    assert far[benchmark.OURS] == (0.0, 1.0)
    scattered = benchmark.simulate(2000, [10.0, 1, 1, 1, 1], [0.0] * 5, 3, 0.0)
    assert scattered["pooled variance"][0] > 0.1
    assert scattered[benchmark.OURS][0] < 0.05
