"""``ringfeed convert``, for those who look here: images into a database of Caffe Datum records.

Usage: python scripts/convert.py INPUT... DB [OPTIONS]; see --help
"""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["convert", *sys.argv[1:]]))
