"""The transformation by the kernel itself: on a GPU, or from its source on the fake device."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import records_fixture

import prefetch
from memory import DeviceBuffer, DeviceError, Head
from memory._device.bfloat16 import dtype_of
from memory.testing import hold
from prefetch._kernels import device_boxes, device_kernel
from prefetch.testing import encode_image

if TYPE_CHECKING:
    from pathlib import Path

NUM = 24
DTYPES = ["float32", "float16", "bfloat16", "uint8"]


def _noise() -> list[tuple[bytes, bytes]]:
    rng = np.random.default_rng(3)
    images = (rng.integers(0, 256, (3, 20, 30), np.uint8) for _ in range(NUM))
    return [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]


source = records_fixture(_noise, scope="module")


def options(source: Path, where: str, **transform: Any) -> dict[str, Any]:
    chosen = {"crop_size": 17, "mirror": True, **transform, "where": where}
    return {"source": source, "batch_size": 4, "threads": 2, "prefetch": 2, "transform": chosen}


@pytest.mark.parametrize("program", [device_kernel, device_boxes])
def test_nvrtc_compiles_the_source_to_the_machines_code(program: Any) -> None:
    image, _ = cupy.cuda.compiler.compile_using_nvrtc(program.SOURCE, arch="90")
    assert image[:4] == b"\x7fELF"
    for dtype in DTYPES:
        assert program.kernel_name(dtype_of(dtype)).encode() in image


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernel_makes_the_hosts_bytes(source: Path, cuda: Any, dtype: str, layout: str) -> None:
    transform: dict[str, Any] = {"dtype": dtype, "layout": layout, "channels": "rgb"}
    if dtype != "uint8":
        transform |= {"mean_value": [104.0, 117.0, 123.0], "scale": [0.017, 0.5, 1 / 3]}
    made = []
    for where in ("host", "device"):
        with prefetch.open(options(source, where, **transform), device=cuda) as feed:
            made.append([batch.data.numpy().tobytes() for batch in feed])
    assert made[0] == made[1]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("labels", ["pairs", "one_hot"])
def test_the_mixing_kernels_make_the_hosts_bytes_and_every_field_is_there(
    source: Path, cuda: Any, dtype: str, layout: str, labels: str
) -> None:
    mixing: dict[str, Any] = {"cutmix": {"alpha": 1.0}}
    if dtype != "uint8":
        mixing["mixup"] = {"alpha": 0.8}
    more = {"labels": labels, "num_classes": NUM if labels == "one_hot" else None}
    made = []
    for where in ("host", "device"):
        given = options(source, where, dtype=dtype, layout=layout, **mixing) | more
        with prefetch.open(given, device=cuda, batch_size=5) as feed:
            made.append(
                [
                    {name: cupy.asnumpy(_bits(blob)).tobytes() for name, blob in fields.items()}
                    for fields in (batch.fields for batch in feed)
                ]
            )
    assert made[0] == made[1]
    given = options(source, "host", dtype=dtype, layout=layout, **mixing) | more
    with prefetch.open(given, device="cpu", batch_size=5) as feed:
        expected = [
            {name: blob.numpy().tobytes() for name, blob in batch.fields.items()} for batch in feed
        ]
    assert made[0] == expected


def _bits(blob: Any) -> Any:
    """Return what the GPU has of a blob, as bytes."""
    return blob.cupy(writable=False).view(cupy.uint8)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_it_resizes_and_erases_in_has_the_hosts_bytes(
    source: Path, cuda: Any, dtype: str, layout: str
) -> None:
    box = {"size": [18, 16], "interpolation": "bicubic" if layout == "nhwc" else "bilinear"}
    transform: dict[str, Any] = {"crop_size": 0, "random_resized_crop": box}
    transform |= {"dtype": dtype, "layout": layout, "channels": "rgb"}
    if dtype != "uint8":
        transform["normalize"] = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
        transform["random_erasing"] = {"probability": 0.6, "mode": "pixel"}
    made = []
    for where in ("host", "device"):
        with prefetch.open(options(source, where, **transform), device=cuda) as feed:
            made.append([batch.data.numpy().tobytes() for batch in feed])
    assert made[0] == made[1]


def test_auto_takes_it_and_the_batch_is_on_the_device(
    source: Path, cuda: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, logger="prefetch"),
        prefetch.open(options(source, "auto", scale=0.5), device=cuda) as feed,
    ):
        batch = next(iter(feed))
        assert batch.data.data.head is Head.HEAD_AT_GPU
        del batch
    assert "transform.where: auto resolved to device (raw uint8 records" in caplog.text


@pytest.mark.fake_only
def test_no_batch_is_torn_by_slow_copies_and_a_consumer_that_is_held(
    source: Path, cuda: Any, fake: Any
) -> None:
    fake.configure(jitter_us=300, poison_dst=1)
    with prefetch.open(options(source, "host", scale=0.5), device="cpu") as feed:
        expected = [batch.data.numpy().tobytes() for batch in feed]

    def read_later(batch: prefetch.Batch) -> None:
        host = cuda.alloc_host(batch.data.nbytes).array
        # As a kernel reads it: by its address, which keeps nothing alive.
        bare = DeviceBuffer(batch.data.gpu_data().ptr, host.nbytes, device=cuda)
        cuda.copy_to_host(host, bare, stream=stream)
        found.append(host)

    with (
        prefetch.open(options(source, "device", scale=0.5), device=cuda) as feed,
        cuda.make_stream("consumer") as stream,
        cuda.use_stream(stream),
    ):
        found: list[Any] = []
        iterator = iter(feed)
        with hold(stream):
            for _ in range(3):
                batch = next(iterator)
                read_later(batch)
                del batch
        for batch in iterator:
            read_later(batch)
            del batch
        stream.synchronize()
    assert [host.tobytes() for host in found] == expected


@pytest.mark.fake_only
def test_a_launch_that_is_refused_is_the_error_of_its_batch(
    source: Path, cuda: Any, fake: Any
) -> None:
    chosen = {**options(source, "device", scale=0.5), "threads": 1}
    with prefetch.open(chosen, device=cuda) as feed:
        fake.inject("cuLaunchKernel@2=1")
        iterator = iter(feed)
        assert next(iterator).number == 0
        with pytest.raises(DeviceError, match="ringfeed_transform_float32"):
            next(iterator)
        assert feed.closed
