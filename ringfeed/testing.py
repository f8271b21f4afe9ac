"""The same as `prefetch.testing`."""

from prefetch.testing import *  # noqa: F403 - all that is public there
from prefetch.testing import __all__  # noqa: F401 - what is public here too
