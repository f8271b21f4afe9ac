"""The public face: which names there are, and that they call themselves so."""

from __future__ import annotations

import doctest
import logging
import pickle
import subprocess
import sys

import pytest

import memory

ERRORS = {
    "AxisError": IndexError,
    "BlobProtoError": ValueError,
    "BufferMismatchError": ValueError,
    "ClosedError": RuntimeError,
    "DeviceError": RuntimeError,
    "DeviceMemoryError": MemoryError,
    "DeviceMismatchError": ValueError,
    "DeviceOptionError": TypeError,
    "DeviceUnavailableError": RuntimeError,
    "DtypeError": TypeError,
    "HeadError": RuntimeError,
    "HostMemoryError": MemoryError,
    "MissingPackageError": ImportError,
    "NoDataError": RuntimeError,
    "NoDeviceMemoryError": RuntimeError,
    "NotImplementedDeviceError": NotImplementedError,
    "OffsetError": IndexError,
    "OptionValueError": ValueError,
    "ShapeError": ValueError,
    "ShapeMismatchError": ValueError,
    "SyncedMemoryError": Exception,
    "UnknownDeviceError": ValueError,
}
OTHERS = {
    "Blob",
    "CpuDevice",
    "Device",
    "DeviceBuffer",
    "DeviceMemory",
    "Event",
    "Head",
    "HostBuffer",
    "Kernel",
    "ShapeLike",
    "SimulatedDevice",
    "Stream",
    "SyncedMemory",
    "UseObserver",
    "bfloat16",
    "open_device",
}


def test_these_are_the_public_names() -> None:
    assert sorted({*ERRORS, *OTHERS}) == sorted(memory.__all__)


def test_there_are_no_others() -> None:
    public = {name for name in vars(memory) if not name.startswith("_")}
    modules = {"annotations", "logging", "testing", "threads", "wording"}
    assert set(memory.__all__) == public - modules


@pytest.mark.parametrize("name", sorted({*ERRORS, *OTHERS} - {"ShapeLike"}))
def test_a_public_name_says_where_it_is_imported_from(name: str) -> None:
    found = getattr(memory, name)
    assert ("memory", name) == (found.__module__, found.__qualname__)


@pytest.mark.parametrize(("name", "builtin"), ERRORS.items())
def test_an_error_is_the_packages_and_the_built_in_that_callers_expect(
    name: str, builtin: type[Exception]
) -> None:
    error = getattr(memory, name)
    assert issubclass(error, memory.SyncedMemoryError)
    assert issubclass(error, builtin)


def test_every_error_class_is_public() -> None:
    def below(error: type[Exception]) -> set[str]:
        return {error.__name__}.union(*(below(child) for child in error.__subclasses__()))

    assert set(ERRORS) == below(memory.SyncedMemoryError)


def test_what_is_raised_can_be_sent_to_another_process() -> None:
    with pytest.raises(memory.ShapeError) as caught:
        memory.Blob(-1)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (memory.ShapeError, (-1,)) == (type(again), again.shape)


def test_the_examples_in_the_docstrings_are_true() -> None:
    result = doctest.testmod(memory)
    assert 0 == result.failed
    assert result.attempted > 10


def test_the_package_is_silent_until_it_is_listened_to() -> None:
    handlers = logging.getLogger("memory").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


def test_importing_it_imports_neither_protobuf_nor_lmdb_nor_a_gpu_library() -> None:
    code = "import memory, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"memory", "numpy"} <= set(found)
    assert not {"google", "lmdb", "cupy", "prefetch", "cv2"} & set(found)
