"""Bad and odd records, against a model that decodes, judges and substitutes one record at a time.

Which record is at which place is taken from the feed's order, which has tests of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prefetch
from prefetch._plan.draws import CounterDraws
from prefetch._record.wire import encode_datum
from prefetch._source.lmdb.mapped import MappedPages
from prefetch.testing import write_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from prefetch._plan.order import Order, PlannedBatch

SOUND = ("raw", "float", "png", "bmp", "jpeg")
DAMAGED = ("garbage", "empty", "short", "cut png", "cut jpeg", "no image", "no bytes")
FLAGS = {"": cv2.IMREAD_UNCHANGED, "color": cv2.IMREAD_COLOR, "gray": cv2.IMREAD_GRAYSCALE}


class Record(NamedTuple):
    """A record, and what it holds as far as that is not an image file's."""

    kind: str
    pixels: NDArray[Any]  # (channels, height, width)
    value: bytes


class Sound(NamedTuple):
    """What a record holds, decoded: (channels, height, width)."""

    pixels: NDArray[Any]


@dataclass(frozen=True)
class Case:
    """Records, the databases that they are in, and how they are served."""

    records: tuple[Record, ...]
    cuts: tuple[int, ...]  # where one database ends and the next begins
    options: dict[str, Any]
    transform: dict[str, Any]
    threads: tuple[int, int]  # before and after the feed is opened anew
    resumed_at: int
    splits: bool
    walks: bool
    maps: bool

    @property
    def served(self) -> range:
        """The records of the subset."""
        return range(len(self.records))[self.options["subset"]["start"] :]

    @property
    def skips(self) -> bool:
        """Whether bad records are replaced."""
        return bool(self.options["on_bad_record"] != "raise")


