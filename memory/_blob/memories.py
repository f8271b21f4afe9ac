"""Which memories a blob has: their capacity, when they are replaced, and when they are closed.

Caffe's rules for capacity hold. A blob that shrinks keeps its bytes, and shows the old values when
it grows back; one that outgrows them gets new memories, of zeros, for both data and diff.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np

from memory._blob.shape_queries import BlobShape
from memory._device.bfloat16 import NAME as BFLOAT16
from memory._device.bfloat16 import dtype_of, is_bfloat16
from memory._device.closeable import Closeable
from memory._errors import ClosedError, DeviceError, DtypeError, NoDataError
from memory._open_device import open_device
from memory._shape import MAX_AXES, ShapeLike, count_elements, dims_of
from memory._synced.foreign_buffers import check_host_array
from memory._synced.head_transitions import Head
from memory._synced.memory import SyncedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

    from memory._device.device import Device, DeviceBuffer
    from memory._shape import Dims

_logger = logging.getLogger("memory")

_making_diff: Final = threading.Lock()  # two threads that ask for a diff get the same one

_WHERE_NEWEST: Final = {
    Head.UNINITIALIZED: "not filled yet",
    Head.HEAD_AT_CPU: "newest on the host",
    Head.HEAD_AT_GPU: "newest on the device",
    Head.SYNCED: "the same on host and device",
}

_DTYPES: Final = tuple(
    map(np.dtype, (np.float32, np.float64, np.float16, np.uint8, np.int32, np.int64))
)


class BlobMemories(BlobShape, Closeable):
    """A shape, a dtype, and memories of that size for data and diff.

    After :meth:`close`, each call that needs a memory raises ClosedError.
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_capacity",
        "_closed",
        "_device",
        "_diff",
        "_dtype",
        "_lent",
        "_made",
        "_memory",
        "_shape_data",
    )

    def __init__(
        self,
        shape: ShapeLike | None = None,
        dtype: DTypeLike = np.float32,
        *,
        device: Device | None = None,
    ) -> None:
        """Describe the blob; no bytes are allocated before they are touched.

        Args:
            shape: One dimension, a sequence of them, or a message with ``dim``. ``()`` is a scalar,
                with one element; None leaves the blob without data, as Caffe's default constructor
                does, until it is reshaped.
            dtype: float32, float64, float16, bfloat16, uint8, int32 or int64.
            device: Where the other side is; None for ``cpu``, which has none.

        Raises:
            DtypeError: Any other dtype.
            MissingPackageError: ``"bfloat16"``, and ml_dtypes is not installed.
            ShapeError: No blob can have that shape.
        """
        super().__init__()
        self._dtype = dtype_of(dtype)
        if self._dtype not in _DTYPES and not is_bfloat16(self._dtype):
            names = *(kind.name for kind in _DTYPES), BFLOAT16
            raise DtypeError("Blob", dtype=str(self._dtype), valid=names)
        self._device = open_device("cpu") if device is None else device
        self._capacity = 0
        # Of `over`, for as long as nobody has asked for more than the host's side: to make two
        # memories takes longer than all else that a loop asks of a small batch.
        self._array: NDArray[Any] | None = None
        self._memory: SyncedMemory | None = None
        self._made: dict[str, SyncedMemory]
        self._diff: SyncedMemory | None = None
        self._shape_data: SyncedMemory | None = None
        self._lent: tuple[DeviceBuffer, ...] = ()  # by an interface that holds the blob only
        self._closed = False
        if shape is not None:
            self._resize(dims_of(shape))

    @classmethod
    def over(cls, array: NDArray[Any], *, device: Device | None = None) -> Self:
        """Make a blob of an array's shape and dtype whose host's side it is.

        The same as a blob and :meth:`set_cpu_data`, in a fifth of the time.

        Args:
            array: C-contiguous, aligned, writable; used in place and kept alive.
            device: Where the other side is; None for ``cpu``, which has none.

        Raises:
            DtypeError: No blob has its dtype.
            ShapeError: It has more than 32 axes.
            BufferMismatchError: It is not contiguous, aligned and writable.
        """
        blob = cls(None, array.dtype, device=device)
        if array.ndim > MAX_AXES:
            count_elements(array.shape, array.itemsize)  # which refuses it
        check_host_array("over", array, array.nbytes)
        blob._array, blob._made = array.view(np.ndarray), {}
        blob._shape, blob._count, blob._capacity = array.shape, array.size, array.size
        return blob

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the data, and of the diff: count times the size of an element."""
        return self._count * self._dtype.itemsize

    @property
    def device(self) -> Device:
        """Where the other side is."""
        return self._device

    @property
    def data(self) -> SyncedMemory:
        """The memory of the data; may have more bytes than the shape needs.

        Raises:
            NoDataError: The blob was never given a shape.
        """
        data = self._data
        if data is None:
            raise self._absence("data")
        return data

    @property
    def diff(self) -> SyncedMemory:
        """The memory of the diff; raises as :attr:`data` does."""
        if self._diff is None:
            if self._data is None:
                raise self._absence("diff")
            with _making_diff:
                if self._diff is None:
                    nbytes = self._capacity * self._dtype.itemsize
                    self._diff = SyncedMemory(nbytes, self._device)
        return self._diff

    def reshape(self, *shape: ShapeLike) -> None:
        """Change the shape; allocates nothing, and keeps the bytes if they suffice.

        Args:
            *shape: The dimensions one by one, or one sequence or message with ``dim``.

        Raises:
            ShapeError: No blob can have that shape.
            TypeError: No shape at all; a scalar's is ``()``.
        """
        if not shape:
            raise TypeError("reshape: expected a shape, found nothing; a scalar's is reshape(())")
        self._resize(dims_of(shape[0] if len(shape) == 1 else cast("Sequence[int]", shape)))

    def gpu_shape(self) -> DeviceBuffer:
        """Return the dimensions on the device, for kernels that index by them.

        Returns:
            int64, ``num_axes`` of them (Caffe's are int). It is not to be written to.

        Raises:
            NoDeviceMemoryError: The device has no memory of its own.
        """
        self._refuse_if_closed("gpu_shape")
        if self._shape_data is None:
            dims = np.array(self._shape, np.int64)
            self._shape_data = SyncedMemory(dims.nbytes, self._device)
            self._shape_data.set_cpu_data(dims)
        return self._shape_data.gpu_data()

    def close(self) -> None:
        """Wait for pushes in flight and release the memories. Idempotent.

        Memories that are shared with another blob stay as they are for that one. The failure of a
        push that was not raised yet is logged, as in :meth:`SyncedMemory.close`.
        """
        memories = [memory for memory in (self._data, self._diff) if memory is not None]
        self._data = self._diff = self._shape_data = None
        self._closed = True
        for memory in memories:
            try:
                memory.synchronize()
            except DeviceError as error:
                # Its text only: a kept record would keep the frames, and with them the buffers.
                _logger.warning("closed; a failed push had not been raised yet: %s", str(error))

    @property
    def state_string(self) -> str:
        """Shape, type and heads in Caffe's words: ``2 3 (6) float32, data HEAD_AT_CPU, diff ...``.

        Raises:
            NoDataError: The blob was never given a shape.
        """
        diff = Head.UNINITIALIZED if self._diff is None else self._diff.head
        name = self._dtype.name
        return f"{self.shape_string} {name}, data {self.data.head.name}, diff {diff.name}"

    def __repr__(self) -> str:
        what = f"Blob {self._shape} {self._dtype.name} on {self._device.name}"
        if self._data is None:
            return f"<{what}, {'closed' if self._closed else 'no data'}>"
        event = self._data.push_event
        flight = ", push in flight" if event is not None and not event.done() else ""
        return f"<{what}, {_WHERE_NEWEST[self._data.head]}{flight}>"

    @property
    def _data(self) -> SyncedMemory | None:
        """The memory of the data; None before there is a shape, and after `close`."""
        array = self._array
        if array is not None:
            # Two threads that ask get the same one, and no lock: a finalizer or a signal handler
            # may ask too, on a thread that is here.
            self._memory = self._made.setdefault("data", SyncedMemory.over(array, self._device))
            self._array = None  # last: whoever finds none finds the memory
        return self._memory

    @_data.setter
    def _data(self, memory: SyncedMemory | None) -> None:
        self._array, self._memory = None, memory

    def _resize(self, dims: Dims) -> None:
        """Take a shape, with new memories if the old ones do not suffice."""
        self._refuse_if_closed("reshape")
        count = count_elements(dims, self._dtype.itemsize)
        if count > self._capacity or not self._has_room(count * self._dtype.itemsize):
            self._renew(count)
        self._shape, self._count, self._shape_data = dims, count, None

    def _has_room(self, nbytes: int) -> bool:
        memories = (self._data, self._diff)
        # Asked of the memories too: after set_cpu_data or share_data they may be smaller than the
        # capacity, which in Caffe is a buffer overrun.
        return self._data is not None and all(
            memory is None or nbytes <= memory.size for memory in memories
        )

    def _renew(self, count: int) -> None:
        """Take new memories, of exactly ``count`` elements."""
        nbytes = count * self._dtype.itemsize
        self._data = SyncedMemory(nbytes, self._device)
        self._diff = None  # made when it is asked for: most blobs never are
        self._capacity = count

    def _replace(self, data: SyncedMemory, give: Callable[[SyncedMemory], None]) -> None:
        """Take new memories of the blob's size, give the data's a side, and drop the old one."""
        with self._unchanged_on_failure():
            self._renew(self._count)
            give(self.data)
            data.synchronize()

    @contextlib.contextmanager
    def _unchanged_on_failure(self) -> Iterator[None]:
        """Bring shape and memories back if what is done with them fails."""
        before = (self._shape, self._count, self._capacity, self._data, self._diff)
        try:
            yield
        except BaseException:
            self._shape, self._count, self._capacity, self._data, self._diff = before
            self._shape_data = None
            raise

    def _refuse_without_data(self, operation: str) -> None:
        if self._data is None:
            raise self._absence(operation)

    def _refuse_if_closed(self, operation: str) -> None:
        if self._closed:
            raise self._absence(operation)

    def _absence(self, operation: str) -> ClosedError | NoDataError:
        if self._closed:
            return ClosedError(repr(self), operation=operation)
        return NoDataError(operation)
