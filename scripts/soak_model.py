"""What the soak knows of its databases without ringfeed: their records, and what is right.

Records of databases given by path are read with lmdb, the protobuf message and OpenCV; none of the
feed's own parsing, ordering or transforming is used. What a batch holds is compared with it sample
by sample, and with what was served for the same seed, epoch and place before.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cv2
import lmdb
import numpy as np

import prefetch.testing
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

_MOST_RECORDS = 600
_MOST_BYTES = 8 << 20
REMEMBERED_EPOCHS = 4
_REMEMBERED_FEEDS = 200


class MismatchError(AssertionError):
    """What a feed served is not what it should have served."""


@dataclass(frozen=True)
class Database:
    """A database and what is in it.

    Attributes:
        name: For the report.
        path: Its folder.
        images: (C, H, W) of each record; None for one that is bad on purpose.
        labels: One a record.
    """

    name: str
    path: Path
    images: Sequence[npt.NDArray[Any] | None]
    labels: Sequence[int]

    @property
    def has_bad(self) -> bool:
        """Whether some records are bad."""
        return any(image is None for image in self.images)

    @property
    def shapes(self) -> set[tuple[int, ...]]:
        """The shapes of its images."""
        return {image.shape for image in self.images if image is not None}

    @property
    def least_side(self) -> int:
        """The smallest height or width."""
        return min(side for shape in self.shapes for side in shape[1:])


def make_databases(folder: Path) -> list[Database]:
    """Write small databases of every kind of record: raw, float, encoded, varying, some bad."""
    rng = np.random.default_rng(0)
    plain = [rng.integers(0, 256, (3, 12, 12), dtype=np.uint8) for _ in range(96)]
    large = [rng.integers(0, 256, (3, 64, 80), dtype=np.uint8) for _ in range(48)]
    varying = [rng.integers(0, 256, (1, *rng.integers(10, 20, 2)), np.uint8) for _ in range(61)]
    floats = [rng.normal(size=(2, 9, 9)).astype(np.float32) for _ in range(40)]
    return [
        _made(folder, "raw", plain, [_raw(image) for image in plain]),
        _made(folder, "large", large, [_raw(image) for image in large]),
        _made(folder, "varying", varying, [_raw(image) for image in varying]),
        _made(folder, "float", floats, [_float(image) for image in floats]),
        _made(folder, "png", plain, [_png(image) for image in plain]),
        _made(
            folder,
            "bad",
            [None if index % 17 == 5 else image for index, image in enumerate(plain)],
            [
                Datum(channels=3, height=2**30, width=2**30, data=b"x")
                if index % 17 == 5
                else _raw(image)
                for index, image in enumerate(plain)
            ],
        ),
    ]


def read_database(path: Path) -> Database:
    """Read the first records of a database that somebody else wrote."""
    images, labels = [], []
    single_file = path.is_file()
    with (
        lmdb.open(str(path), readonly=True, lock=False, subdir=not single_file) as environment,
        environment.begin() as transaction,
        transaction.cursor() as cursor,
    ):
        nbytes = 0
        for _, value in cursor:
            datum = Datum.FromString(value)
            images.append(_pixels(datum))
            labels.append(datum.label)
            nbytes += images[-1].nbytes
            if nbytes > _MOST_BYTES or len(images) == _MOST_RECORDS:
                break
    return Database(path.name, path, images, labels)


@dataclass
class Model:
    """What a feed must serve, and what has been served before.

    Attributes:
        checked: Samples that were compared.
    """

    checked: int = 0
    _seen: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    def check(
        self,
        database: Database,
        options: Mapping[str, Any],
        places: Sequence[tuple[int, int]],
        batch: prefetch.Batch,
    ) -> None:
        """Compare a batch with its records, and with what was at its places before.

        Args:
            database: What the feed reads.
            options: The feed's options.
            places: (epoch, place in the epoch's order) of each sample.
            batch: What it served.

        Raises:
            MismatchError: Something is otherwise than it must be.
        """
        data, labels = batch.data.numpy(writable=False), batch.label.numpy(writable=False)
        if len(places) != len(data):
            raise MismatchError(f"{batch} should have {len(places)} samples")
        for (epoch, place), record, sample, label in zip(
            places, batch.indices.tolist(), data, labels.tolist(), strict=True
        ):
            where = f"{database.name}: epoch {epoch}, place {place}, record {record}"
            self._check_order(database, options, place, record, where)
            image = database.images[record]
            if image is None or label != database.labels[record]:
                raise MismatchError(f"{where}: label {label}, or a bad record")
            if not is_cut_of(sample, image, options):
                raise MismatchError(f"{where}: the pixels are not the record's")
            self._check_repeat(database, options, (epoch, place), sample, where)
            self.checked += 1

    @staticmethod
    def _check_order(
        database: Database, options: Mapping[str, Any], place: int, record: int, where: str
    ) -> None:
        if options["shuffle"]:
            return
        expected = place
        while database.images[expected] is None:
            expected = (expected + 1) % len(database.images)
        if record != expected:
            raise MismatchError(f"{where}: should be record {expected}")

    def _check_repeat(
        self,
        database: Database,
        options: Mapping[str, Any],
        place: tuple[int, int],
        sample: npt.NDArray[Any],
        where: str,
    ) -> None:
        """A sample depends on seed, epoch and place; never on threads, depth or batch size."""
        if place[0] >= REMEMBERED_EPOCHS:
            return
        deciding = ("seed", "shuffle", "rng", "phase", "transform")
        key = f"{database.name} {[options[name] for name in deciding]}"
        seen = self._seen.pop(key, None)
        if seen is None:
            shape = (REMEMBERED_EPOCHS, len(database.images))
            seen = np.full(shape, -1, np.int64)
            if len(self._seen) == _REMEMBERED_FEEDS:
                del self._seen[next(iter(self._seen))]
        self._seen[key] = seen  # the latest is last
        checksum = zlib.crc32(sample.tobytes())
        if seen[place] not in {-1, checksum}:
            raise MismatchError(f"{where}: was served with other pixels before, {key}")
        seen[place] = checksum


def is_cut_of(
    sample: npt.NDArray[Any], image: npt.NDArray[Any], options: Mapping[str, Any]
) -> bool:
    """Return whether a sample is the image as the options transform it, whatever was drawn."""
    transform = options["transform"]
    whole = (image.astype(np.float32) - np.float32(transform["mean_value"][0])) * np.float32(
        transform["scale"]
    )
    crop = transform["crop_size"]
    height, width = whole.shape[1:]
    if not crop:
        rows, columns = range(1), range(1)
        cut_height, cut_width = height, width
    elif options["phase"] == "test":
        rows, columns = (
            range((side - crop) // 2, (side - crop) // 2 + 1) for side in whole.shape[1:]
        )
        cut_height = cut_width = crop
    else:
        rows, columns = range(height - crop + 1), range(width - crop + 1)
        cut_height = cut_width = crop
    facings = [sample, sample[:, :, ::-1]] if transform["mirror"] else [sample]
    return any(
        # One pixel tells most of the places that are wrong.
        facing[0, 0, 0] == whole[0, top, left]
        and np.array_equal(facing, whole[:, top : top + cut_height, left : left + cut_width])
        for facing in facings
        for top in rows
        for left in columns
    )


def _made(
    folder: Path, name: str, images: Sequence[npt.NDArray[Any] | None], records: Sequence[Datum]
) -> Database:
    for label, record in enumerate(records):
        record.label = label
    pairs = [(b"%08d" % i, record.SerializeToString()) for i, record in enumerate(records)]
    path = prefetch.testing.write_database(folder / name, pairs)
    return Database(name, path, images, range(len(images)))


def _raw(image: npt.NDArray[np.uint8]) -> Datum:
    channels, height, width = image.shape
    return Datum(channels=channels, height=height, width=width, data=image.tobytes())


def _float(image: npt.NDArray[np.float32]) -> Datum:
    channels, height, width = image.shape
    return Datum(channels=channels, height=height, width=width, float_data=image.ravel())


def _png(image: npt.NDArray[np.uint8]) -> Datum:
    encoded = cv2.imencode(".png", image.transpose(1, 2, 0))[1]
    return Datum(encoded=True, data=encoded.tobytes())


def _pixels(datum: Datum) -> npt.NDArray[Any]:
    shape = datum.channels, datum.height, datum.width
    if datum.encoded:
        decoded: Any = cv2.imdecode(np.frombuffer(datum.data, np.uint8), cv2.IMREAD_ANYCOLOR)
        planes = decoded[:, :, None] if decoded.ndim == 2 else decoded
        return np.ascontiguousarray(planes.transpose(2, 0, 1))
    if datum.data:
        return np.frombuffer(datum.data, np.uint8).reshape(shape)
    return np.array(datum.float_data, np.float32).reshape(shape)
