"""`python -m sidecar` is the command `sidecar`."""

from __future__ import annotations

import sys

from sidecar.cli import main

if __name__ == "__main__":
    sys.exit(main())
