"""What tests of Blob share: every dtype that one may have, and one that is filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory import bfloat16

if TYPE_CHECKING:
    from memory import Blob

BLOB_DTYPES = [np.float32, np.float64, np.float16, bfloat16().type, np.uint8, np.int32, np.int64]


def counting(blob: Blob) -> Blob:
    """Fill the data with 0, 1, 2, ... and the diff with 100, 101, ..."""
    blob.mutable_cpu_data().reshape(-1)[:] = np.arange(blob.count())
    blob.mutable_cpu_diff().reshape(-1)[:] = np.arange(100, 100 + blob.count())
    return blob
