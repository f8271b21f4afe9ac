"""Feeds whose device transforms: to the consumer the same batches as where the host does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from memory import (
    DeviceMemoryError,
    Head,
    NotImplementedDeviceError,
    SimulatedDevice,
    open_device,
)
from memory.testing import peek
from prefetch._kernels.box_places import PlacedBox, read_box
from prefetch._kernels.contract import ResizeKind, Resizing
from prefetch._kernels.resize import Interpolation
from prefetch._kernels.resize import resize as resize_pixels
from prefetch._record.faults import Fault
from prefetch._record.wire import encode_datum
from prefetch._ring.push_block import block_bytes
from prefetch._transform.device import DeviceTransform
from prefetch._transform.device_staging import RecordStager
from prefetch._transform.options import Transform
from prefetch._transform.placement import choose_placement
from prefetch._transform.record_filler import StoredImage
from prefetch._transform.staged_rows import StagedRows
from prefetch.caffe import BlobProto
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from prefetch._kernels.device_kernel import StagedBatch

RNG = np.random.default_rng(11)
NUM = 23
MEANS: dict[str, Any] = {"mean_value": [104.0, 117.0, 123.0], "scale": 0.017}


def pixels(channels: int = 3, height: int = 9, width: int = 8) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, (channels, height, width), np.uint8)


def as_jpeg(image: NDArray[np.uint8], label: int) -> bytes:
    data = cv2.imencode(".jpg", image.transpose(1, 2, 0))[1].tobytes()
    return encode_datum(data=data, encoded=True, label=label)


def as_floats(image: NDArray[np.uint8], label: int) -> bytes:
    channels, height, width = image.shape
    floats = RNG.normal(scale=50, size=image.size).astype(np.float32)
    sizes = encode_datum(channels=channels, height=height, width=width)
    return sizes + encode_datum(floats=floats, label=label)


def some_size() -> NDArray[np.uint8]:
    return pixels(height=int(RNG.integers(7, 19)), width=int(RNG.integers(7, 19)))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    contents = {
        "raw": [encode_image(pixels(), label=i) for i in range(NUM)],
        "large": [encode_image(pixels(3, 40, 30), label=i) for i in range(NUM)],
        "varying": [encode_image(some_size(), label=i) for i in range(NUM)],
        "encoded": [as_jpeg(pixels(3, 16, 12), i) for i in range(NUM)],
        "encoded varying": [as_jpeg(some_size(), i) for i in range(NUM)],
        "floats": [as_floats(pixels(), i) for i in range(NUM)],
        "mixed": [
            (lambda image, label: encode_image(image, label=label), as_jpeg, as_floats)[i % 3](
                some_size(), i
            )
            for i in range(NUM)
        ],
    }
    for name, values in contents.items():
        keyed = [(b"%08d" % number, value) for number, value in enumerate(values)]
        write_database(folder / name, keyed)
    return {name: folder / name for name in contents}


def batches(source: Path, where: str, **options: Any) -> list[tuple[Any, ...]]:
    transform = {**options.pop("transform", {}), "where": where}
    chosen = {"source": source, "batch_size": 5, "threads": 3, "prefetch": 2, **options}
    with prefetch.open({**chosen, "transform": transform, "device": "simulated"}) as feed:
        return [
            (
                batch.data.numpy().tobytes(),
                batch.data.shape,
                batch.label.numpy().tolist(),
                batch.indices.tolist(),
                batch.keys,
            )
            for _ in range(2)
            for batch in feed
        ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rng", ["counter", "caffe"])
@pytest.mark.parametrize(
    ("name", "crop_size"),
    [
        *(("raw", 0), ("raw", 5), ("raw", 8), ("large", 0), ("large", 6), ("varying", 7)),
        *(("encoded", 0), ("encoded", 9), ("encoded varying", 7), ("floats", 0), ("floats", 6)),
        ("mixed", 7),
    ],
)
def test_a_feed_serves_the_same_bytes_whoever_transforms(
    sources: dict[str, Path], name: str, crop_size: int, rng: str, dtype: str
) -> None:
    transform = {"crop_size": crop_size, "mirror": True, "dtype": dtype, **MEANS}
    options = {"transform": transform, "rng": rng, "shuffle": True, "seed": 3}
    source = sources[name]
    assert batches(source, "device", **options) == batches(source, "host", **options)


@pytest.mark.parametrize("crop_size", [0, 6])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("channels", ["stored", "rgb"])
def test_a_mean_file_channels_and_layout_are_the_hosts(
    sources: dict[str, Path], tmp_path: Path, layout: str, channels: str, crop_size: int
) -> None:
    proto = BlobProto(num=1, channels=3, height=9, width=8)
    proto.data.extend(RNG.normal(100, 20, 3 * 9 * 8).tolist())
    mean_file = tmp_path / "mean.binaryproto"
    mean_file.write_bytes(proto.SerializeToString())
    transform = {"layout": layout, "channels": channels, "crop_size": crop_size, "mirror": True}
    transform |= {"mean_file": str(mean_file), "scale": [0.5, 0.25, 3.0]}
    expected = batches(sources["raw"], "host", transform=transform)
    assert batches(sources["raw"], "device", transform=transform) == expected


def test_uint8_is_cropped_on_the_device_too_where_that_is_asked_for(
    sources: dict[str, Path],
) -> None:
    transform = {"dtype": "uint8", "crop_size": 8, "mirror": True, "channels": "rgb"}
    expected = batches(sources["raw"], "host", transform=transform)
    assert batches(sources["raw"], "device", transform=transform) == expected


@pytest.mark.parametrize("where", ["host", "device"])
def test_forcing_raw_records_is_remarked_on_once_whoever_transforms(
    sources: dict[str, Path], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Raw records of sizes of their own, floats and JPEG: every way that a record can take.
    transform = {"force_color": True, "crop_size": 6, "where": where}
    options = {"batch_size": 2, "threads": 4, "device": "simulated", "transform": transform}
    with prefetch.open({"source": sources["mixed"], **options}) as feed:
        assert sum(len(batch) for batch in feed) == NUM
    remarks = [text for text in caplog.messages if "apply to encoded images only" in text]
    assert len(remarks) == 1


def test_the_batch_is_on_the_device_and_comes_to_the_host_when_asked_for(
    sources: dict[str, Path],
) -> None:
    with (
        SimulatedDevice() as device,
        prefetch.open(
            {"source": sources["raw"], "batch_size": 5, "transform": {"where": "device", **MEANS}},
            device=device,
        ) as feed,
    ):
        for batch in feed:
            heads = [batch.data.data.head]
            on_device = peek(batch.data).copy()
            assert device.stats().num_to_host == batch.number
            on_host = batch.data.numpy()
            assert on_host.flags.writeable
            heads.append(batch.data.data.head)
            assert heads == [Head.HEAD_AT_GPU, Head.HEAD_AT_CPU]
            assert on_host.tobytes() == on_device.tobytes()
            del batch


def test_one_copy_of_the_stored_bytes_takes_a_batch_to_the_device(
    sources: dict[str, Path],
) -> None:
    with (
        SimulatedDevice() as device,
        prefetch.open(
            {
                "source": sources["raw"],
                "batch_size": NUM,
                "epochs": 1,
                "transform": {"where": "device", "crop_size": 8, **MEANS},
            },
            device=device,
        ) as feed,
    ):
        (batch,) = feed
        batch.data.gpu_data()
        stats = device.stats()
        labels_bytes, words_bytes = 8 * NUM, 16 * NUM
        host_bytes = block_bytes(3 * 9 * 8 * NUM + words_bytes, labels_bytes)
        assert stats.num_to_device == 1  # with the labels
        assert stats.bytes_to_device == host_bytes
        assert feed.stats().host_bytes == host_bytes
        assert feed.stats().device_bytes == host_bytes + 4 * 3 * 8 * 8 * NUM


@pytest.mark.parametrize(
    ("image", "crop_size", "means", "place"),
    [
        (StoredImage(3, 20, 30, encoded=False), 0, "none", (3, 20, 30)),
        (StoredImage(3, 20, 30, encoded=False), 16, "none", (3, 20, 30)),
        (StoredImage(3, 40, 30, encoded=False), 16, "none", (3, 16, 16)),  # 1200 > 4 x 256
        (StoredImage(3, 40, 30, encoded=False), 16, "image", (3, 40, 30)),
        (StoredImage(3, 20, 30, encoded=True), 16, "none", (3, 16, 16)),
        (StoredImage(3, 20, 30, encoded=True), 0, "none", (3, 20, 30)),
    ],
)
def test_no_more_bytes_go_to_the_device_than_without_it(
    image: StoredImage, crop_size: int, means: str, place: tuple[int, int, int]
) -> None:
    shape = image[:3]
    transform = Transform(
        train=True,
        crop_size=crop_size,
        mean_image=np.zeros(shape, np.float32) if means == "image" else None,
    )
    with open_device("simulated") as device:
        found = DeviceTransform(transform, device)
        assert found.choose_place(image) == place
        assert found.holds_windows(place) == (place[1:] == (16, 16))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"<html>this is not a Datum</html>",
        encode_image(pixels(), label=1)[:-40],
        encode_image(pixels(1), label=1),
        encode_image(pixels(height=5), label=1),
        encode_datum(channels=3, height=5, width=9, floats=np.ones(135, np.float32)),
        encode_datum(channels=1, height=9, width=8, floats=np.ones(72, np.float32)),
        encode_datum(data=b"\x89PNG nonsense", encoded=True),
        encode_datum(data=b"", encoded=True),
        as_jpeg(pixels(height=5), 1),
        as_jpeg(pixels(1), 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("crop_size", [0, 6])
@pytest.mark.parametrize("first", [0, 5])
def test_a_bad_record_is_the_hosts_error_or_replaced_as_by_the_host(
    tmp_path: Path, bad: bytes, policy: str, threads: int, crop_size: int, first: int
) -> None:
    values = [encode_image(pixels(), label=i) for i in range(12)]
    for place in (first, 5, 6):
        values[place] = bad
    source = write_database(
        tmp_path / "db", [(b"%08d" % number, value) for number, value in enumerate(values)]
    )
    options = {
        "transform": {"crop_size": crop_size, "mirror": True, **MEANS},
        "on_bad_record": policy,
        "threads": threads,
    }
    found: list[tuple[str, list[Any]]] = []
    for where in ("host", "device"):
        try:
            found.append(("served", batches(source, where, **options)))
        except prefetch.RecordError as error:
            found.append(("refused", [str(error), error.record, error.stage]))
        except prefetch.ConfigError as error:
            assert first == 0
            found.append(("refused", [str(error)]))
    assert found[0] == found[1]
    assert found[0][0] == ("refused" if policy == "raise" else "served")


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_rows_that_the_host_finishes_stand_beside_those_of_substitutes(
    tmp_path: Path, policy: str
) -> None:
    """Floats in a batch of bytes, next to bad records, whose places others take."""
    values = [encode_image(pixels(), label=i) for i in range(12)]
    values[3] = as_floats(pixels(), 3)
    values[8] = as_floats(pixels(), 8)
    if policy == "skip":
        values[2] = values[7] = b"\xff"
    source = write_database(
        tmp_path / "db", [(b"%08d" % number, value) for number, value in enumerate(values)]
    )
    options = {"transform": MEANS, "on_bad_record": policy}
    assert batches(source, "device", **options) == batches(source, "host", **options)


BOXES: dict[str, dict[str, Any]] = {
    "a drawn box": {"random_resized_crop": {"size": 7}, "mirror": True},
    "a drawn box, bicubic": {
        "random_resized_crop": {"size": [6, 9], "interpolation": "bicubic"},
        "layout": "nhwc",
        "channels": "rgb",
        "dtype": "float16",
    },
    "the shorter side, then a crop": {"resize": {"shorter": 8}, "crop_size": [7, 5]},
    "both sides": {"resize": [40, 3]},
    "with padding, which the host does": {"resize": [8, 8], "pad": 1, "crop_size": 8},
    "a drawn box, erased in": {
        "random_resized_crop": {"size": 7},
        "random_erasing": {"mode": "pixel", "probability": 0.7},
        "layout": "nhwc",
    },
    "a crop, erased in": {
        "crop_size": 6,
        "mirror": True,
        "random_erasing": {"mode": "rand", "probability": 0.7},
        "dtype": "bfloat16",
    },
    "other colours, which the host makes, erased in": {
        "crop_size": 6,
        "color_jitter": {"contrast": 0.4},
        "random_erasing": {"probability": 0.7},
    },
}


@pytest.mark.parametrize("name", ["raw", "large", "varying", "encoded", "encoded varying"])
@pytest.mark.parametrize("recipe", BOXES)
def test_a_feed_that_resizes_or_erases_serves_the_same_bytes_whoever_transforms(
    sources: dict[str, Path], name: str, recipe: str
) -> None:
    options = {"transform": {**BOXES[recipe], **MEANS}, "shuffle": True, "seed": 3}
    source = sources[name]
    assert batches(source, "device", **options) == batches(source, "host", **options)


def stage_all(transform: Transform, values: list[bytes]) -> tuple[StagedBatch, list[PlacedBox]]:
    """Stage records by the device's way, and return what their places hold."""
    with open_device("simulated") as device:
        device_transform = DeviceTransform(transform, device, resizes=True)
        stager = RecordStager(device_transform)
        views = [memoryview(value) for value in values]
        place = stager.sample_shape(views[:1])
        assert not isinstance(place, Fault)
        channels, height, width = place
        batch = device_transform.staged_batch(len(values), (channels, height, width))
    staged = np.zeros(batch.nbytes, np.uint8)
    rows = StagedRows(batch.pixels(staged), batch.table(staged), {}, place=batch.image_shape)
    words = np.zeros((len(values), 43), np.uint32)
    assert stager.fill(views, words, rows, None) == []
    size = transform.recipe.window_size(height, width)
    boxes = [read_box(one, channels, *size) for one in batch.pixels(staged)]
    return batch, [box for box in boxes if box is not None]


