"""``python -m prefetch.cli`` is ``ringfeed``, from where the library has been imported on."""

from __future__ import annotations

import sys

from ringfeed_cli import main

if __name__ == "__main__":
    sys.exit(main())
