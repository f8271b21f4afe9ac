"""Caffe's LevelDB databases: keys and values as they are. plyvel, which reads them, is optional."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import printable_short_key
from prefetch._tools.convert.errors import ConversionError, InputError, UnreadableError
from prefetch._tools.convert.examples import Example
from prefetch._tools.convert.inputs.keys import MAX_BYTES
from prefetch._tools.convert.stamps import stamp_of_all
from prefetch._tools.examine_record import Examiner

if TYPE_CHECKING:
    from pathlib import Path

_NO_PLYVEL = (
    "is a LevelDB, and plyvel, which reads those, is not installed: pip install plyvel; where it "
    "does not install, Caffe's convert_imageset --backend=lmdb makes an LMDB of the images"
)


def is_leveldb(folder: Path) -> bool:
    """Return whether a folder is a LevelDB database."""
    return (folder / "CURRENT").is_file() and any(folder.glob("MANIFEST-*"))


class LevelDbExamples:
    """The records of a LevelDB; see `Examples`. Held open as long as this object.

    LevelDB knows no reading without writing: it takes the folder's lock, and puts what its log
    holds into a table.

    Raises:
        InputError: It is none, holds no records, or keys that LMDB does not take.
        ConversionError: plyvel is not installed, or another process has the database open.
    """

    chunk = 64

    def __init__(self, folder: Path) -> None:
        path = os.fspath(folder.absolute())
        try:
            import plyvel  # noqa: PLC0415 - optional
        except ImportError:
            raise ConversionError(f"{path}: {_NO_PLYVEL}") from None
        if not is_leveldb(folder):
            raise InputError(path, "is no LevelDB: it holds no CURRENT with a MANIFEST")
        try:
            self._database: Any = plyvel.DB(path, create_if_missing=False)
        except (plyvel.Error, OSError) as error:
            raise ConversionError(
                f"{path}: LevelDB cannot open it: {error}; end what has it open, or copy it to "
                f"where you may write"
            ) from None
        self._path = path
        self._error: type[Exception] = plyvel.Error
        with self._database.iterator(include_value=False) as keys:
            self._keys: list[bytes] = list(keys)
        if not self._keys:
            raise InputError(path, "holds no records")
        too_long = [key for key in self._keys if not 0 < len(key) <= MAX_BYTES]
        if too_long:
            raise InputError(
                path,
                f"{len(too_long)} of its keys are empty or longer than the {MAX_BYTES} bytes that "
                f"LMDB takes; the first is {printable_short_key(too_long[0])}",
            )
        tables = sorted(folder.glob("*.ldb")) + sorted(folder.glob("*.sst"))
        self._stamp = stamp_of_all(tables or [folder / "CURRENT"])

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> bytes:
        """Return a record's key."""
        return self._keys[index]

    def name(self, index: int) -> str:
        """Return the database and a record's key."""
        return f"{self._path}, record {index} ({printable_short_key(self._keys[index])})"

    def read(self, index: int) -> Example:
        """Return a record as it is.

        Raises:
            UnreadableError: LevelDB says that it is damaged.
        """
        try:
            value: bytes | None = self._database.get(self._keys[index], verify_checksums=True)
        except self._error as error:
            raise UnreadableError(f"LevelDB says: {error}") from None
        if value is None:
            raise UnreadableError("is not there any more")
        finding = Examiner().examine(memoryview(value), decode=True)
        return Example(value, finding.shape or (0, 0, 0), unchanged=True, stamp=self._stamp)

    def stamp(self, index: int) -> bytes:  # noqa: ARG002 - all are from the same files
        """Return the stamp of the database's tables."""
        return self._stamp

    def fingerprint(self) -> dict[str, str]:
        """Return a digest of the keys."""
        digest = hashlib.sha256()
        for key in self._keys:
            digest.update(b"%d " % len(key) + key)
        return {"keys": digest.hexdigest()}
