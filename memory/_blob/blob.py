"""Caffe's Blob: an array with a gradient beside it, each on the host and on a device.

Caffe's semantics in Python's spelling, with what is wrong in them put right: offsets are those of
elements that exist, ``to_proto`` leaves nothing stale behind, ``copy_from`` copies where the newest
bytes are, blobs with a 0 in their shape have data, sizes are 64-bit, and a call that fails leaves
the blob as it was. What it is made of stands in classes below it, one a file: its shape
(``shape_queries``), its memories (``memories``), their bytes (``data``), views for other libraries
(``exports``), and what people try who know arrays (``array_habits``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory._blob import maths
from memory._blob import proto as blob_proto
from memory._blob.array_habits import ArrayHabits
from memory._errors import DeviceMismatchError, DtypeError, ShapeMismatchError
from memory._shape import count_elements
from memory._synced.views import typed_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory._blob.proto import BlobMessage
    from memory._synced.memory import SyncedMemory


class Blob(ArrayHabits):
    """An array of up to 32 axes, its data and its diff, each on the host and on a device.

    ``shape``, ``dtype`` and ``device`` say what it is; ``cpu_data()`` and its siblings reach the
    bytes. Each of the two :class:`SyncedMemory` objects is guarded, the shape is not: while a
    thread reshapes a blob, no other may use it.

    Why it is this large: it is the interface of Caffe's Blob, method by method.

    A blob is handed to other libraries by ``numpy()``, ``numpy.asarray`` or DLPack. These are views
    of the host's side, which keep the memory for as long as they live. On a GPU, ``cupy()``, DLPack
    and ``__cuda_array_interface__`` are views of the device's side.

    It reads as an array does: ``blob[0]``, ``len(blob)``, ``blob * 2``, ``blob.mean()``, on a GPU
    by CuPy and there. All of these read only: ``blob.numpy()[0] = 1`` writes. ``reshape``, ``data``
    and ``count`` are Caffe's.

    Example:
        >>> from memory import Blob
        >>> blob = Blob((2, 3))
        >>> blob.mutable_cpu_data()[:] = [[1, 2, 3], [4, 5, 6]]
        >>> blob.shape_string, blob.data_at((1, 2)), blob.asum_data()
        ('2 3 (6)', 6.0, 21.0)
        >>> blob[0], float(blob.mean())
        (array([1., 2., 3.], dtype=float32), 3.5)
        >>> blob.reshape(3, 1)
        >>> blob.numpy()
        array([[1.],
               [2.],
               [3.]], dtype=float32)
    """

    __slots__ = ()

    def reshape_like(self, other: Blob) -> None:
        """Take the shape of another blob; see :meth:`reshape`.

        Raises:
            NoDataError: The other was never given a shape.
        """
        other._refuse_without_data("reshape_like")
        self._resize(other.shape)

    def data_at(self, n: int | Sequence[int], c: int = 0, h: int = 0, w: int = 0) -> int | float:
        """Read one element of the data on the host; indices and errors as of :meth:`offset`."""
        offset = self.offset(n, c, h, w)
        value: int | float = self._flat(self.data.cpu_data())[offset].item()
        return value

    def diff_at(self, n: int | Sequence[int], c: int = 0, h: int = 0, w: int = 0) -> int | float:
        """Read one element of the diff on the host; indices and errors as of :meth:`offset`."""
        offset = self.offset(n, c, h, w)
        value: int | float = self._flat(self.diff.cpu_data())[offset].item()
        return value

    def copy_from(self, source: Blob, *, copy_diff: bool = False, reshape: bool = False) -> None:
        """Copy another blob's data, or its diff, from where its newest bytes are.

        The copy is made where the newest bytes of the source are: on the device, on the current
        stream and without a wait, if both blobs are on one device and the source's head is at
        HEAD_AT_GPU or SYNCED; else on the host. (Caffe takes the side from the thread's mode.)

        Args:
            source: Of the same dtype; may be this blob itself.
            copy_diff: Copy the diff instead of the data.
            reshape: Take the source's shape first if it is another one.

        Raises:
            ShapeMismatchError: The shapes differ, and ``reshape`` is not set.
            DtypeError: The dtypes differ.
            SyncedMemoryError: What the accessors of both raise.
        """
        self._check_same_dtype("copy_from", source)
        contents = source.diff if copy_diff else source.data
        # The counts too: a blob that was never given a shape has a scalar's.
        if not reshape and (self._shape, self._count) != (source._shape, source._count):
            raise ShapeMismatchError(
                "copy_from",
                expected=self.shape,
                found=source.shape,
                cure="pass reshape=True to take the source's shape",
            )
        with self._unchanged_on_failure():
            self._resize(source.shape)
            target = self.diff if copy_diff else self.data
            target.copy_from(contents, nbytes=self.nbytes)

    def share_data(self, other: Blob) -> None:
        """Use another blob's memory for the data: what either writes, both have.

        Sharing ends, without a word, when either blob gets new memories for a larger shape.

        Args:
            other: Of the same count, dtype and device; its shape may differ.

        Raises:
            ShapeMismatchError: The counts differ.
            DtypeError: The dtypes differ.
            DeviceMismatchError: The devices differ.
            NoDataError: One of the two was never given a shape.
        """
        self._check_sharable("share_data", other)
        self._data = other.data

    def share_diff(self, other: Blob) -> None:
        """Use another blob's memory for the diff; as :meth:`share_data`."""
        self._check_sharable("share_diff", other)
        self._diff = other.diff

    def update(self) -> None:
        """Compute data = data - diff, where the newest data is: Caffe's step of a solver.

        Raises:
            DtypeError: The dtype is neither float32 nor float64. So for all of the arithmetic.
            HeadError: The data was never touched.
            NoDataError: The blob was never given a shape.
        """
        maths.check_computable("update", self._dtype)
        maths.subtract(self.data, self.diff, dtype=self._dtype, count=self._count)

    def asum_data(self) -> float:
        """Return the sum of the absolute values of the data; 0 if it was never touched."""
        memory = self._operand("asum_data", self._data)
        return maths.add_up("asum", memory, dtype=self._dtype, count=self._count)

    def asum_diff(self) -> float:
        """Return the sum of the absolute values of the diff; 0 if it was never touched."""
        memory = self._operand("asum_diff", self._diff)
        return maths.add_up("asum", memory, dtype=self._dtype, count=self._count)

    def sumsq_data(self) -> float:
        """Return the sum of the squares of the data; 0 if it was never touched."""
        memory = self._operand("sumsq_data", self._data)
        return maths.add_up("sumsq", memory, dtype=self._dtype, count=self._count)

    def sumsq_diff(self) -> float:
        """Return the sum of the squares of the diff; 0 if it was never touched."""
        memory = self._operand("sumsq_diff", self._diff)
        return maths.add_up("sumsq", memory, dtype=self._dtype, count=self._count)

    def scale_data(self, factor: float) -> None:
        """Multiply the data by a factor; nothing happens if it was never touched."""
        memory = self._operand("scale_data", self._data)
        maths.scale(memory, factor, dtype=self._dtype, count=self._count)

    def scale_diff(self, factor: float) -> None:
        """Multiply the diff by a factor; nothing happens if it was never touched."""
        memory = self._operand("scale_diff", self._diff)
        maths.scale(memory, factor, dtype=self._dtype, count=self._count)

    def shape_equals(self, proto: BlobMessage) -> bool:
        """Say whether a BlobProto has this shape.

        Legacy dimensions are aligned at the end: (3, 2) equals 1x1x3x2.
        """
        return blob_proto.has_shape(proto, self._shape)

    def from_proto(self, proto: BlobMessage, *, reshape: bool = True) -> None:
        """Take shape, data and, if there is one, diff from a BlobProto.

        Legacy dimensions win over ``shape``, doubles over floats. Without any shape, a scalar is
        expected.

        Args:
            proto: Any message with the fields of Caffe's BlobProto.
            reshape: Take its shape; otherwise it has to be equal, as by :meth:`shape_equals`.

        Raises:
            ShapeMismatchError: The shape is another one, and ``reshape`` is not set.
            ShapeError: No blob can have its shape.
            BlobProtoError: It has another number of values than its shape says, or values that an
                integer dtype does not hold exactly.
        """
        if reshape:
            dims = blob_proto.dims_in(proto)
        elif self.shape_equals(proto):
            dims = self._shape
        else:
            raise ShapeMismatchError(
                "from_proto",
                expected=self._shape,
                found=blob_proto.dims_in(proto),
                cure="pass reshape=True to take the message's shape",
            )
        count = count_elements(dims, self._dtype.itemsize)
        data = blob_proto.data_in(proto, dtype=self._dtype, count=count)
        diff = blob_proto.diff_in(proto, dtype=self._dtype, count=count)
        with self._unchanged_on_failure():
            self._resize(dims)
            # Both before anything is written: either may fail to be allocated or copied.
            new_data = self._flat(self.data.mutable_cpu_data())
            new_diff = None if diff is None else self._flat(self.diff.mutable_cpu_data())
        new_data[:] = data
        if new_diff is not None:
            new_diff[:] = diff

    def to_proto(self, proto: BlobMessage, *, write_diff: bool = False) -> None:
        """Replace what a BlobProto holds by this blob.

        float32, float16, bfloat16 and uint8 go to the float fields, the others to the double
        fields. Nothing that the message held before survives.

        Args:
            proto: Any message with the fields of Caffe's BlobProto.
            write_diff: Write the diff too.

        Raises:
            BlobProtoError: An int64 value has no exact double.
        """
        diff = self.cpu_diff() if write_diff else None
        blob_proto.write(proto, self._shape, self.cpu_data(), diff)

    def _flat(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        return typed_view(data, self._dtype, (self._count,))

    def _operand(self, operation: str, memory: SyncedMemory | None) -> SyncedMemory | None:
        """Check that there can be arithmetic on a memory; None, without any, counts as zeros."""
        maths.check_computable(operation, self._dtype)
        self._refuse_if_closed(operation)
        return memory

    def _check_same_dtype(self, operation: str, other: Blob) -> None:
        if other.dtype != self._dtype:
            raise DtypeError(operation, dtype=other.dtype.name, valid=(self._dtype.name,))

    def _check_sharable(self, operation: str, other: Blob) -> None:
        self._check_same_dtype(operation, other)
        self._refuse_without_data(operation)
        other._refuse_without_data(operation)
        if other._count != self._count:
            raise ShapeMismatchError(
                operation,
                expected=self._shape,
                found=other._shape,
                cure=f"the counts, {self._count} and {other._count}, have to be equal",
            )
        if other.device is not self._device:
            raise DeviceMismatchError(
                "the other blob", expected=repr(self._device), found=repr(other.device)
            )
