"""The transformation, against a model that takes Caffe's description one pixel at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from memory._device.bfloat16 import dtype_of
from prefetch._kernels import reference
from prefetch._record.faults import Fault
from prefetch._record.wire import encode_datum
from prefetch._transform.host import RecordTransformer
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES = tuple(dtype_of(name) for name in ("float32", "float16", "bfloat16", "uint8"))


@dataclass(frozen=True)
class Case:
    """Records, what is to be done to them, and their random words."""

    records: tuple[NDArray[Any], ...]  # uint8 or float32, (channels, height, width)
    stored_as: tuple[str, ...]  # "bytes", "floats" or "png"
    words: NDArray[np.uint32]
    transform: Transform


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a batch that fits its transformation."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    channels = draw(st.integers(1, 5))
    crop_size = draw(st.integers(0, 6))
    num_records = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from(DTYPES))
    sides = st.integers(max(1, crop_size), 9)
    shape = (channels, draw(sides), draw(sides))
    means = "none" if dtype == np.uint8 else draw(st.sampled_from(["none", "one", "each", "image"]))
    varies = crop_size > 0 and means != "image"
    kinds = ["bytes", "floats", "png"]
    if dtype == np.uint8:
        kinds.remove("floats")
    if channels not in (1, 3, 4):
        kinds.remove("png")
    records: list[NDArray[Any]] = []
    stored_as: list[str] = []
    for _ in range(num_records):
        own = (channels, draw(sides), draw(sides)) if varies else shape
        stored_as.append(draw(st.sampled_from(kinds)))
        if stored_as[-1] == "floats":
            records.append(rng.normal(scale=200, size=own).astype(np.float32))
        else:
            records.append(rng.integers(0, 256, own, dtype=np.uint8))
    num_scales = 0 if dtype == np.uint8 else draw(st.sampled_from([0, 1, channels]))
    num_means = {"one": 1, "each": channels}.get(means, 0)
    transform = Transform(
        train=draw(st.booleans()),
        crop_size=crop_size,
        mirror=draw(st.booleans()),
        mean_value=tuple(rng.normal(scale=100, size=num_means).tolist()),
        mean_image=rng.random(shape, np.float32) * 255 if means == "image" else None,
        scale=tuple(rng.normal(size=num_scales).tolist()) or (1.0,),
        channels=draw(st.sampled_from(["stored", "rgb", "bgr"])),
        layout=draw(st.sampled_from(["nchw", "nhwc"])),
        dtype=dtype,
        modulo=draw(st.booleans()),
    )
    words = rng.integers(0, 2**32, (num_records, 3), dtype=np.uint32)
    return Case(tuple(records), tuple(stored_as), words, transform)


def encode(pixels: NDArray[Any], stored_as: str) -> bytes:
    """Return the record that holds these pixels."""
    channels, height, width = pixels.shape
    if stored_as == "png":
        image = cv2.imencode(".png", np.ascontiguousarray(pixels.transpose(1, 2, 0)))[1]
        return encode_datum(data=image.tobytes(), encoded=True)
    if stored_as == "floats":
        return encode_datum(channels=channels, height=height, width=width, floats=pixels.ravel())
    return encode_datum(channels=channels, height=height, width=width, data=pixels.tobytes())


def model(pixels: NDArray[Any], words: list[int], transform: Transform) -> NDArray[Any]:
    """Transform one record, a pixel at a time, in float32 scalars."""

    def reduce(word: int, extent: int) -> int:
        return word % extent if transform.modulo else (word * extent) >> 32

    channels, height, width = pixels.shape
    assert isinstance(transform.crop_size, int)
    out_height = transform.crop_size or height
    out_width = transform.crop_size or width
    mirrored = transform.mirror and reduce(words[0], 2) == 1
    top = left = 0
    if transform.crop_size and transform.train:
        top = reduce(words[1], height - out_height + 1)
        left = reduce(words[2], width - out_width + 1)
    elif transform.crop_size:
        top = (height - out_height) // 2
        left = (width - out_width) // 2
    nhwc = transform.layout == "nhwc"
    shape = (out_height, out_width, channels) if nhwc else (channels, out_height, out_width)
    out = np.zeros(shape, transform.dtype)
    for delivered in range(channels):
        stored = delivered
        if transform.channels == "rgb" and channels in (3, 4) and delivered < 3:
            stored = 2 - delivered
        means, scales = transform.mean_value or (0.0,), transform.scale
        mean = np.float32(means[delivered if len(means) > 1 else 0])
        scale = np.float32(scales[delivered if len(scales) > 1 else 0])
        for y in range(out_height):
            for x in range(out_width):
                if transform.mean_image is not None:
                    mean = transform.mean_image[stored, top + y, left + x]
                value = np.float32(pixels[stored, top + y, left + x])
                value = np.float32(np.float32(value - mean) * scale)
                place = out_width - 1 - x if mirrored else x
                index = (y, place, delivered) if nhwc else (delivered, y, place)
                out[index] = value.astype(transform.dtype)
    return out


@given(cases())
def test_every_batch_equals_the_model_bit_for_bit(case: Case) -> None:
    transformer = RecordTransformer(case.transform)
    values = [
        memoryview(encode(pixels, stored_as))
        for pixels, stored_as in zip(case.records, case.stored_as, strict=True)
    ]
    shape = transformer.sample_shape(values[:1])
    assert not isinstance(shape, Fault), shape.message()
    data = np.full((len(values), *shape), 99, case.transform.dtype)
    assert transformer.fill(values, case.words, data, None) == []
    for row, pixels, words in zip(data, case.records, case.words.tolist(), strict=True):
        assert row.tobytes() == model(pixels, words, case.transform).tobytes()


@given(cases(), st.integers(1, 2000))
def test_the_size_of_the_blocks_changes_nothing(case: Case, block_bytes: int) -> None:
    values = [
        memoryview(encode(pixels, "bytes")) for pixels in case.records if pixels.dtype == np.uint8
    ]
    assume(values)
    transformer = RecordTransformer(case.transform)
    shape = transformer.sample_shape(values[:1])
    assert not isinstance(shape, Fault), shape.message()
    batches = []
    usual = reference._BLOCK_BYTES
    for size in (usual, block_bytes):
        batches.append(np.full((len(values), *shape), 99, case.transform.dtype))
        reference._BLOCK_BYTES = size
        try:
            assert transformer.fill(values, case.words[: len(values)], batches[-1], None) == []
        finally:
            reference._BLOCK_BYTES = usual
    assert batches[0].tobytes() == batches[1].tobytes()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_row_or_a_fault_and_never_more(value: bytes) -> None:
    transformer = RecordTransformer(Transform(train=False))
    data = np.zeros((1, 1, 2, 2), np.float32)
    words = np.zeros((1, 3), np.uint32)
    faults = transformer.fill([memoryview(value)], words, data, np.zeros(1, np.int64))
    assert all(fault.message() for fault in faults)
    shape = transformer.sample_shape([memoryview(value)])
    if isinstance(shape, Fault):
        assert shape.message()
        assert faults


@given(st.data())
def test_a_record_with_any_byte_changed_is_a_row_or_a_fault(data: st.DataObject) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    whole = bytearray(encode(pixels, data.draw(st.sampled_from(["bytes", "floats", "png"]))))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] = data.draw(st.integers(0, 255))
    value = memoryview(bytes(whole[: data.draw(st.integers(1, len(whole)))]))
    transformer = RecordTransformer(Transform(train=False))
    batch = np.zeros((1, 3, 2, 2), np.float32)
    for fault in transformer.fill([value], np.zeros((1, 3), np.uint32), batch, None):
        assert fault.message()
    value.release()
