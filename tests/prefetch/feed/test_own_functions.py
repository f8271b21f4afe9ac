"""People's own functions: per_record and per_batch, from Python and by name in YAML."""

# ruff: noqa: ARG005 - the functions take all that they are given

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import images_fixture, records_fixture

import prefetch
from memory.testing import peek
from prefetch._config.dump import dump_config
from prefetch._config.load import load_config
from prefetch._pipeline import prefetcher
from prefetch.caffe import Datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

Function = Any


def make_pictures() -> Iterator[tuple[bytes, bytes]]:
    """Yield twelve records of random pixels, every third an encoded image."""
    rng = np.random.default_rng(0)
    for index in range(12):
        pixels = rng.integers(0, 256, (3, 9, 10), np.uint8)
        value = encode_image(pixels, label=index)
        if index % 3 == 2:
            ok, png = cv2.imencode(".png", pixels.transpose(1, 2, 0))
            assert ok
            value = Datum(data=png.tobytes(), label=index, encoded=True).SerializeToString()
        yield b"%04d" % index, value


source = images_fixture(10)
pictures = records_fixture(make_pictures, scope="module")


def same(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the image as it is."""
    return image


def noisy(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
    """Return an image that depends on the random numbers, and a label that tells of both."""
    return rng.integers(0, 256, image.shape, np.uint8) ^ image, label + 100


def fails_at(*labels: int) -> Function:
    """Return a function that raises for some labels."""

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        if label in labels:
            raise LookupError(f"no face in {label}")
        return image

    return function


def serve(source: Path, **options: Any) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return data and labels of the batches of an epoch."""
    with prefetch.open({"source": source, "batch_size": 4, "device": "cpu"} | options) as feed:
        return [(batch.data.numpy().copy(), batch.label.numpy().copy()) for batch in feed]


def assert_equal(expected: list[Any], actual: list[Any]) -> None:
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        for left, right in zip(one, other, strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


# per_record ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("channels", ["stored", "rgb"])
@pytest.mark.parametrize("rng", ["counter", "caffe"])
def test_a_function_that_changes_nothing_changes_nothing(
    pictures: Path, dtype: str, layout: str, channels: str, rng: str
) -> None:
    transform: dict[str, Any] = {
        "dtype": dtype,
        "layout": layout,
        "channels": channels,
        "crop_size": 7,
        "mirror": True,
    }
    if dtype != "uint8":
        transform |= {"mean_value": [1.5, 20.25, 100.0], "scale": [0.5, 0.1, 3.0]}
    options: dict[str, Any] = {"transform": transform, "rng": rng, "threads": 2}
    assert_equal(serve(pictures, **options), serve(pictures, **options, per_record=same))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("channels", ["stored", "rgb"])
@pytest.mark.parametrize("crop_size", [0, 7])
def test_a_mean_image_is_subtracted_where_the_pixels_were(
    pictures: Path, tmp_path: Path, layout: str, channels: str, crop_size: int
) -> None:
    mean = np.random.default_rng(1).uniform(0, 255, (3, 9, 10)).astype(np.float32)
    np.save(tmp_path / "mean.npy", mean)
    transform = {
        "mean_file": tmp_path / "mean.npy",
        "crop_size": crop_size,
        "mirror": True,
        "layout": layout,
        "channels": channels,
        "scale": 0.3,
    }
    expected = serve(pictures, transform=transform)
    assert_equal(expected, serve(pictures, transform=transform, per_record=same))


def test_a_record_of_another_size_than_the_mean_image_is_refused_alike(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "mean.npy", np.zeros((1, 8, 8), np.float32))
    pixels = [np.zeros((1, 8, 8), np.uint8), np.zeros((1, 8, 9), np.uint8)]
    database = write_database(
        tmp_path / "db", [(b"%d" % i, encode_image(p, label=i)) for i, p in enumerate(pixels)]
    )
    transform = {"mean_file": tmp_path / "mean.npy", "crop_size": 4}
    texts = []
    for options in ({}, {"per_record": same}):
        with pytest.raises(prefetch.RecordError) as caught:
            serve(database, transform=transform, **options)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.usefixtures("kernels")
def test_the_function_sees_what_the_batch_would_hold_as_uint8(pictures: Path) -> None:
    transform: dict[str, Any] = {"crop_size": 7, "mirror": True, "channels": "rgb"}
    seen: dict[int, NDArray[np.uint8]] = {}

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        seen[label] = image  # kept beyond the call
        return image

    serve(pictures, transform=transform | {"scale": 0.5}, per_record=function, epochs=1)
    expected = serve(pictures, transform=transform | {"dtype": "uint8", "layout": "nhwc"})
    for images, labels in expected:
        for image, label in zip(images, labels.tolist(), strict=True):
            assert seen[label].dtype == np.uint8
            assert seen[label].flags.writeable
            np.testing.assert_array_equal(image, seen[label])


def test_what_it_returns_is_normalised_and_its_label_served(source: Path) -> None:
    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        assert type(label) is int
        return image[:, ::-1] + np.uint8(1), label * 2

    batches = serve(source, transform={"mean_value": 1, "scale": 2}, per_record=function)
    for data, labels in batches:
        for image, label in zip(data, labels.tolist(), strict=True):
            assert (image == label).all()  # (label / 2 + 1 - 1) * 2


def test_it_may_change_its_image_in_place_and_return_what_numpy_takes_for_one(
    source: Path,
) -> None:
    class Tensor:
        def __init__(self, image: NDArray[np.uint8]) -> None:
            self._image = image

        def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[np.uint8]:
            return self._image

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        image[:] = 7
        return Tensor(image)

    assert all((data == 7).all() for data, _ in serve(source, per_record=function))


@pytest.mark.parametrize("threads", [1, 4])
def test_its_random_numbers_depend_on_seed_epoch_and_record_alone(
    source: Path, threads: int
) -> None:
    found: dict[tuple[int, int], NDArray[Any]] = {}
    for batch_size, shuffle, num_threads in ((4, False, 1), (3, True, threads)):
        options: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle, "seed": 5}
        with prefetch.open(
            {"source": source, "device": "cpu", "threads": num_threads} | options,
            per_record=noisy,
        ) as feed:
            for epoch in range(2):
                for batch in feed:
                    for image, record in zip(batch.data.numpy(), batch.indices, strict=True):
                        key = epoch, int(record)
                        np.testing.assert_array_equal(image, found.setdefault(key, image.copy()))
    assert len({image.tobytes() for image in found.values()}) == 20
    with prefetch.open({"source": source, "seed": 6}, per_record=noisy) as feed:
        other = next(iter(feed)).data.numpy()[0]
    assert (other != found[0, 0]).any()


def test_of_several_ranks_each_record_gets_what_one_rank_gives_it(source: Path) -> None:
    (alone, _), *_ = serve(source, batch_size=10, per_record=noisy)
    for rank in range(2):
        ((share, labels),) = serve(
            source, batch_size=10, per_record=noisy, shard={"rank": rank, "world_size": 2}
        )
        np.testing.assert_array_equal(share, alone[labels - 100])


def test_the_record_that_stands_in_for_a_bad_one_gets_its_own_numbers(source: Path) -> None:
    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        if label == 3:
            raise ValueError
        return noisy(image, label, rng)

    (alone, _), *_ = serve(source, batch_size=10, per_record=noisy)
    ((data, labels),) = serve(source, batch_size=10, per_record=function, on_bad_record="skip")
    assert labels.tolist() == [100, 101, 102, 104, 104, 105, 106, 107, 108, 109]
    np.testing.assert_array_equal(data, alone[labels - 100])


def test_what_it_raises_is_its_records_error(source: Path) -> None:
    with pytest.raises(prefetch.RecordError) as caught:
        serve(source, per_record=fails_at(6))
    error = caught.value
    assert (error.stage, error.record, error.key, error.batch) == ("per_record", 6, b"00000006", 1)
    assert isinstance(error.__cause__, LookupError)
    assert "stage per_record: per_record raised" in str(error)
    assert "LookupError: no face in 6" in str(error)
    # Its traceback is text, and begins in the function: frames would keep the batch's memory.
    (trace,) = error.__cause__.__notes__
    assert ", in function\n" in trace
    assert "own_function.py" not in trace


def test_an_exception_that_cannot_be_written_out_is_named_all_the_same(source: Path) -> None:
    class Broken(Exception):  # noqa: N818 - people call theirs as they like
        def __str__(self) -> str:
            raise ValueError("no text")

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        raise Broken

    with pytest.raises(prefetch.RecordError, match="Broken"):
        serve(source, per_record=function)
    with pytest.raises(prefetch.TooManyBadRecordsError, match="Broken"):
        serve(source, per_record=function, on_bad_record="skip", max_bad_records=2)


def test_the_batches_before_are_served_and_the_first_error_in_order_is_raised(
    source: Path,
) -> None:
    with prefetch.open(
        {"source": source, "batch_size": 4, "threads": 3}, per_record=fails_at(9, 7, 5)
    ) as feed:
        iterator = iter(feed)
        assert next(iterator).number == 0
        with pytest.raises(prefetch.RecordError, match="no face in 5"):
            next(iterator)


def test_with_skip_the_next_good_record_takes_the_place(source: Path) -> None:
    options: dict[str, Any] = {"on_bad_record": "skip", "per_record": fails_at(0, 1, 9)}
    with prefetch.open({"source": source, "batch_size": 10} | options) as feed:
        for _ in range(2):
            (batch,) = feed
            assert batch.label.numpy().tolist() == [2, 2, 2, 3, 4, 5, 6, 7, 8, 2]
            assert batch.indices.tolist() == batch.label.numpy().tolist()
        assert feed.stats().bad_records == 3


def test_an_error_that_is_kept_names_the_line_and_keeps_no_memory(source: Path) -> None:
    options: dict[str, Any] = {"on_bad_record": "skip", "max_bad_records": 0}
    with pytest.raises(prefetch.TooManyBadRecordsError) as caught:
        serve(source, **options, per_record=fails_at(2))
    cause = caught.value.last.__cause__
    assert isinstance(cause, LookupError)
    assert cause.__traceback__ is None
    assert 'raise LookupError(f"no face in {label}")' in cause.__notes__[0]


def test_with_quarantine_the_record_is_kept(source: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "on_bad_record": "quarantine",
        "quarantine": tmp_path / "bad",
        "per_record": fails_at(4),
    }
    serve(source, **options)
    with prefetch.open({"source": tmp_path / "bad"}) as feed:
        (batch,) = feed
    assert batch.label.numpy().tolist() == [4]


@pytest.mark.parametrize("max_bad_records", [5, 100])
def test_where_all_records_are_bad_it_ends_in_an_error(source: Path, max_bad_records: int) -> None:
    options: dict[str, Any] = {"on_bad_record": "skip", "max_bad_records": max_bad_records}
    expected = prefetch.TooManyBadRecordsError if max_bad_records == 5 else prefetch.RecordError
    with pytest.raises(expected, match="per_record raised"):
        serve(source, **options, per_record=fails_at(*range(10)))


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda image: None, "found None"),
        (
            lambda image: image[:-1],
            r"expected uint8 of shape \(8, 8, 3\), found uint8 of shape \(7",
        ),
        (lambda image: image.transpose(2, 0, 1), r"found uint8 of shape \(3, 8, 8\)"),
        (lambda image: image / 255, "found float64 of shape"),
        (lambda image: (image, 1, 2), "found tuple"),
        (lambda image: object(), "found object"),
        (lambda image: (image, "cat"), "expected a number for the label, found <U3 of shape"),
        (lambda image: (image, None), "expected a number for the label, found None"),
        (lambda image: (image, 0.5), "expected an integer for the label, found 0.5"),
        (lambda image: (image, [1, 2]), "expected a number for the label"),
        (lambda image: (image, 2**70), "expected a number for the label|per_record raised"),
    ],
)
def test_what_is_no_image_as_it_was_given_is_a_bad_record(
    source: Path, returned: Callable[[Any], Any], says: str
) -> None:
    with pytest.raises(prefetch.RecordError, match=says) as caught:
        serve(source, per_record=lambda image, label, rng: returned(image))
    assert (caught.value.stage, caught.value.record) == ("per_record", 0)


