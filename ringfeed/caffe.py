"""The same as `prefetch.caffe`."""

from prefetch.caffe import *  # noqa: F403 - all that is public there
from prefetch.caffe import __all__  # noqa: F401 - what is public here too
