"""Refuses, at import, a protobuf that the generated messages are not for."""

from __future__ import annotations

import re
from typing import Final

from prefetch._errors.classes import PrefetchError

_NEEDED: Final = "protobuf 5.29 or newer, below 8"
_CURE: Final = "run pip install 'protobuf>=5.29,<8'"


class ProtobufImportError(PrefetchError, ImportError):
    """Raised where protobuf is not there, or is of a version that the messages are not for."""


try:
    from google.protobuf import __version__ as _found
except ModuleNotFoundError as error:
    raise ProtobufImportError(
        f"prefetch.caffe needs {_NEEDED}, and there is none; {_CURE}"
    ) from error

if not (5, 29) <= tuple(map(int, re.findall(r"\d+", _found)[:2])) < (8, 0):
    raise ProtobufImportError(f"prefetch.caffe needs {_NEEDED}, and found {_found}; {_CURE}")
