"""The copy straight from the mapped file of the database: whether CUDA allows it, and its rate.

The library copies every record into pinned memory first. Where CUDA can register the mapping of the
file (``cudaHostRegister``), a copy of the records could go from the page cache to the GPU without
that. Whether it can depends on the GPU, the driver, the kernel and the file system.
"""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from gpu_checks.bench import NotHereError, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpu_checks.bench import Bench

_DEFAULT, _READ_ONLY = 0x00, 0x08  # cudaHostRegister's flags
_PAGE: Final = mmap.PAGESIZE

_WAYS: Final = {
    "shared, read-only": (mmap.MAP_SHARED, _READ_ONLY),
    "private, read-only": (mmap.MAP_PRIVATE, _READ_ONLY),
    "shared, by default": (mmap.MAP_SHARED, _DEFAULT),
}


def check_mapping(bench: Bench) -> Outcome:
    """Register the pages of the database in every way there is, and copy from them."""
    bench.on_gpu_only()
    import cupy  # noqa: PLC0415 - of a CUDA device alone

    attribute = cupy.cuda.runtime.cudaDevAttrHostRegisterReadOnlySupported
    promised = cupy.cuda.runtime.deviceGetAttribute(attribute, bench.device.ordinal)
    texts, numbers = [], {"read_only_supported": float(promised)}
    with (bench.source / "data.mdb").open("rb") as file:
        for name, (sharing, flags) in _WAYS.items():
            pages = mmap.mmap(file.fileno(), 0, flags=sharing, prot=mmap.PROT_READ)
            memory = np.frombuffer(pages, np.uint8)
            _touch(memory)
            if name == next(iter(_WAYS)):
                plain_s, _ = _copy(bench, memory)
                numbers["not_registered_bytes_per_s"] = bench.batch_bytes / plain_s
                texts.append(f"not registered {bench.batch_bytes / plain_s / 1e9:.2f} GB/s")
            began = time.perf_counter()
            try:
                cupy.cuda.runtime.hostRegister(memory.ctypes.data, memory.nbytes, flags)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                texts.append(f"{name}: refused, {error}")
                continue
            register_s = time.perf_counter() - began
            try:
                copy_s, is_right = _copy(bench, memory)
            finally:
                cupy.cuda.runtime.hostUnregister(memory.ctypes.data)
            if not is_right:
                return Outcome("registered mapping", "wrong", f"DIFFERENT BYTES: {name}")
            rate, register_rate = bench.batch_bytes / copy_s, memory.nbytes / register_s
            numbers |= {
                f"{name}: bytes_per_s": rate,
                f"{name}: registered_bytes_per_s": register_rate,
            }
            texts.append(
                f"{name}: supported, {rate / 1e9:.2f} GB/s, registered at "
                f"{register_rate / 1e9:.2f} GB/s"
            )
    return Outcome("registered mapping", "measured", "; ".join(texts), numbers)


def _copy(bench: Bench, memory: NDArray[np.uint8]) -> tuple[float, bool]:
    """Copy batches' worth of the file one after the other.

    Returns:
        The seconds that each takes, and whether the last arrived as it is in the file.
    """
    import cupy  # noqa: PLC0415 - of a CUDA device alone

    device, runtime, nbytes = bench.device, cupy.cuda.runtime, bench.batch_bytes
    there = device.alloc_device(nbytes)
    # Not at a page's beginning: records are not there either.
    places = range(24, memory.nbytes - nbytes, nbytes)
    if not places:
        raise NotHereError("the database is smaller than a batch")
    last = places[-1]
    with device.make_stream("mapping") as stream:

        def copy(count: int) -> None:
            for number in range(count):
                start = memory.ctypes.data + places[number % len(places)]
                runtime.memcpyAsync(
                    there.ptr, start, nbytes, runtime.memcpyHostToDevice, stream.handle
                )
            stream.synchronize()

        seconds = bench.seconds_each(copy)
        runtime.memcpyAsync(
            *(there.ptr, memory.ctypes.data + last, nbytes),
            *(runtime.memcpyHostToDevice, stream.handle),
        )
        host = device.alloc_host(nbytes).array
        device.copy_to_host(host, there, stream=stream)
        stream.synchronize()
    return seconds, bool((host == memory[last : last + nbytes]).all())


def _touch(memory: NDArray[np.uint8]) -> None:
    """Read a byte of each page, so that no copy waits for the file."""
    memory[::_PAGE].max()


MAPPING: Final[dict[str, Callable[[Bench], Outcome]]] = {"registered mapping": check_mapping}
