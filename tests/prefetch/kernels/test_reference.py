"""The kernels' contract, on both of them: what is reported and in which order it is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from prefetch._kernels import selection
from prefetch._kernels.contract import ENCODED, Outcome
from prefetch._record.faults import Fault, Reason
from prefetch._record.wire import encode_datum
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.usefixtures("kernels")

PIXELS = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
GOOD = encode_datum(channels=3, height=4, width=5, data=PIXELS.tobytes(), label=7)


def record(shape: tuple[int, int, int], **fields: Any) -> bytes:
    """Return a Datum of a shape, with data of that many bytes unless it is given."""
    channels, height, width = shape
    if not {"data", "floats"} & fields.keys():
        fields["data"] = bytes(channels * height * width)
    return encode_datum(channels=channels, height=height, width=width, **fields)


def run(
    *values: bytes,
    transform: Transform | None = None,
    sample: tuple[int, ...] = (3, 4, 5),
    words: NDArray[np.uint32] | None = None,
) -> tuple[list[Outcome], NDArray[Any], NDArray[np.int64]]:
    """Fill a batch of these records; return the outcomes, the rows and the labels."""
    transform = transform or Transform(train=False)
    if words is None:
        words = np.zeros((len(values), 3), np.uint32)
    data = np.full((len(values), *sample), 99, transform.dtype)
    labels = np.full(len(values), -99, np.int64)
    views = [memoryview(value) for value in values]
    outcomes = selection.kernels.fill(views, words, data, labels, transform.recipe)
    return outcomes, data, labels


def only_fault(value: bytes, *, sample: tuple[int, ...] = (3, 4, 5), **options: Any) -> Fault:
    """Return the fault of a record that is filled in behind a good one."""
    outcomes, _, _ = run(value, transform=Transform(train=False, **options), sample=sample)
    ((position, code, numbers),) = outcomes
    return Fault(position, Reason(code), numbers)


def test_a_good_record_fills_its_row_and_its_label() -> None:
    outcomes, data, labels = run(GOOD)
    assert outcomes == []
    assert np.array_equal(data, PIXELS[np.newaxis])
    assert labels.tolist() == [7]


def test_no_records_are_no_work() -> None:
    assert run()[0] == []


def test_without_labels_none_are_written() -> None:
    data = np.zeros((1, 3, 4, 5), np.float32)
    words = np.zeros((1, 3), np.uint32)
    recipe = Transform(train=False).recipe
    assert selection.kernels.fill([memoryview(GOOD)], words, data, None, recipe) == []
    assert np.array_equal(data[0], PIXELS)


def test_bytes_win_where_float_data_is_set_too() -> None:
    floats = np.full(60, 0.5, np.float32)
    _, data, _ = run(record((3, 4, 5), data=PIXELS.tobytes(), floats=floats))
    assert np.array_equal(data[0], PIXELS)


def test_float_data_counts_where_the_bytes_are_empty() -> None:
    floats = np.linspace(-1, 1, 60, dtype=np.float32)
    outcomes, data, _ = run(record((3, 4, 5), data=b"", floats=floats))
    assert outcomes == []
    assert np.array_equal(data[0], floats.reshape(3, 4, 5))


def test_a_bad_record_leaves_its_neighbours_intact() -> None:
    bad = encode_datum(channels=3, height=4, width=5, data=bytes(59), label=8)
    outcomes, data, labels = run(GOOD, bad, GOOD)
    assert outcomes == [(1, Reason.DATA_SHORT, (59, 3, 4, 5))]
    assert np.array_equal(data[0], PIXELS)
    assert np.array_equal(data[2], PIXELS)
    assert labels.tolist() == [7, 8, 7]


@pytest.mark.parametrize(
    ("behind", "reason", "numbers"),
    [
        (b"\x08", Reason.TRUNCATED, (len(GOOD), len(GOOD) + 1)),
        (b"\x00", Reason.BAD_TAG, (len(GOOD), 0)),
        (b"\x0c", Reason.BAD_GROUP, (len(GOOD),)),
        (b"\x22\x01", Reason.LENGTH_PAST_END, (len(GOOD), 1, 0)),
    ],
)
def test_a_record_damaged_behind_its_pixels_is_bad_and_has_no_label(
    behind: bytes, reason: Reason, numbers: tuple[int, ...]
) -> None:
    outcomes, _, labels = run(GOOD, GOOD + behind)
    assert outcomes == [(1, reason, numbers)]
    assert labels.tolist() == [7, 0]


def test_every_record_is_compared_with_the_batch_whatever_came_before_it() -> None:
    other = record((3, 5, 4))
    outcomes, _, _ = run(GOOD, other, other, GOOD, other)
    assert [(position, code) for position, code, _ in outcomes] == [
        (1, Reason.SIZE_DIFFERS),
        (2, Reason.SIZE_DIFFERS),
        (4, Reason.SIZE_DIFFERS),
    ]


def test_an_encoded_record_is_reported_with_its_label_and_its_sizes_are_ignored() -> None:
    encoded = encode_datum(channels=-1, data=b"image", label=9, encoded=True)
    outcomes, _, labels = run(GOOD, encoded)
    assert outcomes == [(1, ENCODED, ())]
    assert labels.tolist() == [7, 9]


def test_encoded_data_of_one_byte_is_not_empty() -> None:
    assert run(encode_datum(data=b"i", label=9, encoded=True))[0] == [(0, ENCODED, ())]


@pytest.mark.parametrize("dtype", "bBhHiIqQefd")
def test_labels_are_stored_as_numpy_casts_them_and_nowhere_else(dtype: str) -> None:
    wanted = [0, 1, -1, 127, 128, 255, 256, -129, 2047, 2049, 4097, 32767, 32768, 65535, 65519]
    wanted += [65520, 70_000, 2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31), 0x01020304]
    with np.errstate(over="ignore"):  # beyond 65504 there is no float16
        expected = np.array(wanted, np.int32).astype(dtype)
    values = [memoryview(record((1, 1, 1), data=b"x", label=label)) for label in wanted]
    words = np.zeros((len(wanted), 3), np.uint32)
    rows = np.zeros((len(wanted), 1, 1, 1), np.float32)
    recipe = Transform(train=False).recipe
    for step in (1, 2):
        block = np.full(step * len(wanted) + 2, 99, dtype)
        labels = block[1:-1:step]
        assert selection.kernels.fill(values, words, rows, labels, recipe) == []
        assert labels.tobytes() == expected.tobytes()
        labels[:] = 99
        assert (block == 99).all()


def test_rows_are_right_across_the_blocks_in_which_they_are_finished() -> None:
    side = 200  # two rows of 160000 bytes make a block
    values = [record((1, side, side), data=bytes([level]) * side**2) for level in range(1, 6)]
    values[2] = b"\xff"
    outcomes, data, _ = run(
        *values, transform=Transform(train=False, mean_value=(1,), scale=(2,)), sample=(1, 200, 200)
    )
    assert [position for position, *_ in outcomes] == [2]
    assert [float(data[row].min()) for row in (0, 1, 3, 4)] == [0, 2, 6, 8]
    assert [float(data[row].max()) for row in (0, 1, 3, 4)] == [0, 2, 6, 8]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (GOOD[:20], "says 60 bytes, and 12 bytes of the record are left"),
        (b"\x08", "the field at byte 0 is cut off by the end of the record (1 bytes)"),
        (b"garbage", "starts no field"),
        (b"", "neither data nor float_data holds anything"),
        (record((3, 4, 5), data=b""), "neither data nor float_data holds anything"),
        (record((0, 4, 5), data=b"x"), "is 0 x 4 x 5, and each must be at least 1"),
        (record((3, -4, 5), data=b"x"), "is 3 x -4 x 5, and each must be at least 1"),
        (record((-3, -4, 5), data=bytes(60)), "is -3 x -4 x 5, and each must be at least 1"),
        (record((3, 4, 0), data=b"x"), "is 3 x 4 x 0, and each must be at least 1"),
        (record((3, 4, 5), data=bytes(59)), "the data has 59 bytes, but 3 x 4 x 5 "),
        (record((3, 4, 5), data=bytes(61)), "the data has 61 bytes, but 3 x 4 x 5 "),
        (record((3, 4, 5), floats=[0.0] * 59), "float_data has 59 values, but 3 x 4 x 5 "),
        (record((3, 4, 5), floats=[0.0] * 61), "float_data has 61 values, but 3 x 4 x 5 "),
        (record((2**31 - 1, 2**31 - 1, 4), data=b"x"), f"needs {4 * (2**31 - 1) ** 2} bytes"),
        (record((2**16, 2**16, 2**16), data=b"x"), f"needs {2**48} bytes"),
        (record((240, 320, 3)), "is 240 x 320 x 3, which looks like height x width x channels"),
        (record((17, 17, 4)), "is 17 x 17 x 4, which looks like height x width x channels"),
        (record((1, 4, 5)), "but the number of channels of its batch is 3"),
        (
            record((3, 5, 4)),
            "is 3 x 5 x 4 (channels x height x width), but its batch is of 3 x 4 x 5",
        ),
        (encode_datum(encoded=True), "encoded is true, but the data is empty"),
        (encode_datum(encoded=True, data=b""), "encoded is true, but the data is empty"),
    ],
)
def test_a_record_that_contradicts_itself_or_the_batch_is_a_fault(
    value: bytes, message: str
) -> None:
    assert message in only_fault(value).message()


@pytest.mark.parametrize("shape", [(16, 20, 3), (20, 16, 3), (20, 20, 2), (20, 20, 5), (64, 64, 1)])
def test_feature_maps_that_are_narrow_are_not_taken_for_hwc(shape: tuple[int, int, int]) -> None:
    assert run(record(shape), sample=shape)[0] == []


def test_float_data_is_not_taken_for_hwc() -> None:
    value = record((20, 20, 3), floats=np.zeros(1200, np.float32))
    assert run(value, sample=(20, 20, 3))[0] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mean_value": (1, 2)},
            "mean_value has 2 values, but the number of channels of the record is 3",
        ),
        ({"scale": (1, 2)}, "scale has 2 values, but the number of channels of the record is 3"),
        (
            {"mean_image": np.zeros((3, 5, 4), np.float32)},
            "the record is 3 x 4 x 5 (channels x height x width), but the mean image is 3 x 5 x 4",
        ),
        (
            {"crop_size": 5},
            "the record is 4 x 5 pixels (height x width), smaller than the crop of 5 x 5",
        ),
    ],
)
def test_a_transformation_that_does_not_fit_is_a_fault(
    options: dict[str, Any], message: str
) -> None:
    fault = only_fault(GOOD, sample=(3, 5, 5) if "crop_size" in options else (3, 4, 5), **options)
    assert message in fault.message()
    assert fault.stage == "transform"


@pytest.mark.parametrize(
    "shape", [(1, 4, 5), (3, 3, 5), (3, 5, 5), (3, 4, 4), (3, 4, 6), (4, 4, 5)]
)
def test_a_mean_image_is_as_large_as_the_record_in_every_direction(
    shape: tuple[int, int, int],
) -> None:
    fault = only_fault(GOOD, mean_image=np.zeros(shape, np.float32))
    assert (fault.reason, fault.numbers) == (Reason.MEAN_IMAGE_DIFFERS, (3, 4, 5, *shape))


def test_float_data_as_uint8_is_a_fault() -> None:
    value = record((3, 4, 5), floats=np.zeros(60, np.float32))
    fault = only_fault(value, dtype=np.dtype(np.uint8))
    assert fault.reason is Reason.FLOATS_AS_UINT8


@pytest.mark.parametrize("channels", range(1, 6))
def test_each_channel_has_its_own_mean_and_scale_or_all_have_one(channels: int) -> None:
    means = tuple(float(10 * channel) for channel in range(channels))
    scales = tuple(0.5 * (channel + 1) for channel in range(channels))
    pixels = np.arange(channels * 6, dtype=np.uint8).reshape(channels, 2, 3)
    value = record((channels, 2, 3), data=pixels.tobytes())
    for mean in (means, (3.0,), ()):
        for scale in (scales, (2.0,)):
            transform = Transform(train=False, mean_value=mean, scale=scale)
            outcomes, data, _ = run(value, transform=transform, sample=(channels, 2, 3))
            column = (np.broadcast_to(each, channels)[:, None, None] for each in (mean or 0, scale))
            subtracted, factor = column
            assert outcomes == []
            assert np.array_equal(data[0], (pixels.astype(np.float32) - subtracted) * factor)


def test_with_a_crop_larger_records_of_any_size_fit() -> None:
    transform = Transform(train=False, crop_size=2)
    outcomes, data, _ = run(GOOD, record((3, 2, 9)), transform=transform, sample=(3, 2, 2))
    assert outcomes == []
    assert np.array_equal(data[0], PIXELS[:, 1:3, 1:3])


@pytest.mark.parametrize(
    ("value", "options", "reason"),
    [
        (record((0, 4, 5), data=b""), {}, Reason.NO_PIXELS),
        (record((0, 20, 3), data=b"x"), {}, Reason.BAD_DIMENSIONS),
        (record((20, 20, 3), data=b"x"), {}, Reason.DATA_SHORT),
        (record((20, 20, 3)), {"mean_value": (1, 2)}, Reason.LOOKS_HWC),
        (record((1, 9, 9)), {"mean_value": (1, 2), "scale": (1, 2)}, Reason.CHANNELS_DIFFER),
        (record((3, 9, 9)), {"mean_value": (1, 2)}, Reason.SIZE_DIFFERS),
        (GOOD, {"mean_value": (1, 2), "scale": (1, 2)}, Reason.MEAN_VALUES_DIFFER),
        (
            GOOD,
            {"scale": (1, 2), "mean_image": np.zeros((1, 1, 1), np.float32)},
            Reason.SCALES_DIFFER,
        ),
    ],
)
def test_the_first_check_that_fails_is_the_fault(
    value: bytes, options: dict[str, Any], reason: Reason
) -> None:
    assert only_fault(value, **options).reason is reason


def test_a_mean_image_is_compared_before_the_crop_is() -> None:
    mean = np.zeros((3, 9, 9), np.float32)
    fault = only_fault(GOOD, sample=(3, 9, 9), crop_size=9, mean_image=mean)
    assert fault.reason is Reason.MEAN_IMAGE_DIFFERS


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_decoded_image_fills_its_row(layout: Any) -> None:
    image = np.ascontiguousarray(PIXELS.transpose(1, 2, 0))
    transform = Transform(train=False, layout=layout, mean_value=(1, 2, 3))
    row = np.full((3, 4, 5) if layout == "nchw" else (4, 5, 3), 99, np.float32)
    words = np.zeros(3, np.uint32)
    assert selection.kernels.fill_image(image, words, row, transform.recipe, None) is None
    expected = PIXELS - np.array([1, 2, 3], np.float32).reshape(3, 1, 1)
    assert np.array_equal(row if layout == "nchw" else row.transpose(2, 0, 1), expected)


def test_a_decoded_image_that_does_not_fit_is_a_fault() -> None:
    image = np.zeros((4, 5, 1), np.uint8)
    row = np.zeros((3, 4, 5), np.float32)
    recipe = Transform(train=False).recipe
    found = selection.kernels.fill_image(image, np.zeros(3, np.uint32), row, recipe, None)
    assert found == (Reason.CHANNELS_DIFFER, (1, 4, 5, 3))
