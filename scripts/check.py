"""Check a configuration: the same as ``ringfeed check``, from a checkout."""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["check", *sys.argv[1:]]))
