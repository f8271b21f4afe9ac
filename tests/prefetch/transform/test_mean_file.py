from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from prefetch._errors.classes import ConfigError
from prefetch._transform.mean_file import load_mean
from prefetch.caffe import BlobProto

if TYPE_CHECKING:
    from pathlib import Path

MEAN = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7


def blob(**fields: Any) -> bytes:
    """Return a BlobProto; ``dim`` are the dimensions of its shape."""
    dim = fields.pop("dim", ())
    message = BlobProto(**fields)
    message.shape.dim.extend(dim)
    if not dim:
        message.ClearField("shape")
    return message.SerializeToString()


VALUES = MEAN.ravel().tolist()
LEGACY = {"num": 1, "channels": 2, "height": 3, "width": 4}


def written(folder: Path, content: bytes, name: str = "mean.binaryproto") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    """Return why a mean file is refused."""
    with pytest.raises(ConfigError) as caught:
        load_mean(path)
    assert caught.value.origin == str(path)
    (fault,) = caught.value.faults
    assert fault.key == "transform.mean_file"
    return fault.message


@pytest.mark.parametrize(
    "content",
    [
        blob(data=VALUES, **LEGACY),
        blob(data=VALUES, dim=(1, 2, 3, 4)),
        blob(data=VALUES, dim=(2, 3, 4)),
        blob(double_data=MEAN.astype(np.float64).ravel().tolist(), dim=(2, 3, 4)),
        blob(data=VALUES, dim=(4, 3, 2), **LEGACY),
        blob(data=[0.0], double_data=MEAN.astype(np.float64).ravel().tolist(), **LEGACY),
        blob(data=[*VALUES, *[7.0] * 48], **{**LEGACY, "num": 3}),
        blob(data=[*VALUES, *[float("nan")] * 24], dim=(2, 2, 3, 4)),
    ],
    ids=[
        *("legacy", "four axes", "three axes", "doubles", "legacy wins", "doubles win"),
        *("the first of three", "the first of two"),
    ],
)
def test_a_blob_is_read_in_all_its_forms(tmp_path: Path, content: bytes) -> None:
    mean = load_mean(written(tmp_path, content))
    assert mean.dtype == np.float32
    assert mean.flags.c_contiguous
    assert np.array_equal(mean, MEAN)


def test_of_several_images_the_log_says_that_the_first_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, blob(data=VALUES * 2, **{**LEGACY, "num": 2}))
    load_mean(path)
    assert caplog.messages == [f"{path}: it holds 2 images; the first is the mean, as in Caffe"]
    np.save(tmp_path / "mean.npy", np.stack([MEAN, MEAN]))
    assert "found 2 x 2 x 3 x 4;" in refusal(tmp_path / "mean.npy")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("axes", [3, 4])
def test_an_npy_file_is_read(tmp_path: Path, dtype: Any, axes: int) -> None:
    values = MEAN.astype(dtype)
    np.save(tmp_path / "mean.npy", values if axes == 3 else values[np.newaxis])
    mean = load_mean(tmp_path / "mean.npy")
    assert mean.dtype == np.float32
    assert np.array_equal(mean, values.astype(np.float32))


def test_an_npy_file_in_fortran_order_is_read_right(tmp_path: Path) -> None:
    np.save(tmp_path / "mean.npy", np.asfortranarray(MEAN))
    mean = load_mean(tmp_path / "mean.npy")
    assert mean.flags.c_contiguous
    assert np.array_equal(mean, MEAN)


