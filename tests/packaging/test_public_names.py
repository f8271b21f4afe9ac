"""What people may import. A change of these lists is one for them, and goes into CHANGELOG.md."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

import pytest

import prefetch
import ringfeed

if TYPE_CHECKING:
    from types import ModuleType

_PUBLIC = {
    "memory": """
        AxisError Blob BlobProtoError BufferMismatchError ClosedError CpuDevice Device DeviceBuffer
        DeviceError DeviceMemory DeviceMemoryError DeviceMismatchError DeviceOptionError
        DeviceUnavailableError DtypeError Event Head HeadError HostBuffer HostMemoryError Kernel
        MissingPackageError NoDataError NoDeviceMemoryError NotImplementedDeviceError OffsetError
        OptionValueError ShapeError ShapeLike ShapeMismatchError SimulatedDevice Stream SyncedMemory
        SyncedMemoryError UnknownDeviceError UseObserver bfloat16 open_device
    """,
    "memory.testing": """
        FAILING_OPERATIONS FailingDevice FailingStream Hold LiveBuffers TransferStats VirtualClock
        hold live_buffers peek
    """,
    "prefetch": """
        AsyncFeedIterator Batch BatchReleasedError BatchesHeldError ConfigError ConfigFault
        ConfigNotFoundError ContactSheet CorruptDatabaseError
        DatabaseChangedError DatabaseInUseError
        DatabaseNotFoundError DatabaseTruncatedError
        EmptyDatabaseError EpochsExhaustedError Feed FeedBusyError FeedClosedError FeedConfig
        FeedIterator FeedStats Filled Into LabelsNotProducedError OutOfMemoryError PrefetchError
        PrefetchWarning QuarantineError RecordError
        RingTooLargeError SourceError StaleIteratorError StateError ThreadStartError
        TooManyBadRecordsError
        UnsupportedSourceError kernels_available open open_prototxt
    """,
    "prefetch.caffe": """
        BlobProto BlobProtoVector BlobShape DataParameter Datum ImageDataParameter LayerParameter
        NetParameter NetState NetStateRule Phase SolverParameter TransformationParameter
        V0LayerParameter V1LayerParameter
    """,
    "prefetch.jax": "DataLoader",
    "prefetch.testing": """
        encode_image example_database fingerprinted_images write_database
    """,
    "prefetch.torch": "DataLoader",
}


_NEEDED = {"prefetch.jax": "jax", "prefetch.torch": "torch"}


def _imported(module: str) -> ModuleType:
    """Return a module; the test is skipped where the library is not there that it needs."""
    if module in _NEEDED:
        pytest.importorskip(_NEEDED[module])
    return importlib.import_module(module)


@pytest.mark.parametrize("module", _PUBLIC)
def test_a_public_module_offers_exactly_these_names(module: str) -> None:
    assert _PUBLIC[module].split() == sorted(_imported(module).__all__)


@pytest.mark.parametrize("module", _PUBLIC)
def test_tracebacks_and_pickles_show_the_public_module(module: str) -> None:
    public = _imported(module)
    shown = {
        name: getattr(public, name).__module__
        for name in _PUBLIC[module].split()
        if inspect.isclass(getattr(public, name)) or inspect.isfunction(getattr(public, name))
    }
    assert dict.fromkeys(shown, module) == shown


@pytest.mark.parametrize("module", sorted(_PUBLIC.keys() - {"prefetch.caffe"}))
def test_every_public_class_and_function_says_what_it_is_for(module: str) -> None:
    public = _imported(module)
    named = {name: getattr(public, name) for name in _PUBLIC[module].split()}
    assert [] == [
        name
        for name, value in named.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]


def test_ringfeed_is_prefetch_under_another_name() -> None:
    assert prefetch.__all__ == ringfeed.__all__
    for name in prefetch.__all__:
        assert getattr(ringfeed, name) is getattr(prefetch, name)
    assert set(prefetch.__all__) < set(dir(ringfeed))
    with pytest.raises(AttributeError, match="module 'ringfeed' has no attribute 'no_such_name'"):
        _ = ringfeed.no_such_name  # type: ignore[attr-defined] # on purpose


@pytest.mark.parametrize("name", sorted(set(dir(ringfeed)) - set(ringfeed.__all__)))
def test_a_module_of_ringfeed_is_that_of_prefetch(name: str) -> None:
    module = _imported(f"prefetch.{name}")
    alias = getattr(ringfeed, name)
    assert importlib.import_module(f"ringfeed.{name}") is alias
    assert module.__all__ == alias.__all__
    assert all(getattr(alias, one) is getattr(module, one) for one in module.__all__)
