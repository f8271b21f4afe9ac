"""What people may import. A change of these lists is one for them, and goes into CHANGELOG.md."""

from __future__ import annotations

import importlib
import inspect

import pytest

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
        ConfigNotFoundError CorruptDatabaseError DatabaseChangedError DatabaseInUseError
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


@pytest.mark.parametrize("module", _PUBLIC)
def test_a_public_module_offers_exactly_these_names(module: str) -> None:
    assert _PUBLIC[module].split() == sorted(importlib.import_module(module).__all__)


@pytest.mark.parametrize("module", _PUBLIC)
def test_tracebacks_and_pickles_show_the_public_module(module: str) -> None:
    public = importlib.import_module(module)
    shown = {
        name: getattr(public, name).__module__
        for name in _PUBLIC[module].split()
        if inspect.isclass(getattr(public, name)) or inspect.isfunction(getattr(public, name))
    }
    assert dict.fromkeys(shown, module) == shown


@pytest.mark.parametrize("module", ["memory", "memory.testing", "prefetch", "prefetch.testing"])
def test_every_public_class_and_function_says_what_it_is_for(module: str) -> None:
    public = importlib.import_module(module)
    named = {name: getattr(public, name) for name in _PUBLIC[module].split()}
    assert [] == [
        name
        for name, value in named.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]
