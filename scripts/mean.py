"""``ringfeed mean``, for those who look here: the mean image of a database.

Usage: python scripts/mean.py DB [OUT] [OPTIONS]; see --help
"""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["mean", *sys.argv[1:]]))
