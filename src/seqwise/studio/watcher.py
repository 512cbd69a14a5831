"""Looks at the folders for changes as long as a page is open, and wakes the connections of all pages."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from seqwise.studio.feed import Feed

POLL_SECONDS = 1.0  # between two looks at the folders


class Watcher:
    """Polls the feed while a page is open."""

    def __init__(self, feed: Feed):
        self._feed = feed
        self._num_pages = 0
        self._woken = asyncio.Event()  # the first page is open
        self.changed = asyncio.Event()  # replaced by a new one when it is set

    @contextmanager
    def count_page(self) -> Iterator[None]:
        """Counts a page as open while the context lasts."""
        self._num_pages += 1
        self._woken.set()
        try:
            yield
        finally:
            self._num_pages -= 1

    async def run(self) -> None:
        """Looks for changes until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # one damaged folder must not end the updates of all others
                traceback.print_exc()
            await asyncio.sleep(POLL_SECONDS)
            if not self._num_pages:
                self._woken.clear()
                await self._woken.wait()

    async def look(self) -> None:
        """Looks for changes now."""
        if await asyncio.to_thread(self._feed.poll):
            self.changed.set()
            self.changed = asyncio.Event()