def test_the_device_gets_the_stored_pixels_and_windows_only_of_what_its_places_cannot_hold() -> (
    None
):
    images = [pixels(3, 12, 9), pixels(3, 9, 12), pixels(3, 50, 60)]
    resizing = Resizing(ResizeKind.BOTH_SIDES, 8, 8, bicubic=False)
    transform = Transform(train=False, resizing=resizing)
    batch, boxes = stage_all(transform, [encode_image(image, label=0) for image in images])
    for image, box in zip(images[:2], boxes, strict=False):
        np.testing.assert_array_equal(box.pixels, image)
    assert boxes[2].pixels.shape == (3, 8, 8)
    window = resize_pixels(images[2], 8, 8, Interpolation.BILINEAR)
    np.testing.assert_array_equal(boxes[2].pixels, window)
    # As for the first, whole: nothing of the third, whose pixels alone would be 9,000 bytes.
    assert batch.box_bytes < 1000


def test_only_the_pixels_that_the_crop_needs_are_staged() -> None:
    resizing = Resizing(ResizeKind.SHORTER_SIDE, 16, 16, bicubic=False)
    transform = Transform(train=False, resizing=resizing, crop_size=4)
    _, boxes = stage_all(transform, [encode_image(pixels(3, 32, 32), label=0)])
    assert boxes[0].pixels.shape == (3, 10, 10)  # of 4 pixels, twice as wide, and one on each side


