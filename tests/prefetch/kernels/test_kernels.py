"""The C kernels as an extension: what they refuse to touch, and that others run meanwhile."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from processes import run_code

from memory._device.bfloat16 import bfloat16, dtype_of
from prefetch._kernels import _c, reference
from prefetch._record.faults import Reason
from prefetch._record.wire import encode_datum
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RECIPE: Any = Transform(train=False).recipe
RECORD = encode_datum(channels=1, height=2, width=3, data=bytes(range(6)), label=7)


def arguments(num: int = 2, **changed: Any) -> tuple[Any, ...]:
    """Return arguments of fill(), right but for what is changed."""
    right: dict[str, Any] = {
        "values": [memoryview(RECORD)] * num,
        "words": np.zeros((num, 3), np.uint32),
        "data": np.zeros((num, 1, 2, 3), np.float32),
        "labels": np.zeros(num, np.int64),
        "recipe": RECIPE,
    }
    return tuple((right | changed).values())


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def test_the_extension_is_built_in_every_checkout() -> None:
    assert _c.__file__ is not None
    assert ".abi3." in _c.__file__


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"values": 3}, TypeError, "not iterable"),
        ({"values": [3, 4]}, TypeError, "bytes-like"),
        ({"values": [memoryview(RECORD)]}, ValueError, "differ in length"),
        ({"words": np.zeros((1, 3), np.uint32)}, ValueError, "differ in length"),
        ({"words": np.zeros((2, 2), np.uint32)}, TypeError, "words must be uint32, at least 3"),
        ({"words": np.zeros((2, 3), np.int32)}, TypeError, "words must be uint32, at least 3"),
        ({"words": np.zeros(6, np.uint32)}, ValueError, "words has 1 axes, and 2 are expected"),
        ({"data": np.zeros((2, 1, 2, 3), np.float64)}, TypeError, "float32, float16, uint16"),
        ({"data": np.zeros((2, 1, 2, 3), ">f4")}, TypeError, "float32, float16, uint16"),
        ({"data": np.zeros((2, 6), np.float32)}, ValueError, "data has 2 axes, and 4 are"),
        ({"data": np.zeros((2, 1, 2, 6), np.float32)[..., ::2]}, ValueError, "contiguous"),
        ({"data": read_only(np.zeros((2, 1, 2, 3), np.float32))}, ValueError, "read-only"),
        ({"labels": np.zeros(3, np.int64)}, ValueError, "differ in length"),
        ({"labels": np.zeros((2, 1), np.int64)}, ValueError, "labels has 2 axes"),
        ({"labels": np.zeros(2, np.complex64)}, TypeError, "labels must be of an integer type"),
        ({"labels": np.zeros(2, ">i8")}, TypeError, "labels must be of an integer type"),
        ({"labels": read_only(np.zeros(2, np.int64))}, ValueError, "read-only"),
        ({"recipe": ()}, TypeError, "recipe must be a Recipe"),
        ({"recipe": RECIPE._replace(crop_height=-1)}, ValueError, "crop_height must be from 0"),
        ({"recipe": RECIPE._replace(crop_width=2**31)}, ValueError, "crop_width must be from 0"),
        (
            {"recipe": RECIPE._replace(crop_height=2, crop_width=2)},
            ValueError,
            "as high and wide as the crop",
        ),
        ({"recipe": RECIPE._replace(scale=np.ones(1))}, TypeError, "scale must be float32"),
        (
            {"recipe": RECIPE._replace(mean_value=np.ones((1, 1), np.float32))},
            ValueError,
            "mean_value has 2 axes",
        ),
        (
            {"recipe": RECIPE._replace(mean_image=np.ones((1, 2, 3), np.float16))},
            TypeError,
            "mean_image must be float32",
        ),
        (
            {
                "recipe": RECIPE._replace(
                    mean_value=np.ones(1, np.float32), mean_image=np.ones((1, 2, 3), np.float32)
                )
            },
            ValueError,
            "mean_value or mean_image, not both",
        ),
        (
            {
                "data": np.zeros((2, 1, 2, 3), np.uint8),
                "recipe": RECIPE._replace(scale=np.full(1, 2, np.float32)),
            },
            ValueError,
            "uint8 can have neither a mean nor a scale",
        ),
    ],
)
def test_what_the_kernel_cannot_work_with_is_refused_before_anything_is_written(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = arguments(**changed)
    with pytest.raises(error, match=message):
        _c.fill(*given)
    for array in given[2:4]:
        assert not array.any()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"image": np.zeros((2, 3), np.uint8)}, ValueError, "image has 2 axes"),
        ({"image": np.zeros((2, 3, 1), np.float32)}, TypeError, "image must be uint8"),
        ({"image": np.zeros((2, 6, 1), np.uint8)[:, ::2]}, ValueError, "contiguous"),
        ({"words": np.zeros(2, np.uint32)}, TypeError, "words must be uint32, at least 3"),
        ({"row": np.zeros((1, 2, 3), np.int8)}, TypeError, "float32, float16, uint16"),
        ({"row": np.zeros(6, np.float32)}, ValueError, "row has 1 axes, and 3 are expected"),
        ({"recipe": None}, TypeError, "recipe must be a Recipe"),
    ],
)
def test_an_image_that_the_kernel_cannot_work_with_is_refused(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    right: dict[str, Any] = {
        "image": np.ones((2, 3, 1), np.uint8),
        "words": np.zeros(3, np.uint32),
        "row": np.zeros((1, 2, 3), np.float32),
        "recipe": RECIPE,
        "part": None,
    }
    with pytest.raises(error, match=message):
        _c.fill_image(*(right | changed).values())


@pytest.mark.parametrize(
    "function",
    [
        "add_up",
        "fill",
        "fill_image",
        "fill_records",
        "find_bytes",
        "locate",
        "philox_words",
        "raw_shape",
    ],
)
@pytest.mark.parametrize("num", [1, 9])
def test_a_wrong_number_of_arguments_is_refused(function: str, num: int) -> None:
    with pytest.raises(
        TypeError, match=rf"{function}\(\) takes \d arguments, and {num} were given"
    ):
        getattr(_c, function)(*range(num))


def test_a_released_record_is_refused_and_the_others_are_let_go() -> None:
    views = [memoryview(RECORD), memoryview(RECORD)]
    views[1].release()
    with pytest.raises(ValueError, match="released"):
        _c.fill(*arguments(values=views))
    views[0].release()  # raises BufferError where it is still exported


def test_records_may_come_in_any_sequence() -> None:
    given = arguments(values=(memoryview(RECORD), memoryview(RECORD)))
    assert _c.fill(*given) == []
    assert given[3].tolist() == [7, 7]


def test_nothing_is_held_afterwards() -> None:
    values = [memoryview(bytearray(RECORD)), memoryview(bytearray(b"\xff"))]
    _, words, data, labels, _ = arguments(values=values)
    recipe = RECIPE._replace(mean_image=np.zeros((1, 2, 3), np.float32))
    counted = [*values, words, data, labels, recipe.mean_image, recipe.scale]
    before = [sys.getrefcount(one) for one in counted]
    for _ in range(3):
        assert _c.fill(values, words, data, labels, recipe) == [(1, Reason.TRUNCATED, (0, 1))]
    assert before == [sys.getrefcount(one) for one in counted]
    for view in values:
        view.release()


@pytest.fixture
def _never_forced_to_switch() -> Iterator[None]:
    """Let no thread have the GIL that another one does not give away."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_never_forced_to_switch")
