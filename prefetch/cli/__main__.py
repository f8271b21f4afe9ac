"""``python -m prefetch.cli`` is ``ringfeed``."""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main())
