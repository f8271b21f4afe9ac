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
from prefetch._record.wire import encode_datum
from prefetch._ring.push_block import block_bytes
from prefetch._transform.device import DeviceTransform
from prefetch._transform.options import Transform
from prefetch._transform.placement import choose_placement
from prefetch._transform.record_filler import StoredImage
from prefetch.caffe import BlobProto
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

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
