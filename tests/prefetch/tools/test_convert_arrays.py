"""Arrays as Datums: NumPy's files, MNIST's and CIFAR's."""

from __future__ import annotations

import gzip
import struct
import zipfile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

import prefetch
from prefetch._tools.convert import convert
from prefetch._tools.convert.errors import InputError, OptionsError
from prefetch._tools.convert.inputs.arrays import ArrayExamples
from prefetch._tools.convert.inputs.cifar_files import read_cifar
from prefetch._tools.convert.inputs.labels import LabelRule
from prefetch._tools.convert.inputs.mnist_files import is_idx, read_mnist
from prefetch._tools.convert.inputs.numpy_files import read_arrays
from prefetch._tools.convert.inputs.open import InputOptions, open_input
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 3, 5, 6), np.uint8)
LABELS = np.array([3, 0, 2, 1])
LAYOUTS: tuple[Literal["nchw", "nhwc"], ...] = ("nchw", "nhwc")


def datums(examples: ArrayExamples) -> list[Datum]:
    found = []
    for index in range(len(examples)):
        value = examples.read(index).value
        found.append(Datum.FromString(value))
        assert found[-1].SerializeToString() == value
    return found


def saved(path: Path, array: NDArray[Any]) -> Path:
    np.save(path, array)
    return path


def idx(path: Path, array: NDArray[np.uint8], *, magic: int) -> Path:
    header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wb") as file:
        file.write(header + array.tobytes())
    return path


def test_planes_and_labels_are_stored_as_they_are(tmp_path: Path) -> None:
    found = datums(
        read_arrays(saved(tmp_path / "x.npy", IMAGES), saved(tmp_path / "y.npy", LABELS))
    )
    expected = [
        Datum(channels=3, height=5, width=6, data=image.tobytes(), label=int(label))
        for image, label in zip(IMAGES, LABELS, strict=True)
    ]
    assert expected == found


def test_keys_count_in_eight_digits(tmp_path: Path) -> None:
    examples = read_arrays(saved(tmp_path / "x.npy", IMAGES))
    assert b"00000003" == examples.key(3)
    assert f"{tmp_path}/x.npy, image 3" == examples.name(3)


