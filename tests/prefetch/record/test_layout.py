"""A layout that is not Datum's serves a whole feed: all that a feed asks is the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import records_of

import prefetch
from prefetch._feed import build
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.layouts.datum import DATUM
from prefetch._record.wire import encode_datum
from prefetch.testing import write_database

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from prefetch._record.layout import RecordKind

SIDE = 6
NUM = 30


class PlainContent:
    """A byte for the label, and a square image: its pixels, three channels, or its file."""

    def __init__(self, value: memoryview) -> None:
        self.label = value[0]
        self._rest = value[1:]

    @property
    def kind(self) -> RecordKind:
        return "raw" if len(self._rest) == 3 * SIDE * SIDE else "encoded"

    def image_bytes(self) -> memoryview:
        return self._rest

    def pixels(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        del dtype
        return np.frombuffer(self._rest, np.uint8).reshape(3, SIDE, SIDE)


class PlainLayout:
    is_native = False

    def read(self, value: memoryview) -> PlainContent:
        if len(value) < 2:
            raise BadRecordError(Reason.TRUNCATED, (0, len(value)), detail="it has no image")
        return PlainContent(value)

    def unreadable(
        self, reason: int, numbers: tuple[int, ...], value: memoryview
    ) -> BadRecordError:
        del value
        return BadRecordError(Reason(reason), numbers, detail="it has no image")


def images() -> list[NDArray[np.uint8]]:
    return list(np.random.default_rng(7).integers(0, 256, (NUM, 3, SIDE, SIDE), dtype=np.uint8))


def png(pixels: NDArray[np.uint8]) -> bytes:
    return cv2.imencode(".png", pixels.transpose(1, 2, 0))[1].tobytes()


@pytest.fixture(params=["raw", "encoded"])
def encoded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "encoded")


@pytest.fixture
def datums(tmp_path: Path, *, encoded: bool) -> Path:
    records = [
        (
            b"%02d" % number,
            encode_datum(data=png(pixels), encoded=True, label=number)
            if encoded
            else encode_datum(
                channels=3, height=SIDE, width=SIDE, data=pixels.tobytes(), label=number
            ),
        )
        for number, pixels in enumerate(images())
    ]
    return write_database(tmp_path / "datums", records)


def plain_records(*, encoded: bool) -> list[tuple[bytes, bytes]]:
    return [
        (b"%02d" % number, bytes([number]) + (png(pixels) if encoded else pixels.tobytes()))
        for number, pixels in enumerate(images())
    ]


@pytest.fixture
def plain_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let feeds be built for another layout: the builder is the one place that chooses it."""
    monkeypatch.setattr(build, "DATUM", PlainLayout())


def served(source: Path, **options: Any) -> list[tuple[bytes, list[bytes], list[int]]]:
    with prefetch.open({"source": source, "batch_size": 8, "seed": 1}, **options) as feed:
        return [
            (batch.data.numpy().tobytes(), batch.keys, batch.label.numpy().tolist())
            for batch in feed
        ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "threads": 2},
        {"transform": {"crop_size": 4, "mirror": True, "scale": 0.5}, "phase": "train"},
        {"device": "simulated", "transform": {"where": "device", "crop_size": 4}},
        {"on_bad_record": "skip"},
    ],
    ids=["in order", "shuffled", "transformed", "on the device", "of one shape"],
)
def test_batches_are_those_of_the_same_images_in_datums(
    datums: Path,
    tmp_path: Path,
    options: dict[str, Any],
    request: pytest.FixtureRequest,
    *,
    encoded: bool,
) -> None:
    expected = served(datums, **options)
    request.getfixturevalue("plain_layout")
    source = write_database(tmp_path / "plain", plain_records(encoded=encoded))
    assert served(source, **options) == expected


@pytest.mark.usefixtures("plain_layout")
def test_what_the_layout_cannot_read_is_a_bad_record_in_its_words(
    tmp_path: Path, *, encoded: bool
) -> None:
    records = plain_records(encoded=encoded)
    records[11] = b"11", b"\x0b"
    source = write_database(tmp_path / "plain", records)
    with pytest.raises(prefetch.RecordError, match="it has no image") as caught:
        served(source)
    assert (caught.value.record, caught.value.key, caught.value.stage) == (11, b"11", "parse")

    quarantine = {"on_bad_record": "quarantine", "quarantine": tmp_path / "bad"}
    labels = [label for _, _, batch in served(source, **quarantine) for label in batch]
    assert labels == [number + (number == 11) for number in range(NUM)]
    assert records_of(tmp_path / "bad") == {b"11": b"\x0b"}


@pytest.mark.parametrize("value", [b"\xff", b"\x08", b"\x0a\x7f", b"\xff\xd8\xff\xe0" * 5])
def test_reading_a_datum_says_what_a_kernels_finding_says(value: bytes) -> None:
    with pytest.raises(BadRecordError) as caught:
        DATUM.read(memoryview(value))
    bad = caught.value
    again = DATUM.unreadable(bad.reason, bad.numbers, memoryview(value))
    assert again.at(3) == bad.at(3)
    assert ("JPEG" in bad.detail) == value.startswith(b"\xff\xd8")
