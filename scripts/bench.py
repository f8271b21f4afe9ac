"""Measure a feed: the same as ``ringfeed bench``, from a checkout."""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
