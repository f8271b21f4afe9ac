"""Batches copied into arrays that are always the same, for consumers that cannot take new ones.

A CUDA graph reads the same addresses every time it runs, and so does what ``torch.compile`` makes
of a model with ``mode="reduce-overhead"``. The copy is queued on the consumer's stream, behind the
work that was given to it before and has read the rows of the batch before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from memory import BufferMismatchError
from prefetch._feed.iterators import AsyncServing, ServedFeed
from prefetch._pipeline.consumer_state import Claim, EndOfEpoch, Taken
from prefetch._process.nested_calls import is_nested, mark_entry
from prefetch._ring.lease import without_lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from numpy.typing import NDArray

    from memory import Blob, Device, DeviceBuffer, Stream
    from prefetch._ring.batch import Batch

mark_entry(__file__)


class Filled(NamedTuple):
    """What the arrays given to `Feed.into` hold now.

    Attributes:
        n: Rows of the batch: the first ones. Those behind them are as they were.
        epoch: Epoch of its first record, counted from 0.
        number: Number of the batch in its epoch, counted from 0.
        indices: (n,) int64 indices of the records in the source, as `Batch.indices`.
    """

    n: int
    epoch: int
    number: int
    indices: NDArray[np.int64]


class Into:
    """Serves a feed's batches in arrays that are always the same; made by `Feed.into`.

    Each ``for`` or ``async for`` over it is one over the feed.
    """

    def __init__(self, feed: ServedFeed, data: object, label: object) -> None:
        form = feed._prefetcher.components.label_form  # noqa: SLF001 - of its own room
        if label is not None and form is not None and form.num_classes is None:
            raise BufferMismatchError(
                "into(): label",
                expected="labels that are one array: labels true or one_hot",
                found="labels pairs, which are label, label2 and lam",
            )
        self._feed = feed
        self._given = data, label
        self._arrays = _Arrays(feed.device, data, label)

    def __iter__(self) -> Iterator[Filled]:
        """Return an iterator over an epoch; nothing happens until its first next()."""
        return _IntoIterator(self._feed, self._current_arrays())

    def __aiter__(self) -> AsyncIterator[Filled]:
        """Return an asynchronous iterator over an epoch; it never blocks the event loop."""
        return _AsyncIntoIterator(self._feed, self._current_arrays())

    def _current_arrays(self) -> _Arrays:
        """Return the arrays on the feed's device, which load_state_dict() may have opened anew."""
        if self._arrays.device is not self._feed.device:
            self._arrays = _Arrays(self._feed.device, *self._given)
        return self._arrays


class _IntoIterator:
    """As `FeedIterator`; a batch counts as served when its copies are queued."""

    def __init__(self, feed: ServedFeed, arrays: _Arrays) -> None:
        self._feed = feed
        self._claim = Claim()
        self._arrays = arrays

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Filled:
        prefetcher, taken = self._feed._prefetcher, Taken()  # noqa: SLF001 - the feed's own
        try:
            filled = self._arrays.fill(
                prefetcher.consumer.take(self._claim, taken), prefetcher.consumer.stream
            )
            # As in FeedIterator: the batch goes when it is served, and not before.
            taken.batch, taken.is_over = None, True; return filled  # fmt: skip # noqa: E702, TRY300
        except EndOfEpoch:
            self._feed._note_end()  # noqa: SLF001
            raise StopIteration from None
        except BaseException as error:
            translated = self._feed._translate_error(error, prefetcher, taken)  # noqa: SLF001
            if prefetcher.closed:
                prefetcher.close(wait=not is_nested())
            if translated is error:
                raise
            raise translated from None


class _AsyncIntoIterator(AsyncServing[Filled]):
    def __init__(self, feed: ServedFeed, arrays: _Arrays) -> None:
        super().__init__(feed)
        self._arrays = arrays

    def _serve(self, batch: Batch, stream: Stream | None) -> Filled:
        return self._arrays.fill(batch, stream)


