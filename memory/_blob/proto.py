"""Blobs to and from BlobProto messages, of any class that has their fields.

Nothing here imports protobuf: a message is any object with Caffe's field names and protobuf's
``HasField`` and ``ClearField``. Two generations of the format exist: the shape is in ``shape``, or
in the legacy ``num``, ``channels``, ``height``, ``width``, which win if any of them is set; values
are in ``data`` and ``diff`` as floats, or in ``double_data`` and ``double_diff``, which win if not
empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from memory._device.bfloat16 import is_bfloat16, rounded
from memory._errors import BlobProtoError
from memory._shape import dims_of, equals_legacy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory._shape import Dims

_LEGACY: Final = ("num", "channels", "height", "width")

# These are exact in a float; all others go to the double fields.
_FLOAT_DTYPES: Final = tuple(map(np.dtype, (np.float32, np.float16, np.uint8)))

# Messages take Python numbers, of which 24 bytes each would be too many for a whole layer at once.
_PIECE: Final = 1 << 16


class BlobMessage(Protocol):
    """A BlobProto, by its fields."""

    num: Any
    channels: Any
    height: Any
    width: Any

    @property
    def shape(self) -> Any:
        """A message with ``dim``."""
        ...

    @property
    def data(self) -> Any:
        """Floats."""
        ...

    @property
    def diff(self) -> Any:
        """Floats."""
        ...

    @property
    def double_data(self) -> Any:
        """Doubles."""
        ...

    @property
    def double_diff(self) -> Any:
        """Doubles."""
        ...

    def HasField(self, field_name: Any, /) -> bool:  # noqa: N802 - protobuf's name
        """Say whether a field is set."""
        ...

    def ClearField(self, field_name: Any, /) -> None:  # noqa: N802 - protobuf's name
        """Unset a field."""
        ...


def is_legacy(proto: BlobMessage) -> bool:
    """Say whether a message has its shape in the legacy fields, be it zeros."""
    return any(proto.HasField(name) for name in _LEGACY)


def dims_in(proto: BlobMessage) -> Dims:
    """Read the shape of a message; one without any is a scalar's, as in Caffe."""
    if is_legacy(proto):
        return (int(proto.num), int(proto.channels), int(proto.height), int(proto.width))
    return dims_of(proto.shape)


def has_shape(proto: BlobMessage, dims: Dims) -> bool:
    """Say whether a message has a certain shape; a legacy one is aligned at the end."""
    if is_legacy(proto):
        return equals_legacy(dims, dims_in(proto))
    return dims == dims_in(proto)


def data_in(proto: BlobMessage, *, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Read the data of a message.

    Args:
        proto: The message.
        dtype: To convert to. Floats are rounded; to an integer dtype they must fit exactly.
        count: How many values there have to be.

    Returns:
        Shape (count,), of ``dtype``.

    Raises:
        BlobProtoError: It has another number of values, or they do not fit.
    """
    return _values_in(proto, "data", dtype, count)


def diff_in(proto: BlobMessage, *, dtype: np.dtype[Any], count: int) -> NDArray[Any] | None:
    """Read the diff of a message, as :func:`data_in`; None if it has none."""
    if not len(proto.diff) and not len(proto.double_diff):
        return None
    return _values_in(proto, "diff", dtype, count)


def write(
    proto: BlobMessage, dims: Dims, data: NDArray[Any], diff: NDArray[Any] | None = None
) -> None:
    """Replace what a message holds.

    Every field of a blob is cleared first. (Caffe clears only those that it is about to write, and
    the legacy shape or the values of the other precision that survive then win on reading.)

    Args:
        proto: The message.
        dims: The shape.
        data: Values, any shape.
        diff: Values; None to write none.

    Raises:
        BlobProtoError: A value has no exact double.
    """
    data_values = _to_floats(data, "data")
    diff_values = None if diff is None else _to_floats(diff, "diff")
    for name in (*_LEGACY, "shape", "data", "diff", "double_data", "double_diff"):
        proto.ClearField(name)
    # Also where there is no dimension to write: a scalar's shape is empty, but set.
    proto.shape.SetInParent()
    proto.shape.dim.extend(dims)
    _extend(proto, "data", data_values)
    if diff_values is not None:
        _extend(proto, "diff", diff_values)


def _values_in(proto: BlobMessage, field: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    double = f"double_{field}"
    name, kind = (double, np.float64) if len(getattr(proto, double)) else (field, np.float32)
    stored = getattr(proto, name)
    if len(stored) != count:
        raise BlobProtoError(
            f"{name}: expected {count} values, as the shape says, found {len(stored)}", field=name
        )
    return _convert(np.array(stored, dtype=kind), dtype, name)


def _convert(values: NDArray[Any], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if dtype.kind in "iu" and not _are_integers(values, dtype):
        raise BlobProtoError(
            f"{name}: expected values that {dtype.name} holds exactly, found others; "
            f"read them into a blob of floats",
            field=name,
        )
    with np.errstate(all="ignore"):
        return rounded(values, dtype) if is_bfloat16(dtype) else values.astype(dtype)


def _are_integers(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether an integer dtype holds these floats exactly.

    Chips differ in what they make of a float that an integer cannot hold: on ARM 2**63 becomes
    2**63 - 1, which as a float is 2**63 again. So the range comes first.
    """
    range_of = np.iinfo(dtype)
    in_range = (values >= float(range_of.min)) & (values < float(range_of.max + 1))
    return bool(in_range.all() and (values == np.trunc(values)).all())


def _to_floats(values: NDArray[Any], name: str) -> NDArray[Any]:
    values = values.reshape(-1)
    is_narrow = values.dtype in _FLOAT_DTYPES or is_bfloat16(values.dtype)
    floats = values.astype(np.float32 if is_narrow else np.float64)
    if values.dtype.kind == "i" and not (
        _are_integers(floats, values.dtype) and np.array_equal(floats.astype(values.dtype), values)
    ):
        raise BlobProtoError(
            f"{name}: expected values that a double holds exactly, found some beyond 2**53",
            field=name,
        )
    return floats


def _extend(proto: BlobMessage, field: str, values: NDArray[Any]) -> None:
    stored = getattr(proto, field if values.dtype == np.float32 else f"double_{field}")
    for start in range(0, values.size, _PIECE):
        stored.extend(values[start : start + _PIECE].tolist())
