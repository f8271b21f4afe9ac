"""The same as `prefetch.jax`."""

from prefetch.jax import *  # noqa: F403 - all that is public there
from prefetch.jax import __all__  # noqa: F401 - what is public here too
