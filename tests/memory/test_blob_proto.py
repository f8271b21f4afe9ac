"""Blob: to and from BlobProto messages, of a class that this package has never seen."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from memory import Blob, BlobProtoError, Head, NoDataError, ShapeError, ShapeMismatchError, bfloat16
from memory.testing import FailingDevice

if TYPE_CHECKING:
    from memory import Device, SimulatedDevice
    from memory._shape import Dims

FLOATS = [np.float32, np.float64]


@functools.cache
def _message_class() -> type[Any]:
    """Build Caffe's BlobProto in a pool of its own."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="blob.proto", package="test", syntax="proto2")
    shape = file.message_type.add(name="BlobShape")
    dim = shape.field.add(name="dim", number=1, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    dim.options.packed = True
    blob = file.message_type.add(name="BlobProto")
    blob.field.add(
        name="shape",
        number=7,
        type=field.TYPE_MESSAGE,
        type_name=".test.BlobShape",
        label=field.LABEL_OPTIONAL,
    )
    for number, name in enumerate(("num", "channels", "height", "width"), 1):
        blob.field.add(name=name, number=number, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    for number, name in ((5, "data"), (6, "diff"), (8, "double_data"), (9, "double_diff")):
        kind = field.TYPE_DOUBLE if name.startswith("double") else field.TYPE_FLOAT
        values = blob.field.add(name=name, number=number, type=kind, label=field.LABEL_REPEATED)
        values.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    message_class: type[Any] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("test.BlobProto")
    )
    return message_class


def message(shape: Dims | None = None, **fields: Any) -> Any:
    proto = _message_class()(**fields)
    if shape is not None:
        proto.shape.SetInParent()
        proto.shape.dim.extend(shape)
    return proto


def legacy(num: int, channels: int, height: int, width: int, **fields: Any) -> Any:
    return message(num=num, channels=channels, height=height, width=width, **fields)


@pytest.fixture(params=FLOATS, ids=lambda dtype: dtype.__name__)
def dtype(request: pytest.FixtureRequest) -> type[np.floating]:
    dtype: type[np.floating] = request.param
    return dtype


class TestReading:
    def test_shape_and_values_are_taken(self, device: Device, dtype: type[np.floating]) -> None:
        blob = Blob(dtype=dtype, device=device)
        blob.from_proto(message((2, 3), data=range(6), diff=range(6, 12)))
        assert [[0, 1, 2], [3, 4, 5]] == blob.cpu_data().tolist()
        assert [[6, 7, 8], [9, 10, 11]] == blob.cpu_diff().tolist()
        assert blob.data.head is Head.HEAD_AT_CPU

    def test_legacy_dimensions_are_a_shape_of_four_axes(self) -> None:
        blob = Blob()
        blob.from_proto(legacy(1, 1, 2, 3, data=range(6)))
        assert (1, 1, 2, 3) == blob.shape

    def test_legacy_dimensions_win_over_the_shape_even_if_zero(self) -> None:
        blob = Blob()
        blob.from_proto(message((2, 3), width=0))
        assert (0, 0, 0, 0) == blob.shape

    def test_without_a_shape_a_scalar_is_expected(self) -> None:
        blob = Blob((2, 3))
        blob.from_proto(message(data=[7]))
        assert ((), 7) == (blob.shape, blob.data_at(()))
        with pytest.raises(BlobProtoError, match="expected 1 values"):
            blob.from_proto(message(data=[7, 8]))

    def test_doubles_win_over_floats(self, dtype: type[np.floating]) -> None:
        blob = Blob(dtype=dtype)
        blob.from_proto(message((1,), data=[1], double_data=[0.1], diff=[2], double_diff=[0.2]))
        assert (float(dtype(0.1)), float(dtype(0.2))) == (blob.data_at(0), blob.diff_at(0))

    def test_a_diff_that_is_not_there_is_left_as_it_is(self) -> None:
        blob = Blob(2)
        blob.mutable_cpu_diff()[:] = 9
        blob.from_proto(message((2,), data=[1, 2]))
        assert [9, 9] == blob.cpu_diff().tolist()

    @pytest.mark.parametrize(
        ("proto", "field"),
        [
            (message((2,), data=[1]), "data"),
            (message((2,), data=[1, 2, 3]), "data"),
            (message((2,)), "data"),
            (message((2,), data=[1, 2], double_data=[1]), "double_data"),
            (message((2,), data=[1, 2], diff=[1]), "diff"),
            (message((2,), data=[1, 2], diff=[1, 2], double_diff=[1]), "double_diff"),
            (message((0,), data=[1]), "data"),
        ],
    )
    def test_a_wrong_number_of_values_is_refused_by_its_field(self, proto: Any, field: str) -> None:
        blob = Blob(3)
        blob.mutable_cpu_data()[:] = blob.mutable_cpu_diff()[:] = 9
        with pytest.raises(BlobProtoError, match=f"^{field}: expected") as caught:
            blob.from_proto(proto)
        assert field == caught.value.field
        assert [9] * 3 == blob.cpu_data().tolist() == blob.cpu_diff().tolist()

    @pytest.mark.parametrize("shape", [(-1,), (1 << 40, 1 << 40), (1,) * 33])
    def test_a_shape_that_no_blob_can_have_is_refused(self, shape: Dims) -> None:
        with pytest.raises(ShapeError):
            Blob().from_proto(message(shape))

    def test_no_elements_need_no_values(self) -> None:
        blob = Blob(3)
        blob.from_proto(message((0, 5)))
        assert (0, 5) == blob.cpu_data().shape

    def test_without_reshape_the_shape_has_to_be_equal(self) -> None:
        blob = Blob((3, 2))
        with pytest.raises(ShapeMismatchError, match="reshape=True"):
            blob.from_proto(message((2, 3), data=range(6)), reshape=False)
        blob.from_proto(message((3, 2), data=range(6)), reshape=False)
        assert 5 == blob.data_at((2, 1))

    def test_without_reshape_a_legacy_shape_fits_and_the_blobs_is_kept(self) -> None:
        blob = Blob((3, 2))
        blob.from_proto(legacy(1, 1, 3, 2, data=range(6)), reshape=False)
        assert ((3, 2), 5) == (blob.shape, blob.data_at((2, 1)))

    def test_the_newest_bytes_are_on_the_host_afterwards(self, second_memory: Device) -> None:
        blob = Blob(2, device=second_memory)
        blob.mutable_gpu_data()
        blob.from_proto(message((2,), data=[1, 2]))
        assert blob.data.head is Head.HEAD_AT_CPU
        assert [1, 2] == blob.cpu_data().tolist()

    def test_doubles_beyond_a_float_are_infinite_as_in_caffe(self) -> None:
        blob = Blob()
        blob.from_proto(message((2,), double_data=[1e300, -1e300]))
        assert [np.inf, -np.inf] == blob.cpu_data().tolist()

    @pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
    def test_integers_have_to_be_exact(self, dtype: type[np.generic]) -> None:
        blob = Blob(dtype=dtype)
        blob.from_proto(message((3,), data=[0, 1, 255]))
        assert [0, 1, 255] == blob.cpu_data().tolist()
        for value in (0.5, 1e30, np.nan, float(2**63)):
            with pytest.raises(BlobProtoError, match="double_data: expected values that"):
                blob.from_proto(message((1,), double_data=[value]))
        assert [0, 1, 255] == blob.cpu_data().tolist()

    @pytest.mark.parametrize("call", [3, 4], ids=["data", "diff"])
    def test_running_out_of_memory_half_way_leaves_the_blob(
        self, simulated: SimulatedDevice, call: int
    ) -> None:
        device = FailingDevice(simulated, fail={"alloc_host": call})
        blob = Blob(2, device=device)
        blob.mutable_cpu_data()[:] = blob.mutable_cpu_diff()[:] = 9
        with pytest.raises(MemoryError):
            blob.from_proto(message((3,), data=range(3), diff=range(3)))
        assert (2,) == blob.shape
        assert [9, 9] == blob.cpu_data().tolist() == blob.cpu_diff().tolist()


class TestWriting:
    def test_shape_and_data_are_written(self) -> None:
        proto = message()
        blob = Blob((2, 3))
        blob.mutable_cpu_data()[:] = [[0, 1, 2], [3, 4, 5]]
        blob.to_proto(proto)
        assert message((2, 3), data=range(6)) == proto

    def test_the_diff_is_written_if_asked_for(self) -> None:
        proto = message()
        blob = Blob(2)
        blob.mutable_cpu_diff()[:] = [1, 2]
        blob.to_proto(proto, write_diff=True)
        assert message((2,), data=[0, 0], diff=[1, 2]) == proto

    def test_float64_goes_to_the_double_fields(self) -> None:
        proto = message()
        blob = Blob(1, np.float64)
        blob.mutable_cpu_data()[:] = blob.mutable_cpu_diff()[:] = 0.1
        blob.to_proto(proto, write_diff=True)
        assert message((1,), double_data=[0.1], double_diff=[0.1]) == proto

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_caffes_stale_fields_are_gone(self, dtype: type[np.floating]) -> None:
        # In Caffe, legacy dimensions and values of the other precision survive, and win on reading.
        proto = legacy(1, 2, 3, 4, data=[9], diff=[9], double_data=[9], double_diff=[9])
        proto.shape.dim.extend([9, 9])
        blob = Blob((2,), dtype)
        blob.mutable_cpu_data()[:] = 5
        blob.to_proto(proto)
        fresh = message()
        blob.to_proto(fresh)
        assert fresh == proto
        again = Blob(dtype=dtype)
        again.from_proto(proto)
        assert ((2,), [5, 5]) == (again.shape, again.cpu_data().tolist())

    def test_bfloat16_goes_to_the_floats(self) -> None:
        blob = Blob(3, bfloat16())
        blob.mutable_cpu_data()[:] = [1, 1 / 3, -np.inf]
        proto = message()
        blob.to_proto(proto)
        assert [1, 0.333984375, -np.inf] == list(proto.data)
        assert not proto.double_data

    def test_doubles_are_rounded_to_bfloat16_once(self) -> None:
        # By way of float32 those with a tiny term would be half-way between two, and become even.
        bits = {
            1 + 2.0**-8: 0x3F80,
            1 + 2.0**-8 + 2.0**-40: 0x3F81,
            -1 - 2.0**-8 - 2.0**-40: 0xBF81,
            1 + 3 * 2.0**-8: 0x3F82,
            1 + 3 * 2.0**-8 - 2.0**-40: 0x3F81,
            2.0**-134: 0,
            2.0**-134 + 2.0**-170: 1,
            3.389e38: 0x7F7F,
            3.4e38: 0x7F80,
            -1e300: 0xFF80,
        }
        blob = Blob(len(bits), bfloat16())
        blob.from_proto(message((len(bits),), double_data=bits))
        assert [*bits.values()] == blob.cpu_data().view(np.uint16).tolist()

    def test_a_scalars_shape_is_set_and_empty(self) -> None:
        proto = message()
        Blob(()).to_proto(proto)
        assert proto.HasField("shape")
        assert ([], [0]) == (list(proto.shape.dim), list(proto.data))

    def test_a_blob_without_a_shape_has_nothing_to_write(self) -> None:
        proto = message((2,), data=[1, 2])
        with pytest.raises(NoDataError):
            Blob().to_proto(proto)
        assert message((2,), data=[1, 2]) == proto

    def test_an_integer_without_an_exact_double_is_refused_and_nothing_written(self) -> None:
        blob = Blob(1, np.int64)
        proto = message((2,), data=[1, 2])
        for value in (2**53 + 1, 2**63 - 1):
            blob.mutable_cpu_data()[:] = value
            with pytest.raises(BlobProtoError, match=r"beyond 2\*\*53"):
                blob.to_proto(proto)
        assert message((2,), data=[1, 2]) == proto

    @pytest.mark.parametrize(
        "dtype",
        [np.float32, np.float64, np.float16, bfloat16().type, np.uint8, np.int32, np.int64],
    )
    def test_each_dtype_comes_back_as_it_was(self, dtype: type[np.generic]) -> None:
        blob = Blob((2, 2), dtype)
        blob.mutable_cpu_data()[:] = [[0, 1], [127, 3]]
        proto = message()
        blob.to_proto(proto)
        again = Blob(dtype=dtype)
        again.from_proto(type(proto).FromString(proto.SerializeToString()))
        assert blob.cpu_data().tolist() == again.cpu_data().tolist()
        assert dtype == again.dtype

    def test_more_values_than_are_written_at_once_all_arrive(self) -> None:
        blob = Blob(70_000)
        blob.mutable_cpu_data()[:] = np.arange(70_000)
        proto = message()
        blob.to_proto(proto)
        assert np.array_equal(np.arange(70_000), np.array(proto.data))

    def test_the_newest_bytes_are_fetched_from_the_device(self, second_memory: Device) -> None:
        blob = Blob(1, device=second_memory)
        blob.mutable_cpu_data()[:] = 5
        second_memory.fill(blob.mutable_gpu_data(), 0, stream=second_memory.current_stream())
        proto = message()
        blob.to_proto(proto)
        assert [0] == list(proto.data)


class TestShapeEquals:
    """Caffe's LegacyBlobProtoShapeEquals, and the shape of the new format."""

    def test_legacy_dimensions_are_compared_from_the_end(self) -> None:
        blob = Blob((3, 2))
        assert blob.shape_equals(legacy(1, 1, 3, 2))
        assert not blob.shape_equals(legacy(0, 1, 3, 2))
        assert not blob.shape_equals(legacy(3, 1, 3, 2))
        blob.reshape(1, 3, 2)
        assert blob.shape_equals(legacy(1, 1, 3, 2))
        blob.reshape(2, 3, 2)
        assert not blob.shape_equals(legacy(1, 1, 3, 2))

    def test_a_shape_is_compared_exactly(self) -> None:
        blob = Blob((3, 2))
        assert blob.shape_equals(message((3, 2)))
        assert not blob.shape_equals(message((1, 3, 2)))
        assert not blob.shape_equals(message())
