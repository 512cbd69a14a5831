"""A real studio in a process of its own, and its pages in Chromium."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TIMEOUT = 60_000  # milliseconds: on a busy machine, a worker process imports PyTorch for more than ten seconds


class StudioServer:
    """`seqwise studio` on a free port; `close` ends it as Ctrl-C does."""

    def __init__(self, *folders: Path, options: Sequence[str] = (), environment: dict[str, str] | None = None):
        arguments = ["studio", *map(str, folders), "--no-browser", "--port", "0", *options]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seqwise", *arguments], stderr=subprocess.PIPE, text=True, env=variables
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = re.search(r"http://\S+", line)
        assert match is not None, line + self.process.stderr.read()
        self.address = match[0]

    def close(self) -> int:
        """Ends the server and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self) -> StudioServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class StudioTab:
    """A tab that shows the studio. `errors` has what the console said; `requests` all addresses that were requested."""

    def __init__(self, chromium: Any, address: str, width: int = 1300, scheme: str = "light"):
        self.context = chromium.new_context(
            reduced_motion="reduce", viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.context.set_default_timeout(TIMEOUT)
        self.tab = self.context.new_page()
        self.address, self.errors, self.requests = address, [], []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", self._listen)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))

    def _listen(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, page: str, query: str = "") -> Any:
        """Opens a page of the studio and waits until it is drawn; returns the tab of playwright."""
        self.tab.goto("about:blank")
        self.tab.goto(f"{self.address}#/{page}{query}")
        self.tab.wait_for_selector(f"html[data-ready={page}]")
        return self.tab

    def check(self) -> None:
        """Raises an error if the console shows one, or if something was requested from elsewhere."""
        assert not self.errors, self.errors
        elsewhere = [url for url in self.requests if not url.startswith((self.address, "blob:", "data:", "about:"))]
        assert not elsewhere, elsewhere

    def close(self) -> None:
        self.context.close()


def wait_until(condition: Any, seconds: float = 60.0, what: str = "") -> Any:
    """Waits until `condition` returns something true, and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"nothing happened within {seconds:.0f} s: {what}")
