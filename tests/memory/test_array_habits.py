"""What people who know NumPy do to a blob: it works, or the error says what to call."""

from __future__ import annotations

import operator
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory import Blob, Head, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory import Device

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def blob(device: Device) -> Iterator[Blob]:
    blob = Blob(VALUES.shape, device=device)
    blob.mutable_cpu_data()[:] = VALUES
    if device.has_device_memory:
        blob.mutable_gpu_data()
    yield blob
    blob.close()


def on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


@pytest.mark.parametrize(
    "index", [0, -1, (1, 2), slice(1), slice(1, None), ..., (0, slice(2)), (None, 1)], ids=repr
)
def test_a_blob_is_indexed_as_its_array(blob: Blob, index: Any) -> None:
    assert (VALUES[index] == on_host(blob[index])).all()


def test_a_blob_has_the_sizes_of_its_array(blob: Blob) -> None:
    assert (2, 3, 24) == (len(blob), blob.ndim, blob.size)
    assert ((2, 3, 4), np.dtype(np.float32)) == (blob.shape, blob.dtype)
    assert (4, 3, 2) == blob.T.shape
    assert VALUES.tolist() == blob.tolist() == [on_host(row).tolist() for row in blob]
    with pytest.raises(TypeError, match="without axes"):
        len(Blob(()))


def test_looking_leaves_the_devices_side_the_newest(second_memory: Device) -> None:
    blob = Blob((2, 3), device=second_memory)
    blob.mutable_gpu_data()
    blob[0]
    list(blob)
    blob.tolist()
    assert blob.data.head in {Head.HEAD_AT_GPU, Head.SYNCED}


