"""Waiting for the pages of the lab in Chromium. Their security policy forbids Playwright's own `wait_for_function`."""

from __future__ import annotations

import time
from typing import Any

TIMEOUT = 60.0  # seconds; the machine may be busy
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def wait_until_drawn(tab: Any) -> None:
    """Waits until the page has run its script, and for two frames, in which figures get their width."""
    tab.wait_for_selector("html[data-ready=true]", state="attached")
    tab.evaluate(TWO_FRAMES)


def wait_for(tab: Any, expression: str) -> None:
    """Waits until an expression of JavaScript is true."""
    end = time.monotonic() + TIMEOUT
    while not tab.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        tab.wait_for_timeout(30)
