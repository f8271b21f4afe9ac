"""Check an installed wheel, away from the checkout: the C kernels are there, and a feed works.

The build goes on without them where they do not compile, so that a wheel may lack them unseen.
"""

from __future__ import annotations

import sys

import prefetch
import ringfeed
from prefetch.testing import example_database


def main() -> int:
    """Read a batch; return the exit status."""
    if not prefetch.kernels_available:
        print(f"{prefetch.__file__}: without its C kernels", file=sys.stderr)
        return 1
    if ringfeed.open is not prefetch.open:
        print(f"{ringfeed.__file__}: another package than {prefetch.__file__}", file=sys.stderr)
        return 1
    with (
        example_database(num_records=5) as source,
        ringfeed.open(source, batch_size=5, device="simulated") as feed,
    ):
        labels = [batch.label.numpy().tolist() for batch in feed]
    print(f"{prefetch.__file__}: {labels}")
    return 0 if labels == [[0, 1, 2, 3, 4]] else 1


if __name__ == "__main__":
    sys.exit(main())
