"""The device's way against the host's: the same bytes, the same labels, the same verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import cv2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import open_device
from memory._device.bfloat16 import dtype_of
from memory.testing import peek
from prefetch._kernels.contract import UNCHANGED, Erasing, ErasingMode, Jitter, ResizeKind, Resizing
from prefetch._kernels.erasing import noise_table
from prefetch._record.faults import Fault
from prefetch._record.wire import encode_datum
from prefetch._ring.lease import Lease
from prefetch._ring.push_block import HostBlock
from prefetch._ring.staged_memory import StagedMemory
from prefetch._transform.device import DeviceTransform
from prefetch._transform.device_staging import RecordStager
from prefetch._transform.host import RecordTransformer
from prefetch._transform.options import Decoding, Transform

if TYPE_CHECKING:
    from memory import Device, Event

DTYPES = tuple(dtype_of(name) for name in ("float32", "float16", "bfloat16", "uint8"))


@dataclass(frozen=True)
class Case:
    """The records of a batch, good and bad, and what is to be done to them."""

    values: tuple[bytes, ...]
    words: np.ndarray[Any, np.dtype[np.uint32]]
    transform: Transform
    split: int
    resizes: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    channels = draw(st.integers(1, 4))
    crop_size = draw(st.integers(0, 6))
    dtype = draw(st.sampled_from(DTYPES))
    sides = st.integers(max(1, crop_size), crop_size + 12)
    shape = (channels, draw(sides), draw(sides))
    means = "none" if dtype == np.uint8 else draw(st.sampled_from(["none", "one", "each", "image"]))
    num_means = {"one": 1, "each": channels}.get(means, 0)
    num_scales = 0 if dtype == np.uint8 else draw(st.sampled_from([0, 1, channels]))
    forced = draw(st.sampled_from(["none", "none", "force_color", "force_gray"]))
    resizing = None
    if means != "image" and draw(st.integers(0, 2)) == 0:
        kind = draw(st.sampled_from(ResizeKind))
        least = max(1, crop_size)
        height, width = (draw(st.integers(least, least + 9)) for _ in range(2))
        width = height if kind == ResizeKind.SHORTER_SIDE else width
        resizing = Resizing(kind, height, width, draw(st.booleans()), 0.1, 1.0, 0.5, 2.0, -0.7, 0.7)
    erasing = None
    if means != "image" and dtype != np.uint8 and draw(st.integers(0, 2)) == 0:
        mode = draw(st.sampled_from(ErasingMode))
        noise = None if mode == ErasingMode.CONST else noise_table()
        erasing = Erasing(0.8, 0.05, 0.9, -1.0, 1.0, mode, noise)
    jitter = None
    if means != "image" and draw(st.integers(0, 3)) == 0:
        jitter = Jitter((0.5, 1.5), UNCHANGED, (0.0, 2.0), draw(st.booleans()))
    transform = Transform(
        train=draw(st.booleans()),
        resizing=resizing,
        pad=1 if resizing is not None and draw(st.integers(0, 4)) == 0 else 0,
        crop_size=crop_size,
        mirror=draw(st.booleans()),
        jitter=jitter,
        erasing=erasing,
        mean_value=tuple(rng.normal(scale=100, size=num_means).tolist()),
        mean_image=rng.random(shape, np.float32) * 255 if means == "image" else None,
        scale=tuple(rng.normal(size=num_scales).tolist()) or (1.0,),
        decoding=Decoding(force_color=forced == "force_color", force_gray=forced == "force_gray"),
        channels=draw(st.sampled_from(["stored", "rgb", "bgr"])),
        layout=draw(st.sampled_from(["nchw", "nhwc"])),
        dtype=dtype,
        modulo=draw(st.booleans()),
    )
    num = draw(st.integers(1, 6))
    odd = [draw(st.integers(0, 3)) == 0 for _ in range(num)]
    values = tuple(draw(records(shape, crop_size, rng, is_odd=is_odd)) for is_odd in odd)
    words = rng.integers(0, 2**32, (num, 91), dtype=np.uint32)
    resizes = erasing is not None or draw(st.booleans())
    return Case(values, words, transform, draw(st.integers(0, num)), resizes)


@st.composite
def records(
    draw: st.DrawFn,
    shape: tuple[int, int, int],
    crop_size: int,
    rng: np.random.Generator,
    *,
    is_odd: bool,
) -> bytes:
    """Draw a record, of another size or channels if it is odd; damaged now and then."""
    channels, height, width = shape
    if is_odd:
        sides = st.integers(max(1, crop_size - 1), crop_size + 12)
        channels, height, width = draw(st.integers(1, 4)), draw(sides), draw(sides)
    num = channels * height * width
    sizes = encode_datum(channels=channels, height=height, width=width)
    kinds = ["bytes", "bytes", "bytes", "floats"] + ["png", "jpg"] * (channels in (1, 3))
    match draw(st.sampled_from(kinds)):
        case "floats":
            floats = rng.normal(scale=200, size=num).astype(np.float32)
            value = sizes + encode_datum(floats=floats, label=draw(st.integers(-9, 9)))
        case "bytes":
            value = sizes + encode_datum(data=rng.bytes(num), label=draw(st.integers(-9, 9)))
        case kind:
            pixels = rng.integers(0, 256, (height, width, channels), np.uint8)
            image = cv2.imencode(f".{kind}", pixels)[1].tobytes()
            value = encode_datum(data=image, encoded=True, label=3)
    if draw(st.integers(0, 7)) == 0:
        value = value[: draw(st.integers(0, len(value)))]
    return value


@settings(max_examples=300)
@given(case=cases())
def test_the_device_makes_the_hosts_bytes_and_the_host_finds_the_same_faults(
    case: Case,
) -> None:
    with open_device("simulated") as device:
        compare(case, device)


def compare(case: Case, device: Device) -> None:
    values = [memoryview(value) for value in case.values]
    host = RecordTransformer(case.transform)
    device_transform = DeviceTransform(case.transform, device, resizes=case.resizes)
    stager = RecordStager(device_transform)
    shape, place = host.sample_shape(values[:1]), stager.sample_shape(values[:1])
    if isinstance(shape, Fault) or isinstance(place, Fault):
        assert shape == place
        return
    expected = np.zeros((len(values), *shape), case.transform.dtype)
    labels = np.zeros((2, len(values)), np.int64)
    faults = host.fill(values, case.words, expected, labels[0])

    memory = StagedMemory(device, device_transform)
    lease = Lease(cast("Any", None))
    shape, labels_dtype = (len(values), *place), np.dtype(np.int64)
    rows, staged_labels = memory.bind(
        shape, case.transform.dtype, labels_dtype, HostBlock(device), most_rows=7
    )
    assert staged_labels is not None
    found = []
    for part in (slice(0, case.split), slice(case.split, len(values))):
        if part.stop > part.start:
            begin = part.start
            where = values[part], case.words[part], rows[part], staged_labels[part]
            for fault in stager.fill(*where):
                moved = Fault(fault.position + begin, fault.reason, fault.numbers, fault.detail)
                found.append(moved)
    assert found == sorted(faults, key=lambda fault: fault.position)

    events: list[Event] = []
    with device.make_stream() as stream:
        blob, label_blob = memory.push(lease, stream, events)
        assert len(events) == 1
        assert blob.shape == expected.shape
        assert label_blob is not None
        actual = blob.numpy()
        labels[1] = peek(label_blob)
    good = [row for row in range(len(values)) if row not in {fault.position for fault in faults}]
    assert actual[good].tobytes() == expected[good].tobytes()
    assert labels[1][good].tolist() == labels[0][good].tolist()
