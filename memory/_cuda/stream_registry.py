"""The streams of one opened GPU: which are ours, and which of the caller's it has met.

Handles hold their device, so nothing here holds a handle, and the device is known weakly.
"""

from __future__ import annotations

import operator
import threading
import weakref
from typing import TYPE_CHECKING, Any, SupportsIndex

from memory._cuda.runtime import cupy, runtime
from memory._cuda.stream import CudaStream
from memory._cuda.stream_state import LEGACY, PER_THREAD, StreamState
from memory._errors import BufferMismatchError, ClosedError, DeviceMismatchError

if TYPE_CHECKING:
    from memory._cuda.context import CudaContext
    from memory._device.device import Device


class CudaStreams:
    """Makes, adopts and finds the streams of one device. Thread-safe.

    Args:
        context: The GPU.
        device: Given to the streams.
        priority: CUDA's number of the priority of those that are made.
    """

    def __init__(self, context: CudaContext, device: Device, *, priority: int) -> None:
        self._context = context
        self._priority = priority
        self._device = weakref.ref(device)  # handles hold it: a cycle would keep it open
        self._lock = threading.Lock()
        self._closed = False
        self._own: set[StreamState] = set()
        self._null = StreamState(context, 0, name="null", owned=False)
        self._handles: weakref.WeakValueDictionary[int, CudaStream] = weakref.WeakValueDictionary()

    def make(self, name: str) -> CudaStream:
        """Make a stream that nothing else orders, the null stream included.

        Raises:
            ClosedError: After close().
            DeviceError: If CUDA refuses.
        """
        context = self._context
        with context.call("make_stream"):
            ptr = runtime.streamCreateWithPriority(runtime.streamNonBlocking, self._priority)
        state = StreamState(context, ptr, name=name or f"{context.name}-{ptr:#x}", owned=True)
        # Within the lock: close() must find every stream that was made before it.
        with self._lock:
            closed = self._closed
            if not closed:
                self._own.add(state)
        if closed:
            state.finish()
            raise ClosedError(f"device {context.name!r}", operation="make_stream")
        context.deferred_free.start()
        return self._handle(state)

    def current(self) -> CudaStream:
        """Return CuPy's current stream of the calling thread for this GPU."""
        self._context.refuse_forked("current_stream")
        current = cupy.cuda.get_current_stream(self._context.ordinal)
        return self._adopt(current.ptr, current)

    def find(self, found: object) -> CudaStream:
        """Adopt another library's stream; see ``CudaDevice.stream_from``."""
        ordinal = _ordinal_of(found)
        if ordinal is not None and ordinal != self._context.ordinal:
            raise DeviceMismatchError(
                "stream", expected=self._context.name, found=f"cuda:{ordinal}"
            )
        return self._adopt(_handle_of(found), None if isinstance(found, int) else found)

    def forget(self, stream: CudaStream) -> None:
        """Take note that a stream of ours is closed."""
        with self._lock:
            self._own.discard(stream.state)
        if self._handles.get(stream.handle) is stream:
            del self._handles[stream.handle]

    def close(self) -> None:
        """Finish the work of our streams and end them; the caller's streams stay. Idempotent."""
        with self._lock:
            self._closed = True
            own, self._own = self._own, set()
        for state in own:
            state.close()
        self._null.close()
        self._null.closed = True

    def _adopt(self, ptr: int, foreign: object) -> CudaStream:
        if ptr in {0, LEGACY}:
            return self._handles.get(0) or self._handle(self._null)
        key = -threading.get_ident() if ptr == PER_THREAD else ptr
        known = self._handles.get(key)
        if known is None:
            name = "per-thread default" if ptr == PER_THREAD else f"adopted {ptr:#x}"
            known = self._handle(
                StreamState(self._context, ptr, name=name, owned=False, foreign=foreign)
            )
        elif known.state.foreign is None and not known.state.owned:
            # First met as a bare number, which keeps nothing.
            known.state.foreign = foreign
        return known

    def _handle(self, state: StreamState) -> CudaStream:
        device = self._device()
        if device is None:  # never: these are the device's own calls
            raise ClosedError(f"device {self._context.name!r}", operation="current_stream")
        stream = CudaStream(state, device=device, forget=self.forget)
        self._handles[state.handle] = stream
        return stream


def _handle_of(found: Any) -> int:
    """Return CUDA's handle of another library's stream."""
    if isinstance(found, SupportsIndex) and not isinstance(found, bool):
        handle = operator.index(found)
    elif hasattr(found, "__cuda_stream__"):
        _, handle = found.__cuda_stream__()
    elif hasattr(found, "cuda_stream"):  # torch.cuda.Stream, before it knew the protocol
        handle = found.cuda_stream
    else:
        handle = -1
    if handle < 0:
        raise BufferMismatchError(
            "stream",
            expected="a stream of this device, an object with __cuda_stream__ (CuPy, "
            "cuda.core), a torch.cuda.Stream, or CUDA's handle as an integer",
            found=repr(found),
        )
    return int(handle)


def _ordinal_of(found: object) -> int | None:
    """Return the GPU that a stream says it belongs to, None if it does not say."""
    # CuPy: -1 for a stream of the current device, whichever that is; torch: device_index.
    for attribute in ("device_id", "device_index"):
        ordinal = getattr(found, attribute, None)
        if isinstance(ordinal, int) and ordinal >= 0:
            return ordinal
    return None
