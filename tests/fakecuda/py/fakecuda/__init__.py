"""Run the installed CuPy wheel on the fake device: import this before CuPy.

The wheel is not modified. One of its modules, cupy_backends.cuda.api.runtime, is replaced by one
built from the same source and linked to the fake libcuda.so.1, where the wheel's copy has NVIDIA's
runtime inside. The fake is built at the first import.

* ``python -m fakecuda script.py`` runs a script on it, ``pytest -p fakecuda`` tests, both with the
  project's own kernels; a child process has to import it too.
* ``configure``, ``hold``, ``peek``, ``inject`` and ``stat`` control and observe the device.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from fakecuda_build import MODULE, BuildError, Built, build

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType, TracebackType

    from hostcuda import HostKernel

__all__ = [
    "BUILT",
    "BuildError",
    "clear_failure",
    "configure",
    "give_kernel",
    "give_own_kernels",
    "hold",
    "inject",
    "peek",
    "release_all",
    "stat",
]

BUILT: Final[Built] = build()

# Globally and by its soname: CuPy loads libcuda.so.1 by name, and gets this one.
_library = ctypes.CDLL(str(BUILT.library), mode=ctypes.RTLD_GLOBAL)
_library.fakecuda_stat.restype = ctypes.c_longlong
_library.fakecuda_stat.argtypes = [ctypes.c_char_p]
_library.fakecuda_set.argtypes = [ctypes.c_char_p, ctypes.c_long]
_library.fakecuda_inject.argtypes = [ctypes.c_char_p]
_library.fakecuda_hold_stream.argtypes = [ctypes.c_void_p, ctypes.c_int]
_library.fakecuda_give_kernel.argtypes = [
    *(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
]
_library.fakecuda_peek.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_size_t]


_skipped: list[str] = []
_given: list[HostKernel] = []  # their libraries have to stay loaded


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module built against the fake in place of the wheel's."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the finder's protocol
        target: ModuleType | None = None,  # noqa: ARG002 - the finder's protocol
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, str(BUILT.module))
        return importlib.util.spec_from_file_location(name, BUILT.module, loader=loader)


def configure(**settings: int) -> None:
    """Change how the device behaves.

    Args:
        **settings: ``latency_us``, ``jitter_us`` (at random, up to that) and ``mbps`` of a copy, as
            they are when it is queued; ``mem`` and ``pinned``, the bytes of a device and of pinned
            memory (0: no limit); ``poison`` (1: fresh memory is 0xCB on the device, 0xCD pinned),
            ``poison_dst`` (1: a destination is 0xEE until its copy ends), ``race`` (1: races are
            reported), ``queue``, the operations that a stream takes in before a call has to wait,
            ``trace``.

    Raises:
        KeyError: For a setting that does not exist.
    """
    for name, value in settings.items():
        if _library.fakecuda_set(name.encode(), value):
            raise KeyError(name)


def inject(spec: str | None) -> None:
    """Make driver calls fail; None: no more.

    Args:
        spec: ``name@nth=code``, several with commas. ``nth`` counts from 1 and now; with a ``+``
            behind it all later calls fail too. With a ``!`` behind the code a copy is accepted, and
            fails when it runs, which loses the context. As ``cuMemcpyHtoDAsync@3=700!``.
    """
    _library.fakecuda_inject(spec.encode() if spec else None)


def clear_failure() -> None:
    """Forget that a context is lost, which no real device does."""
    _library.fakecuda_clear_sticky()


def give_kernel(kernel: HostKernel) -> None:
    """Let a kernel run from now on: on the host, when a stream comes to it.

    What is compiled and loaded as that kernel is not looked at; CUDA's compiler has made it, if the
    caller wants it made. Its memory is the device's, and every pointer counts, for races, as a use
    of all that is allocated behind it. All other kernels are refused as before.

    Args:
        kernel: Its build for the host, by ``hostcuda``; kept for good.
    """
    num = len(kernel.sizes)
    sizes = (ctypes.c_size_t * num)(*kernel.sizes)
    if _library.fakecuda_give_kernel(
        kernel.name.encode(), kernel.address, num, sizes, kernel.kinds.encode()
    ):
        raise ValueError(f"{kernel.name}: more or larger parameters than the fake device takes")
    _given.append(kernel)


def give_own_kernels() -> None:
    """Let the project's own kernels run, as ``python -m fakecuda`` and ``pytest -p fakecuda`` do.

    Imports the project, and CuPy.
    """
    from fakecuda import own_kernels  # noqa: PLC0415 - builds them

    for kernel in own_kernels.build():
        give_kernel(kernel)


def pytest_sessionstart() -> None:
    """Prepare a session that was started with ``-p fakecuda``."""
    give_own_kernels()


def pytest_runtest_logreport(report: Any) -> None:
    """Note a test that is skipped: here is all that it could lack."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: Any) -> None:
    """Let a session fail that has skipped anything."""
    if _skipped:
        sys.stderr.write(f"\nskipped on the fake device: {', '.join(_skipped)}\n")
        session.exitstatus = 1


def stat(name: str) -> int:
    """Return a count.

    Args:
        name: ``h2d``, ``d2h``, ``d2d``, ``h2h`` copies; ``bytes_h2d``, ``bytes_d2h``; ``staged``
            copies of pageable memory; ``allocs``, ``frees``, ``hostallocs``, ``hostfrees``;
            ``streams``, ``events`` that exist; ``waits``; ``hazards``, ``races``;
            ``unsupported`` calls; ``mem_used`` of device 0 and ``pinned_used``, in bytes;
            ``contexts``, the devices that have one, as bits; ``thread_calls`` of the driver that
            the calling thread has made; ``device_waits`` for all of a device's work;
            ``queue_waits`` for room in a stream; ``lazy_loads``, kernels that a launch had to load;
            ``hostallocs_not_portable``, ``streams_blocking``, ``events_timed`` and
            ``events_spinning``, those made with flags that cost something.
    """
    return int(_library.fakecuda_stat(name.encode()))


def peek(ptr: int, nbytes: int) -> bytes:
    """Return what device memory holds at this moment, past every stream.

    Raises:
        ValueError: If it is not all within one allocation.
    """
    buffer = ctypes.create_string_buffer(nbytes)
    if _library.fakecuda_peek(buffer, ptr, nbytes):
        raise ValueError(f"no device memory: {nbytes} bytes at {ptr:#x}")
    return buffer.raw


def release_all() -> None:
    """End the hold of all streams, whoever began it."""
    _library.fakecuda_hold(0)


class hold:  # noqa: N801 - reads as a verb: with hold(stream)
    """Within the block no queued work starts: on one stream, or on any.

    Args:
        stream: Anything with ``__cuda_stream__``; None for all streams.
    """

    def __init__(self, stream: Any = None) -> None:
        self._handle = None if stream is None else stream.__cuda_stream__()[1]

    def release(self) -> None:
        """Let the work start."""
        self._set(0)

    def __enter__(self) -> Self:
        self._set(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._set(0)

    def _set(self, on: int) -> None:
        if self._handle is None:
            _library.fakecuda_hold(on)
        else:
            _library.fakecuda_hold_stream(self._handle, on)


if MODULE in sys.modules:
    raise RuntimeError("CuPy is already on a real driver: import fakecuda before cupy")
sys.meta_path.insert(0, _Finder())
# The tests that run on any CUDA device run on this one.
os.environ.setdefault("RINGFEED_TEST_CUDA", "fake")