def test_labels_out_of_range_are_refused_and_fractions_kept_by_floats(source: Path) -> None:
    with pytest.raises(prefetch.RecordError, match="OverflowError"):
        serve(source, label_dtype="int32", per_record=lambda image, label, rng: (image, 2**40))
    batches = serve(
        source, label_dtype="float32", per_record=lambda image, label, rng: (image, label / 4)
    )
    assert batches[0][1].tolist() == [0, 0.25, 0.5, 0.75]


def test_without_labels_it_is_given_none(source: Path) -> None:
    def function(image: NDArray[np.uint8], label: None, rng: np.random.Generator) -> Function:
        assert label is None
        return image, label

    with prefetch.open({"source": source, "labels": False}, per_record=function) as feed:
        assert len(next(iter(feed))) == 10
    with (
        prefetch.open(
            {"source": source, "labels": False}, per_record=lambda image, *_: (image, 1)
        ) as feed,
        pytest.raises(prefetch.RecordError, match="labels is false"),
    ):
        next(iter(feed))


def float_records() -> Iterator[tuple[bytes, bytes]]:
    for index in range(4):
        datum = Datum(channels=1, height=2, width=2, float_data=[0.5] * 4, label=index)
        yield b"%d" % index, datum.SerializeToString()


floats = records_fixture(float_records)