def test_a_batch_that_begins_with_a_large_image_takes_no_more_than_the_first_one_did() -> None:
    transform = Transform(train=False, resizing=Resizing(ResizeKind.BOTH_SIDES, 8, 8, bicubic=True))
    with open_device("simulated") as device:
        device_transform = DeviceTransform(transform, device, resizes=True)
        first = device_transform.staged_batch(5, (3, 20, 20))
        assert device_transform.staged_batch(5, (3, 4000, 3000)).nbytes == first.nbytes


def test_what_is_resized_and_erased_in_is_then_mixed(sources: dict[str, Path]) -> None:
    transform = {
        "random_resized_crop": {"size": 8},
        "random_erasing": {"mode": "pixel"},
        "mixup": {"alpha": 0.8},
        "cutmix": {"alpha": 1.0},
        **MEANS,
    }
    options = {"transform": transform, "labels": "pairs"}
    source = sources["encoded varying"]
    assert batches(source, "device", **options) == batches(source, "host", **options)


def test_floats_are_erased_in_by_the_host(sources: dict[str, Path]) -> None:
    transform = {"crop_size": 6, "random_erasing": {"mode": "pixel", "probability": 0.7}, **MEANS}
    for name in ("floats", "mixed"):
        found = [batches(sources[name], who, transform=transform) for who in ("device", "host")]
        assert found[0] == found[1]


