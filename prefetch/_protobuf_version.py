"""Refuses, at import, a protobuf that the generated messages are not for."""

from __future__ import annotations

import re
from typing import Final

_NEEDED: Final = "protobuf 5.29 or newer, below 8"
_CURE: Final = "run pip install 'protobuf>=5.29,<8'"

try:
    from google.protobuf import __version__ as _found
except ImportError as error:
    raise ImportError(f"prefetch.caffe needs {_NEEDED}, and there is none; {_CURE}") from error

if not (5, 29) <= tuple(map(int, re.findall(r"\d+", _found)[:2])) < (8, 0):
    raise ImportError(f"prefetch.caffe needs {_NEEDED}, and found {_found}; {_CURE}")
