"""`python -m seqwise` is the command `seqwise`."""

from __future__ import annotations

import sys

from seqwise.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