def test_another_thread_runs_while_a_part_is_filled() -> None:
    pixels = bytes(256 * 1024)
    value = memoryview(encode_datum(channels=1, height=512, width=512, data=pixels))
    data = np.zeros((4, 1, 512, 512), np.float32)
    words = np.zeros((4, 3), np.uint32)
    gate = threading.Lock()
    ran: list[bool] = []

    def other() -> None:
        with gate:
            ran.append(True)

    gate.acquire()
    thread = threading.Thread(target=other)
    thread.start()
    gate.release()
    for _ in range(1000):
        _c.fill([value] * 4, words, data, None, RECIPE)
        if ran:
            break
    assert ran
    thread.join()


@pytest.mark.parametrize("arranged", ["rows", "columns", "backwards", "apart"])
def test_each_record_has_its_own_words_wherever_they_lie(arranged: str) -> None:
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**32, (6, 3), dtype=np.uint32)
    apart = np.zeros((12, 5), np.uint32)
    apart[::2, 1:4] = words
    given = {
        "rows": words,
        "columns": np.asfortranarray(words),
        "backwards": words[::-1].copy()[::-1],
        "apart": apart[::2, 1:4],
    }[arranged]
    recipe: Any = Transform(train=True, mirror=True, crop_size=3).recipe
    image = np.arange(63, dtype=np.uint8).reshape(1, 7, 9)
    value = memoryview(encode_datum(channels=1, height=7, width=9, data=image.tobytes()))
    rows, expected = np.zeros((6, 1, 3, 3), np.float32), np.zeros((6, 1, 3, 3), np.float32)
    assert _c.fill([value] * 6, given, rows, None, recipe) == []
    assert reference.fill([value] * 6, words, expected, None, recipe) == []
    assert np.array_equal(rows, expected)
    assert len({row.tobytes() for row in rows}) == 6
    row = np.zeros((1, 3, 3), np.float32)
    pixels = np.ascontiguousarray(image.transpose(1, 2, 0))
    for number in range(6):
        assert _c.fill_image(pixels, given[number], row, recipe, None) is None
        assert np.array_equal(row, expected[number])


