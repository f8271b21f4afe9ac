"""Write scikit-learn's 1,797 scans of handwritten digits into an LMDB of Caffe Datums.

Usage: make_digits.py [FOLDER]        (default: data/digits_lmdb in the checkout)

The records are in the order that the demo's configuration counts on: NUM_TRAIN records to train
with, then NUM_TEST to test with, each with its share of every class. A record is 1x8x8 bytes, each
0 to 16, as scanned.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import lmdb
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from prefetch.caffe import Datum

NUM_TRAIN = 1437
NUM_TEST = 360
NUM_CLASSES = 10
DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "data" / "digits_lmdb"


def make_digits(folder: Path = DEFAULT_FOLDER) -> bool:
    """Write the database, unless it is there.

    It is written under a temporary name and renamed when whole, so that an interrupted run leaves
    nothing that looks finished, and of two runs at once both end with a whole database.

    Args:
        folder: Where the database goes; its parents are made.

    Returns:
        Whether this call has put it there.
    """
    if _is_database(folder):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        draft = Path(scratch) / folder.name
        _write(draft)
        try:
            draft.rename(folder)
        except OSError:
            if not _is_database(folder):  # else another run was faster, and wrote the same
                raise
            return False
    return True


def _is_database(folder: Path) -> bool:
    return (folder / "data.mdb").is_file()


def _write(folder: Path) -> None:
    """Write all records in one transaction."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    train, test = train_test_split(
        np.arange(len(images)),
        train_size=NUM_TRAIN,
        test_size=NUM_TEST,
        stratify=digits.target,
        random_state=0,
    )
    with (
        lmdb.open(str(folder), lock=False, mode=0o777) as database,
        database.begin(write=True) as transaction,
    ):
        for place, scan in enumerate(np.concatenate([train, test])):
            datum = Datum(
                channels=1,
                height=images.shape[1],
                width=images.shape[2],
                data=images[scan].tobytes(),
                label=int(digits.target[scan]),
            )
            transaction.put(b"%08d" % place, datum.SerializeToString(), append=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=DEFAULT_FOLDER)
    folder = parser.parse_args(arguments).folder
    print(f"{folder}: {'written' if make_digits(folder) else 'there already, left as it is'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
