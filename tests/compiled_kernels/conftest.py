"""The GPU's kernels as NVIDIA's compilers make them, without a GPU: ``make test-kernels``.

They need wheels of NVRTC 12 and 13 and of nvdisasm, so they are collected where
RINGFEED_TEST_KERNELS is set, and fail where one of these is missing.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("RINGFEED_TEST_KERNELS") else ["test_*.py"]
