"""Trouble that users of other loaders reported in public, made impossible here.

Each test names the reports. Copies in flight are in test_reuse_in_flight, lost errors and bad
records in test_bad_records, leaving a feed in test_lifecycle, seeds in test_determinism.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from memory import DeviceUnavailableError, open_device
from prefetch.caffe import BlobProto, Datum
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


def _images(count: int, shape: tuple[int, int, int], seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def _raw(images: npt.NDArray[np.uint8]) -> list[tuple[bytes, bytes]]:
    return [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]


# Mean file with crop, mirror and scale: caffe 6064, 4964, 2019, 1963, 525 -----------------------


def _mean_file(path: Path, mean: npt.NDArray[np.float32]) -> Path:
    channels, height, width = mean.shape
    proto = BlobProto(num=1, channels=channels, height=height, width=width, data=mean.ravel())
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("crop", [4, 7])
def test_the_mean_is_subtracted_at_the_crops_offset_mirrored_with_the_pixels_then_scaled(
    tmp_path: Path, crop: int
) -> None:
    images = _images(6, (3, 7, 7))
    mean = np.random.default_rng(1).uniform(90, 140, (3, 7, 7)).astype(np.float32)
    source = write_database(tmp_path / "db", _raw(images))
    transform: dict[str, Any] = {"crop_size": crop, "mirror": True, "scale": 0.017}
    options: dict[str, Any] = {"source": source, "batch_size": 6, "transform": transform}
    with prefetch.open(
        options, transform={"mean_file": _mean_file(tmp_path / "mean", mean)}
    ) as feed:
        batch = next(iter(feed))
        served = batch.data.numpy().copy()
    with prefetch.open(options, transform={"scale": 1.0}) as feed:
        plain = next(iter(feed)).data.numpy().copy()
    seen_mirrored = set()
    for image, row, pixels in zip(images, served, plain, strict=True):
        matches = [
            (mirrored, h, w)
            for mirrored in (False, True)
            for h in range(8 - crop)
            for w in range(8 - crop)
            if (_cut(image, h, w, crop, mirrored=mirrored) == pixels).all()
        ]
        ((mirrored, h, w),) = matches
        seen_mirrored.add(mirrored)
        difference = image.astype(np.float32) - mean
        expected = _cut(difference, h, w, crop, mirrored=mirrored) * np.float32(0.017)
        assert (row == expected).all()
    assert seen_mirrored == {False, True}


def _cut(image: npt.NDArray[Any], h: int, w: int, crop: int, *, mirrored: bool) -> npt.NDArray[Any]:
    cut = image[:, h : h + crop, w : w + crop]
    return cut[:, :, ::-1] if mirrored else cut


def test_a_mean_of_the_wrong_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", _raw(_images(2, (3, 7, 7))))
    mean = _mean_file(tmp_path / "mean", np.zeros((3, 8, 7), np.float32))
    both = r"mean_file: .*record 0, .*the record is 3 x 7 x 7 .* but the mean image is 3 x 8 x 7"
    with pytest.raises(prefetch.ConfigError, match=both):
        prefetch.open({"source": source, "transform": {"mean_file": mean}})


# Foreign owners, read-only folders, no locks, a stale lock.mdb: py-lmdb 141, caffe PR 2384, 4774 --


def test_reading_creates_nothing_and_touches_no_stale_lock(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(5))
    (source / "lock.mdb").write_bytes(b"written by another machine")
    before = {entry.name: entry.read_bytes() for entry in source.iterdir()}
    source.chmod(0o555)
    for path in (source, source / "data.mdb"):
        with prefetch.open({"source": path, "shuffle": True}) as feed:
            assert len(next(iter(feed))) == 5
    source.chmod(0o755)
    assert {entry.name: entry.read_bytes() for entry in source.iterdir()} == before


# Grey images among colour ones: caffe 1901, 4966 -------------------------------------------------


def _png(image: npt.NDArray[np.uint8], label: int) -> bytes:
    data = cv2.imencode(".png", image)[1].tobytes()
    return Datum(data=data, label=label, encoded=True).SerializeToString()


def test_grey_among_colour_needs_force_color_and_the_error_names_key_and_channels(
    tmp_path: Path,
) -> None:
    colour = _images(3, (8, 8, 3))
    grey = _images(1, (8, 8, 1), seed=1)[0, :, :, 0]
    records = [(b"colour%d" % i, _png(image, i)) for i, image in enumerate(colour)]
    source = write_database(tmp_path / "db", [*records, (b"grey", _png(grey, 3))])
    with prefetch.open({"source": source}) as feed:
        with pytest.raises(prefetch.RecordError, match=r"\b1\b.*\b3\b|\b3\b.*\b1\b") as caught:
            next(iter(feed))
        assert caught.value.key == b"grey"
    with prefetch.open({"source": source, "transform": {"force_color": True}}) as feed:
        batch = next(iter(feed))
        assert batch.data.shape == (4, 3, 8, 8)
        assert (batch.data.numpy()[3] == grey).all()
        assert (batch.data.numpy()[0] == colour[0].transpose(2, 0, 1)).all()
    with prefetch.open({"source": source, "transform": {"force_gray": True}}) as feed:
        batch = next(iter(feed))
        assert batch.data.shape == (4, 1, 8, 8)
        assert (batch.data.numpy()[3, 0] == grey).all()


# HWC bytes under a CHW header: caffe 4487 --------------------------------------------------------


def test_an_hwc_header_is_refused_with_a_hint(tmp_path: Path) -> None:
    value = Datum(channels=240, height=320, width=3, data=bytes(240 * 320 * 3)).SerializeToString()
    source = write_database(tmp_path / "db", [(b"photo", value)])
    with (
        prefetch.open({"source": source}) as feed,
        pytest.raises(prefetch.RecordError, match=r"photo.*240 x 320 x 3.*HWC|photo.*HWC"),
    ):
        next(iter(feed))


# Empty, missing and mistaken databases: caffe 4124, 5752, 5255, 6236 -----------------------------


def test_a_wrong_path_is_an_error_before_the_first_batch_that_names_it_absolutely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(prefetch.DatabaseNotFoundError, match=str(tmp_path / "nowhere")):
        prefetch.open({"source": "nowhere"})
    (tmp_path / "empty_folder").mkdir()
    with pytest.raises(prefetch.DatabaseNotFoundError, match=str(tmp_path / "empty_folder")):
        prefetch.open({"source": "empty_folder"})
    assert list((tmp_path / "empty_folder").iterdir()) == []
    empty = write_database(tmp_path / "empty", [])
    with pytest.raises(prefetch.EmptyDatabaseError, match=str(empty)):
        prefetch.open({"source": empty})


def test_a_truncated_database_is_refused_with_both_sizes(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(50, (3, 32, 32)))
    file = source / "data.mdb"
    whole = file.stat().st_size
    with file.open("r+b") as handle:
        handle.truncate(whole // 2)
    with pytest.raises(prefetch.DatabaseTruncatedError) as caught:
        prefetch.open({"source": source})
    assert caught.value.actual_bytes == whole // 2
    assert caught.value.expected_bytes <= whole


# Sizes that vary: caffe 557, PR 1313, 2705 -------------------------------------------------------


def test_sizes_that_vary_work_with_a_crop_and_are_refused_without_one(tmp_path: Path) -> None:
    images = [_images(1, (3, 8 + i, 9 + 2 * i), seed=i)[0] for i in range(4)]
    records = [(b"%d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]
    source = write_database(tmp_path / "db", records)
    options: dict[str, Any] = {"source": source, "batch_size": 4, "phase": "test"}
    with prefetch.open(options, transform={"crop_size": 6}) as feed:
        served = next(iter(feed)).data.numpy()
        for image, row in zip(images, served, strict=True):
            h, w = (image.shape[1] - 6) // 2, (image.shape[2] - 6) // 2
            assert (row == image[:, h : h + 6, w : w + 6]).all()
    with prefetch.open(options) as feed:
        with pytest.raises(prefetch.RecordError, match="3 x 9 x 11") as caught:
            next(iter(feed))
        assert caught.value.key == b"1"
        assert "3 x 8 x 9" in str(caught.value)
    with prefetch.open(options, batch_size=1) as feed:
        for batch, image in zip(feed, images, strict=True):
            assert (batch.data.numpy()[0] == image).all()


# Devices by name: pytorch 58626, caffe 6007, cupy 5006 -------------------------------------------


def test_a_device_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(2))
    with pytest.raises(DeviceUnavailableError, match="cuda:99"):
        prefetch.open({"source": source, "device": "cuda:99"})


def test_an_open_device_serves_two_feeds_and_stays_open(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(2))
    device = open_device("simulated")
    for _ in range(2):
        with prefetch.open({"source": source}, device=device) as feed:
            assert feed.device is device
            assert len(next(iter(feed))) == 2
    device.close()


# YAML: yacs 46, caffe 4100 -----------------------------------------------------------------------


def test_numbers_in_yaml_are_numbers_and_every_mistake_is_named_with_its_line(
    tmp_path: Path,
) -> None:
    write_database(tmp_path / "db", fingerprinted_images(3))
    config = tmp_path / "feed.yaml"
    config.write_text("source: db\nbatch_size: 3\ntransform:\n  scale: 1e-3\n")
    with prefetch.open(config) as feed:
        batch = next(iter(feed))
        assert (batch.data.numpy()[2] == np.float32(2) * np.float32(1e-3)).all()
    config.write_text(
        "source: db\nbatch_sise: 3\nprefetch: 0\ntransform:\n  scale: '1e-3'\n  mirror: off\n"
    )
    with pytest.raises(prefetch.ConfigError) as caught:
        prefetch.open(config)
    message = str(caught.value)
    assert str(config) in message
    assert [fault.line for fault in caught.value.faults] == [2, 3, 5, 6]
    assert "batch_size" in message
    assert "1e-3" in message


def test_a_source_beside_a_moved_configuration_is_found(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    write_database(tmp_path / "here" / "db", fingerprinted_images(3))
    (tmp_path / "here" / "feed.yaml").write_text("source: db\n")
    shutil.move(tmp_path / "here", tmp_path / "there")
    with prefetch.open(tmp_path / "there" / "feed.yaml") as feed:
        assert len(next(iter(feed))) == 3


# More than INT_MAX: caffe 3084, 5822 -------------------------------------------------------------


def test_a_ring_larger_than_the_machines_memory_is_refused_before_it_is_allocated(
    tmp_path: Path,
) -> None:
    source = write_database(tmp_path / "db", _raw(_images(2, (3, 64, 64))))
    options = {"source": source, "last_batch": "wrap", "threads": 1}
    batch_bytes = 2**24 * (3 * 64 * 64 * 4 + 8)
    with pytest.raises(prefetch.RingTooLargeError, match=f"{5 * batch_bytes} bytes") as caught:
        prefetch.open(options, batch_size=2**24)
    assert (None, batch_bytes, 5) == (
        caught.value.device,
        caught.value.batch_bytes,
        caught.value.num_batches,
    )
    with pytest.raises(prefetch.ConfigError, match="batch_size"):
        prefetch.open(options, batch_size=2**45)


def test_a_ring_larger_than_the_devices_memory_is_refused_with_the_sum(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", _raw(_images(8, (3, 64, 64))))
    batch_bytes = 4 * (3 * 64 * 64 * 4 + 8)
    options = {"source": source, "batch_size": 4, "prefetch": 2}
    with open_device("simulated", limit_bytes=3 * batch_bytes) as device:
        with prefetch.open(options, device=device) as feed:
            assert len(list(feed)) == 2
        with pytest.raises(
            prefetch.RingTooLargeError,
            match=f"{4 * batch_bytes} bytes .*device simulated has {3 * batch_bytes} bytes"
            ".*lower batch_size or prefetch",
        ) as caught:
            prefetch.open(options, prefetch=3, device=device)
    assert caught.value.device == "simulated"
    assert caught.value.available_bytes == 3 * batch_bytes


def test_a_ring_that_outgrows_the_device_with_a_later_batch_is_refused_there(
    tmp_path: Path,
) -> None:
    small, large = _raw(_images(2, (3, 8, 8))), _raw(_images(4, (3, 64, 64)))[2:]
    source = write_database(tmp_path / "db", [*small, *large])
    with open_device("simulated", limit_bytes=40_000) as device:
        feed = prefetch.open({"source": source, "batch_size": 2, "prefetch": 1}, device=device)
        batches = iter(feed)
        assert next(batches).number == 0
        with pytest.raises(prefetch.RingTooLargeError, match="device simulated has 40000 bytes"):
            next(batches)
        assert feed.closed


def test_a_rank_without_any_record_is_refused_at_once(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(3))
    shard = {"rank": 1, "world_size": 4, "policy": "drop"}
    with pytest.raises(prefetch.ConfigError, match="none of the 3 records"):
        prefetch.open({"source": source, "last_batch": "wrap", "shard": shard})


def test_a_damaged_leaf_page_is_an_error_in_key_order_too(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(600, (1, 6, 6)))
    whole = (source / "data.mdb").read_bytes()
    for page in (3, 5, 8):
        damaged = whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :]
        (source / "data.mdb").write_bytes(damaged)
        with (
            prefetch.open({"source": source}) as feed,
            pytest.raises(prefetch.CorruptDatabaseError),
        ):
            list(feed)
