from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from memory import _errors
from memory._errors import SyncedMemoryError

KINDS = {
    name: kind
    for name, kind in vars(_errors).items()
    if inspect.isclass(kind) and issubclass(kind, SyncedMemoryError)
}
EXAMPLES: list[SyncedMemoryError] = [
    _errors.UnknownDeviceError("gpu", valid=("cpu",), nearest="cuda"),
    _errors.DeviceOptionError("cpu", unknown=("x",), valid=()),
    _errors.OptionValueError("latency_s", expected="0 or more", found=-1),
    _errors.DeviceUnavailableError("cuda", reason="no driver", cure="install one"),
    _errors.NoDeviceMemoryError("cpu", operation="gpu_data"),
    _errors.NotImplementedDeviceError("simulated", operation="compile", missing="CUDA"),
    _errors.DeviceMemoryError("cuda:0", requested_bytes=3, used_bytes=2, limit_bytes=None),
    _errors.HostMemoryError("cpu", requested_bytes=700000, used_bytes=0),
    _errors.DeviceError("simulated", operation="fill", reason="no"),
    _errors.DeviceMismatchError("dst", expected="cuda:0", found="cuda:1"),
    _errors.BufferMismatchError("src", expected="4 bytes", found="5 bytes", cure="slice it"),
    _errors.ClosedError("stream 's'", operation="record"),
    _errors.HeadError("async_gpu_push", expected="HEAD_AT_CPU", found="SYNCED", cure="write"),
    _errors.DtypeError("update", dtype="uint8", valid=("float32", "float64")),
    _errors.MissingPackageError("dtype bfloat16", package="ml_dtypes", extra="bfloat16"),
    _errors.ShapeError("too many axes", shape=(1,) * 33),
    _errors.ShapeMismatchError("copy_from", expected=(2, 3), found=(3, 2), cure="reshape=True"),
    _errors.AxisError("axis 4 is out of range", axis=4, shape=(2, 3)),
    _errors.OffsetError("index 3 is out of range", index=(3,), shape=(3,)),
    _errors.NoDataError("cpu_data"),
    _errors.BlobProtoError("5 values for 6 elements", field="data"),
]


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"[├└]── (\w+)(?: +\((\w+)\))?", _errors.__doc__ or "")
    leaves = {name: kind for name, kind in KINDS.items() if kind is not SyncedMemoryError}
    assert [name for name, _ in drawn] == list(leaves)
    for name, builtin in drawn:
        bases = [base.__name__ for base in leaves[name].__bases__]
        assert bases == (["SyncedMemoryError", builtin] if builtin else ["ShapeError"])


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_passes_between_processes_with_its_facts(error: SyncedMemoryError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_every_kind_has_an_example_here() -> None:
    assert {type(error) for error in EXAMPLES} == set(KINDS.values()) - {SyncedMemoryError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_its_text_says_what_its_attributes_say(error: SyncedMemoryError) -> None:
    for name in ("operation", "expected", "found", "cure", "device", "requested_bytes", "reason"):
        if hasattr(error, name):
            assert str(getattr(error, name)) in str(error)