def test_only_the_part_of_a_jpeg_that_its_box_needs_is_decoded(tmp_path: Path) -> None:
    """With restart markers; its box then lies elsewhere in what was decoded."""
    smooth = cv2.resize(RNG.integers(0, 256, (20, 16, 3), np.uint8), (256, 320))
    flags = [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]
    jpeg = cv2.imencode(".jpg", smooth, flags)[1].tobytes()
    values = [encode_datum(data=jpeg, encoded=True, label=i) for i in range(NUM)]
    source = write_database(tmp_path / "db", [(b"%08d" % i, one) for i, one in enumerate(values)])
    transform = {"random_resized_crop": {"size": 24, "scale": [0.05, 0.2]}, "mirror": True, **MEANS}
    found = [batches(source, where, transform=transform) for where in ("device", "host")]
    assert found[0] == found[1]


def test_auto_leaves_resizing_to_the_host() -> None:
    transform = Transform(train=False, resizing=Resizing(ResizeKind.BOTH_SIDES, 8, 8, bicubic=True))
    with open_device("simulated") as device:
        assert not DeviceTransform(transform, device).holds_boxes


def test_a_saved_state_goes_on_with_the_other_way(sources: dict[str, Path]) -> None:
    options = {"source": sources["raw"], "batch_size": 5, "device": "simulated", "shuffle": True}
    transform = {"crop_size": 6, "mirror": True, **MEANS}
    expected = batches(sources["raw"], "host", shuffle=True, transform=transform)
    with prefetch.open({**options, "transform": {**transform, "where": "device"}}) as feed:
        first = next(iter(feed))
        assert first.data.numpy().tobytes() == expected[0][0]
        state = feed.state_dict()
        del first
    with prefetch.open({**options, "transform": {**transform, "where": "host"}}) as feed:
        feed.load_state_dict(state)
        assert [batch.data.numpy().tobytes() for batch in feed] == [
            data for data, *_ in expected[1:5]
        ]