def test_records_of_floats_are_refused_at_opening(floats: Path) -> None:
    with pytest.raises(prefetch.ConfigError, match="holds float_data, and per_record") as caught:
        prefetch.open({"source": floats}, per_record=same)
    assert [fault.key for fault in caught.value.faults] == ["per_record"]


def test_a_record_of_floats_among_others_is_a_bad_one(tmp_path: Path) -> None:
    records = [(b"0", encode_image(np.zeros((1, 2, 2), np.uint8), label=7)), *float_records()]
    database = write_database(
        tmp_path / "db",
        [(b"a" + key, value) for key, value in records[:1]]
        + [(b"b" + key, value) for key, value in records[1:]],
    )
    with pytest.raises(prefetch.RecordError, match="holds float_data, and per_record") as caught:
        serve(database, per_record=same)
    assert caught.value.stage == "per_record"
    ((_, labels),) = serve(database, per_record=same, on_bad_record="skip", batch_size=5)
    assert labels.tolist() == [7] * 5


def test_it_does_not_go_together_with_a_transformation_on_the_device(source: Path) -> None:
    with pytest.raises(prefetch.ConfigError, match="where device contradicts per_record"):
        prefetch.open(
            {"source": source, "device": "simulated", "transform": {"where": "device"}},
            per_record=same,
        )


