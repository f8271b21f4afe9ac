"""Records of a mapped database, by their places: before and after use, and once let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import lmdb_of, records_fixture

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._kernels import selection
from prefetch._record.faults import Reason
from prefetch._record.wire import encode_datum
from prefetch._source.mapped_records import MappedRecords, fill_together, views
from prefetch._source.source import RecordSource
from prefetch._source.spans import Spans
from prefetch._transform.options import Transform
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.skipif(
    not selection.kernels_available, reason="only the C kernel finds records by their places"
)

SIZE = (1, 1, 2)
RECIPE = Transform(train=False).recipe
VALUES = [encode_image(np.full(SIZE, number, np.uint8), label=9 * number) for number in range(7)]
VALUES[5] = encode_datum(data=b"no image", encoded=True, label=45)
VALUES[6] = encode_datum(channels=1, height=1, width=2, floats=[6.0, 6.5], label=54)
RECORDS = [(b"%c" % (ord("a") + number) * (number + 1), VALUES[number]) for number in range(7)]


database = records_fixture(lambda: RECORDS)


@pytest.fixture
def source(database: Path) -> Iterator[RecordSource]:
    """Seven records: five of bytes, one encoded, one of floats."""
    with RecordSource.open(database) as source:
        yield source


def at(source: RecordSource, *numbers: int) -> MappedRecords:
    records = source.reader().locate_lazily(np.array(numbers, np.int64))
    assert records is not None
    return records


def room(num: int) -> tuple[NDArray[np.uint32], NDArray[Any], NDArray[Any]]:
    """Return words, data and labels for so many."""
    return np.zeros((num, 3), np.uint32), np.zeros((num, *SIZE), np.float32), np.zeros(num, "i8")


def assert_keys(records: MappedRecords, *numbers: int) -> None:
    expected = [RECORDS[number][0] for number in numbers]
    assert records.pack_keys().unpack() == expected
    assert [bytes(key) for key in records.keys] == expected
    assert [bytes(value) for value in records.values] == [VALUES[number] for number in numbers]
    assert [bytes(value) for value in views(records)] == [VALUES[number] for number in numbers]
    assert len(records) == len(numbers)


def test_keys_and_values_are_the_same_before_and_after_rows_are_filled(
    source: RecordSource,
) -> None:
    records = at(source, 3, 0, 2, 2)
    assert_keys(records, 3, 0, 2, 2)

    words, data, labels = room(4)
    assert records.fill(words, data, labels, RECIPE) == []

    assert data[:, 0, 0].tolist() == [[3, 3], [0, 0], [2, 2], [2, 2]]
    assert labels.tolist() == [27, 0, 18, 18]
    assert_keys(records, 3, 0, 2, 2)


def test_keys_are_known_from_the_filling_without_being_looked_for_again(
    source: RecordSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = at(source, 4, 1)
    records.fill(*room(2), RECIPE)

    monkeypatch.delattr("prefetch._source.lmdb.mapped.MappedPages.find")

    assert_keys(records, 4, 1)
    with pytest.raises(AttributeError):
        at(source, 4).keys  # noqa: B018 - nothing was filled: they have to be looked for


def test_rows_may_be_filled_again_from_the_same_records(source: RecordSource) -> None:
    records = at(source, 5, 1)
    for value in (1, 2):
        words, data, labels = room(2)
        recipe = Transform(train=False, scale=(value,)).recipe
        assert records.fill(words, data, labels, recipe) == [(0, 0, ())]
        assert data[1].ravel().tolist() == [value, value]
        assert labels.tolist() == [45, 9]


def test_each_of_several_is_filled_with_its_own_and_once(source: RecordSource) -> None:
    parts = [(at(source, 1, 5), *room(2)), (at(source, 4), *room(1)), (at(source, 0, 2), *room(2))]
    results = fill_together(parts, RECIPE)
    assert [data[:, 0, 0, 0].tolist() for _, _, data, _ in parts] == [[1, 0], [4], [0, 2]]
    assert [labels.tolist() for *_, labels in parts] == [[9, 45], [36], [0, 18]]
    outcomes = [part[0].outcomes_of(result) for part, result in zip(parts, results, strict=True)]
    assert outcomes == [[(1, 0, ())], [], []]
    for records, numbers in zip([part[0] for part in parts], [(1, 5), (4,), (0, 2)], strict=True):
        assert_keys(records, *numbers)


def test_where_labels_are_not_wanted_none_are_written(source: RecordSource) -> None:
    words, data, _ = room(1)
    assert at(source, 3).fill(words, data, None, RECIPE) == []
    assert data.ravel().tolist() == [3, 3]


def test_what_is_let_go_of_is_found_again_where_it_is_asked_for_again(
    source: RecordSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused, used = at(source, 2, 3), at(source, 2, 3)
    used.fill(*room(2), RECIPE)
    for records in (unused, used):
        with records as entered:
            assert entered is records
            value = records.values[0]
        records.release()
        assert bytes(value) == VALUES[2]  # what was handed out keeps the file mapped
        assert_keys(records, 2, 3)
    monkeypatch.delattr("prefetch._source.lmdb.mapped.MappedPages.find")
    used.release()
    with pytest.raises(AttributeError):
        used.values  # noqa: B018 - where it was is forgotten
    assert used.pack_keys().unpack() == [RECORDS[number][0] for number in (2, 3)]  # copies


def test_records_are_found_once_however_often_they_are_looked_at(source: RecordSource) -> None:
    unused, used = at(source, 2, 3), at(source, 2, 3)
    used.fill(*room(2), RECIPE)
    for records in (unused, used):
        keys, values = records.keys, records.values
        assert records.keys is keys
        assert records.values is values
        assert isinstance(values, Spans)


@pytest.mark.parametrize(
    ("number", "is_uint8", "expected"),
    [
        (3, False, SIZE),
        (3, True, SIZE),
        (5, False, None),
        (5, True, None),
        (6, False, SIZE),
        (6, True, None),
    ],
)
def test_the_shape_of_the_first_is_known_if_it_is_raw_and_sound(
    source: RecordSource, number: int, expected: tuple[int, ...] | None, *, is_uint8: bool
) -> None:
    records = at(source, number, 1)
    assert not records.is_raw
    assert records.first_raw_shape(is_uint8=is_uint8) == expected
    assert records.is_raw == (expected is not None)
    records = at(source, 1, number)
    assert records.first_raw_shape(is_uint8=is_uint8) == SIZE
    assert records.is_raw


def test_a_record_that_is_none_is_an_error_of_its_own_part_each_time(source: RecordSource) -> None:
    parts = [(at(source, 1), *room(1)), (at(source, 0, 7), *room(2)), (at(source, 2), *room(1))]
    results = fill_together(parts, RECIPE)
    for (records, *_), result in ((parts[0], results[0]), (parts[2], results[2])):
        assert records.outcomes_of(result) == []
    with pytest.raises(IndexError, match="there are 7 records"):
        parts[1][0].outcomes_of(results[1])
    with pytest.raises(IndexError, match="there are 7 records"):
        parts[1][0].fill(*room(2), RECIPE)
    with pytest.raises(IndexError, match="there are 7 records"):
        _ = parts[1][0].keys


def test_damage_is_asked_of_the_writer_before_it_is_blamed_on_the_file(
    source: RecordSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = at(source, 1)
    database = lmdb_of(source)
    assert records.database is database
    index = database.index()
    assert index is database.index()
    monkeypatch.setattr(index, "leaves", index.leaves + 1)
    monkeypatch.setattr(index, "places", lambda _: (np.array([9]), np.array([3])))

    with pytest.raises(CorruptDatabaseError, match="page 9 lies behind the end of the file"):
        records.fill(*room(1), RECIPE)

    class Changed(Exception):  # noqa: N818 - stands for DatabaseChangedError
        pass

    def changed() -> None:
        raise Changed

    monkeypatch.setattr(database, "check", changed)
    monkeypatch.setattr(database.snapshot, "check", changed)
    with pytest.raises(Changed):
        records.fill(*room(1), RECIPE)
    with pytest.raises(Changed):
        _ = records.keys


def test_of_several_databases_those_of_one_are_found_at_their_use(tmp_path: Path) -> None:
    folders = [
        write_database(tmp_path / f"db{number}", RECORDS[first:stop])
        for number, (first, stop) in enumerate([(0, 2), (2, 5), (5, 7)])
    ]
    with RecordSource.open(folders) as source:
        for numbers in ([0, 1, 0], [4, 2, 3, 4], [6], [5, 6]):
            assert_keys(at(source, *numbers), *numbers)
        for numbers in ([0, 2], [2, 0], [2, 3, 5], [2, 0, 2], [6, 2, 3, 6]):
            assert source.reader().locate_lazily(np.array(numbers)) is None
            with source.reader().fetch(np.array(numbers)) as fetched:
                assert [bytes(key) for key in fetched.keys] == [RECORDS[one][0] for one in numbers]
                assert [bytes(each) for each in fetched.values] == [VALUES[one] for one in numbers]


@pytest.mark.parametrize("several", [False, True])
def test_what_was_fetched_ends_with_the_block_that_it_is_used_in(
    source: RecordSource, tmp_path: Path, *, several: bool
) -> None:
    if several:
        folders = [write_database(tmp_path / name, RECORDS) for name in ("one", "two")]
        source = RecordSource.open(folders)
    numbers = [0, 7] if several else [0, 2]
    with source.reader().fetch(np.array(numbers)) as fetched:
        assert len(fetched) == 2
    with pytest.raises(ValueError, match="released"):
        bytes(fetched.values[0])
    with pytest.raises(ValueError, match="released"):
        bytes(fetched.keys[0])
    if several:
        source.close()


def test_a_bad_record_is_told_with_its_position(source: RecordSource) -> None:
    words, data, labels = room(3)
    data = np.zeros((3, 1, 2, 2), np.float32)
    faults = at(source, 0, 5, 6).fill(words, data, labels, RECIPE)
    assert faults == [
        (0, Reason.SIZE_DIFFERS, (1, 1, 2, 1, 2, 2)),
        (1, 0, ()),
        (2, Reason.SIZE_DIFFERS, (1, 1, 2, 1, 2, 2)),
    ]


def test_views_are_returned_as_they_are() -> None:
    given = [memoryview(b"a"), memoryview(b"b")]
    assert views(given) is given
