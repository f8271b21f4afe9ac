"""Arrays and buffers of the caller's as a side of a SyncedMemory: what is taken, how it lives."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import BufferMismatchError, DeviceBuffer, Head, SyncedMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import Device, Stream

NBYTES = 24


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(24, np.uint8),
        np.zeros((2, 3), np.float32),
        np.zeros(3, np.int64),
        np.zeros((), "V24"),
        np.zeros(1, "M8[s], f8, f8"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_any_array_whose_bytes_fit_exactly_is_used_in_place(
    device: Device, array: NDArray[Any]
) -> None:
    memory = SyncedMemory(NBYTES, device)
    memory.set_cpu_data(array)
    memory.mutable_cpu_data()[:] = 65
    assert b"A" * NBYTES == array.tobytes()


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: np.zeros(23, np.uint8), "uint8 of shape (23,), 23 bytes"),
        (lambda: np.zeros(25, np.uint8), "uint8 of shape (25,), 25 bytes"),
        (lambda: np.zeros(12, np.float32), "float32 of shape (12,), 48 bytes"),
        (lambda: np.zeros(48, np.uint8)[::2], "not C-contiguous"),
        (lambda: np.zeros((4, 6), np.uint8).T, "not C-contiguous"),
        (lambda: frozen(np.zeros(24, np.uint8)), "read-only"),
        (lambda: np.frombuffer(bytes(24), np.uint8), "read-only"),
        (lambda: np.zeros(25, np.uint8)[1:].view(np.float32), "misaligned"),
        (lambda: np.zeros(3, object), "object of shape (3,), 24 bytes"),
        (lambda: bytearray(24), "an object of type bytearray"),
        (lambda: [0] * 24, "an object of type list"),
        (lambda: None, "an object of type NoneType"),
    ],
    ids=[
        "too small",
        "too large",
        "as many elements",
        "a stride",
        "transposed",
        "read-only",
        "bytes",
        "misaligned",
        "objects",
        "bytearray",
        "list",
        "None",
    ],
)
def test_a_wrong_array_is_refused_with_what_was_expected_and_found(
    device: Device, make: Callable[[], Any], found: str
) -> None:
    memory = SyncedMemory(NBYTES, device)
    memory.mutable_cpu_data()[:] = 1
    with pytest.raises(BufferMismatchError) as caught:
        memory.set_cpu_data(make())
    assert "C-contiguous array of 24 bytes" in caught.value.expected
    assert found in caught.value.found
    assert {1} == set(memory.cpu_data().tolist())


@pytest.mark.parametrize("nbytes", [23, 25])
def test_a_device_buffer_of_another_size_is_refused(second_memory: Device, nbytes: int) -> None:
    memory = SyncedMemory(NBYTES, second_memory)
    with pytest.raises(BufferMismatchError, match="expected a DeviceBuffer of 24 bytes"):
        memory.set_gpu_data(second_memory.alloc_device(nbytes))
    assert memory.head is Head.UNINITIALIZED


def test_a_host_array_is_no_device_buffer(second_memory: Device) -> None:
    memory = SyncedMemory(NBYTES, second_memory)
    with pytest.raises(BufferMismatchError, match="set_gpu_data"):
        memory.set_gpu_data(np.zeros(NBYTES, np.uint8))  # type: ignore[arg-type]


class Lease:
    """Host memory that is no ndarray, as a ring's slot hands it out."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.zeros(nbytes, np.uint8)
        self.__array_interface__ = self._memory.__array_interface__


def test_a_temporary_array_lives_for_as_long_as_it_is_used(device: Device) -> None:
    memory = SyncedMemory(NBYTES, device)
    lease = Lease(NBYTES)
    gone = weakref.ref(lease)
    memory.set_cpu_data(np.asarray(lease))
    del lease
    memory.mutable_cpu_data()[:] = 3
    assert gone() is not None
    assert {3} == set(memory.cpu_data().tolist())
    memory.set_cpu_data(np.zeros(NBYTES, np.uint8))
    assert gone() is None


@pytest.mark.parametrize(
    "derive",
    [
        lambda view: view,
        lambda view: view[3:],
        lambda view: view.reshape(2, 3, 4),
        lambda view: view.view(np.float32)[::2],
        memoryview,
        lambda view: view.__dlpack__(),
        lambda view: np.from_dlpack(view)[1:],
    ],
    ids=["view", "slice", "reshape", "other dtype", "memoryview", "capsule", "from_dlpack"],
)
def test_whatever_is_made_of_a_view_keeps_the_callers_lease_alive(
    device: Device, derive: Callable[[NDArray[np.uint8]], object]
) -> None:
    lease = Lease(NBYTES)
    gone = weakref.ref(lease)
    memory = SyncedMemory(NBYTES, device)
    memory.set_cpu_data(np.asarray(lease).view(np.float32).reshape(2, 3))
    derived = derive(memory.mutable_cpu_data())
    memory.close()
    del memory, lease
    gc.collect()
    assert gone() is not None
    del derived
    assert gone() is None


class Slot:
    """An owner of device memory that notes the streams it is used on."""

    def __init__(self, buffer: DeviceBuffer) -> None:
        self._buffer = buffer
        self.handles: list[int] = []

    def note_use(self, stream: Stream) -> None:
        self.handles.append(stream.handle)


def test_a_device_buffers_owner_is_told_of_each_stream_that_is_handed_it(
    second_memory: Device, stream: Stream
) -> None:
    memory = SyncedMemory(NBYTES, second_memory)
    whole = second_memory.alloc_device(NBYTES)
    slot = Slot(whole)
    memory.set_gpu_data(whole.slice(0, NBYTES, owner=slot))
    assert [] == slot.handles
    memory.gpu_data()
    with second_memory.use_stream(stream):
        memory.mutable_gpu_data()
        memory.overwrite_gpu_data()
    assert [0, stream.handle, stream.handle] == slot.handles


def test_a_device_buffers_owner_lives_for_as_long_as_it_is_used(second_memory: Device) -> None:
    memory = SyncedMemory(NBYTES, second_memory)
    slot = Slot(second_memory.alloc_device(NBYTES))
    gone = weakref.ref(slot)
    memory.set_gpu_data(second_memory.alloc_device(NBYTES).slice(0, NBYTES, owner=slot))
    del slot
    handed_out = memory.gpu_data()
    memory.close()
    assert gone() is not None
    del handed_out
    assert gone() is None
