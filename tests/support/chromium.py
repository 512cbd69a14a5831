"""The Chromium of the system, opened without network; tests are skipped where there is none."""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class OpenPage(NamedTuple):
    tab: Any
    address: str
    requests: list[str]
    errors: list[str]


@contextmanager
def launch_chromium() -> Iterator[Any]:
    """Yields a running browser."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make install")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    # Chromium's sandbox refuses to start for root; the only pages it opens are ours.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    chromium = _start_playwright(api).chromium.launch(executable_path=program, args=arguments)
    try:
        yield chromium
    finally:
        chromium.close()


@cache
def _start_playwright(api: Any) -> Any:
    """Starts playwright once: a second instance in the same thread is refused while the first one runs."""
    playwright = api.sync_playwright().start()
    atexit.register(playwright.stop)
    return playwright


def open_file(chromium: Any, path: Path, width: int = 1300, scheme: str = "light") -> OpenPage:
    """Opens a file in a new window that has no network, and collects what it requests and what goes wrong."""
    if not chromium.contexts:
        chromium.new_context(reduced_motion="reduce", offline=True)
    tab = chromium.contexts[0].new_page()
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    opened = OpenPage(tab, path.as_uri(), [], [])
    tab.on("request", lambda request: opened.requests.append(request.url))
    tab.on(
        "console", lambda message: opened.errors.append(message.text) if message.type in ("error", "warning") else None
    )
    tab.on("pageerror", lambda error: opened.errors.append(str(error)))
    tab.goto(opened.address)
    return opened