def test_a_device_of_its_own_memory_gets_the_same(pictures: Path) -> None:
    options: dict[str, Any] = {"per_record": noisy, "transform": {"scale": 0.5}}
    expected = serve(pictures, **options)
    assert_equal(expected, serve(pictures, **options, device="simulated"))


# per_batch ----------------------------------------------------------------------------------------


DEVICES: list[dict[str, Any]] = [
    {"device": "cpu"},
    {"device": "simulated"},
    {"device": "simulated", "transform": {"where": "device"}},
]


@pytest.mark.parametrize("options", DEVICES)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_batch_is_what_the_function_makes_of_it(
    source: Path, options: dict[str, Any], *, in_place: bool
) -> None:
    def function(images: Any, labels: Any, rng: np.random.Generator) -> Function:
        assert images.dtype == np.float32
        assert labels.dtype == np.int64
        shift = np.float32(rng.integers(1000))
        if not in_place:
            return images + shift, labels + 1
        images += shift
        labels += 1
        return None

    expected = serve(source)
    with prefetch.open({"source": source, "batch_size": 4} | options, per_batch=function) as feed:
        for batch, (data, labels) in zip(feed, expected, strict=True):
            np.testing.assert_array_equal(batch.label.numpy(), labels + 1)
            if options["device"] != "cpu":
                there = peek(batch.data).view(np.float32).reshape(data.shape)
                assert (there - data == (there - data).flat[0]).all()
            shift = batch.data.numpy() - data
            assert (shift == shift.flat[0]).all()