def test_a_missing_file_is_refused_by_its_path(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "absent.binaryproto")
    assert "No such file or directory" in refusal(tmp_path / "absent.npy")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "Is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xff\xff", "the field at byte 0 is cut off by the end of the file (3 bytes): the"),
        (b"\x87garbage", "the file was cut, is damaged, or is no BlobProto (.binaryproto)"),
        (b"\x2a\x03abc", "the file is no BlobProto (.binaryproto), and does not end in .npy"),
        (b"", "holds no values"),
        (blob(**LEGACY), "holds no values"),
        (blob(data=VALUES[:23], **LEGACY), "is 1 x 2 x 3 x 4, but the file holds 23 values"),
        (blob(data=VALUES), "is that of a single value, but the file holds 24 values"),
        (blob(data=VALUES[:1]), "found that of a single value"),
        (blob(data=VALUES, dim=(24,)), "found 24;"),
        (blob(data=VALUES, dim=(6, 4)), "found 6 x 4;"),
        (blob(data=VALUES, dim=(2, 1, 1, 3, 4)), "found 2 x 1 x 1 x 3 x 4;"),
        (blob(data=VALUES, dim=(-2, -3, 4)), "is -2 x -3 x 4, but the file holds 24 values"),
        (blob(data=VALUES, channels=2, height=3, width=4), "is 0 x 2 x 3 x 4, but"),
        (blob(data=[float("nan"), *VALUES[1:]], **LEGACY), "1 of the mean's 24 values are no"),
        (blob(double_data=[1e300] * 24, **LEGACY), "24 of the mean's 24 values are no"),
    ],
)
def test_a_blob_that_is_no_mean_image_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    assert message in refusal(written(tmp_path, content))


WHOLE = blob(data=VALUES, **LEGACY)


@pytest.mark.parametrize(
    ("extra", "shown"),
    [
        (b"\n", "1 byte too many (b'\\n')"),
        (b"\0\0", "2 bytes too many (b'\\x00\\x00')"),
        (b"\r\n", "2 bytes too many (b'\\r\\n')"),
        (b"\nmore than there is", "19 bytes too many (b'\\nmor'...)"),
        (b"\x1a", "1 byte too many (b'\\x1a')"),
    ],
)
def test_bytes_behind_a_whole_mean_are_counted(tmp_path: Path, extra: bytes, shown: str) -> None:
    message = refusal(written(tmp_path, WHOLE + extra))
    assert message.startswith(f"{shown} behind a whole BlobProto of {len(WHOLE)} bytes: cut off")


def test_a_cut_mean_is_refused_by_the_bytes_that_are_left(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, WHOLE[:50])) == (
        "the length at byte 9 says 96 bytes, and 40 bytes of the file are left: the file was cut, "
        "is damaged, or is no BlobProto (.binaryproto)"
    )


@pytest.mark.parametrize("name", ["mean.binaryproto", "mean.npy"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "run git lfs pull"),
        (b"\n<!DOCTYPE html>\n<html>404", "is a web page, as a failed download leaves one"),
        (b"<html><head>", "is a web page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>", "is a web page"),
    ],
)
def test_what_a_failed_download_leaves_is_told(
    tmp_path: Path, content: bytes, message: str, name: str
) -> None:
    assert message in refusal(written(tmp_path, content, name))


def test_an_array_by_the_name_of_a_blob_is_told_its_name(tmp_path: Path) -> None:
    np.save(tmp_path / "mean.npy", MEAN)
    content = (tmp_path / "mean.npy").read_bytes()
    assert "give it a name that ends in .npy" in refusal(written(tmp_path, content))


def test_an_npy_file_that_is_no_mean_image_is_refused(tmp_path: Path) -> None:
    assert "is no NumPy array" in refusal(written(tmp_path, b"text", "mean.npy"))
    np.save(tmp_path / "whole.npy", MEAN)
    whole = (tmp_path / "whole.npy").read_bytes()
    assert "is no NumPy array" in refusal(written(tmp_path, whole[:-9], "mean.npy"))
    header = b"{'descr': (, 'fortran_order': False, 'shape': (}\n"
    odd = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    assert "is no NumPy array" in refusal(written(tmp_path, odd, "mean.npy"))
    np.save(tmp_path / "mean.npy", np.array([[["text"]]]))
    assert "found elements of type <U4" in refusal(tmp_path / "mean.npy")
    np.save(tmp_path / "mean.npy", np.array([104.0, 117.0, 123.0]))
    assert "a mean of one value a channel goes into mean_value" in refusal(tmp_path / "mean.npy")


class _MakesAFolder:
    """What makes one where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self._path),))


def test_a_pickled_array_is_refused_and_not_unpickled(tmp_path: Path) -> None:
    objects = np.empty((1, 1, 1), object)
    objects[0, 0, 0] = _MakesAFolder(tmp_path / "it ran")
    np.save(tmp_path / "mean.npy", objects, allow_pickle=True)
    assert "no NumPy array" in refusal(tmp_path / "mean.npy")
    assert not (tmp_path / "it ran").exists()