class _Arrays:
    """The arrays for data and labels.

    Args:
        device: The feed's.
        data: For the batches' data.
        label: For their labels; None for none.

    Attributes:
        device: As given.
    """

    def __init__(self, device: Device, data: object, label: object) -> None:
        self.device = device
        self._data = _make_target("data", data, device)
        self._label = None if label is None else _make_target("label", label, device)

    def fill(self, batch: Batch, stream: Stream | None) -> Filled:
        """Queue the copies of a batch.

        Args:
            batch: The batch.
            stream: The consumer's; None for the calling thread's current one.

        Raises:
            BufferMismatchError: An array has another dtype or shape.
        """
        if stream is None and self.device.has_device_memory:
            stream = self.device.current_stream()
        pairs = [(self._data, batch.data)]
        if self._label is not None:
            pairs.append((self._label, batch.label))
        for target, blob in pairs:
            target.check(blob)
        for target, blob in pairs:
            if stream is None:
                target.take(blob.numpy(writable=False))
            else:
                with self.device.use_stream(stream):
                    source = without_lease(blob.gpu_data())
                target.queue(source, stream)
        return Filled(len(batch), batch.epoch, batch.number, batch.indices)


class _Target:
    """An array that batches are copied into.

    Args:
        name: ``data`` or ``label``, for errors.
        dtype: Of the array.
        shape: Of the array.
        place: Its memory: uint8 on the host, or a buffer on the device; C-contiguous.
    """

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        place: NDArray[np.uint8] | DeviceBuffer,
    ) -> None:
        self._name = name
        self._dtype = dtype
        self._shape = shape
        self._place = place

    def check(self, blob: Blob) -> None:
        """Refuse a batch that does not fit.

        Raises:
            BufferMismatchError: It does not.
        """
        shape = self._shape
        fits = len(shape) == len(blob.shape) and shape[1:] == blob.shape[1:]
        if blob.dtype != self._dtype or not fits or shape[0] < blob.shape[0]:
            raise BufferMismatchError(
                f"into(): {self._name}",
                expected=f"{blob.dtype} of shape {blob.shape}, or of more rows",
                found=f"{self._dtype} of shape {shape}",
            )

    def take(self, array: NDArray[Any]) -> None:
        """Copy on the host, at once."""
        assert isinstance(self._place, np.ndarray)
        self._place[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def queue(self, source: DeviceBuffer, stream: Stream) -> None:
        """Queue a copy of what is on the device."""
        device, place = source.device, self._place
        if isinstance(place, np.ndarray):
            device.copy_to_host(place[: source.nbytes], source, stream=stream)
        else:
            device.copy_on_device(place.slice(0, source.nbytes), source, stream=stream)


def _make_target(name: str, array: Any, device: Device) -> _Target:
    """Return an array as what batches can be copied into.

    Raises:
        BufferMismatchError: They cannot.
        DeviceMismatchError: It is on another GPU.
    """
    importer: Any = device
    if hasattr(importer, "import_array") and not isinstance(array, np.ndarray):
        imported = importer.import_array(array)
        if imported is not None:
            buffer, dtype, shape = imported
            return _Target(name, dtype, shape, buffer)
    host = array
    if not isinstance(array, np.ndarray) and hasattr(array, "__dlpack_device__"):
        kind, _ = array.__dlpack_device__()
        host = np.from_dlpack(array) if int(kind) == 1 else array
    if not isinstance(host, np.ndarray) or not host.flags.carray or host.dtype.hasobject:
        kinds = "a writable, C-contiguous NumPy array"
        if hasattr(importer, "import_array"):
            kinds += f", or an array on {device.name} with __cuda_array_interface__ or DLPack"
        raise BufferMismatchError(f"into(): {name}", expected=kinds, found=_describe(host))
    return _Target(name, host.dtype, host.shape, host.reshape(-1).view(np.uint8))


def _describe(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"an object of type {type(array).__name__}"
    fault = "" if array.flags.writeable else ", read-only"
    return f"{array.dtype} of shape {array.shape}, strides {array.strides}{fault}"