# Where it is done -------------------------------------------------------------------------------


class Gpu(SimulatedDevice):
    """A device that passes for a GPU, with kernels or without NVRTC."""

    name = "cuda:0"

    def __init__(self, *, lacks: str = "") -> None:
        super().__init__()
        self._lacks = lacks

    def compile(self, source: str, name: str) -> Any:  # noqa: ARG002 - a device's signature
        if self._lacks:
            raise NotImplementedDeviceError(self.name, operation="compile", missing=self._lacks)
        return lambda *_, **__: None


class GpuWithoutNvrtc(Gpu):
    launch: Any = None


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="prefetch"):
        yield caplog


def resolve(device: Any, where: str = "auto", kind: Any = "raw", **options: Any) -> Any:
    transform = Transform(train=True, **options)
    return choose_placement(where, transform=transform, device=device, kind=kind)


def test_auto_takes_a_gpu_for_raw_records_and_floats_and_says_why(
    log: pytest.LogCaptureFixture,
) -> None:
    with Gpu() as device:
        for dtype in ("float32", "float16"):
            assert resolve(device, dtype=np.dtype(dtype)) is not None
    assert log.messages == [
        "transform.where: auto resolved to device (raw uint8 records, batches of float32, cuda:0)",
        "transform.where: auto resolved to device (raw uint8 records, batches of float16, cuda:0)",
    ]


