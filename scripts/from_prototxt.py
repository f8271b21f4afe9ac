"""Write a network's Data layer as YAML: the same as ``ringfeed from-prototxt``, from a checkout."""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["from-prototxt", *sys.argv[1:]]))
