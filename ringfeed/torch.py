"""The same as `prefetch.torch`."""

from prefetch.torch import *  # noqa: F403 - all that is public there
from prefetch.torch import __all__  # noqa: F401 - what is public here too
