"""The transformation of records; Caffe's own test cases for its transformer are among these."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from prefetch._kernels import reference
from prefetch._record.faults import Fault, Reason
from prefetch._record.wire import encode_datum
from prefetch._transform.host import RecordTransformer
from prefetch._transform.options import Decoding, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Outcome, Part, Recipe

pytestmark = pytest.mark.usefixtures("kernels")

FLOAT16 = np.dtype(np.float16)
UINT8 = np.dtype(np.uint8)

UNIQUE = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
HEADS, TAILS = 2**31, 0  # a word for mirrored and one for not, however it is reduced ...
ODD, EVEN = 1, 0  # ... and for Caffe's reduction alone
NUM_DRAWS = 10


def raw(pixels: NDArray[np.uint8], *, label: int = 0) -> bytes:
    """Return a raw record of these pixels."""
    channels, height, width = pixels.shape
    return encode_datum(
        channels=channels, height=height, width=width, data=pixels.tobytes(), label=label
    )


def encoded(image: NDArray[Any], suffix: str = ".png", *, label: int = 0) -> bytes:
    """Return a record that holds an image file."""
    return encode_datum(data=cv2.imencode(suffix, image)[1].tobytes(), encoded=True, label=label)


def no_words(num: int) -> NDArray[np.uint32]:
    return np.zeros((num, 3), np.uint32)


def random_words(num: int) -> NDArray[np.uint32]:
    return np.random.default_rng(1701).integers(0, 2**32, (num, 3), dtype=np.uint32)


def transform_all(
    values: Sequence[bytes], transform: Transform, words: NDArray[np.uint32] | None = None
) -> NDArray[Any]:
    """Return the batch that good records become."""
    transformer = RecordTransformer(transform)
    shape = transformer.sample_shape([memoryview(values[0])])
    assert not isinstance(shape, Fault), shape.message()
    data = np.full((len(values), *shape), 99, transform.dtype)
    views = [memoryview(value) for value in values]
    words = no_words(len(values)) if words is None else words
    assert transformer.fill(views, words, data, None) == []
    return data


def one(value: bytes, transform: Transform, words: Sequence[int] = (0, 0, 0)) -> NDArray[Any]:
    """Return the row that a good record becomes."""
    row: NDArray[Any] = transform_all([value], transform, np.array([words], np.uint32))[0]
    return row


def faults_of(values: Sequence[bytes], transform: Transform) -> list[Fault]:
    """Return the faults of a batch that the first record shapes."""
    transformer = RecordTransformer(transform)
    shape = transformer.sample_shape([memoryview(values[0])])
    assert not isinstance(shape, Fault), shape.message()
    data = np.zeros((len(values), *shape), transform.dtype)
    return transformer.fill(
        [memoryview(value) for value in values], no_words(len(values)), data, None
    )


# Caffe's test_data_transformer: a record of 3 x 4 x 5, constant or 0 to 59, and ten draws.


def test_without_options_constant_pixels_stay_as_they_are() -> None:
    assert np.array_equal(
        one(raw(np.full((3, 4, 5), 7, np.uint8)), Transform(train=True)),
        np.full((3, 4, 5), 7, np.float32),
    )


def test_without_options_pixels_keep_their_places() -> None:
    row = one(raw(UNIQUE), Transform(train=True))
    assert row.dtype == np.float32
    assert np.array_equal(row.ravel(), np.arange(60))


def test_a_crop_decides_the_shape() -> None:
    row = one(raw(np.full((3, 4, 5), 7, np.uint8)), Transform(train=False, crop_size=2))
    assert np.array_equal(row, np.full((3, 2, 2), 7, np.float32))


def matches(transform: Transform) -> int:
    """Return how many values agree between ten transformations and ten with other words."""
    words = random_words(2 * NUM_DRAWS)
    batch = transform_all([raw(UNIQUE)] * 2 * NUM_DRAWS, transform, words)
    return int(np.sum(batch[:NUM_DRAWS] == batch[NUM_DRAWS:]))


def test_train_crops_differ_from_draw_to_draw() -> None:
    assert matches(Transform(train=True, crop_size=2)) < 12 * NUM_DRAWS


def test_test_crops_are_always_the_same() -> None:
    assert matches(Transform(train=False, crop_size=2)) == 12 * NUM_DRAWS


@pytest.mark.parametrize("train", [True, False])
def test_mirrors_differ_from_draw_to_draw_in_either_phase(*, train: bool) -> None:
    assert matches(Transform(train=train, mirror=True)) < 60 * NUM_DRAWS


def test_train_crops_with_mirrors_agree_no_more_than_crops_alone() -> None:
    crops = matches(Transform(train=True, crop_size=2))
    assert matches(Transform(train=True, crop_size=2, mirror=True)) <= crops


def test_test_crops_with_mirrors_agree_less_than_crops_alone() -> None:
    crops = matches(Transform(train=False, crop_size=2))
    assert matches(Transform(train=False, crop_size=2, mirror=True)) < crops


def test_one_mean_value_is_subtracted_from_all_channels() -> None:
    row = one(raw(np.zeros((3, 4, 5), np.uint8)), Transform(train=False, mean_value=(2,)))
    assert np.array_equal(row, np.full((3, 4, 5), -2, np.float32))


def test_mean_values_are_subtracted_from_their_channels() -> None:
    row = one(raw(np.zeros((3, 4, 5), np.uint8)), Transform(train=False, mean_value=(0, 1, 2)))
    assert np.array_equal(row[:, 0, 0], [0, -1, -2])
    assert np.array_equal(row, np.broadcast_to(row[:, :1, :1], row.shape))


def test_a_mean_image_equal_to_the_pixels_leaves_nothing() -> None:
    row = one(raw(UNIQUE), Transform(train=False, mean_image=UNIQUE.astype(np.float32)))
    assert not row.any()


# Order, rounding and places.


def test_a_mirror_flips_what_the_crop_left() -> None:
    transform = Transform(train=True, crop_size=3, mirror=True, modulo=True)
    row = one(raw(UNIQUE), transform, (ODD, 1, 2))
    assert np.array_equal(row, UNIQUE[:, 1:4, 2:5][:, :, ::-1])


def test_a_mean_image_follows_the_pixels_through_crop_and_mirror() -> None:
    mean = np.random.default_rng(0).random((3, 4, 5), np.float32)
    transform = Transform(
        train=True, crop_size=3, mirror=True, modulo=True, mean_image=mean, scale=(0.5,)
    )
    row = one(raw(UNIQUE), transform, (ODD, 0, 1))
    whole = (UNIQUE - mean) * np.float32(0.5)
    assert np.array_equal(row, whole[:, 0:3, 1:4][:, :, ::-1])


def test_a_crop_as_large_as_the_image_is_the_image() -> None:
    square = UNIQUE[:, :, :4]
    mean = np.ones((3, 4, 4), np.float32)
    transform = Transform(train=True, crop_size=4, mean_image=mean)
    row = one(raw(square), transform, (2**32 - 1,) * 3)
    assert np.array_equal(row, square - mean)


@pytest.mark.parametrize(("size", "top", "left"), [(2, 1, 1), (3, 0, 1), (1, 1, 2)])
def test_the_centre_is_rounded_down(size: int, top: int, left: int) -> None:
    row = one(raw(UNIQUE), Transform(train=False, crop_size=size), (2**32 - 1,) * 3)
    assert np.array_equal(row, UNIQUE[:, top : top + size, left : left + size])


@pytest.mark.parametrize(
    ("word", "modulo", "left"),
    [(0, True, 0), (7, True, 3), (2**32 - 1, True, 3), (7, False, 0), (2**32 - 1, False, 3)],
)
def test_words_are_reduced_as_asked(*, word: int, modulo: bool, left: int) -> None:
    transform = Transform(train=True, crop_size=2, modulo=modulo)
    row = one(raw(UNIQUE), transform, (0, 0, word))
    assert np.array_equal(row, UNIQUE[:, :2, left : left + 2])


@pytest.mark.parametrize(
    ("word", "modulo", "mirrored"),
    [(ODD, True, True), (EVEN, True, False), (HEADS, False, True), (TAILS, False, False)],
)
def test_the_mirrors_coin_is_the_first_word(*, word: int, modulo: bool, mirrored: bool) -> None:
    row = one(raw(UNIQUE), Transform(train=False, mirror=True, modulo=modulo), (word, 0, 0))
    assert np.array_equal(row, UNIQUE[:, :, ::-1] if mirrored else UNIQUE)


def test_mean_and_scale_are_two_roundings_in_float32() -> None:
    mean, scale = np.float32(0.1), np.float32(0.017)
    row = one(raw(UNIQUE), Transform(train=True, mean_value=(0.1,), scale=(0.017,)))
    expected = np.subtract(UNIQUE, mean, dtype=np.float32) * scale
    fused = ((UNIQUE.astype(np.float64) - mean) * scale).astype(np.float32)
    assert np.array_equal(row, expected)
    assert not np.array_equal(row, fused)


def test_float_data_is_transformed_like_bytes() -> None:
    floats = np.random.default_rng(0).normal(size=60).astype(np.float32)
    value = encode_datum(channels=3, height=4, width=5, floats=floats)
    row = one(value, Transform(train=True, mirror=True, mean_value=(1, 2, 3)), (HEADS, 0, 0))
    means = np.array([1, 2, 3], np.float32).reshape(3, 1, 1)
    assert np.array_equal(row, (floats.reshape(3, 4, 5) - means)[:, :, ::-1])


def test_one_mean_value_serves_records_of_any_number_of_channels() -> None:
    transformer = RecordTransformer(Transform(train=False, mean_value=(2,)))
    for channels in (3, 1, 4):
        data = np.zeros((1, channels, 4, 5), np.float32)
        pixels = np.zeros((channels, 4, 5), np.uint8)
        assert transformer.fill([memoryview(raw(pixels))], no_words(1), data, None) == []
        assert np.array_equal(data[0], np.full((channels, 4, 5), -2, np.float32))


# Types and layouts.


def test_uint8_is_the_pixels_themselves() -> None:
    row = one(raw(UNIQUE), Transform(train=False, mirror=True, dtype=UINT8), (HEADS, 0, 0))
    assert row.dtype == np.uint8
    assert np.array_equal(row, UNIQUE[:, :, ::-1])


def test_float16_is_rounded_from_the_float32_result() -> None:
    options: dict[str, Any] = {"mean_value": (104.007,), "scale": (0.017,)}
    half = one(raw(UNIQUE), Transform(train=False, dtype=FLOAT16, **options))
    whole = one(raw(UNIQUE), Transform(train=False, **options))
    assert np.array_equal(half, whole.astype(np.float16))


def test_what_float16_cannot_hold_becomes_infinite_without_a_warning() -> None:
    row = one(raw(UNIQUE), Transform(train=False, dtype=FLOAT16, scale=(1e5,)))
    assert np.isinf(row[2, 3, 4])


@pytest.mark.parametrize("dtype", [FLOAT16, UINT8, np.dtype(np.float32)])
def test_nhwc_is_nchw_with_its_axes_turned(dtype: np.dtype[Any]) -> None:
    words = random_words(NUM_DRAWS)
    planes, pixels = (
        transform_all(
            [raw(UNIQUE)] * NUM_DRAWS,
            Transform(train=True, crop_size=3, mirror=True, layout=layout, dtype=dtype),
            words,
        )
        for layout in ("nchw", "nhwc")
    )
    assert pixels.shape == (NUM_DRAWS, 3, 3, 3)
    assert np.array_equal(pixels, planes.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("make", [raw, lambda pixels: encoded(pixels.transpose(1, 2, 0))])
@pytest.mark.parametrize(
    ("channels", "order"),
    [("stored", [0, 1, 2]), ("bgr", [0, 1, 2]), ("rgb", [2, 1, 0])],
)
def test_three_channels_come_in_the_order_asked_for(
    make: Any, channels: Any, order: list[int]
) -> None:
    assert np.array_equal(
        one(make(UNIQUE), Transform(train=False, channels=channels)), UNIQUE[order]
    )


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_alpha_stays_last(layout: Any) -> None:
    pixels = np.arange(80, dtype=np.uint8).reshape(4, 4, 5)
    row = one(raw(pixels), Transform(train=False, channels="rgb", layout=layout))
    expected = pixels[[2, 1, 0, 3]]
    assert np.array_equal(row, expected if layout == "nchw" else expected.transpose(1, 2, 0))


@pytest.mark.parametrize("num_channels", [1, 2, 5])
def test_channels_that_are_no_colours_stay_as_they_are(num_channels: int) -> None:
    pixels = np.arange(20 * num_channels, dtype=np.uint8).reshape(num_channels, 4, 5)
    assert np.array_equal(one(raw(pixels), Transform(train=False, channels="rgb")), pixels)


def test_values_a_channel_are_in_the_delivered_order() -> None:
    transform = Transform(train=False, channels="rgb", mean_value=(1, 2, 3), scale=(2, 3, 4))
    row = one(raw(UNIQUE), transform)
    red_first = UNIQUE[::-1].astype(np.float32)
    for channel in range(3):
        expected = (red_first[channel] - (channel + 1)) * (channel + 2)
        assert np.array_equal(row[channel], expected)


def test_a_scale_of_one_for_the_first_channel_spares_none_of_the_others() -> None:
    row = one(raw(UNIQUE), Transform(train=False, scale=(1, 2, 3)))
    assert np.array_equal(row, UNIQUE * np.array([1, 2, 3], np.float32).reshape(3, 1, 1))


def test_a_mean_image_is_in_the_stored_order() -> None:
    transform = Transform(train=False, channels="rgb", mean_image=UNIQUE.astype(np.float32))
    assert not one(raw(UNIQUE), transform).any()


# Labels.


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.int64, [16777217, -1, 0]),
        (np.int32, [16777217, -1, 0]),
        (np.float32, [16777216, -1, 0]),  # as Caffe's: float32 has 24 bits
        (np.float64, [16777217, -1, 0]),
        (np.uint8, [1, 255, 0]),
    ],
)
def test_labels_are_converted_from_int32(dtype: Any, expected: list[int]) -> None:
    absent = encode_datum(channels=3, height=4, width=5, data=UNIQUE.tobytes())
    values = [raw(UNIQUE, label=16777217), raw(UNIQUE, label=-1), absent]
    labels = np.full(3, 99, dtype)
    data = np.zeros((3, 3, 4, 5), np.float32)
    transformer = RecordTransformer(Transform(train=False))
    assert transformer.fill([memoryview(v) for v in values], no_words(3), data, labels) == []
    assert expected == labels.tolist()


# Encoded records, and both kinds together.


def test_raw_and_encoded_records_mix() -> None:
    image = UNIQUE.transpose(1, 2, 0)
    values = [encoded(image, label=1), raw(UNIQUE, label=2), encoded(image, label=3)]
    data = np.zeros((3, 3, 4, 5), np.float32)
    labels = np.zeros(3, np.int64)
    transformer = RecordTransformer(Transform(train=False, mean_value=(1, 2, 3)))
    assert transformer.fill([memoryview(v) for v in values], no_words(3), data, labels) == []
    expected = UNIQUE - np.array([1, 2, 3], np.float32).reshape(3, 1, 1)
    assert np.array_equal(data, np.broadcast_to(expected, data.shape))
    assert labels.tolist() == [1, 2, 3]


def test_each_encoded_record_has_its_own_words() -> None:
    words = np.array([[HEADS, 0, 0], [TAILS, 0, 0]], np.uint32)
    values = [encoded(UNIQUE.transpose(1, 2, 0))] * 2
    batch = transform_all(values, Transform(train=False, mirror=True), words)
    assert np.array_equal(batch[0], UNIQUE[:, :, ::-1])
    assert np.array_equal(batch[1], UNIQUE)


def test_grey_among_colour_is_a_fault_that_names_both() -> None:
    grey = encoded(np.zeros((4, 5), np.uint8))
    (fault,) = faults_of([raw(UNIQUE), grey], Transform(train=False))
    assert fault == Fault(1, Reason.CHANNELS_DIFFER, (1, 4, 5, 3))


def test_force_color_gives_grey_images_three_planes() -> None:
    grey = np.arange(20, dtype=np.uint8).reshape(4, 5)
    batch = transform_all(
        [encoded(UNIQUE.transpose(1, 2, 0)), encoded(grey)],
        Transform(train=False, decoding=Decoding(force_color=True)),
    )
    assert np.array_equal(batch[1], np.broadcast_to(grey, (3, 4, 5)))


def test_force_gray_gives_colour_images_one_plane() -> None:
    image = np.ascontiguousarray(UNIQUE.transpose(1, 2, 0))
    row = one(encoded(image), Transform(train=False, decoding=Decoding(force_gray=True)))
    expected = cv2.imdecode(cv2.imencode(".png", image)[1], cv2.IMREAD_GRAYSCALE)
    assert np.array_equal(row, np.asarray(expected)[np.newaxis])


def test_forcing_raw_records_changes_nothing_and_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transformer = RecordTransformer(Transform(train=False, decoding=Decoding(force_gray=True)))
    data = np.zeros((2, 3, 4, 5), np.float32)
    for _ in range(2):
        assert transformer.fill([memoryview(raw(UNIQUE))] * 2, no_words(2), data, None) == []
    assert np.array_equal(data[1], UNIQUE)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "force_color and force_gray apply to encoded images only" in message


def test_forcing_encoded_records_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    one(
        encoded(np.zeros((4, 5), np.uint8)),
        Transform(train=False, decoding=Decoding(force_color=True)),
    )
    assert not caplog.records


# Shapes, and faults among good records.


@pytest.mark.parametrize("make", [raw, lambda pixels: encoded(pixels.transpose(1, 2, 0))])
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (3, 4, 5)),
        ({"crop_size": 2}, (3, 2, 2)),
        ({"layout": "nhwc"}, (4, 5, 3)),
        ({"layout": "nhwc", "crop_size": 3}, (3, 3, 3)),
    ],
)
def test_the_first_record_gives_the_batch_its_shape(
    make: Any, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    transformer = RecordTransformer(Transform(train=True, **options))
    assert transformer.sample_shape([memoryview(make(UNIQUE))]) == shape


@pytest.mark.parametrize(
    ("value", "options", "reason"),
    [
        (b"\xff", {}, Reason.TRUNCATED),
        (raw(UNIQUE)[:30], {}, Reason.LENGTH_PAST_END),
        (encode_datum(channels=3, height=4, width=5), {}, Reason.NO_PIXELS),
        (raw(UNIQUE), {"crop_size": 5}, Reason.SMALLER_THAN_CROP),
        (raw(UNIQUE), {"mean_value": (1, 2)}, Reason.MEAN_VALUES_DIFFER),
        (encoded(UNIQUE[0]), {"mean_value": (1, 2)}, Reason.MEAN_VALUES_DIFFER),
        (encode_datum(encoded=True), {}, Reason.ENCODED_EMPTY),
        (encode_datum(data=b"no image", encoded=True), {}, Reason.UNDECODABLE),
        (
            encode_datum(channels=1, height=1, width=1, floats=[0.5]),
            {"dtype": UINT8},
            Reason.FLOATS_AS_UINT8,
        ),
    ],
)
def test_a_bad_first_record_is_a_fault_at_position_0(
    value: bytes, options: dict[str, Any], reason: Reason
) -> None:
    found = RecordTransformer(Transform(train=True, **options)).sample_shape([memoryview(value)])
    assert isinstance(found, Fault)
    assert (found.position, found.reason) == (0, reason)


def test_bad_records_are_reported_by_position_and_the_rest_is_intact() -> None:
    image = UNIQUE.transpose(1, 2, 0)
    values = [
        raw(UNIQUE),
        encode_datum(data=b"no image", encoded=True),
        encoded(image),
        raw(UNIQUE)[:30],
        encoded(np.zeros((4, 5), np.uint16)),
        encoded(image[:2]),
        raw(UNIQUE),
    ]
    transformer = RecordTransformer(Transform(train=False, mean_value=(1,)))
    data = np.zeros((7, 3, 4, 5), np.float32)
    faults = transformer.fill([memoryview(v) for v in values], no_words(7), data, None)
    assert [(fault.position, fault.reason) for fault in faults] == [
        (1, Reason.UNDECODABLE),
        (3, Reason.LENGTH_PAST_END),
        (4, Reason.IMAGE_DEPTH),
        (5, Reason.SIZE_DIFFERS),
    ]
    for row in (0, 2, 6):
        assert np.array_equal(data[row], UNIQUE - np.float32(1))


def test_nothing_refers_to_the_records_afterwards() -> None:
    image = UNIQUE.transpose(1, 2, 0)
    cut = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes()[:-20]
    views = [
        memoryview(value)
        for value in (
            raw(UNIQUE),
            encoded(image),
            raw(UNIQUE)[:30],
            encode_datum(data=b"no image", encoded=True),
            encode_datum(data=cut, encoded=True),
            encode_datum(channels=3, height=4, width=5, floats=np.zeros(60, np.float32)),
        )
    ]
    transformer = RecordTransformer(Transform(train=False))
    for view in views:
        transformer.sample_shape([view])
    faults = transformer.fill(views, no_words(6), np.zeros((6, 3, 4, 5), np.float32), None)
    assert [fault.position for fault in faults] == [2, 3, 4]
    for view in views:
        view.release()  # raises BufferError where anything still exports it


def test_an_image_decoded_for_its_shape_is_not_decoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []
    decode = cv2.imdecode

    def counting(data: Any, flag: int) -> Any:
        decoded.append(flag)
        return decode(data, flag)

    monkeypatch.setattr(cv2, "imdecode", counting)
    transformer = RecordTransformer(Transform(train=False))
    values = [encoded(UNIQUE.transpose(1, 2, 0)), encoded(255 - UNIQUE.transpose(1, 2, 0))]
    data = np.zeros((2, 3, 4, 5), np.float32)
    for _ in range(2):
        assert transformer.sample_shape([memoryview(values[0])]) == (3, 4, 5)
        assert transformer.fill([memoryview(v) for v in values], no_words(2), data, None) == []
        assert np.array_equal(data, [UNIQUE, 255 - UNIQUE])
    assert len(decoded) == 4  # two a batch


def test_another_image_in_the_place_of_the_one_decoded_for_its_shape_is_decoded() -> None:
    transformer = RecordTransformer(Transform(train=False))
    block = bytearray(encoded(UNIQUE.transpose(1, 2, 0), ".bmp"))
    view = memoryview(block)
    assert transformer.sample_shape([view]) == (3, 4, 5)
    block[:] = encoded(255 - UNIQUE.transpose(1, 2, 0), ".bmp")  # as where the database changed
    data = np.zeros((1, 3, 4, 5), np.float32)
    assert transformer.fill([view], no_words(1), data, None) == []
    assert np.array_equal(data[0], 255 - UNIQUE)


def test_the_kernels_are_asked_for_the_part_and_then_for_each_decoded_image() -> None:
    asked: list[str] = []

    class Watching:
        def fill(
            self,
            values: Sequence[memoryview],
            words: NDArray[np.uint32],
            data: NDArray[Any],
            labels: NDArray[Any] | None,
            recipe: Recipe,
        ) -> list[Outcome]:
            asked.append("part")
            return reference.fill(values, words, data, labels, recipe)

        def fill_image(
            self,
            image: NDArray[np.uint8],
            words: NDArray[np.uint32],
            row: NDArray[Any],
            recipe: Recipe,
            part: Part | None,
        ) -> tuple[int, tuple[int, ...]] | None:
            assert image.flags.c_contiguous
            assert row.flags.c_contiguous
            asked.append("image")
            return reference.fill_image(image, words, row, recipe, part)

    transformer = RecordTransformer(Transform(train=False), kernels=Watching())
    values = [raw(UNIQUE), encoded(UNIQUE.transpose(1, 2, 0)), raw(UNIQUE)]
    data = np.zeros((3, 3, 4, 5), np.float32)
    assert transformer.fill([memoryview(v) for v in values], no_words(3), data, None) == []
    assert asked == ["part", "image"]


# The transformation itself.


@pytest.mark.parametrize(
    ("options", "num_words"),
    [
        ({"train": True}, 0),
        ({"train": False, "crop_size": 2}, 0),
        ({"train": False, "crop_size": 2, "mirror": True}, 1),
        ({"train": True, "mirror": True}, 1),
        ({"train": True, "crop_size": 2}, 2),
        ({"train": True, "crop_size": 2, "mirror": True}, 3),
    ],
)
def test_the_number_of_words_a_record_is_fixed(options: dict[str, Any], num_words: int) -> None:
    assert len(Transform(**options).drawn_words) == num_words


def test_uint8_with_a_scale_of_one_is_fine() -> None:
    assert Transform(train=True, dtype=UINT8, scale=(1,)).recipe.scale.tolist() == [1]
