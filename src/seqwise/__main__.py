"""`python -m seqwise` is the command `seqwise`."""

from __future__ import annotations

import os
import sys

from seqwise.cli.main import main

if __name__ == "__main__":
    status = main()
    if "LOCAL_RANK" in os.environ:
        # One of several processes: gloo's threads, where they are still there, abort an interpreter that takes itself
        # apart, and everything is saved and said.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
