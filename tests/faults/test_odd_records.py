"""Sound records of another size than their neighbours, and configurations that fit none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import lmdb
import numpy as np
import pytest

import prefetch
from prefetch._source.source import RecordSource
from prefetch.caffe import Datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KINDS = ["raw", "encoded"]


def _value(number: int, kind: str, shape: tuple[int, int, int] = (3, 8, 8)) -> bytes:
    """Return a record whose every pixel, and its label, is its number."""
    if kind == "raw":
        return encode_image(np.full(shape, number, np.uint8), label=number)
    channels, height, width = shape
    file = cv2.imencode(".png", np.full((height, width, channels), number, np.uint8))[1]
    return Datum(encoded=True, data=file.tobytes(), label=number).SerializeToString()


def _database(
    folder: Path,
    odd: Mapping[int, tuple[int, int, int] | bytes],
    *,
    kind: str,
    num_records: int = 12,
    first: int = 0,
) -> Path:
    """Write a database of records of 3 x 8 x 8, but for the odd ones."""
    records = []
    for number in range(first, first + num_records):
        value = odd.get(number, (3, 8, 8))
        value = value if isinstance(value, bytes) else _value(number, kind, value)
        records.append((b"%08d" % number, value))
    return write_database(folder, records)


def _kept(folder: Path) -> list[bytes]:
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as t:
        return list(t.cursor().iternext(values=False))


def _epoch(feed: prefetch.Feed) -> list[int]:
    """Return the indices that an epoch serves, whose rows and labels have to be theirs."""
    indices = []
    for batch in feed:
        assert (batch.data.numpy() == batch.label.numpy()[:, None, None, None]).all()
        assert batch.label.numpy().tolist() == batch.indices.tolist()
        indices += batch.indices.tolist()
    return indices


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", [(1, 8, 8), (3, 9, 8), (3, 4, 4)])
@pytest.mark.parametrize("place", [4, 5])
def test_an_odd_record_costs_only_itself_wherever_it_stands_in_its_batch(
    tmp_path: Path, place: int, odd: tuple[int, int, int], kind: str, where: str, threads: int
) -> None:
    source = _database(tmp_path / "db", {place: odd}, kind=kind)
    options: dict[str, Any] = {"source": source, "batch_size": 4, "threads": threads}
    options |= {"device": "simulated", "transform": {"where": where}}
    options |= {"on_bad_record": "quarantine", "quarantine": tmp_path / "aside"}
    with prefetch.open(options) as feed:
        for _ in range(2):
            expected = list(range(12))
            expected[place] = place + 1
            assert _epoch(feed) == expected
        assert feed.stats().bad_records == 1
    assert _kept(tmp_path / "aside") == [b"%08d" % place]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crop_takes_records_of_any_size_and_of_one_number_of_channels(
    tmp_path: Path, kind: str
) -> None:
    source = _database(tmp_path / "db", {4: (1, 8, 8), 8: (3, 20, 9), 9: (3, 3, 8)}, kind=kind)
    options = {"source": source, "batch_size": 4, "on_bad_record": "skip"}
    with prefetch.open(options, transform={"crop_size": 6}) as feed:
        assert _epoch(feed) == [0, 1, 2, 3, 5, 5, 6, 7, 8, 10, 10, 11]


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_is_that_of_the_first_sound_record_of_what_is_served(
    tmp_path: Path, kind: str
) -> None:
    """Record 0 is of no other feed's business than that of a feed that serves it."""
    source = _database(tmp_path / "db", {0: (1, 8, 8), 1: b"\xff", 2: b""}, kind=kind)
    options = {"source": source, "batch_size": 4, "on_bad_record": "skip", "max_bad_records": 11}
    with prefetch.open(options) as feed:
        assert _epoch(feed) == [0] * 12
    with prefetch.open(options, subset={"start": 1}) as feed:
        batches = [batch.label.numpy().tolist() for batch in feed]
    assert batches == [[3, 3, 3, 4], [5, 6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_all_ranks_and_a_resumed_feed_have_the_same_shape(tmp_path: Path, shuffle: bool) -> None:  # noqa: FBT001
    odd = dict.fromkeys((1, 6, 7), (1, 8, 8))
    source = _database(tmp_path / "db", odd, kind="raw")
    options = {"source": source, "batch_size": 2, "on_bad_record": "skip", "shuffle": shuffle}
    served = []
    for rank in range(2):
        with prefetch.open(options, shard={"rank": rank, "world_size": 2}) as feed:
            served += _epoch(feed)
            assert feed.stats().bad_records <= 3
    assert set(served) == set(range(12)) - set(odd)
    with prefetch.open(options) as feed:
        whole = _epoch(feed)
    for taken in range(6):
        with prefetch.open(options) as feed:
            iterator = iter(feed)
            for _ in range(taken):
                next(iterator)
            state = feed.state_dict()
        with prefetch.open(options) as feed:
            feed.load_state_dict(state)
            assert whole[2 * taken :] == _epoch(feed)


def test_a_batch_over_two_databases_takes_its_shape_from_the_first(tmp_path: Path) -> None:
    sources = [
        _database(tmp_path / "one", {}, kind="raw", num_records=6),
        _database(tmp_path / "two", {6: (3, 9, 9)}, kind="encoded", num_records=6, first=6),
    ]
    options = {"source": sources, "batch_size": 3, "on_bad_record": "skip"}
    with prefetch.open(options) as feed:
        assert _epoch(feed) == [0, 1, 2, 3, 4, 5, 7, 7, 8, 9, 10, 11]
    with prefetch.open(options, batch_size=4, on_bad_record="raise") as feed:
        with pytest.raises(prefetch.RecordError) as caught:
            list(feed)
        error = caught.value
    assert (error.database, error.record, error.key) == (str(sources[1]), 0, b"00000006")
    other = f"record 4 of {sources[0]}, key '00000004', the first of its batch, is 3 x 8 x 8"
    assert f"but {other}; set crop_size" in error.reason


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [4, 5])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_record_that_differs_from_its_batch_is_an_error_that_names_both(
    tmp_path: Path,
    place: int,
    kind: str,
    where: str,
    threads: int,
    shuffle: bool,  # noqa: FBT001
) -> None:
    source = _database(tmp_path / "db", {place: (1, 7, 9)}, kind=kind)
    options: dict[str, Any] = {"source": source, "batch_size": 4, "threads": threads, "seed": 3}
    options |= {"device": "simulated", "transform": {"where": where}, "shuffle": shuffle}
    with prefetch.open(options) as feed:
        order = feed._prefetcher.components.order
        with pytest.raises(prefetch.RecordError) as caught:
            list(feed)
        error = caught.value
    plan = next(plan for plan in map(order.plan, range(3)) if plan and place in plan.records)
    records = plan.records.tolist()
    differs = records[1] if records[0] == place else place
    assert (error.batch, error.record, error.stage) == (plan.number, differs, "validate")
    sizes = {place: "1 x 7 x 9"}
    size, other = (sizes.get(record, "3 x 8 x 8") for record in (differs, records[0]))
    assert error.reason.startswith(
        f"the record is {size} (channels x height x width), but record {records[0]}, key "
        f"'{records[0]:08d}', the first of its batch, is {other}; "
    )


def test_what_is_skipped_names_the_record_that_it_differs_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = _database(tmp_path / "db", {0: b"\xff", 4: (3, 9, 9)}, kind="raw")
    with prefetch.open({"source": source, "batch_size": 4, "on_bad_record": "skip"}) as feed:
        assert _epoch(feed) == [1, 1, 2, 3, 5, 5, 6, 7, 8, 9, 10, 11]
    assert (
        "but record 1, key '00000001', the first that can be used, which all batches follow, is "
        "3 x 8 x 8; set crop_size"
    ) in caplog.text


def test_slots_grow_with_batches_of_larger_records(tmp_path: Path) -> None:
    """With raise every batch has the shape of its own first record, as in Caffe."""
    odd = dict.fromkeys((4, 5, 6, 7), (3, 9, 8)) | dict.fromkeys((8, 9, 10, 11), (1, 2, 2))
    source = _database(tmp_path / "db", odd, kind="raw")
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        shapes = [batch.data.shape for batch in feed]
    assert shapes == [(4, 3, 8, 8), (4, 3, 9, 8), (4, 1, 2, 2)]


UNFIT: list[tuple[str, Any, str]] = [
    ("transform.crop_size", {"crop_size": 9}, "8 x 8 pixels (height x width), smaller than"),
    ("transform.mean_value", {"mean_value": [1, 2]}, "mean_value has 2 values"),
    ("transform.scale", {"scale": [1, 2]}, "scale has 2 values"),
    ("transform.mean_file", {"mean_file": "mean.npy"}, "but the mean image is 3 x 8 x 9"),
]


@pytest.mark.parametrize("policy", ["raise", "skip", "quarantine"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("option", "transform", "reason"), UNFIT)
def test_a_configuration_that_cannot_take_the_records_is_refused_at_opening(
    tmp_path: Path, option: str, transform: dict[str, Any], reason: str, kind: str, policy: str
) -> None:
    source = _database(tmp_path / "db", {}, kind=kind)
    np.save(tmp_path / "mean.npy", np.zeros((3, 8, 9), np.float32))
    transform = {
        name: tmp_path / value if name == "mean_file" else value
        for name, value in transform.items()
    }
    options: dict[str, Any] = {"source": source, "transform": transform, "on_bad_record": policy}
    if policy == "quarantine":
        options["quarantine"] = tmp_path / "aside"
    with pytest.raises(prefetch.ConfigError) as caught:
        prefetch.open(options)
    (fault,) = caught.value.faults
    assert (fault.key, caught.value.origin) == (option, "mapping")
    assert f"{source}: record 0, key '00000000', stage transform: " in fault.message
    assert reason in fault.message
    assert isinstance(caught.value.__cause__, prefetch.RecordError)
    assert not (tmp_path / "aside").exists()


@pytest.mark.parametrize("transform", [{}, {"crop_size": 9}])
def test_bytes_of_a_changed_database_are_blamed_on_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: dict[str, Any]
) -> None:
    source = _database(tmp_path / "db", {}, kind="raw")

    def check(_: RecordSource) -> None:
        raise prefetch.DatabaseChangedError(str(source), snapshot_txn=1, last_txn=3)

    monkeypatch.setattr(RecordSource, "check", check)
    with pytest.raises(prefetch.DatabaseChangedError):
        prefetch.open({"source": source, "transform": transform})


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_floats_that_uint8_cannot_carry_are_refused_at_opening(tmp_path: Path, policy: str) -> None:
    value = Datum(channels=1, height=1, width=2, float_data=[1, 2]).SerializeToString()
    source = write_database(tmp_path / "db", [(b"0", value)])
    with pytest.raises(prefetch.ConfigError, match=r"transform\.dtype: .* float_data"):
        prefetch.open({"source": source, "transform": {"dtype": "uint8"}, "on_bad_record": policy})


def test_the_line_of_the_option_that_does_not_fit_is_named(tmp_path: Path) -> None:
    _database(tmp_path / "db", {}, kind="raw")
    config = tmp_path / "feed.yaml"
    config.write_text("source: db\nbatch_size: 2\ntransform:\n  crop_size: 64\n")
    with pytest.raises(prefetch.ConfigError, match=r"line 4: transform\.crop_size: .*64 x 64"):
        prefetch.open(config)
    network = tmp_path / "net.prototxt"
    network.write_text(
        f'layer {{\n  name: "d" type: "Data" top: "data"\n  data_param {{\n'
        f'    source: "{tmp_path}/db" backend: LMDB batch_size: 2\n  }}\n'
        "  transform_param {\n    crop_size: 64\n  }\n}\n"
    )
    with pytest.raises(prefetch.ConfigError, match=r"line 7: .*crop_size: .*64 x 64"):
        prefetch.open_prototxt(network)


def test_a_network_has_each_batch_of_the_shape_of_its_first_record(tmp_path: Path) -> None:
    odd = dict.fromkeys(range(6, 12), (1, 4, 4)) | {7: (1, 4, 5)}
    _database(tmp_path / "db", odd, kind="encoded")
    network = tmp_path / "net.prototxt"
    network.write_text(
        'layer { name: "d" type: "Data" top: "data" data_param { source: "db" backend: LMDB '
        "batch_size: 3 } }"
    )
    with prefetch.open_prototxt(network, root=tmp_path) as feed:
        iterator = iter(feed)
        assert [next(iterator).data.shape for _ in range(2)] == [(3, 3, 8, 8)] * 2
        with pytest.raises(prefetch.RecordError) as caught:
            next(iterator)
    assert (caught.value.record, caught.value.batch) == (7, 2)
    assert "record 6, key '00000006', the first of its batch, is 1 x 4 x 4" in caught.value.reason


@pytest.mark.parametrize("kind", KINDS)
def test_with_raise_a_damaged_first_record_is_an_error_of_its_batch(
    tmp_path: Path, kind: str
) -> None:
    damaged = {"raw": b"\xff", "encoded": _value(0, "encoded")[:-30]}[kind]
    source = _database(tmp_path / "db", {0: damaged}, kind=kind)
    with prefetch.open({"source": source, "batch_size": 2}) as feed:
        with pytest.raises(prefetch.RecordError) as caught:
            next(iter(feed))
        assert caught.value.record == 0


def _jpeg(shape: tuple[int, int], quality: int = 90) -> bytes:
    image = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1])


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("transform", [{}, {"crop_size": 20}])
def test_a_damaged_image_whose_header_is_whole_neither_gives_the_shape_nor_blames_the_options(
    tmp_path: Path, policy: str, transform: dict[str, Any]
) -> None:
    files = [_jpeg((16, 16))[:-60], *[_jpeg((24, 24))] * 5]
    values = [Datum(encoded=True, data=file, label=1).SerializeToString() for file in files]
    source = write_database(tmp_path / "db", [(b"%d" % i, value) for i, value in enumerate(values)])
    options = {"source": source, "batch_size": 3, "on_bad_record": policy, "transform": transform}
    with prefetch.open(options) as feed:
        if policy == "raise":
            with pytest.raises(prefetch.RecordError) as caught:
                next(iter(feed))
            assert caught.value.record == 0
        else:
            assert [batch.indices.tolist() for batch in feed] == [[1, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_as_many_records_are_asked_for_the_shape_as_may_be_bad_and_one_more(
    tmp_path: Path, policy: str
) -> None:
    source = _database(tmp_path / "db", dict.fromkeys(range(3), b""), kind="raw", num_records=9)
    options: dict[str, Any] = {"source": source, "batch_size": 9, "on_bad_record": policy}
    if policy == "quarantine":
        options["quarantine"] = tmp_path / "aside"
    with pytest.raises(prefetch.ConfigError) as caught:
        prefetch.open(options, max_bad_records=2)
    (fault,) = caught.value.faults
    assert fault.key == "source"
    assert fault.message == (
        "none of the first 3 records can be used, and max_bad_records allows 2; the first: "
        f"{source}: record 0, key '00000000', stage validate: neither data nor float_data holds "
        "anything, and a record needs one of them; an AnnotatedDatum, as SSD writes them, has its "
        "Datum inside: store that by itself"
    )
    assert not (tmp_path / "aside").exists()
    with prefetch.open(options, max_bad_records=3) as feed:
        assert _epoch(feed) == [3, 3, 3, 3, 4, 5, 6, 7, 8]


def test_nothing_but_bad_records_is_refused_at_opening(tmp_path: Path) -> None:
    source = _database(tmp_path / "db", dict.fromkeys(range(12), b""), kind="raw")
    with pytest.raises(prefetch.ConfigError, match="none of the first 12 records can be used; the"):
        prefetch.open({"source": source, "batch_size": 4, "on_bad_record": "skip"})