def _record(kind: str, shape: tuple[int, int, int], number: int) -> Record:
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    channels, height, width = shape
    sizes: dict[str, Any] = {"channels": channels, "height": height, "width": width}
    raw = encode_datum(**sizes, data=pixels.tobytes(), label=number)
    if kind == "raw":
        return Record(kind, pixels, raw)
    if kind == "float":
        floats = rng.normal(scale=100, size=shape).astype(np.float32)
        return Record(kind, floats, encode_datum(**sizes, floats=floats.ravel(), label=number))
    foreign = {"garbage": b"<html>", "empty": b"", "short": raw[:-3]}
    if kind in foreign:
        return Record(kind, pixels, foreign[kind])
    extension = ".png" if kind.startswith("no") else f".{kind.rsplit(maxsplit=1)[-1]}"
    file = cv2.imencode(extension, pixels.transpose(1, 2, 0))[1].tobytes()
    file = {"no image": b"\x89PNG nonsense", "no bytes": b""}.get(kind, file)
    if kind.startswith("cut"):
        file = file[:-15]
    return Record(kind, pixels, encode_datum(data=file, encoded=True, label=number))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a database that mostly holds records of one kind and shape, and how it is served."""
    num = draw(st.integers(1, 20))
    usual = draw(st.sampled_from([(3, 6, 5), (1, 6, 5)]))
    shapes = st.sampled_from([(1, 6, 5), (3, 6, 5), (3, 5, 6), (3, 9, 8), (1, 3, 3), (4, 6, 5)])
    kinds = st.sampled_from([*SOUND, *DAMAGED])
    usual_kind = draw(st.sampled_from(SOUND))
    odds = draw(st.sampled_from([0, 1, 3, 5]))  # in 10
    records = []
    for number in range(num):
        is_odd = draw(st.integers(0, 9)) < odds
        kind = draw(kinds) if is_odd else usual_kind
        shape = draw(shapes) if is_odd and draw(st.booleans()) else usual
        if shape[0] == 4 and kind not in ("raw", "float", "png"):
            shape = usual
        records.append(_record(kind, shape, number))
    force = draw(st.sampled_from(["", "", "color", "gray"]))
    dtype = draw(st.sampled_from(["float32", "float32", "uint8"]))
    means = [[], [], [10.5], [1, 2, 3]] if dtype == "float32" else [[]]
    world_size = draw(st.integers(1, min(num, 3)))
    start = draw(st.integers(0, num - world_size))
    options = {
        "batch_size": draw(st.integers(1, 7)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 5)),
        "epochs": 2,
        "phase": draw(st.sampled_from(["train", "test"])),
        "last_batch": draw(st.sampled_from(["partial", "partial", "drop", "wrap"])),
        "prefetch": draw(st.integers(1, 3)),
        "subset": {"start": start},
        "shard": {
            "rank": draw(st.integers(0, world_size - 1)),
            "world_size": world_size,
            "policy": draw(st.sampled_from(["pad", "drop"])),
        },
        "on_bad_record": draw(st.sampled_from(["raise", "skip", "quarantine"])),
        "max_bad_records": draw(st.sampled_from([0, 1, 3, 100, 100])),
    }
    transform = {
        "crop_size": draw(st.sampled_from([0, 0, 3, 5])),
        "mirror": draw(st.booleans()),
        "mean_value": draw(st.sampled_from(means)),
        "dtype": dtype,
        "force_color": force == "color",
        "force_gray": force == "gray",
        "where": draw(st.sampled_from(["host", "device"])),
    }
    threads = st.integers(1, 8)
    return Case(
        records=tuple(records),
        cuts=tuple(sorted(draw(st.sets(st.integers(1, num - 1), max_size=2)))) if num > 1 else (),
        options=options,
        transform=transform,
        threads=(draw(threads), draw(threads)),
        resumed_at=draw(st.integers(0, 5)),
        splits=draw(st.booleans()),
        walks=draw(st.booleans()),
        maps=draw(st.integers(0, 3)) > 0,
    )


class Refusal(NamedTuple):
    """An error that is expected: its class, the key named, and that of the record beside it."""

    kind: type[prefetch.PrefetchError]
    key: bytes
    other: bytes | None = None


class Model:
    """What a case serves, worked out one record at a time.

    Attributes:
        bad: Keys of the bad records met so far.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._like: int | None = None
        self.bad: set[bytes] = set()

    def key(self, record: int) -> bytes:
        """Return the key of a record of the subset."""
        return b"%05d" % self._case.served[record]

    def opening(self) -> Refusal | None:
        """Look for the record that gives the shape; return what opening raises."""
        most = self._case.options["max_bad_records"] + 1 if self._case.skips else 1
        for record in range(min(most, len(self._case.served))):
            if self._judge(record, None) == "good":
                self._like = record if self._case.skips else None
                return None
        if self._case.skips or self._judge(0, None) == "unfit":
            return Refusal(prefetch.ConfigError, self.key(0))
        return None

    def batch(self, planned: PlannedBatch, order: Order) -> list[NDArray[Any]] | Refusal:
        """Return the keys, labels and rows of a batch, or what it raises."""
        records, rows = [], []
        like = int(planned.records[0]) if self._like is None else self._like
        for position, record in enumerate(planned.records.tolist()):
            found = record
            epoch, place = int(planned.epochs[position]), int(planned.places[position])
            step = 0
            while (verdict := self._judge(found, like)) != "good":
                if not self._case.skips:
                    differs = verdict == "odd"
                    return Refusal(
                        prefetch.RecordError, self.key(found), self.key(like) if differs else None
                    )
                self.bad.add(self.key(found))
                if len(self.bad) > self._case.options["max_bad_records"]:
                    return Refusal(prefetch.TooManyBadRecordsError, self.key(found))
                step += 1
                found = int(order.record_at(np.array([epoch]), np.array([place + step]))[0])
            records.append(found)
            rows.append(self._row(found, epoch))
        keys = np.array([self.key(record) for record in records])
        labels = np.array([self._case.served[record] for record in records])
        return [keys, labels, np.stack(rows)]

    def _decoded(self, record: int) -> Sound | None:
        """Return a record's pixels; None for a damaged one."""
        kind, pixels, _ = self._case.records[self._case.served[record]]
        if kind in DAMAGED:
            return None
        transform = self._case.transform
        if kind in ("raw", "float"):
            return Sound(pixels)
        force = "color" if transform["force_color"] else "gray" if transform["force_gray"] else ""
        file = cv2.imencode(f".{kind}", pixels.transpose(1, 2, 0))[1]
        image = cv2.imdecode(file, FLAGS[force])
        assert image is not None
        return Sound(image.reshape(*image.shape[:2], -1).transpose(2, 0, 1))

    def _judge(self, record: int, like: int | None) -> str:
        """Return good, damaged, odd beside another record, or unfit for the configuration."""
        sound = self._decoded(record)
        if sound is None:
            return "damaged"
        pixels, transform = sound.pixels, self._case.transform
        if pixels.dtype != np.uint8 and transform["dtype"] == "uint8":
            return "unfit"
        channels, height, width = pixels.shape
        other = None if like is None else self._decoded(like)
        if other is not None:
            if channels != other.pixels.shape[0]:
                return "odd"
            if not transform["crop_size"] and pixels.shape != other.pixels.shape:
                return "odd"
        if len(transform["mean_value"]) not in (0, 1, channels):
            return "unfit"
        return "unfit" if min(height, width) < transform["crop_size"] else "good"

    def _row(self, record: int, epoch: int) -> NDArray[Any]:
        sound, transform = self._decoded(record), self._case.transform
        assert sound is not None
        pixels = sound.pixels
        drawn = CounterDraws(self._case.options["seed"]).words_at(
            np.array([epoch]), np.array([record])
        )
        mirror, row, column = drawn[0].tolist()
        crop = transform["crop_size"]
        if crop:
            spare = (pixels.shape[1] - crop, pixels.shape[2] - crop)
            top, left = spare[0] // 2, spare[1] // 2
            if self._case.options["phase"] == "train":
                top, left = row * (spare[0] + 1) >> 32, column * (spare[1] + 1) >> 32
            pixels = pixels[:, top : top + crop, left : left + crop]
        if transform["mirror"] and mirror * 2 >> 32:
            pixels = pixels[:, :, ::-1]
        if transform["dtype"] == "uint8":
            return pixels
        means = np.array(transform["mean_value"] or [0], np.float32)
        return np.subtract(pixels.astype(np.float32), means[:, np.newaxis, np.newaxis])