def test_pixels_last_are_recognised_and_become_planes(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", IMAGES.transpose(0, 2, 3, 1))
    assert [image.tobytes() for image in IMAGES] == [
        datum.data for datum in datums(read_arrays(path))
    ]


def test_three_axes_are_gray_images(tmp_path: Path) -> None:
    found = datums(read_arrays(saved(tmp_path / "x.npy", IMAGES[:, 0])))
    assert [(1, 5, 6)] * 4 == [(one.channels, one.height, one.width) for one in found]


def test_a_shape_that_does_not_tell_the_channels_needs_a_layout(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", np.zeros((2, 3, 5, 3), np.uint8))
    with pytest.raises(InputError, match="--layout"):
        read_arrays(path)
    assert (5, 3) == tuple(read_arrays(path, layout="nchw").read(0).shape[1:])
    assert (3, 3, 5) == read_arrays(path, layout="nhwc").read(0).shape


@pytest.mark.parametrize(
    "shape", [(8, 3, 3), (3, 3, 8), (3, 8, 3), (1, 1, 8), (4, 4, 4), (8, 1, 3), (3, 2, 2)]
)
def test_a_shape_in_which_other_axes_may_be_the_channels_is_not_guessed_at(
    shape: tuple[int, int, int], tmp_path: Path
) -> None:
    path = saved(tmp_path / "x.npy", np.zeros((2, *shape), np.uint8))
    with pytest.raises(InputError, match=r"does not tell .* --layout nchw or --layout nhwc"):
        read_arrays(path)
    assert shape == read_arrays(path, layout="nchw").read(0).shape
    assert (shape[2], *shape[:2]) == read_arrays(path, layout="nhwc").read(0).shape


@pytest.mark.parametrize("num_labels", [1, 2, 3, 4, 5, 10, 40])
def test_float_labels_reach_a_feed_as_they_are(num_labels: int, tmp_path: Path) -> None:
    values = RNG.standard_normal((6, num_labels, 1, 1)).astype(np.float32)
    opened = open_input([saved(tmp_path / "y.npy", values)], InputOptions())
    convert(opened.examples, tmp_path / "db")
    with prefetch.open({"source": str(tmp_path / "db"), "batch_size": 6}) as feed:
        np.testing.assert_array_equal(values, next(iter(feed)).data)


def test_channels_can_be_stored_in_reverse(tmp_path: Path) -> None:
    found = datums(read_arrays(saved(tmp_path / "x.npy", IMAGES), reverse_channels=True))
    assert IMAGES[0, ::-1].tobytes() == found[0].data


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_floats_become_float_data(dtype: type, tmp_path: Path) -> None:
    values: NDArray[Any] = RNG.standard_normal((2, 3, 4, 4)).astype(dtype)
    found = datums(read_arrays(saved(tmp_path / "x.npy", values)))
    assert values[1].astype(np.float32).ravel().tolist() == list(found[1].float_data)
    assert not found[1].HasField("data")


def test_the_fingerprint_tells_orders_of_axes_and_channels_apart(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", np.zeros((2, 3, 3, 3), np.uint8))
    found = [
        read_arrays(path, layout=layout, reverse_channels=reverse).fingerprint()["array"]
        for layout in LAYOUTS
        for reverse in (False, True)
    ]
    assert 4 == len(set(found))


def test_several_float_labels_fit_a_database_of_their_own(tmp_path: Path) -> None:
    values = RNG.standard_normal((2, 7, 1, 1)).astype(np.float32)
    found = datums(read_arrays(saved(tmp_path / "y.npy", values)))
    assert values[0].ravel().tolist() == list(found[0].float_data)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int8, np.complex64])
def test_types_that_would_be_rounded_or_cut_are_refused(dtype: type, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"found {np.dtype(dtype)}; convert the array first"):
        read_arrays(saved(tmp_path / "x.npy", np.zeros((1, 3, 4, 4), dtype)))


def test_without_labels_records_have_none(tmp_path: Path) -> None:
    assert not datums(read_arrays(saved(tmp_path / "x.npy", IMAGES)))[0].HasField("label")


def test_as_many_labels_as_images_are_expected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"y\.npy: there are 3 labels and 4 images in .*x\.npy;"):
        read_arrays(saved(tmp_path / "x.npy", IMAGES), saved(tmp_path / "y.npy", LABELS[:3]))
    with pytest.raises(InputError, match=r"labels of shape 4 x 2; for .*\(records, labels, 1, 1\)"):
        read_arrays(
            saved(tmp_path / "x.npy", IMAGES), saved(tmp_path / "y.npy", np.zeros((4, 2), int))
        )
    column = saved(tmp_path / "y.npy", LABELS[:, np.newaxis])
    assert 3 == datums(read_arrays(tmp_path / "x.npy", column))[0].label


def test_an_npz_tells_by_its_axes_which_array_is_which(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, anything=IMAGES, labels=LABELS)
    assert LABELS.tolist() == [one.label for one in datums(read_arrays(path))]


def test_an_npz_of_several_sets_needs_names(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:1], y_test=LABELS[:1])
    with pytest.raises(
        InputError, match=r"--arrays IMAGES,LABELS; it holds x_train \(4, 3, 5, 6\)"
    ):
        read_arrays(path)
    assert 1 == len(read_arrays(path, names=("x_test", "y_test")))
    with pytest.raises(InputError, match="no array 'z', but x_train, y_train"):
        read_arrays(path, names=("x_test", "z"))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_file_that_holds_no_arrays_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"no array")
    with pytest.raises(InputError, match=r"is no NumPy array|is no \.npz file"):
        read_arrays(tmp_path / name)


def test_a_pickled_array_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"holds Python objects.*save an array of numbers"):
        read_arrays(path)
    np.savez(tmp_path / "x.npz", images=np.array([{}], object))
    with pytest.raises(InputError, match=r"holds Python objects.*save an array of numbers"):
        read_arrays(tmp_path / "x.npz")


def test_bytes_behind_an_array_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", IMAGES)
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    with pytest.raises(InputError, match="has 1 byte behind its array of 4 x 3 x 5 x 6 uint8; it"):
        read_arrays(path)
    path.write_bytes(whole)
    labels = saved(tmp_path / "y.npy", LABELS)
    labels.write_bytes(2 * labels.read_bytes())
    with pytest.raises(InputError, match=r"y\.npy: has \d+ bytes behind its array of 4 int64"):
        read_arrays(path, labels)


