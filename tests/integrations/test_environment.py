"""That nothing is left out for want of a library where these tests are the ones that count."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

LIBRARIES = [
    "accelerate",
    "IPython",
    "jax",
    "lightning",
    "plyvel",
    "torch",
    "torchdata",
    "transformers",
]


@pytest.mark.skipif(
    "RINGFEED_TEST_INTEGRATIONS" not in os.environ, reason="set by make test-integrations"
)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_the_tests_need_is_installed(library: str) -> None:
    assert find_spec(library) is not None