def _taken(feed: prefetch.Feed, most: int) -> Iterator[list[NDArray[Any]]]:
    """Yield copies of a feed's next batches."""
    while most:
        for batch in feed:
            yield [np.array(batch.keys), batch.label.numpy().copy(), batch.data.numpy().copy()]
            most -= 1
            if not most:
                break


def _refuse_mapping(*_: object, **__: object) -> None:
    raise OSError(12, "Cannot allocate memory")


def _same_refusal(error: prefetch.PrefetchError, expected: Refusal) -> bool:
    """Return whether an error names the records that are expected."""
    if isinstance(error, prefetch.TooManyBadRecordsError):
        return error.last.key == expected.key
    if isinstance(error, prefetch.RecordError):
        other = expected.other
        is_named = other is None or f"key '{other.decode()}'" in error.reason
        return error.key == expected.key and is_named
    return f"key '{expected.key.decode()}'" in str(error)


def _compare(feed: prefetch.Feed, model: Model, num: int) -> bool:
    """Compare a feed's next batches; return whether it goes on behind them."""
    order = feed._prefetcher.components.order
    taken = _taken(feed, num)
    for sequence in range(num):
        planned = order.plan(sequence)
        assert planned is not None
        expected = model.batch(planned, order)
        if isinstance(expected, Refusal):
            with pytest.raises(expected.kind) as caught:
                next(taken)
            assert _same_refusal(caught.value, expected), (caught.value, expected)
            return False
        for one, other in zip(next(taken), expected, strict=True):
            assert np.array_equal(one, other), (one, other)
    assert feed.stats().bad_records == len(model.bad)
    return True


def _stored(folder: Path) -> dict[bytes, bytes]:
    """Return what is in a quarantine, or nothing where there is none."""
    if not folder.exists():
        return {}
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as t:
        return dict(t.cursor())


def _check(case: Case, folder: Path) -> None:
    ends = [0, *case.cuts, len(case.records)]
    sources = [
        write_database(
            folder / str(begin),
            [(b"%05d" % number, case.records[number].value) for number in range(begin, end)],
        )
        for begin, end in pairwise(ends)
    ]
    options = {**case.options, "source": sources, "device": "simulated"}
    options["transform"] = case.transform
    aside = folder / "aside"
    if case.options["on_bad_record"] == "quarantine":
        options["quarantine"] = aside
    model = Model(case)
    refusal = model.opening()
    if refusal is not None:
        with pytest.raises(prefetch.ConfigError) as caught:
            prefetch.open(options)
        assert _same_refusal(caught.value, refusal), (caught.value, refusal)
        assert not aside.exists()
        return
    state: dict[str, Any] | None = None
    met: set[bytes] = set()
    is_whole = True
    for threads, most in zip(case.threads, (case.resumed_at, 1000), strict=True):
        with prefetch.open(options, threads=threads) as feed:
            if state is not None:
                feed.load_state_dict(state)
            num = feed._prefetcher.components.order.num_batches
            assert num is not None
            model.bad.clear()
            if is_whole and num:
                is_whole = _compare(feed, model, min(num, most))
            met |= model.bad
            state = feed.state_dict()
    kept = _stored(aside)
    if is_whole and case.options["on_bad_record"] == "quarantine":
        assert set(kept) == met
    for key, value in kept.items():
        assert case.records[int(key)].value == value


@settings(max_examples=60)
@given(case=cases())
def test_bad_and_odd_records_are_what_the_model_makes_of_them(case: Case) -> None:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if case.splits:
            patch.setattr("prefetch._pipeline.reader_jobs._MIN_BYTES_TO_SPLIT", 0)
            patch.setattr("prefetch._pipeline.light_batches._MIN_RAW_BYTES_TO_SPLIT", 0)
        if case.walks:
            patch.setattr("prefetch._source.source._MOST_INDEXING_S", -1)
        if not case.maps:
            patch.setattr(MappedPages, "__init__", _refuse_mapping)
        _check(case, Path(folder))