def test_bytes_behind_an_array_in_an_npz_are_refused(tmp_path: Path) -> None:
    content = saved(tmp_path / "x.npy", IMAGES).read_bytes()
    for behind in (b"", b"xy"):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("images.npy", content + behind)
        if not behind:
            assert 4 == len(read_arrays(tmp_path / "x.npz"))
    with pytest.raises(InputError, match=r"x\.npz: has 2 bytes behind its array 'images'"):
        read_arrays(tmp_path / "x.npz")


def test_files_that_are_cut_empty_or_without_records_are_told(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", IMAGES)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"x\.npy: is cut: it has 487 bytes, and its header"):
        read_arrays(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"x\.npy: the file is empty"):
        read_arrays(path)
    for shape in ((0, 3, 8, 8), (0, 8, 3, 3), (0, 8, 8)):
        np.savez(tmp_path / "x.npz", images=np.zeros(shape, np.uint8))
        for one in (saved(path, np.zeros(shape, np.uint8)), tmp_path / "x.npz"):
            with pytest.raises(InputError, match="holds no records: it is 0 x "):
                read_arrays(one)
    with pytest.raises(InputError, match="holds no pixels: it is 2 x 3 x 0 x 8"):
        read_arrays(saved(path, np.zeros((2, 3, 0, 8), np.uint8)))
    of_images = idx(tmp_path / "i", IMAGES[:0, 0], magic=2051)
    of_labels = idx(tmp_path / "l", LABELS[:0].astype(np.uint8), magic=2049)
    with pytest.raises(InputError, match="holds no records: it is 0 x 1 x 5 x 6"):
        read_mnist(of_images, of_labels)


def header_only(descr: str, shape: str) -> bytes:
    """Return a .npy file that ends behind its header."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("descr", "shape"),
    [
        ("'|u1'", "(10, 3, 4, 4)"),
        ("'|u1'", "(1000000000, 1000000000, 1000000000, 1000000000)"),
        ("'|u1'", f"({10**30}, 3, 4, 4)"),
        ("'|u1'", "(-1, 3, 4, 4)"),
        ("'|u1'", "'3'"),
        ("'nonsense'", "(1, 3, 4, 4)"),
        ("[('a', '|u1')]", "(1, 3, 4, 4)"),
        ("None", "None"),
        ("(", "("),
    ],
)
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_header_that_no_file_can_have_is_refused(
    descr: str, shape: str, name: str, tmp_path: Path
) -> None:
    content = header_only(descr, shape)
    if name == "x.npy":
        (tmp_path / name).write_bytes(content)
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("images.npy", content)
    with pytest.raises(
        InputError, match=r"is cut|is no NumPy array|is no \.npz file|expected|images and"
    ) as caught:
        read_arrays(tmp_path / name)
    assert "overflow" not in str(caught.value)  # that would be a warning of NumPy's


@pytest.mark.parametrize("dtype", [">f2", ">f4", "<f4"])
def test_either_order_of_bytes_is_taken(dtype: str, tmp_path: Path) -> None:
    values = RNG.standard_normal((2, 3, 4, 4)).astype(dtype)
    labels = np.array([3, 70000], ">i4")
    found = datums(
        read_arrays(saved(tmp_path / "x.npy", values), saved(tmp_path / "y.npy", labels))
    )
    assert values[1].astype(np.float32).ravel().tolist() == list(found[1].float_data)
    assert [3, 70000] == [one.label for one in found]


def test_a_fault_of_labels_names_the_labels_file(tmp_path: Path) -> None:
    images = saved(tmp_path / "x.npy", IMAGES)
    for labels, words in (
        (LABELS - 1, "negative"),
        (LABELS / 2, "of type float64"),
        (np.zeros((4, 2), int), "labels of shape 4 x 2"),
        (LABELS[:3], "there are 3 labels and 4 images"),
    ):
        path = saved(tmp_path / "y.npy", labels)
        with pytest.raises(InputError, match=words) as caught:
            read_arrays(images, path)
        assert str(path) == caught.value.path
    np.savez(tmp_path / "x.npz", images=IMAGES, labels=LABELS[:3])
    with pytest.raises(InputError, match=r"x\.npz, the labels: there are 3 labels and 4 images"):
        read_arrays(tmp_path / "x.npz")
    of_images = idx(tmp_path / "i", IMAGES[:, 0], magic=2051)
    of_labels = idx(tmp_path / "l", LABELS[:1].astype(np.uint8), magic=2049)
    with pytest.raises(InputError, match="there are 1 label and 4 images") as caught:
        read_mnist(of_images, of_labels)
    assert str(of_labels) == caught.value.path


def test_labels_are_given_once_and_names_for_an_npz_only(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=IMAGES, labels=LABELS)
    with pytest.raises(InputError, match=r"holds labels, and .*y\.npy gives others"):
        read_arrays(tmp_path / "x.npz", saved(tmp_path / "y.npy", LABELS))
    with pytest.raises(OptionsError, match=r"--arrays names arrays of a \.npz file"):
        read_arrays(saved(tmp_path / "x.npy", IMAGES), names=("a", "b"))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist_has_caffes_keys_and_fields(ending: str, tmp_path: Path) -> None:
    images = idx(tmp_path / f"i{ending}", IMAGES[:, 0], magic=2051)
    labels = idx(tmp_path / f"l{ending}", LABELS.astype(np.uint8), magic=2049)
    assert is_idx(images)
    assert is_idx(labels)
    examples = read_mnist(images, labels)
    expected = Datum(channels=1, height=5, width=6, data=IMAGES[2, 0].tobytes(), label=2)
    assert expected == datums(examples)[2]
    assert b"00000002" == examples.key(2)


def test_mnist_files_that_are_swapped_or_cut_are_refused(tmp_path: Path) -> None:
    images = idx(tmp_path / "i", IMAGES[:, 0], magic=2051)
    labels = idx(tmp_path / "l", LABELS.astype(np.uint8), magic=2049)
    with pytest.raises(InputError, match="found 2049, that of the labels: give IMAGES, then"):
        open_input([labels, images], InputOptions())
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(InputError, match="119 bytes behind its header, and 4 x 5 x 6 takes 120"):
        read_mnist(images, labels)
    images.write_bytes(b"")
    with pytest.raises(InputError, match="found nothing"):
        read_mnist(images, labels)
    for size in (4, 8, 15):
        images.write_bytes(struct.pack(">4I", 2051, 4, 5, 6)[:size])
        with pytest.raises(InputError, match=f"ends in its header: it has {size} bytes"):
            read_mnist(images, labels)


@pytest.mark.parametrize("cut", [1, 10, 30, -1])
def test_gzipped_files_that_are_cut_or_damaged_are_refused(cut: int, tmp_path: Path) -> None:
    images = idx(tmp_path / "i.gz", IMAGES[:, 0], magic=2051)
    labels = idx(tmp_path / "l.gz", LABELS.astype(np.uint8), magic=2049)
    images.write_bytes(images.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"cannot be unpacked|magic number"):
        read_mnist(images, labels)


def test_cifar_keeps_its_planes_and_has_keys_of_five_digits(tmp_path: Path) -> None:
    planes = RNG.integers(0, 256, (3, 3072), np.uint8)
    labels = np.array([[9], [0], [4]], np.uint8)
    rows = np.hstack([labels, planes])
    (tmp_path / "1.bin").write_bytes(rows[:2].tobytes())
    (tmp_path / "2.bin").write_bytes(rows[2:].tobytes())
    examples = read_cifar([tmp_path / "1.bin", tmp_path / "2.bin"])
    expected = Datum(channels=3, height=32, width=32, data=planes[2].tobytes(), label=4)
    assert expected == datums(examples)[2]
    assert b"00002" == examples.key(2)


@pytest.mark.parametrize(("coarse", "label"), [(False, 42), (True, 7)])
def test_cifar_100_has_two_labels_a_record(coarse: bool, label: int, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    (tmp_path / "train.bin").write_bytes(bytes([7, 42]) + bytes(3072))
    assert label == datums(read_cifar([tmp_path / "train.bin"], coarse=coarse))[0].label


def test_a_batch_that_is_given_twice_is_refused_by_whatever_name(tmp_path: Path) -> None:
    one, other = tmp_path / "1.bin", tmp_path / "2.bin"
    for path in (one, other):
        path.write_bytes(bytes(3073))
    assert 2 == len(read_cifar([one, other]))  # of the same content, for what we know
    with pytest.raises(InputError, match=r"1\.bin: is given twice; name each batch once"):
        read_cifar([one, other, one])
    for name in ("link.bin", "hard.bin"):
        (tmp_path / name).symlink_to(one) if name == "link.bin" else (
            (tmp_path / name).hardlink_to(one)
        )
        with pytest.raises(InputError, match=rf"{name}: is given twice, also as .*/1\.bin;"):
            read_cifar([one, tmp_path / name])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([10], "record 1 has the label 10, and those of CIFAR-10 are 0 to 9: the file is damaged"),
        ([255], "record 1 has the label 255, and those of CIFAR-10 are 0 to 9"),
        ([20, 0], "record 1 has the label 20, and those of CIFAR-100 are 0 to 19"),
        ([0, 100], "record 1 has the label 100, and those of CIFAR-100 are 0 to 99"),
    ],
)
def test_labels_that_cifar_has_not_are_refused(
    labels: list[int], words: str, tmp_path: Path
) -> None:
    largest = [9] if len(labels) == 1 else [19, 99]
    good, bad = (bytes([*one, *bytes(3072)]) for one in (largest, labels))
    (tmp_path / "1.bin").write_bytes(good)
    (tmp_path / "2.bin").write_bytes(good + bad)
    assert 1 == len(read_cifar([tmp_path / "1.bin"]))
    for coarse in (False, True)[: len(labels)]:
        with pytest.raises(InputError, match=rf"2\.bin: {words}"):
            read_cifar([tmp_path / "1.bin", tmp_path / "2.bin"], coarse=coarse)


def test_batches_of_both_kinds_are_refused(tmp_path: Path) -> None:
    ten, hundred = tmp_path / "data_batch_1.bin", tmp_path / "train.bin"
    more = tmp_path / "data_batch_2.bin"
    for path in (ten, more):
        path.write_bytes(bytes(2 * 3073))
    hundred.write_bytes(bytes(2 * 3074))
    with pytest.raises(InputError, match=r"train\.bin: is of CIFAR-100, and .* of CIFAR-10,"):
        read_cifar([ten, more, hundred])
    with pytest.raises(InputError, match=r"1\.bin: is of CIFAR-10, and .* of CIFAR-100,"):
        read_cifar([hundred, ten])


def test_a_batch_that_could_be_of_either_kind_is_that_of_the_others(tmp_path: Path) -> None:
    either, hundred = tmp_path / "either.bin", tmp_path / "train.bin"
    either.write_bytes(bytes(3073 * 3074))
    hundred.write_bytes(bytes(3074))
    assert 3074 == len(read_cifar([either]))
    assert 3073 + 1 == len(read_cifar([either, hundred])) == len(read_cifar([hundred, either]))


def test_coarse_labels_are_cifar_100_s_alone(tmp_path: Path) -> None:
    (tmp_path / "1.bin").write_bytes(bytes(3073))
    with pytest.raises(OptionsError, match=r"--coarse: .*1\.bin is of CIFAR-10, which has one"):
        read_cifar([tmp_path / "1.bin"], coarse=True)


def test_keys_have_as_many_digits_as_their_order_needs(tmp_path: Path) -> None:
    images = np.zeros((11, 1, 1, 1), np.uint8)
    assert b"00010" == ArrayExamples("x", images, None, digits=5).key(10)
    assert b"09" == ArrayExamples("x", images, None, digits=1).key(9)


@pytest.mark.parametrize("size", [0, 3072, 3073 * 2 - 1])
def test_a_cut_batch_is_refused(size: int, tmp_path: Path) -> None:
    (tmp_path / "1.bin").write_bytes(bytes(size))
    with pytest.raises(InputError, match=f"has {size} bytes; expected a multiple of 3073"):
        read_cifar([tmp_path / "1.bin"])


def test_negative_labels_of_arrays_are_kept_by_choice_only(tmp_path: Path) -> None:
    paths = saved(tmp_path / "x.npy", IMAGES), saved(tmp_path / "y.npy", LABELS - 1)
    with pytest.raises(InputError, match="record 1: the label -1 is negative"):
        read_arrays(*paths)
    assert -1 == datums(read_arrays(*paths, rule=LabelRule.INT32))[1].label
