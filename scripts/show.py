"""Draw the batches that a network will see: the same as ``ringfeed show``, from a checkout."""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["show", *sys.argv[1:]]))
