"""What the loop gets: one batch, the consumer's for as long as anything of it is referenced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from memory import Blob
from prefetch._errors import BatchReleasedError, LabelsNotProducedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any, Self

    import numpy.typing as npt

    from memory import Device
    from prefetch._lease import Lease


class PackedKeys(NamedTuple):
    """Keys of consecutive records in one buffer, so that none becomes an object unasked.

    Attributes:
        buffer: The keys, one directly after the other.
        lengths: (N,) int64 length of each in bytes.
    """

    buffer: bytes
    lengths: npt.NDArray[np.int64]

    @classmethod
    def pack(cls, keys: Sequence[memoryview | bytes]) -> PackedKeys:
        """Copy keys into one buffer."""
        lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
        return cls(b"".join(keys), lengths)

    def replace(self, position: int, key: bytes) -> PackedKeys:
        """Return the same keys with another one at ``position``."""
        keys = self.unpack()
        keys[position] = key
        return self.pack(keys)

    def unpack(self) -> list[bytes]:
        """Return the keys as a list of bytes."""
        stops = np.cumsum(self.lengths).tolist()
        starts = [0, *stops[:-1]]
        return [self.buffer[a:b] for a, b in zip(starts, stops, strict=True)]


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
        (4, 3, 8, 8) [0 1 2 3] b'00000000'
    """

    __slots__ = (
        "__weakref__",
        "_data",
        "_device",
        "_keys",
        "_label",
        "_lease",
        "_packed_keys",
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
    ) -> None:
        # Arrays become Blobs as they are asked for: making two takes as long as all the rest.
        self._data: Blob | npt.NDArray[Any] | None = data
        self._label = label
        self._device = device
        self._lease: Lease | None = lease
        self._packed_keys = keys
        self._keys: list[bytes] | None = None
        self.epoch = epoch
        self.number = number
        self.indices = indices

    @property
    def data(self) -> Blob:
        """The examples: a Blob of shape (N, C, H, W), or (N, H, W, C) with ``layout: nhwc``.

        Its dtype is the configuration's ``transform.dtype``. On a device with memory of its own the
        bytes are there already, or on their way on a stream that the stream current at ``next()``,
        or the one given to `Feed.to_stream`, has been made to wait for.

        Raises:
            BatchReleasedError: The batch was released.
        """
        data = self._data
        if data is None:
            raise self._released("data")
        if not isinstance(data, Blob):
            data = self._data = Blob.over(data, device=self._device)
        return data

    @property
    def label(self) -> Blob:
        """The labels: a Blob of shape (N,) and the configuration's ``label_dtype``.

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
            label = self._label = Blob.over(label, device=self._device)
        return label

    @property
    def keys(self) -> list[bytes]:
        """The N records' keys; the list is made at the first access."""
        if self._keys is None:
            self._keys = [key for part in self._packed_keys for key in part.unpack()]
        return self._keys

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return self._data is None

    def release(self) -> None:
        """End the batch's own hold on its memory; idempotent.

        The memory is filled again when everything that was exported from the batch is gone too.
        Afterwards ``data`` and ``label`` raise; keys, indices and numbers stay.
        """
        self._data = None
        self._label = None
        self._lease = None

    def __len__(self) -> int:
        """Return N, the number of examples."""
        return len(self.indices)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

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

    def _released(self, name: str) -> BatchReleasedError:
        return BatchReleasedError(
            f"batch {self.number} of epoch {self.epoch} was released; "
            f"take batch.{name} before release(), or do not release it"
        )