def test_it_may_return_the_images_alone(source: Path) -> None:
    batches = serve(source, per_batch=lambda images, labels, rng: images * 2)
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[0][0][3].flat[0] == 6


def test_both_functions_work_together_in_every_type(pictures: Path) -> None:
    for dtype in ("float32", "float16", "bfloat16", "uint8"):
        transform = {"dtype": dtype, "layout": "nhwc"}
        batches = serve(
            pictures,
            transform=transform,
            per_record=lambda image, label, rng: image * 0 + np.uint8(3),
            per_batch=lambda images, labels, rng: images + images,
        )
        assert all((data == 6).all() for data, _ in batches)


def numbers_of_batches(source: Path, **options: Any) -> list[int]:
    found: list[int] = []

    def function(images: Any, labels: Any, rng: np.random.Generator) -> None:
        labels[:] = rng.integers(2**31)

    for _, labels in serve(source, per_batch=function, **options):
        found.append(int(labels[0]))
    return found


def test_its_random_numbers_are_those_of_the_batch_in_the_global_order(source: Path) -> None:
    alone = numbers_of_batches(source, batch_size=1)
    assert len(set(alone)) == 10
    assert alone == numbers_of_batches(source, batch_size=1, threads=4)
    for rank in range(2):
        shard = {"rank": rank, "world_size": 2}
        assert alone[rank::2] == numbers_of_batches(source, batch_size=1, shard=shard)


def test_a_resumed_feed_gives_both_functions_the_same_numbers(source: Path) -> None:
    options: dict[str, Any] = {
        "source": source,
        "batch_size": 3,
        "shuffle": True,
        "per_record": noisy,
        "per_batch": lambda images, labels, rng: images + np.float32(rng.random()),
    }
    with prefetch.open(options) as feed:
        expected = [batch.data.numpy().copy() for _ in range(2) for batch in feed]
    with prefetch.open(options) as feed:
        iterator = iter(feed)
        for _ in range(2):
            next(iterator)
        state = json.loads(json.dumps(feed.state_dict()))
    with prefetch.open(options) as feed:
        feed.load_state_dict(state)
        rest = [batch.data.numpy().copy() for _ in range(2) for batch in feed]
    for one, other in zip(expected[2:], rest, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options", DEVICES)
def test_what_it_raises_is_raised_with_its_batch(source: Path, options: dict[str, Any]) -> None:
    def function(images: Any, labels: Any, rng: np.random.Generator) -> None:
        if 5 in labels:
            raise LookupError("no")

    with prefetch.open({"source": source, "batch_size": 4} | options, per_batch=function) as feed:
        iterator = iter(feed)
        assert next(iterator).number == 0
        with pytest.raises(LookupError) as caught:
            next(iterator)
    assert "epoch 0, batch 1, stage per_batch" in caught.value.__notes__[0]


def test_an_exception_that_would_end_the_loop_unseen_becomes_another(source: Path) -> None:
    def function(images: Any, labels: Any, rng: np.random.Generator) -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="per_batch raised StopIteration"):
        serve(source, per_batch=function)