# Every kind of field, known and not, and floats both packed and not, in several runs.
_HEAD = encode_datum(channels=1, height=2, width=3)
_UNKNOWN = b"\x48\x96\x01\x51abcdefgh\x5a\x02xy\x65abcd\x6b\x73\x08\x01\x74\x6c"
_FLOATS = np.arange(1, 7, dtype="<f4")
_OF_BYTES = _HEAD + _UNKNOWN + encode_datum(data=b"pixels", label=300) + b"\x38\x80\x00\x28\x05"
_OF_FLOATS = (
    _HEAD
    + encode_datum(floats=_FLOATS[:2])
    + b"\x32\x00\x32\x08"
    + _FLOATS[2:4].tobytes()
    + b"\x28\x07"
    + encode_datum(floats=_FLOATS[4:])
)


def _as_the_twin_has_it(record: memoryview) -> list[Any]:
    """Fill a row of 1x2x3 by both kernels; return the outcomes, which must be the same."""
    answers: list[tuple[list[Any], list[int], bytes]] = []
    for kernels in (_c, reference):
        data, labels = np.full((1, 1, 2, 3), -1, np.float32), np.full(1, -1, np.int64)
        outcomes = kernels.fill([record], np.zeros((1, 3), np.uint32), data, labels, RECIPE)
        answers.append((outcomes, labels.tolist(), b"" if outcomes else data.tobytes()))
    assert answers[0] == answers[1]
    return answers[0][0]


@pytest.mark.parametrize("whole", [_OF_BYTES, _OF_FLOATS], ids=["bytes", "floats"])
def test_a_record_cut_anywhere_is_read_to_its_end_and_not_further(whole: bytes) -> None:
    """What would complete it lies behind: neither a byte nor a float of that is read."""
    behind = memoryview(whole + encode_datum(floats=_FLOATS))
    assert [_as_the_twin_has_it(behind[: len(whole)])] == [[]]
    for size in range(len(whole)):
        _as_the_twin_has_it(behind[:size])
        _as_the_twin_has_it(memoryview(whole[:size] + b"\x35" * 9)[:size])


@pytest.mark.parametrize("whole", [_OF_BYTES, _OF_FLOATS], ids=["bytes", "floats"])
def test_a_record_with_any_byte_changed_is_what_the_twin_makes_of_it(whole: bytes) -> None:
    changes = (0, 1, 4, 5, 7, 8, 0x22, 0x28, 0x32, 0x33, 0x34, 0x35, 0x38, 0x7F, 0x80, 0xFF)
    for place in range(len(whole)):
        for change in changes:
            changed = bytearray(whole)
            changed[place] = change
            _as_the_twin_has_it(memoryview(changed))


