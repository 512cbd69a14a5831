"""Changes of the runs, numbered, so that a page that lost its connection receives what it missed and nothing twice.

An event is the present state of what has changed, not a difference: after any interruption the newest one suffices.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from seqwise.studio.catalogue import Catalogue


class Feed:
    """Rows of the catalogue with the number of their last change. `poll` looks for changes. Threads may share it."""

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue
        self.server = uuid.uuid4().hex[:8]  # another server counts from 1 again
        self.number = 0
        self._changes: dict[str, int] = {}  # id → number of its last change
        self._mutex = threading.Lock()

    def poll(self) -> bool:
        """Looks for changes; returns whether there are any."""
        with self._mutex:
            changed = self.catalogue.refresh()
            if changed:
                self._changes.update(dict.fromkeys(changed, self.number + 1))
                self.number += 1  # last: a page that has seen this number has seen the changes
            return bool(changed)

    def describe(self, identifier: str) -> dict[str, Any]:
        """Returns the row of a run; of one that was removed only its id."""
        entry = self.catalogue.entries.get(identifier)
        return {"id": identifier, "is_gone": True} if entry is None else entry.describe()

    def collect(self, last_event: str) -> tuple[str, dict[str, Any]]:
        """Returns the id and the content of the event that follows `last_event`; "" or one of another server: all."""
        server, _, text = last_event.partition("-")
        is_known = server == self.server and text.isdecimal() and len(text) < 20
        after = int(text) if is_known else 0
        number = self.number  # first: what another thread adds from now on belongs to the next event, too
        changes = list(self._changes.items())
        rows = [self.describe(name) for name, change in changes if change > after]
        if not is_known:
            rows = [row for row in rows if "is_gone" not in row]
        return f"{self.server}-{number}", {"rows": rows, "is_complete": not is_known}
