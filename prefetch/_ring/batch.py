"""What the loop gets: one batch, the consumer's for as long as anything of it is referenced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from memory import Blob
from prefetch._errors.classes import BatchReleasedError, LabelsNotProducedError
from prefetch._ring.batch_blob import BatchBlob
from prefetch._ring.keep_until import waits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Any, Self

    import numpy.typing as npt

    from memory import Device
    from prefetch._ring.lease import Lease
    from prefetch._source.packed_keys import PackedKeys

_DLPACK_HOST: Final = 1  # DLPack's name of the host


class Drawing:
    """What draws batches, in a room above this one: `prefetch._feed.display` sets both."""

    draw: Callable[[Batch, int], Any]
    draw_as_html: Callable[[Batch], str]


class Batch:
    """One batch of examples.

    Its memory stays the consumer's until the batch and every array, slice, tensor, DLPack capsule
    and Blob made from it are gone; only then is it filled again: nothing is ever overwritten under
    anybody's hands. So ``list(feed)`` is right for an epoch of up to ``max_batches_held`` batches,
    16 unless configured; beyond it next() raises BatchesHeldError. Not thread-safe.

    Attributes:
        epoch: Epoch of its first record, counted from 0.
        number: Number of the batch in its epoch, counted from 0.
        indices: (N,) int64 indices of the records in the source, counted from the start of
            ``subset``, owned by the batch. A record that stands in for a bad one is named here.

    Example:
        >>> import prefetch, prefetch.testing
        >>> with prefetch.testing.example_database() as path:
        ...     with prefetch.open({"source": path, "batch_size": 4}) as feed:
        ...         batch = next(iter(feed))
        ...         print(batch.data.shape, batch.label.numpy(), batch.keys[0])
        ...         for images, labels in feed:
        ...             print(images.shape, labels)
        (4, 3, 8, 8) [0 1 2 3] b'00000000'
        (4, 3, 8, 8) [0 1 2 3]
        (4, 3, 8, 8) [4 5 6 7]
        (2, 3, 8, 8) [8 9]
    """

    __slots__ = (
        "__weakref__",
        "_data",
        "_device",
        "_keys",
        "_label",
        "_lease",
        "_more",
        "_packed_keys",
        "_padding",
        "epoch",
        "indices",
        "number",
    )

    def __init__(
        self,
        data: Blob | npt.NDArray[Any],
        label: Blob | npt.NDArray[Any] | None,
        *,
        device: Device,
        lease: Lease,
        epoch: int,
        number: int,
        indices: npt.NDArray[np.int64],
        keys: Sequence[PackedKeys],
        padding: npt.NDArray[np.bool_] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        # Arrays become Blobs as they are asked for: making two takes as long as all the rest.
        self._data: Blob | npt.NDArray[Any] | None = data
        self._label = label
        self._more: dict[str, Blob | npt.NDArray[Any]] | None = more
        self._device = device
        self._lease: Lease | None = lease
        self._packed_keys = keys
        self._keys: list[bytes] | None = None
        self._padding = padding
        self.epoch = epoch
        self.number = number
        self.indices = indices

    @property
    def data(self) -> Blob:
        """The examples: a Blob of shape (N, C, H, W), or (N, H, W, C) with ``layout: nhwc``.

        Its dtype is the configuration's ``transform.dtype``. On a device with memory of its own the
        bytes are there already, or on their way on a stream that the stream current at ``next()``,
        or the one given to `Feed.to_stream`, has been made to wait for.

        Its ``reshape`` is Caffe's, in place, and keeps the number of values; another number is a
        `memory.ShapeMismatchError`. NumPy's is ``batch.data.numpy().reshape``.

        Raises:
            BatchReleasedError: The batch was released.
        """
        data = self._data
        if data is None:
            raise self._released("data")
        if not isinstance(data, Blob):
            data = self._data = BatchBlob.over(data, device=self._device)
        return data

    @property
    def label(self) -> Blob:
        """The labels: a Blob of shape (N,) and the configuration's ``label_dtype``.

        With ``labels: one_hot`` they are float32 of shape (N, num_classes). With ``labels: pairs``
        they are only the records' own: see `fields`.

        Raises:
            BatchReleasedError: The batch was released.
            LabelsNotProducedError: With ``labels: false``, or a layer with one top.
        """
        if self._data is None:
            raise self._released("label")
        label = self._label
        if label is None:
            raise LabelsNotProducedError(
                "this feed makes no labels, since labels is false; set labels: true, or give the "
                "Data layer of a network a second top, such as label"
            )
        if not isinstance(label, Blob):
            label = self._label = BatchBlob.over(label, device=self._device)
        return label

    @property
    def fields(self) -> dict[str, Blob]:
        """All that a batch has for its records, by name.

        ``image`` is `data` and ``label``, where there are labels, `label`. With ``labels: pairs``
        there are ``label2``, int64 (N,): the labels of the samples that each was mixed with; and
        ``lam``, float32 (N,): how much of each is its own, so that a loss is
        ``lam * loss(label) + (1 - lam) * loss(label2)``. On a device they are there with the data.

        Raises:
            BatchReleasedError: The batch was released.

        Example:
            >>> import prefetch, prefetch.testing
            >>> with prefetch.testing.example_database() as path:
            ...     with prefetch.open(path, batch_size=4, labels="pairs") as feed:
            ...         for name, blob in next(iter(feed)).fields.items():
            ...             print(name, blob.shape, blob.dtype)
            image (4, 3, 8, 8) float32
            label (4,) int64
            label2 (4,) int64
            lam (4,) float32
        """
        if self._data is None:
            raise self._released("fields")
        fields = {"image": self.data}
        if self._label is not None:
            fields["label"] = self.label
        more = self._more
        if more is not None:
            for name, values in more.items():
                if not isinstance(values, Blob):
                    more[name] = BatchBlob.over(values, device=self._device)
                fields[name] = more[name]  # type: ignore[assignment] # a Blob from here on
        return fields

    @property
    def keys(self) -> list[bytes]:
        """The N records' keys; the list is made at the first access."""
        if self._keys is None:
            self._keys = [key for part in self._packed_keys for key in part.unpack()]
        return self._keys

    @property
    def is_padding(self) -> npt.NDArray[np.bool_]:
        """(N,) bool: which examples are there only to give every rank equally many.

        True where ``shard.policy: pad`` repeats the start of the order, behind the last record of
        an epoch. Who counts over all ranks, such as an accuracy, leaves these out. Owned by the
        batch, and valid after `release`.
        """
        if self._padding is None:
            self._padding = np.zeros(len(self.indices), np.bool_)
        return self._padding

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return self._data is None

    def release(self) -> None:
        """End the batch's own hold on its memory; idempotent.

        The memory is filled again when everything that was exported from the batch is gone too.
        Afterwards ``data``, ``label`` and ``fields`` raise; keys, indices and numbers stay.
        """
        self._data = None
        self._label = self._more = None
        self._lease = None

    def keep_until(self, until: object) -> None:
        """Keep the batch's memory as it is until some work is done, even if the batch is dropped.

        For work on a stream that is not known: JAX computes on one that it does not name. A thread
        of the feed's waits for ``until``, in the order of these calls. Meanwhile the batch, once
        dropped, is none that you hold: ``max_batches_held`` does not count it, and next() waits
        for memory where there is none left. Works on every device.

        Args:
            until: What your work on the batch ends in: an array of JAX's, an event, or anything
                else with ``block_until_ready()``, ``synchronize()`` or ``wait()``; also lists,
                tuples and mappings of such, in which NumPy's arrays and plain values are over.

        Raises:
            BatchReleasedError: The batch was released.
            TypeError: There is no way to wait for it.

        If the wait fails, as it does for an array that JAX was made to donate, the memory may still
        be in use. It is not filled again, the log says why, and next() raises a
        `memory.DeviceError` of it, which closes the feed. Closing the feed waits ten seconds at
        most for what is not over; the memory stays for longer where it has to.

        Example:
            >>> import threading, prefetch, prefetch.testing
            >>> with prefetch.testing.example_database() as path:
            ...     with prefetch.open({"source": path, "batch_size": 4}) as feed:
            ...         batch, is_read = next(iter(feed)), threading.Event()
            ...         batch.keep_until(is_read)
            ...         address = batch.data.numpy().ctypes.data  # given to whoever reads it there
            ...         del batch
            ...         is_read.set()
        """
        waits = waits_of(until)
        lease = self._taken("keep_until()")
        name = f"batch {self.number} of epoch {self.epoch}"
        lease.keep_until(waits, name=name, batch=(self._data, self._label, self._more))

    def record_stream(self, stream: object) -> None:
        """Keep the batch's memory until a stream of yours has done its work on it.

        For work on a stream that is neither the current one at next() nor the feed's `to_stream`,
        and that takes the batch by its address. The stream is made to wait for the batch's copies
        to the device. The memory is not filled again before what the stream has been given by the
        time the batch, and all that was made of it, is dropped.

        Args:
            stream: As for `Feed.to_stream`.

        Raises:
            BatchReleasedError: The batch was released.
            NoDeviceMemoryError: The device has no memory of its own, and so no streams: ``cpu``.
            DeviceMismatchError: It is another device's stream.
            BufferMismatchError: It is no stream at all.

        Example:
            >>> import memory, prefetch, prefetch.testing
            >>> with (
            ...     prefetch.testing.example_database() as path,
            ...     memory.open_device("simulated") as device,
            ...     device.make_stream("side") as side,
            ...     prefetch.open({"source": path, "batch_size": 4}, device=device) as feed,
            ... ):
            ...     for batch in feed:
            ...         batch.record_stream(side)
            ...         del batch  # after the work was queued
        """
        lease = self._taken("record_stream()")
        theirs = self._device.stream_from(stream)
        lease.note_use(theirs)
        with self._device.use_stream(theirs):
            for blob in self.fields.values():
                blob.gpu_data()

    def __len__(self) -> int:
        """Return N, the number of examples."""
        return len(self.indices)

    def __iter__(self) -> Iterator[Any]:
        """Yield exactly two arrays: ``images, labels = batch``.

        Images are as `data`, a view that keeps the batch's memory: of NumPy on the device ``cpu``,
        of CuPy on a GPU, on the thread's current stream. On ``simulated`` they are a copy on the
        host. Labels are as `label`, and always a copy that keeps nothing of the batch, so that
        those of a whole epoch may be collected.

        Raises:
            BatchReleasedError: The batch was released.
            LabelsNotProducedError: As `label`.
            TypeError: It has other fields than those two, as with ``labels: pairs``.
        """
        if self._more:
            raise TypeError(
                f"a batch unpacks into images and labels, and this one has the fields "
                f"{', '.join(self.fields)}; take batch.fields[name] of each, or set labels: "
                "one_hot, which has all of it in the labels"
            )
        data, label = self._data, self._label
        if label is None or data is None or isinstance(data, Blob) or isinstance(label, Blob):
            # Labels first: where there are none, no images are copied.
            label, data = self.label, self.data
            if data.__dlpack_device__()[0] == _DLPACK_HOST:
                return iter((data.numpy(), label.numpy(writable=False).copy()))
            return iter((data.cupy(), _copy_on_gpu(label.cupy(writable=False))))
        # On the device cpu they are arrays until a Blob is asked for, which would cost more than
        # all the rest.
        return iter((data, label.copy()))

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse to be indexed: N examples in two arrays are no sequence.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a batch is not indexed; of its examples batch.data.numpy()[i] is one image and "
            "batch.label.numpy()[i] its label, and images, labels = batch gives both arrays"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def show(self, num: int = 24) -> Any:
        """Draw the first images with labels, names of classes and keys, in the values they have.

        Waits for the bytes of a batch that is on a device, and changes nothing of it.

        Args:
            num: How many, 24 at the most.

        Returns:
            A `ContactSheet`: as the last expression of a notebook's cell it is drawn there, and
            ``batch.show().save("batch.png")`` writes it.

        Raises:
            ValueError: ``num`` is less than 1.
            TypeError: It is no integer.
            BatchReleasedError: The batch was released.
        """
        return Drawing.draw(self, num)

    def _repr_html_(self) -> str:
        return Drawing.draw_as_html(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: its memory belongs to the feed's ring.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a batch is memory of its feed's ring, which cannot be copied or pickled; copy what is "
            "kept, batch.data.numpy().copy() and batch.label.numpy().copy(), and pickle that"
        )

    def __repr__(self) -> str:
        what = "released" if self._data is None else f"data={self._data.shape}"
        return f"<Batch epoch={self.epoch} number={self.number} n={len(self)} {what}>"

    def _taken(self, name: str) -> Lease:
        """Return the lease of a batch that was not released."""
        if self._lease is None:
            raise self._released(name)
        return self._lease

    def _released(self, name: str) -> BatchReleasedError:
        return BatchReleasedError(
            f"batch {self.number} of epoch {self.epoch} was released; "
            f"take batch.{name} before release(), or do not release it"
        )


def _copy_on_gpu(array: Any) -> Any:
    """Return a copy of an array of CuPy's, made on the current stream."""
    with array.device:
        copy = type(array)(array.shape, array.dtype)
        # Not array.copy(): CuPy compiles a kernel for that, which takes seconds the first time.
        copy.data.copy_from_device_async(array.data, array.nbytes)
    return copy