@pytest.mark.parametrize("field", [0x08, 0x10, 0x18, 0x28, 0x38, 0x48])
def test_integers_take_ten_bytes_at_most(field: int) -> None:
    for num_bytes in range(1, 12):
        for last in (0, 1, 2, 3, 0x7F):
            value = bytes((field, *[0x80] * (num_bytes - 1), last))
            _as_the_twin_has_it(memoryview(_OF_BYTES + value))
            _as_the_twin_has_it(memoryview(_OF_BYTES + value + b"\x28\x06"))


@pytest.mark.parametrize("wide", [2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**35 - 1, 2**35])
def test_tags_and_lengths_take_five_bytes_and_fit_the_record(wide: int) -> None:
    encoded, rest = bytearray(), wide
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    number = bytes((*encoded, rest))
    for before in (b"", b"\x22", b"\x32", b"\x5a"):
        assert _as_the_twin_has_it(memoryview(_OF_BYTES + before + number))
    for kind in range(8):
        tag = bytes((number[0] | kind, *number[1:]))
        _as_the_twin_has_it(memoryview(_OF_BYTES + tag + bytes(8)))


@pytest.mark.parametrize("depth", [1, 99, 100, 101])
def test_groups_may_be_nested_a_hundred_deep(depth: int) -> None:
    nested = b"\x4b" * depth + b"\x4c" * depth
    outcomes = _as_the_twin_has_it(memoryview(_OF_BYTES + nested))
    assert (outcomes == []) == (depth <= 100)
    for wrong in (nested[:-1], nested + b"\x4c", b"\x4b" * depth + b"\x54" + nested):
        assert _as_the_twin_has_it(memoryview(_OF_BYTES + wrong))


def test_floats_that_find_no_memory_to_be_joined_in_are_no_fault_of_the_record() -> None:
    """Two runs of 32 MiB each are joined in 64 MiB; half of that is what the process may have."""
    program = """
        import resource
        from pathlib import Path
        import numpy as np
        from prefetch._kernels import _c
        from prefetch._record.wire import encode_datum
        from prefetch._transform.options import Transform
        run = b"\\x32\\x80\\x80\\x80\\x10" + bytes(2**25)
        head = encode_datum(channels=1, height=2**12, width=2**12, label=7)
        value, small = head + run + run, encode_datum(channels=1, height=1, width=1, data=b"x")
        data, labels = np.zeros((1, 1, 2**12, 2**12), np.float32), np.zeros(1, np.int64)
        words, recipe = np.zeros((1, 3), np.uint32), Transform(train=False).recipe
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**25
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            found = _c.fill([value], words, data, labels, recipe)
        except MemoryError:
            pass
        else:
            raise AssertionError(found)
        assert _c.fill([small], words, data[:, :, :1, :1].copy(), labels, recipe) == []
    """
    ended = run_code(program)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("size", [60000, 65536, 65537, 70001])
@pytest.mark.parametrize("offset", [0, 1, 15, 16])
def test_large_uint8_records_are_copied_whole_wherever_they_go(size: int, offset: int) -> None:
    pixels = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    value = memoryview(encode_datum(channels=1, height=1, width=size, data=pixels.tobytes()))
    recipe = Transform(train=False, dtype=np.dtype(np.uint8)).recipe
    block = np.full(size + 96, 0xA5, np.uint8)
    data = block[offset : offset + size].reshape(1, 1, 1, size)
    assert _c.fill([value], np.zeros((1, 3), np.uint32), data, None, recipe) == []
    assert np.array_equal(data.ravel(), pixels)
    assert (block[:offset] == 0xA5).all()
    assert (block[offset + size :] == 0xA5).all()


def test_a_large_uint8_image_that_keeps_its_layout_is_copied_whole() -> None:
    image = np.random.default_rng(0).integers(0, 256, (200, 160, 3), dtype=np.uint8)
    recipe = Transform(train=False, dtype=np.dtype(np.uint8), layout="nhwc").recipe
    row = np.zeros_like(image)
    assert _c.fill_image(image, np.zeros(3, np.uint32), row, recipe, None) is None
    assert np.array_equal(row, image)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("mirror", [False, True])
