"""Mixup, cutmix, and labels as pairs or one-hot: what a feed hands out."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import records_fixture

import prefetch
from memory import Blob, BufferMismatchError
from memory.testing import peek
from prefetch._config.dump import dump_config
from prefetch._config.load import load_config
from prefetch._kernels.mixing import mix_batch
from prefetch._plan.mixing import Mixing, draw_mix
from prefetch._report.sheet import title_of_row
from prefetch._tools.preview import view_batches
from prefetch.caffe import Datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Kernels

Fields = dict[str, Any]

MIXUP: dict[str, Any] = {"mixup": {"alpha": 0.8}}
CUTMIX: dict[str, Any] = {"cutmix": {"alpha": 1.0}}
PAIRS: dict[str, Any] = {"labels": "pairs"}
ONE_HOT: dict[str, Any] = {"labels": "one_hot", "num_classes": 11}


def make_pictures() -> Iterator[tuple[bytes, bytes]]:
    """Yield eleven records of random pixels, every fourth an encoded image."""
    rng = np.random.default_rng(0)
    for index in range(11):
        pixels = rng.integers(0, 256, (3, 9, 10), np.uint8)
        value = encode_image(pixels, label=index)
        if index % 4 == 3:
            png = cv2.imencode(".png", pixels.transpose(1, 2, 0))[1]
            value = Datum(data=png.tobytes(), label=index, encoded=True).SerializeToString()
        yield b"%04d" % index, value


pictures = records_fixture(make_pictures, scope="module")


def opened(source: Path, **options: Any) -> prefetch.Feed:
    return prefetch.open({"source": source, "batch_size": 4, "device": "cpu", **options})


def serve(source: Path, *, num_epochs: int = 1, **options: Any) -> list[Fields]:
    """Return the fields of the batches of some epochs."""
    with opened(source, **options) as feed:
        return [
            {name: blob.numpy().copy() for name, blob in batch.fields.items()}
            for _ in range(num_epochs)
            for batch in feed
        ]


def assert_equal(expected: list[Fields], actual: list[Fields]) -> None:
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        assert one.keys() == other.keys()
        for name, values in one.items():
            assert (values.dtype, values.shape) == (other[name].dtype, other[name].shape)
            assert values.tobytes() == other[name].tobytes(), name


# What is handed out ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_mixup_mixes_what_would_be_served_with_the_batch_reversed(
    pictures: Path, kernels: Kernels, dtype: str, layout: str
) -> None:
    transform = {"dtype": dtype, "layout": layout, "mirror": True, "mean_value": 100.25}
    plain = serve(pictures, transform=transform, shuffle=True)
    mixed = serve(pictures, transform={**transform, **MIXUP}, shuffle=True, **PAIRS)
    for one, other in zip(plain, mixed, strict=True):
        lam = other["lam"][0]
        wide = one["image"].astype(np.float32)
        expected = wide * lam + wide[::-1] * (np.float32(1) - lam)
        assert expected.astype(one["image"].dtype).tobytes() == other["image"].tobytes()
        assert other["label"].tolist() == one["label"].tolist()
        assert other["label2"].tolist() == one["label"][::-1].tolist()
        assert (other["lam"] == lam).all()
    assert len({batch["lam"][0] for batch in mixed}) == len(mixed)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_cutmix_takes_a_box_from_the_batch_reversed_and_lam_is_what_remains(
    pictures: Path, kernels: Kernels, dtype: str, layout: str
) -> None:
    transform = {"dtype": dtype, "layout": layout}
    plain = serve(pictures, transform=transform)
    mixed = serve(pictures, transform={**transform, **CUTMIX}, **PAIRS)
    for number, (one, other) in enumerate(zip(plain, mixed, strict=True)):
        lam, box = draw_mix(Mixing(cutmix=1.0), seed=0, epoch=0, number=number, height=9, width=10)
        assert box is not None
        rows, columns = slice(box.top, box.bottom), slice(box.left, box.right)
        window = np.s_[:, :, rows, columns] if layout == "nchw" else np.s_[:, rows, columns, :]
        expected = one["image"].copy()
        expected[window] = one["image"][::-1][window]
        assert expected.tobytes() == other["image"].tobytes()
        assert (other["lam"] == np.float32(lam)).all()


def test_one_hot_labels_have_lam_at_a_class_and_the_rest_at_the_partners(pictures: Path) -> None:
    pairs = serve(pictures, transform=MIXUP, **PAIRS)
    shares = serve(pictures, transform=MIXUP, **ONE_HOT)
    for one, other in zip(pairs, shares, strict=True):
        assert list(other) == ["image", "label"]
        assert one["image"].tobytes() == other["image"].tobytes()
        expected = np.zeros((len(one["label"]), 11), np.float32)
        for row, (label, label2, lam) in enumerate(
            zip(one["label"], one["label2"], one["lam"], strict=True)
        ):
            expected[row, label] += lam
            expected[row, label2] += np.float32(1) - lam
        assert other["label"].tobytes() == expected.tobytes()
        assert (other["label"].sum(axis=1) == 1).all()


def test_without_mixing_lam_is_1_and_partners_are_the_samples_themselves(pictures: Path) -> None:
    plain = serve(pictures)
    for phase in ("train", "test"):
        pairs = serve(pictures, phase=phase, **PAIRS)
        shares = serve(pictures, phase=phase, **ONE_HOT)
        for one, pair, share in zip(plain, pairs, shares, strict=True):
            assert one["image"].tobytes() == pair["image"].tobytes() == share["image"].tobytes()
            assert one["label"].tolist() == pair["label"].tolist() == pair["label2"].tolist()
            assert (pair["lam"] == 1).all()
            assert (share["label"] == np.eye(11)[one["label"]]).all()


def test_images_may_be_mixed_where_there_are_no_labels(pictures: Path) -> None:
    pairs = serve(pictures, transform=MIXUP, **PAIRS)
    bare = serve(pictures, transform=MIXUP, labels=False)
    assert [list(batch) for batch in bare] == [["image"]] * 3
    assert_equal([{"image": batch["image"]} for batch in pairs], bare)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize(
    ("transform", "labels"),
    [
        (MIXUP | CUTMIX, PAIRS),
        (MIXUP | {"dtype": "float16", "layout": "nhwc", "crop_size": 7}, ONE_HOT),
        (MIXUP | CUTMIX | {"dtype": "bfloat16", "mean_value": 7.5}, PAIRS),
        (CUTMIX | {"dtype": "uint8", "layout": "nhwc"}, PAIRS),
    ],
)
def test_threads_and_devices_change_nothing(
    pictures: Path,
    threads: int,
    device: str,
    where: str,
    transform: dict[str, Any],
    labels: dict[str, Any],
) -> None:
    if device == "cpu" and where == "device":
        return  # the host is no device that transforms
    expected = serve(pictures, num_epochs=2, transform=transform, threads=1, **labels)
    options = {"threads": threads, "device": device, **labels}
    found = serve(pictures, num_epochs=2, transform={**transform, "where": where}, **options)
    assert_equal(expected, found)


def test_on_a_device_every_field_is_there(pictures: Path) -> None:
    with opened(pictures, device="simulated", transform=MIXUP, **PAIRS) as feed:
        for batch in feed:
            for name, blob in batch.fields.items():
                assert blob.numpy(writable=False).tobytes() == peek(blob).tobytes(), name


def test_several_batches_are_read_in_one_call_as_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    images = rng.integers(0, 256, (600, 1, 6, 6), np.uint8)
    write_database(
        tmp_path / "small",
        [(b"%04d" % i, encode_image(image, label=i % 11)) for i, image in enumerate(images)],
    )
    options: dict[str, Any] = {"batch_size": 50, "transform": MIXUP, "shuffle": True, **ONE_HOT}
    alone = serve(tmp_path / "small", prefetch=1, threads=1, **options)
    assert_equal(alone, serve(tmp_path / "small", prefetch=16, threads=1, **options))
    assert_equal(alone, serve(tmp_path / "small", prefetch=16, threads=3, **options))


def test_ranks_draw_by_the_number_in_the_order_of_all_of_them(pictures: Path) -> None:
    lams = [
        serve(
            pictures,
            batch_size=3,
            shard={"rank": rank, "world_size": 2},
            transform=MIXUP,
            **PAIRS,
        )
        for rank in range(2)
    ]
    found = [batch["lam"][0] for pair in zip(*lams, strict=True) for batch in pair]
    expected = [
        draw_mix(Mixing(mixup=0.8), seed=0, epoch=0, number=number, height=9, width=10).lam
        for number in range(4)
    ]
    assert found == expected


def test_a_saved_state_goes_on_with_the_same_mixes_and_refuses_others(pictures: Path) -> None:
    transform = MIXUP | CUTMIX
    whole = serve(pictures, num_epochs=2, transform=transform, **PAIRS)
    with opened(pictures, transform=transform, **PAIRS) as feed:
        next(iter(feed))
        state = json.loads(json.dumps(feed.state_dict()))
    with opened(pictures, transform=transform, **PAIRS) as feed:
        feed.load_state_dict(state)
        found = [
            {name: blob.numpy().copy() for name, blob in batch.fields.items()}
            for _ in range(2)
            for batch in feed
        ]
    assert_equal(whole[1:], found)
    for changes in (
        {"transform": {"mixup": {"alpha": 0.7}, **CUTMIX}, **PAIRS},
        {"transform": MIXUP, **PAIRS},
        {"transform": transform, **ONE_HOT},
    ):
        with (
            opened(pictures, **changes) as feed,
            pytest.raises(prefetch.StateError, match=r"mixup|cutmix|labels"),
        ):
            feed.load_state_dict(state)


def test_a_state_from_before_the_options_were_there_loads(pictures: Path) -> None:
    with opened(pictures) as feed:
        next(iter(feed))
        state = feed.state_dict()
    for name in ("transform.mixup", "transform.cutmix", "num_classes"):
        del state["config"][name]
    with opened(pictures) as feed:
        feed.load_state_dict(state)
        assert next(iter(feed)).number == 1


# Bad records ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_substitute_is_what_is_mixed(pictures: Path, tmp_path: Path, where: str) -> None:
    records = [(key, value) for key, value in make_pictures()]
    records[1] = (records[1][0], b"no Datum")
    write_database(tmp_path / "bad", records)
    options: dict[str, Any] = {"device": "simulated", "on_bad_record": "skip"}
    plain = serve(tmp_path / "bad", **options)
    mixed = serve(tmp_path / "bad", transform={**MIXUP, "where": where}, **PAIRS, **options)
    assert plain[0]["label"].tolist() == [0, 2, 2, 3]
    for one, other in zip(plain, mixed, strict=True):
        lam, rest = other["lam"][0], np.float32(1) - other["lam"][0]
        expected = one["image"] * lam + one["image"][::-1] * rest
        assert expected.tobytes() == other["image"].tobytes()
        assert other["label2"].tolist() == one["label"][::-1].tolist()


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("num_classes", [7, 10])
def test_a_label_that_is_no_class_is_a_bad_record(
    pictures: Path, device: str, num_classes: int
) -> None:
    options: dict[str, Any] = {"labels": "one_hot", "num_classes": num_classes, "device": device}
    last = num_classes - 1
    sentence = (
        f"the label is {num_classes}, and with num_classes {num_classes} labels one_hot takes 0 to "
        f"{last}"
    )
    with (
        opened(pictures, **options) as feed,
        pytest.raises(prefetch.RecordError, match=sentence) as caught,
    ):
        for _ in feed:
            pass
    assert caught.value.record == num_classes
    assert caught.value.key == b"%04d" % num_classes
    assert caught.value.stage == "validate"
    served = serve(pictures, on_bad_record="skip", **options)
    labels = np.concatenate([batch["label"].argmax(axis=1) for batch in served])
    assert labels.tolist() == [*range(num_classes), *[0] * (11 - num_classes)]


def test_a_negative_label_is_a_bad_record_and_its_bytes_are_kept(tmp_path: Path) -> None:
    image = np.zeros((1, 3, 3), np.uint8)
    labels = (3, -1, 2)
    write_database(tmp_path / "db", [(b"%d" % at, encode_image(image, label=at)) for at in labels])
    options: dict[str, Any] = {"on_bad_record": "quarantine", "quarantine": tmp_path / "kept"}
    (batch,) = serve(tmp_path / "db", labels="one_hot", num_classes=4, **options)
    assert batch["label"].argmax(axis=1).tolist() == [2, 2, 3]
    (kept,) = serve(tmp_path / "kept")
    assert kept["label"].tolist() == [-1]


def test_a_label_that_per_record_returns_is_checked_too(pictures: Path) -> None:
    def shift(image: NDArray[np.uint8], label: int, _: np.random.Generator) -> Any:
        return image, label + 1

    with opened(pictures, per_record=shift, **ONE_HOT) as feed:
        batches = iter(feed)
        assert next(batches).label.numpy().argmax(axis=1).tolist() == [1, 2, 3, 4]
        next(batches)
        with pytest.raises(prefetch.RecordError, match="the label is 11"):
            next(batches)


# The batch ------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_fields_are_blobs_by_name_of_which_data_and_label_are_two(
    pictures: Path, device: str
) -> None:
    with opened(pictures, device=device, transform=MIXUP, **PAIRS) as feed:
        batch = next(iter(feed))
        fields = batch.fields
        assert list(fields) == ["image", "label", "label2", "lam"]
        assert all(isinstance(blob, Blob) for blob in fields.values())
        assert fields["image"] is batch.data
        assert fields["label"] is batch.label
        assert fields["lam"] is batch.fields["lam"]
        kinds = {name: (str(blob.dtype), blob.shape) for name, blob in fields.items()}
        assert kinds == {
            "image": ("float32", (4, 3, 9, 10)),
            "label": ("int64", (4,)),
            "label2": ("int64", (4,)),
            "lam": ("float32", (4,)),
        }
        lam = fields["lam"].numpy()
        batch.release()
        with pytest.raises(prefetch.BatchReleasedError, match=r"take batch\.fields before"):
            batch.fields  # noqa: B018
        assert (lam == lam[0]).all()
    with opened(pictures, device=device) as feed:
        assert list(next(iter(feed)).fields) == ["image", "label"]
    with opened(pictures, device=device, labels=False) as feed:
        assert list(next(iter(feed)).fields) == ["image"]


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_batch_with_other_fields_does_not_unpack_and_says_which_it_has(
    pictures: Path, device: str
) -> None:
    with (
        opened(pictures, device=device, **PAIRS) as feed,
        pytest.raises(TypeError, match=r"image, label, label2, lam.*one_hot"),
    ):
        for _, _ in feed:
            pass
    with opened(pictures, device=device, transform=MIXUP, **ONE_HOT) as feed:
        for images, labels in feed:
            assert (len(images), 11) == labels.shape


def test_slots_come_back_when_the_last_field_is_gone(pictures: Path) -> None:
    with opened(pictures, device="simulated", transform=MIXUP, **PAIRS) as feed:
        lams = []
        for batch in feed:
            lams.append(batch.fields["lam"])
            del batch
        assert feed.stats().slots_leased == len(lams) == 3
        del lams
        assert feed.stats().slots_leased == 0


def test_a_batch_is_kept_for_a_stream_with_all_its_fields(pictures: Path) -> None:
    with (
        opened(pictures, device="simulated", transform=MIXUP, **PAIRS) as feed,
        feed.device.make_stream("side") as side,
    ):
        for batch in feed:
            batch.record_stream(side)
            assert (batch.fields["lam"].numpy() <= 1).all()
            del batch


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_per_batch_gets_the_mixed_batch_and_the_labels_in_their_form(
    pictures: Path, device: str
) -> None:
    seen: list[Any] = []

    def note(images: NDArray[Any], labels: Any, _: np.random.Generator) -> Any:
        pair = labels if isinstance(labels, tuple) else (labels,)
        seen.append((images.copy(), *[one.copy() for one in pair]))
        if not isinstance(labels, tuple):
            return images + 1, labels * 2
        label, label2, lam = labels
        return images + 1, (label, label2 + 7, lam / 2)

    options: dict[str, Any] = {"device": device, "transform": MIXUP, "threads": 1}
    for labels in (PAIRS, ONE_HOT):
        seen.clear()
        expected = serve(pictures, **options, **labels)
        found = serve(pictures, per_batch=note, **options, **labels)
        for one, other, given in zip(
            expected,
            found,
            seen[: len(found)],
            strict=True,  # the next epoch is read ahead
        ):
            assert [array.tobytes() for array in given] == [
                array.tobytes() for array in one.values()
            ]
            assert (other["image"] == one["image"] + 1).all()
            if labels is PAIRS:
                assert (other["label2"] == one["label2"] + 7).all()
                assert (other["lam"] == one["lam"] / 2).all()
                assert (other["label"] == one["label"]).all()
            else:
                assert (other["label"] == one["label"] * 2).all()


def test_per_batch_may_not_return_one_array_for_a_pair(pictures: Path) -> None:
    with (
        opened(pictures, per_batch=lambda images, labels, _: (images, labels[0]), **PAIRS) as feed,
        pytest.raises(ValueError, match="expected a tuple of 3"),
    ):
        next(iter(feed))


def test_arrays_given_to_into_take_one_hot_labels_and_no_pairs(pictures: Path) -> None:
    images, labels = np.empty((4, 3, 9, 10), np.float32), np.empty((4, 11), np.float32)
    expected = serve(pictures, transform=MIXUP, **ONE_HOT)
    with opened(pictures, transform=MIXUP, **ONE_HOT) as feed:
        for filled, batch in zip(feed.into(images, labels), expected, strict=True):
            assert images[: filled.n].tobytes() == batch["image"].tobytes()
            assert labels[: filled.n].tobytes() == batch["label"].tobytes()
    with opened(pictures, transform=MIXUP, **PAIRS) as feed:
        with pytest.raises(BufferMismatchError, match="labels pairs, which are label, label2"):
            feed.into(images, np.empty(4, np.int64))
        for filled, batch in zip(feed.into(images), expected, strict=True):
            assert images[: filled.n].tobytes() == batch["image"].tobytes()


# Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({"transform": MIXUP}, "transform.mixup", "set labels: pairs .* or labels: one_hot"),
        ({"transform": CUTMIX}, "transform.cutmix", "set labels: pairs .* or labels: one_hot"),
        ({"transform": MIXUP, "phase": "test", **PAIRS}, "transform.mixup", "imagenet-eval"),
        ({"transform": CUTMIX, "phase": "test", **PAIRS}, "transform.cutmix", "imagenet-eval"),
        (
            {"transform": {**MIXUP, "dtype": "uint8"}, **PAIRS},
            "transform.mixup",
            "no room for a weighted sum",
        ),
        ({"labels": "one_hot"}, "labels", "give num_classes"),
        ({"num_classes": 10}, "num_classes", "set labels: one_hot"),
        ({"num_classes": 10, **PAIRS}, "num_classes", "set labels: one_hot"),
        ({**PAIRS, "label_dtype": "float32"}, "label_dtype", "leave label_dtype out"),
        ({**ONE_HOT, "label_dtype": "int32"}, "label_dtype", "leave label_dtype out"),
        ({"labels": "pair"}, "labels", "expected one of true, false, pairs, one_hot.*pairs"),
        ({"labels": "one_hot", "num_classes": 0}, "num_classes", "1 or more"),
        ({"transform": {"mixup": {"alpha": 0}}, **PAIRS}, "transform.mixup.alpha", "above 0"),
        ({"transform": {"mixup": 0.2}, **PAIRS}, "transform.mixup", "expected a mapping"),
    ],
)
def test_what_cannot_hold_is_refused_when_the_feed_is_opened(
    pictures: Path, options: dict[str, Any], key: str, message: str
) -> None:
    with pytest.raises(prefetch.ConfigError, match=message) as caught:
        opened(pictures, **options)
    assert [fault.key for fault in caught.value.faults] == [key]


def test_a_configuration_is_written_with_mixing_by_its_defaults_too(pictures: Path) -> None:
    config = load_config(
        {"source": pictures, "transform": {"mixup": {}, **CUTMIX, "cutmix": {"alpha": 0.3}}},
        **ONE_HOT,
    )
    assert config.transform.mixup is not None
    assert config.transform.mixup.alpha == 1.0
    text = dump_config(config)
    path = pictures.parent / "mixed.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_config(path) == config


def test_all_that_cannot_hold_is_told_at_once(pictures: Path) -> None:
    transform = MIXUP | CUTMIX | {"dtype": "uint8"}
    with pytest.raises(prefetch.ConfigError) as caught:
        opened(pictures, transform=transform, phase="test", num_classes=3)
    keys = [fault.key for fault in caught.value.faults]
    assert keys.count("transform.mixup") == 3
    assert keys.count("transform.cutmix") == 2
    assert "num_classes" in keys


# Pictures -------------------------------------------------------------------------------------


def test_a_title_names_both_classes_and_their_shares() -> None:
    names = ("cat", "dog", "owl")
    pairs: dict[str, list[Any]] = {"label": [0, 2, 5], "label2": [1, 2, 0], "lam": [0.75, 1.0, 0.0]}
    assert [title_of_row(pairs, row, names) for row in range(3)] == [
        "0.75 cat + 0.25 dog",
        "owl (2)",
        "cat (0)",
    ]
    shares = {"label": [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]}
    assert [title_of_row(shares, row, names) for row in range(2)] == [
        "0.25 cat + 0.75 owl",
        "dog (1)",
    ]
    assert title_of_row({"label": [7]}, 0, names) == "label 7"
    assert title_of_row({}, 0, names) == "no label"


@pytest.mark.parametrize("labels", [PAIRS, ONE_HOT], ids=["pairs", "one_hot"])
def test_a_preview_shows_the_mixes_of_the_feed(pictures: Path, labels: dict[str, Any]) -> None:
    config = load_config({"source": pictures, "batch_size": 4, "transform": MIXUP, **labels})
    expected = serve(pictures, transform=MIXUP, **labels)
    for batch, view in zip(expected, view_batches(config, 3), strict=True):
        assert view.labels == {
            name: values.tolist() for name, values in batch.items() if name != "image"
        }
        assert view.images.tobytes() == batch["image"].tobytes()


def test_a_feed_shows_images_mixed_as_it_serves_them(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[NDArray[Any]] = []

    def note(images: NDArray[Any], **_: Any) -> str:
        drawn.append(images.copy())
        return "a sheet"

    monkeypatch.setattr("prefetch._report.sheet.sheet_of", note)
    transform = MIXUP | {"mean_value": 100.0}
    expected = serve(pictures, transform=MIXUP, **PAIRS)[0]["image"]
    with opened(pictures, transform=transform, **PAIRS) as feed:
        feed.show(2)
    (images,) = drawn
    assert images.tobytes() == expected[:2].tobytes()


# Errors ---------------------------------------------------------------------------------------


def test_what_fails_while_a_batch_is_mixed_names_the_stage(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count()

    def fails(*arguments: Any, **options: Any) -> None:
        if next(calls) == 1:
            raise MemoryError
        mix_batch(*arguments, **options)

    monkeypatch.setattr("prefetch._pipeline.batch_mixer.mix_batch", fails)
    with opened(pictures, transform=MIXUP, threads=1, **PAIRS) as feed:
        batches = iter(feed)
        assert next(batches).number == 0
        with pytest.raises(prefetch.OutOfMemoryError) as caught:
            next(batches)
        assert caught.value.stage == "mix"