class TestOnTheHost:
    """Arithmetic; that on a GPU is CuPy's."""

    @pytest.fixture
    def blob(self) -> Blob:
        blob = Blob(VALUES.shape)
        blob.numpy()[:] = VALUES
        return blob

    @pytest.mark.parametrize(
        "operate",
        [
            operator.add,
            operator.sub,
            operator.mul,
            operator.truediv,
            operator.lt,
            operator.le,
            operator.gt,
            operator.ge,
            operator.eq,
            operator.ne,
        ],
    )
    @pytest.mark.parametrize("other", [2, 1.5, np.float32(3), VALUES + 1], ids=lambda _: "")
    def test_arithmetic_is_that_of_the_array(
        self, blob: Blob, operate: Callable[[Any, Any], Any], other: Any
    ) -> None:
        for expected, result in (
            (operate(VALUES, other), operate(blob, other)),
            (operate(other, VALUES + 1), operate(other, blob + 1)),
        ):
            assert np.ndarray is type(result)
            assert expected.dtype == result.dtype
            assert (expected == result).all()

    @pytest.mark.parametrize("index", [(slice(None), 0), (..., 1), [1, 0], VALUES > 5], ids=str)
    def test_other_indices_are_those_of_the_array(self, blob: Blob, index: Any) -> None:
        assert (VALUES[index] == blob[index]).all()
        assert (VALUES.T == blob.T).all()

    def test_two_blobs_make_an_array(self, blob: Blob) -> None:
        assert (2 * VALUES == blob + blob).all()
        assert (blob == blob).all()  # noqa: PLR0124
        assert (VALUES == 1).tolist() == (blob == Blob((1, 1, 1)) + 1).tolist()
        assert ((VALUES[0] @ VALUES[1].T) == (blob[0] @ blob[1].T)).all()
        assert (VALUES**2 // 3 % 5 == blob**2 // 3 % 5).all()
        assert (abs(-blob) == VALUES).all()
        assert (7 - VALUES == 7 - blob).all()
        assert (1 / (1 + VALUES) == 1 / (1 + blob)).all()

    @pytest.mark.parametrize("name", ["mean", "std", "sum", "min", "max", "argmax"])
    @pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": -1}], ids=str)
    def test_sums_are_those_of_the_array(
        self, blob: Blob, name: str, options: dict[str, int]
    ) -> None:
        expected = getattr(VALUES, name)(**options)
        assert (expected == getattr(blob, name)(**options)).all()
        assert (expected == getattr(np, name)(blob, **options)).all()

    def test_copies_are_arrays_of_their_own(self, blob: Blob) -> None:
        for copy in (blob.copy(), blob.astype(np.float64), blob.flatten()):
            copy[:] = 0
        assert (VALUES == blob.numpy()).all()

    def test_one_element_is_a_number(self, blob: Blob) -> None:
        one = Blob((1, 1))
        one.numpy()[:] = 2.5
        assert (2.5, 2, 2.5) == (float(one), int(one), one.item())
        assert 23.0 == blob.item(23)

    @pytest.mark.parametrize("number", [float, int])
    def test_several_elements_are_no_number(self, blob: Blob, number: type) -> None:
        with pytest.raises(TypeError, match=r"has 24; write (float|int)\(blob\.numpy\(\)\[i\]\)"):
            number(blob)

    def test_one_element_is_true_unless_it_is_0(self) -> None:
        one = Blob((1, 1))
        one.numpy()[:] = 0
        assert not one
        one.numpy()[:] = 2.5
        assert one

    @pytest.mark.parametrize("shape", [(2, 3, 4), (0,)])
    def test_several_elements_are_neither_true_nor_false(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"blob\.numpy\(\)\.any\(\)"):
            bool(Blob(shape))

    def test_a_blob_is_hashed_by_identity(self, blob: Blob) -> None:
        assert 2 == len({blob, Blob((2, 3, 4))})
        assert 1 == len(weakref.WeakSet([blob, blob]))
        assert blob != None  # noqa: E711
        assert blob != "blob"

    def test_what_is_indexed_cannot_be_written_to(self, blob: Blob) -> None:
        with pytest.raises(ValueError, match="read-only"):
            blob[0][0] = 1


def test_writing_by_index_says_what_writes(blob: Blob) -> None:
    with pytest.raises(TypeError, match=r"blob\.numpy\(\)\[i\] = "):
        blob[0] = 1


@pytest.mark.parametrize(
    ("sign", "operate"),
    [
        ("+", operator.iadd),
        ("-", operator.isub),
        ("*", operator.imul),
        ("/", operator.itruediv),
    ],
)
def test_arithmetic_in_place_says_what_writes(blob: Blob, sign: str, operate: Any) -> None:
    with pytest.raises(TypeError) as caught:
        operate(blob, 2)
    assert f"blob.numpy()[:] {sign}= " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("transpose", "blob.numpy().transpose"),
        ("clip", "blob.numpy().clip"),
        ("permute", "torch.from_dlpack(blob).permute"),
        ("to", "torch.from_dlpack(blob).to"),
    ],
)
def test_other_names_of_arrays_are_answered_by_what_to_call(
    blob: Blob, name: str, cure: str
) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(blob, name)
    assert cure in str(caught.value)


def test_numpys_reshape_is_answered_by_what_to_call() -> None:
    with pytest.raises(ShapeError, match=r"write blob\.numpy\(\)\.reshape"):
        Blob((2, 3)).reshape(-1, 2)


def test_a_misspelt_name_is_answered_as_ever(blob: Blob) -> None:
    with pytest.raises(AttributeError, match="no attribute 'shapes'"):
        blob.shapes  # type: ignore[attr-defined] # noqa: B018
    for name in (
        "__array_interface__",
        "__array_struct__",
        "__array_priority__",
        "__cuda_stream__",
    ):
        assert not hasattr(blob, name)


def test_the_property_that_is_absent_keeps_its_words() -> None:
    with pytest.raises(AttributeError, match="has no CUDA memory"):
        Blob((2,)).__cuda_array_interface__  # noqa: B018


def test_completion_shows_the_common_names_and_the_others_work(blob: Blob) -> None:
    names = dir(blob)
    assert {"numpy", "cupy", "shape", "dtype", "ndim", "mean", "astype", "cpu_data"} <= set(names)
    assert {"asum_data", "from_proto", "canonical_axis_index"}.isdisjoint(names)
    assert {"asum_data", "from_proto", "canonical_axis_index"} <= set(dir(Blob))
    assert blob.count() == 24
