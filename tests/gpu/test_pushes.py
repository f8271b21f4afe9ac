"""async_gpu_push on a GPU: it returns at once, and what would collide with it waits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest

from memory import Blob, Head, SyncedMemory
from memory.testing import hold, peek

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NBYTES = 4096

MAKERS: dict[str, Callable[[Any], Any]] = {
    "SyncedMemory": lambda device: SyncedMemory(NBYTES, device),
    "Blob": lambda device: Blob((NBYTES,), np.uint8, device=device),
}


@pytest.fixture(params=list(MAKERS))
def pushed(cuda: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """What is pushed: full of 1, of an older 9 on the GPU."""
    with MAKERS[request.param](cuda) as made:
        made.mutable_cpu_data()[:] = 9
        made.gpu_data()
        made.mutable_cpu_data()[:] = 1
        yield made


def head(pushed: Any) -> Head:
    found: Head = (pushed.data if isinstance(pushed, Blob) else pushed).head
    return found


def test_it_returns_at_once_and_keeps_the_event(cuda: Any, pushed: Any) -> None:
    with cuda.make_stream() as stream:
        with hold(stream):
            pushed.async_gpu_push(stream)
            assert head(pushed) is Head.SYNCED
            event = pushed.push_event
            assert not event.done()
        event.synchronize()
        assert pushed.push_event is None or pushed.push_event.done()
    assert set(peek(pushed).tolist()) == {1}


def test_the_current_stream_waits_for_it_and_the_host_does_not(cuda: Any, pushed: Any) -> None:
    back = cuda.alloc_host(NBYTES).array
    with cuda.make_stream() as stream, cupy.cuda.Stream(non_blocking=True) as theirs:
        with hold(stream):
            pushed.async_gpu_push(stream)
            cuda.copy_to_host(back, pushed.gpu_data(), stream=cuda.current_stream())
            assert not theirs.done
        theirs.synchronize()
    assert set(back.tolist()) == {1}


def test_whoever_writes_on_the_host_waits_for_it(cuda: Any, pushed: Any) -> None:
    def write() -> None:
        pushed.mutable_cpu_data()[:] = 5
        written.set()

    written = threading.Event()
    writer = threading.Thread(target=write)
    with cuda.make_stream() as stream:
        with hold(stream):
            pushed.async_gpu_push(stream)
            assert (pushed.cpu_data() == 1).all()  # a look does not wait
            writer.start()
            assert not written.wait(0.05)
        writer.join(30)
    assert written.is_set()
    assert set(peek(pushed).tolist()) == {1}
