from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from prefetch._errors import ConfigError
from prefetch._mean import load_mean
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
    ],
    ids=["legacy", "four axes", "three axes", "doubles", "legacy wins", "doubles win"],
)
def test_a_blob_is_read_in_all_its_forms(tmp_path: Path, content: bytes) -> None:
    mean = load_mean(written(tmp_path, content))
    assert mean.dtype == np.float32
    assert mean.flags.c_contiguous
    assert np.array_equal(mean, MEAN)


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
        (b"\xff\xff\xff", "is no BlobProto"),
        (b"", "holds no values"),
        (blob(**LEGACY), "holds no values"),
        (blob(data=VALUES[:23], **LEGACY), "is 1 x 2 x 3 x 4, but the file holds 23 values"),
        (blob(data=VALUES), "is that of a single value, but the file holds 24 values"),
        (blob(data=VALUES[:1]), "found that of a single value"),
        (blob(data=VALUES, dim=(24,)), "found 24;"),
        (blob(data=VALUES, dim=(6, 4)), "found 6 x 4;"),
        (blob(data=VALUES, dim=(2, 1, 3, 4)), "found 2 x 1 x 3 x 4;"),
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