@pytest.mark.parametrize(
    ("kind", "dtype", "reason"),
    [
        ("encoded", "float32", "the records are encoded images, which the host decodes"),
        ("float", "float32", "the records hold float_data, which is no larger once it is"),
        ("raw", "uint8", "batches of uint8 are pushed as they are"),
    ],
)
def test_auto_is_the_host_where_the_device_would_save_nothing(
    log: pytest.LogCaptureFixture, kind: str, dtype: str, reason: str
) -> None:
    with Gpu() as device:
        assert resolve(device, kind=kind, dtype=np.dtype(dtype)) is None
    assert f"auto resolved to host ({reason}" in log.text


@pytest.mark.parametrize("name", ["cpu", "simulated"])
def test_auto_is_the_host_where_there_is_no_gpu(log: pytest.LogCaptureFixture, name: str) -> None:
    with open_device(name) as device:
        assert resolve(device) is None
    assert f"auto resolved to host (device {name} " in log.text


def test_auto_is_the_host_where_no_kernel_can_be_compiled(log: pytest.LogCaptureFixture) -> None:
    with GpuWithoutNvrtc(lacks="NVRTC, which compiles kernels, is not installed") as device:
        assert resolve(device) is None
    assert "auto resolved to host (device 'cuda:0' does not offer compile" in log.text
    assert "NVRTC, which compiles kernels, is not installed" in log.text


def test_device_is_refused_by_name_with_the_cure_where_it_cannot_be(
    sources: dict[str, Path],
) -> None:
    options = {"source": sources["raw"], "transform": {"where": "device"}}
    with pytest.raises(prefetch.ConfigError) as caught:
        prefetch.open(options, device="cpu")
    (fault,) = caught.value.faults
    assert fault.key == "transform.where"
    for part in ("device cpu has no memory of its own", "where: auto or host", "simulated"):
        assert part in str(fault)
    with (
        GpuWithoutNvrtc(lacks="NVRTC is not installed") as device,
        pytest.raises(prefetch.ConfigError, match="NVRTC is not installed"),
    ):
        prefetch.open(options, device=device)


def test_a_mean_image_that_does_not_fit_on_the_device_is_an_error_at_the_start() -> None:
    class Small(Gpu):
        def __init__(self) -> None:
            SimulatedDevice.__init__(self, limit_bytes=100)
            self._lacks = ""

    mean_image = np.zeros((3, 9, 8), np.float32)
    with Small() as device, pytest.raises(DeviceMemoryError):
        resolve(device, "device", mean_image=mean_image)


@pytest.mark.parametrize(
    ("name", "kind"), [("raw", "raw"), ("encoded", "encoded"), ("floats", "float")]
)
def test_the_kind_of_the_records_is_that_of_the_first(
    sources: dict[str, Path], name: str, kind: str
) -> None:
    with prefetch.open({"source": sources[name]}) as feed:
        assert feed._prefetcher.components.first.kind == kind