def test_lines_too_long_for_one_go_are_the_twins(dtype: str, layout: Any, *, mirror: bool) -> None:
    rng = np.random.default_rng(1)
    shape = (3, 2, 2500)
    transform = Transform(
        train=False,
        mirror=mirror,
        mean_image=rng.random(shape, np.float32) * 255,
        scale=(0.3, 0.2, 0.1),
        layout=layout,
        dtype=dtype_of(dtype),
    )
    value = memoryview(encode_datum(channels=3, height=2, width=2500, data=rng.bytes(15000)))
    sample = shape if layout == "nchw" else (2, 2500, 3)
    rows = [np.zeros((1, *sample), transform.row_dtype) for _ in range(2)]
    words = np.full((1, 3), 2**31, np.uint32)
    for kernels, data in zip((_c, reference), rows, strict=True):
        assert kernels.fill([value], words, data, None, transform.recipe) == []
    assert rows[0].tobytes() == rows[1].tobytes()


EDGES = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
"""Lower halves of floats: what float16 and bfloat16 round away, and the ties."""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_are_the_twins_at_every_exponent_and_every_edge(dtype: str) -> None:
    high = np.arange(2**16, dtype=np.uint32) << 16
    floats = (high[:, np.newaxis] | np.array(EDGES, np.uint32)).view(np.float32)
    value = memoryview(
        encode_datum(channels=1, height=2**16, width=len(EDGES), floats=floats.ravel())
    )
    transform = Transform(train=False, dtype=dtype_of(dtype))
    rows = [np.zeros((1, 1, *floats.shape), transform.row_dtype) for _ in range(2)]
    words = np.zeros((1, 3), np.uint32)
    for kernels, data in zip((_c, reference), rows, strict=True):
        assert kernels.fill([value], words, data, None, transform.recipe) == []
    assert np.array_equal(rows[0].view(np.uint16), rows[1].view(np.uint16))


@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 33, 1024, 1025])
def test_bfloat16_is_the_nearest_and_the_even_one_of_two(width: int) -> None:
    # Every upper half with every edge, in lines with NaNs and without, of whole vectors or not.
    bits = (np.arange(2**16, dtype=np.uint32)[:, np.newaxis] << 16) | np.array(EDGES, np.uint32)
    bits = np.random.default_rng(width).permutation(bits.ravel())[: 65536 // width * width]
    bits[bits.size // 2 :] &= 0xBFFFFFFF  # no infinity nor NaN
    floats = bits.view(np.float32)
    value = memoryview(
        encode_datum(channels=1, height=floats.size // width, width=width, floats=floats)
    )
    row = np.zeros((1, 1, floats.size // width, width), np.uint16)
    recipe = Transform(train=False, dtype=bfloat16()).recipe
    assert _c.fill([value], np.zeros((1, 3), np.uint32), row, None, recipe) == []
    with np.errstate(invalid="ignore"):
        expected = floats.astype(bfloat16()).view(np.uint16)  # ml_dtypes' rounding
    nans = np.isnan(floats)
    expected[nans] = bits[nans] >> 16 | 0x40
    assert nans.any()
    np.testing.assert_array_equal(row.ravel(), expected)


@pytest.mark.parametrize("kernels", [_c, reference], ids=["c", "numpy"])
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", [0x7E00, 0xFF00, 0x7E00, 0xFE01]),
        ("bfloat16", [0x7FC0, 0xFFE0, 0x7FC0, 0xFFC0]),
    ],
)
def test_a_nan_becomes_a_quiet_one_on_every_chip(
    kernels: Any, dtype: str, expected: list[int]
) -> None:
    # The first two are signalling: NumPy keeps them so on x86 and not on ARM.
    bits = [0x7F800001, 0xFFA00000, 0x7FC01000, 0xFFC02000]
    floats = np.array(bits * 5, np.uint32).view(np.float32)  # more than a vector
    value = memoryview(encode_datum(channels=1, height=1, width=floats.size, floats=floats))
    transform = Transform(train=False, dtype=dtype_of(dtype))
    row = np.zeros((1, 1, 1, floats.size), transform.row_dtype)
    assert kernels.fill([value], np.zeros((1, 3), np.uint32), row, None, transform.recipe) == []
    assert row.view(np.uint16).ravel().tolist() == expected * 5
