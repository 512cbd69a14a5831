"""Looks at the folders for changes as long as a page is open, and wakes the connections of all pages."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from seqwise.studio.feed import Feed

MIN_SECONDS, MAX_SECONDS = 2.0, 10.0  # between two looks at the folders
MAX_SHARE = 0.005  # of the time of one core, within these limits: trainings need it


def choose_pause(cost: float) -> float:
    """Returns the seconds until the next look, after one that needed `cost` seconds of processor time."""
    return min(MAX_SECONDS, max(MIN_SECONDS, cost / MAX_SHARE))


class Watcher:
    """Polls the feed while a page is open."""

    def __init__(self, feed: Feed):
        self._feed = feed
        self._num_pages = 0
        self._cost = 0.0  # processor time of the last look, in seconds
        self._woken = asyncio.Event()  # the first page is open
        self.changed = asyncio.Event()  # replaced by a new one when it is set

    @property
    def is_idle(self) -> bool:
        """Whether no page is open: what was found last may be old."""
        return self._num_pages == 0

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
            await asyncio.sleep(choose_pause(self._cost))
            if not self._num_pages:
                self._woken.clear()
                await self._woken.wait()

    async def look(self) -> None:
        """Looks for changes now."""
        if await asyncio.to_thread(self._poll):
            self.changed.set()
            self.changed = asyncio.Event()

    def _poll(self) -> bool:
        started_at = time.thread_time()
        try:
            return self._feed.poll()
        finally:
            self._cost = time.thread_time() - started_at
