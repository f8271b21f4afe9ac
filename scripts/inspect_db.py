"""Say what is in a database: the same as ``ringfeed inspect``, from a checkout.

The file is not called inspect.py: every script here would import it in place of Python's own
inspect.
"""

from __future__ import annotations

import sys

from prefetch.cli import main

if __name__ == "__main__":
    sys.exit(main(["inspect", *sys.argv[1:]]))
