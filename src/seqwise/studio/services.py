"""What the routes of the studio share: the runs, their changes, the worker processes and the uploads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqwise.studio.catalogue import Catalogue
from seqwise.studio.checks import Checks
from seqwise.studio.feed import Feed
from seqwise.studio.jobs import Jobs
from seqwise.studio.uploads import Uploads
from seqwise.studio.watcher import Watcher
from seqwise.studio.workers import Workers


@dataclass
class Services:
    """The parts of a server."""

    catalogue: Catalogue
    feed: Feed
    watcher: Watcher
    jobs: Jobs
    workers: Workers = field(default_factory=Workers)
    uploads: Uploads = field(default_factory=Uploads)
    checks: Checks = field(default_factory=Checks)

    @classmethod
    def create(cls, folders: Sequence[Path]) -> Services:
        """Returns the services for some folders."""
        catalogue = Catalogue(folders)
        feed = Feed(catalogue)
        return cls(catalogue, feed, Watcher(feed), Jobs(catalogue))

    async def close(self) -> None:
        """Ends the worker processes and removes temporary files."""
        await self.workers.close()
        self.uploads.close()