@pytest.mark.parametrize("options", DEVICES)
@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda images, labels: images[1:], r"images of another kind: expected float32 of shape"),
        (lambda images, labels: images.astype(np.float64), "found float64"),
        (lambda images, labels: (images, labels.astype(np.int32)), "labels of another kind"),
        (lambda images, labels: (images, None), "labels of another kind"),
        (lambda images, labels: (images, labels, 3), "images of another kind|inhomogeneous"),
    ],
)
def test_arrays_of_another_kind_are_refused(
    source: Path, returned: Any, says: str, options: dict[str, Any]
) -> None:
    with (
        prefetch.open(
            {"source": source} | options,
            per_batch=lambda images, labels, _: returned(images, labels),
        ) as feed,
        pytest.raises(ValueError, match=says),
    ):
        next(iter(feed))


# By name, and in states ---------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules are imported from."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def test_a_yaml_file_names_functions_by_module_and_function(
    source: Path, package: Path, tmp_path: Path
) -> None:
    (package / "own_images.py").write_text(
        "import threading\n"
        "where = threading.current_thread()\n"
        "class Images:\n"
        "    @staticmethod\n"
        "    def darker(image, label, rng): return image // 2\n"
        "def offset(images, labels, rng): images += 1000\n",
        encoding="utf-8",
    )
    file = tmp_path / "feed.yaml"
    file.write_text(
        f"source: {source}\nper_record: own_images:Images.darker\nper_batch: own_images:offset\n",
        encoding="utf-8",
    )
    with prefetch.open(file) as feed:
        assert feed.config.per_record == "own_images:Images.darker"
        assert next(iter(feed)).data.numpy()[7].flat[0] == 1003
    assert sys.modules["own_images"].where is threading.current_thread()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("own_missing:f", "the module own_missing cannot be imported .* on PYTHONPATH"),
        ("own_broken:f", r"own_broken cannot be imported \(ZeroDivisionError"),
        ("own_images:offse", "there is no offse in own_images; did you mean offset?"),
        ("own_images:number", "expected a function, found int"),
        ("just_a_name", "expected module:function, such as"),
        ("a b:c", "expected module:function"),
        ("7", "expected module:function"),
    ],
)
@pytest.mark.parametrize("option", ["per_record", "per_batch"])
def test_a_name_of_no_function_is_refused_with_its_line(
    source: Path, package: Path, tmp_path: Path, option: str, text: str, says: str
) -> None:
    (package / "own_images.py").write_text("number = 1\ndef offset(*_): pass\n", encoding="utf-8")
    (package / "own_broken.py").write_text("1 / 0\n", encoding="utf-8")
    file = tmp_path / "feed.yaml"
    file.write_text(f"source: {source}\n{option}: {text}\n", encoding="utf-8")
    with pytest.raises(prefetch.ConfigError, match=says) as caught:
        prefetch.open(file)
    (fault,) = caught.value.faults
    assert (fault.key, fault.line) == (option, 2)
    if "broken" in text:
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_state_names_the_functions_and_a_difference_is_warned_of(source: Path) -> None:
    options = {"source": source}
    with prefetch.open(options, per_record=noisy) as feed:
        state = json.loads(json.dumps(feed.state_dict()))
    assert state["config"]["per_record"] == f"{__name__}:noisy"
    assert "per_batch" not in state["config"]
    with prefetch.open(options, per_record=noisy) as feed, warnings.catch_warnings():
        warnings.simplefilter("error")
        feed.load_state_dict(state)
    with (
        prefetch.open(options, per_record=same) as feed,
        pytest.warns(prefetch.PrefetchWarning, match="per_record was .*:noisy .* is .*:same"),
    ):
        feed.load_state_dict(state)
    with (
        prefetch.open(options) as feed,
        pytest.warns(prefetch.PrefetchWarning, match="is none"),
    ):
        feed.load_state_dict(state)


