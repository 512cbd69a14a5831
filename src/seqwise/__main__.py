"""`python -m seqwise` is the command `seqwise`."""

from __future__ import annotations

import os
import sys

from seqwise.cli.main import main

if __name__ == "__main__":
    status = main()
    if "LOCAL_RANK" in os.environ:
        # One of several processes: threads of gloo that are still running would abort the interpreter while it shuts
        # down, and everything is already saved and printed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
