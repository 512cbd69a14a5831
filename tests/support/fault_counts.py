"""How many faults the fault battery injects, and how many it has injected.

`SEQWISE_FAULTS=full` (`make test-faults`) chooses the long form; `make test-all` runs the same tests with smaller
numbers. Each test counts its faults with the fixture `count_faults`; the totals are printed after the last test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

VARIABLE = "SEQWISE_FAULTS"  # environment variable
PROPERTY = "faults"  # name of the property of a test report, which pytest-xdist transfers between processes

CountFunction = Callable[..., None]


def is_full() -> bool:
    """Returns whether the long form is run."""
    return os.environ.get(VARIABLE) == "full"


def choose_count(small: int, full: int) -> int:
    """Returns the number of faults for the form that is run."""
    return full if is_full() else small


@pytest.fixture
def count_faults(request: pytest.FixtureRequest) -> CountFunction:
    """Returns a function that counts faults by their description: `count_faults("SIGKILL …", 20)`."""

    def count(description: str, number: int = 1) -> None:
        request.node.user_properties.append((PROPERTY, f"{number} {description}"))

    return count


def add_counts(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """Returns the total of each description over all test reports."""
    totals: Counter[str] = Counter()
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY:
                number, _, description = str(value).partition(" ")
                totals[description] += int(number)
    return totals


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many faults were injected, if any."""
    reports = [report for status in ("passed", "failed") for report in terminalreporter.stats.get(status, [])]
    if totals := add_counts(reports):
        terminalreporter.section(f"faults injected ({'full' if is_full() else 'small'} form)")
        for description in sorted(totals):
            terminalreporter.write_line(f"{totals[description]:>8,}  {description}")