def test_a_feed_without_functions_saves_no_word_of_them(source: Path) -> None:
    with prefetch.open({"source": source}) as feed:
        assert not {"per_record", "per_batch"} & feed.state_dict()["config"].keys()


# Their time, and what they may call ---------------------------------------------------------------


def test_what_they_take_is_a_figure_of_its_own(source: Path) -> None:
    with prefetch.open({"source": source}) as feed:
        next(iter(feed))
        assert feed.stats().own_function_s == 0.0
    with prefetch.open({"source": source}, per_record=same, per_batch=lambda *_: None) as feed:
        list(feed)
        next(iter(feed))
        stats = feed.stats()
        assert 0 < stats.own_function_s


def test_close_waits_for_the_call_at_work_and_for_no_other(source: Path) -> None:
    began, may_end = threading.Event(), threading.Event()
    calls: list[int] = []

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        calls.append(label)
        began.set()
        assert may_end.wait(60)
        return image

    feed = prefetch.open({"source": source, "threads": 1}, per_record=function)
    ends: list[BaseException] = []

    def consume() -> None:
        try:
            next(iter(feed))
        except prefetch.FeedClosedError as error:
            ends.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert began.wait(60)
    closer = threading.Thread(target=feed.close)
    closer.start()
    while not feed._prefetcher.closed:
        pass
    may_end.set()
    closer.join(60)
    consumer.join(60)
    assert calls == [0]
    assert len(ends) == 1


