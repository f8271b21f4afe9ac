"""Print the schema of configurations: the same as ``ringfeed schema``, from a checkout."""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["schema", *sys.argv[1:]]))