@pytest.mark.parametrize("option", ["per_record", "per_batch"])
def test_close_says_once_which_function_it_waits_for(
    source: Path, option: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, may_end = threading.Event(), threading.Event()

    def function(image: Any, label: Any, rng: np.random.Generator) -> None:
        began.set()
        assert may_end.wait(60)

    def end_the_call(record: logging.LogRecord) -> bool:
        may_end.set()
        return bool(record)

    monkeypatch.setattr(prefetcher, "_NOTICE_S", 0.01)
    logger = logging.getLogger("prefetch")
    logger.addFilter(end_the_call)
    try:
        feed = prefetch.open({"source": source, "threads": 1, option: function})

        def consume() -> None:
            with pytest.raises(prefetch.FeedClosedError):
                next(iter(feed))

        consumer = threading.Thread(target=consume)
        consumer.start()
        assert began.wait(60)
        feed.close()
        consumer.join(60)
        feed.close()
    finally:
        logger.removeFilter(end_the_call)
    name = f"{__name__}:{function.__qualname__}"
    assert [record.getMessage() for record in caplog.records] == [
        f"close() waits for {option} `{name}` on 1 thread; Ctrl-C ends the wait"
    ]
    assert feed._prefetcher.consumer.is_cleaned_up


def test_close_without_a_word_where_no_function_is_at_work(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prefetcher, "_NOTICE_S", 0.0)
    with prefetch.open({"source": source, "threads": 2}, per_record=same) as feed:
        next(iter(feed))
    assert not caplog.records


def test_ctrl_c_ends_the_wait_for_a_slow_function_and_the_feed_stays_open(source: Path) -> None:
    may_end = threading.Event()

    def function(images: Any, labels: Any, rng: np.random.Generator) -> None:
        if not may_end.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert may_end.wait(60)

    with prefetch.open({"source": source, "threads": 1, "prefetch": 1}, per_batch=function) as feed:
        iterator = iter(feed)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        may_end.set()
        assert next(iterator).number == 0


def test_a_function_may_ask_the_feed_how_it_is_and_close_it(source: Path) -> None:
    feeds: list[prefetch.Feed] = []
    found: list[Any] = []

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        found.append((feeds[0].stats().batches, feeds[0].state_dict()["served"], repr(feeds[0])))
        if label == 6:
            feeds[0].close()
        return image

    with prefetch.open(
        {"source": source, "batch_size": 4, "threads": 1}, per_record=function
    ) as feed:
        feeds.append(feed)
        with pytest.raises(prefetch.FeedClosedError):
            for _ in feed:
                pass
    assert len(found) == 7


def test_a_function_that_waits_for_a_batch_is_refused(source: Path) -> None:
    feeds: list[prefetch.Feed] = []
    refused: list[bool] = []

    def function(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> Function:
        with pytest.raises(prefetch.FeedBusyError, match="per_record or per_batch"):
            next(iter(feeds[0]))
        refused.append(True)
        raise ValueError

    with prefetch.open({"source": source, "threads": 1}, per_record=function) as feed:
        feeds.append(feed)
        # Its iterator may have begun before this one, or have ended it.
        with pytest.raises((prefetch.RecordError, prefetch.StaleIteratorError)):
            next(iter(feed))
    assert refused


def test_errors_that_are_kept_hold_no_slot(source: Path) -> None:
    options: dict[str, Any] = {"on_bad_record": "skip", "per_record": fails_at(0, 4, 9)}
    gc.disable()
    try:
        with prefetch.open({"source": source, "batch_size": 2, "prefetch": 2} | options) as feed:
            for _ in range(20):
                for batch in feed:
                    del batch
            assert feed.stats().slots == 3
    finally:
        gc.enable()


@pytest.mark.parametrize("threads", [1, 4])
def test_errors_of_batches_that_are_discarded_hold_no_slot(source: Path, threads: int) -> None:
    """Each iterator leaves an epoch whose next batch is in the middle of its bad records."""
    options: dict[str, Any] = {"on_bad_record": "skip", "per_record": fails_at(0, 4, 9)}
    options |= {"batch_size": 2, "prefetch": 1, "threads": threads, "max_bad_records": 10**9}
    gc.disable()
    try:
        with prefetch.open({"source": source} | options) as feed:
            for _ in range(400):
                assert 2 == len(next(iter(feed)))
    finally:
        gc.enable()


@pytest.mark.parametrize("last_batch", ["partial", "wrap"])
def test_reading_on_past_the_end_of_an_epoch_takes_the_next_ones_numbers(
    source: Path, last_batch: str
) -> None:
    options: dict[str, Any] = {"source": source, "epochs": 2, "per_record": noisy}
    wrapping = {"batch_size": 4, "last_batch": last_batch}
    with prefetch.open(options | wrapping) as feed:
        batches = [batch for _ in range(2 if last_batch == "partial" else 1) for batch in feed]
        found = np.concatenate([batch.data.numpy() for batch in batches])
    with prefetch.open(options, batch_size=10) as feed:
        expected = np.concatenate([batch.data.numpy() for _ in range(2) for batch in feed])
    np.testing.assert_array_equal(expected, found)


def test_a_configuration_with_names_is_written_as_yaml_and_read_again(
    source: Path, tmp_path: Path
) -> None:
    config = prefetch.FeedConfig(source=source, per_record="a.b:c.d", per_batch="a:e")
    file = tmp_path / "feed.yaml"
    file.write_text(dump_config(config), encoding="utf-8")
    assert load_config(file) == config


async def take_all(feed: prefetch.Feed) -> list[Any]:
    return [batch.label.numpy().copy() async for batch in feed]


def test_an_asynchronous_loop_gets_the_same(source: Path) -> None:
    options: dict[str, Any] = {"source": source, "batch_size": 4}
    with prefetch.open(options, per_record=noisy, per_batch=lambda *_: None) as feed:
        labels = np.concatenate(asyncio.run(take_all(feed)))
    assert labels.tolist() == list(range(100, 110))
