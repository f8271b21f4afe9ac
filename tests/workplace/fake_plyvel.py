"""As much of plyvel as a conversion uses; runs in the same tests as the real one."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_open: set[Path] = set()


class Error(Exception):
    """Whatever LevelDB says."""


class DB:
    """A database that keeps its records in one file."""

    def __init__(self, name: str, *, create_if_missing: bool = False) -> None:
        self._folder = Path(name).absolute()
        if self._folder in _open:
            raise OSError(f"lock {name}/LOCK: already held by process")
        if create_if_missing:
            self._folder.mkdir()
            (self._folder / "MANIFEST-000002").touch()
            (self._folder / "CURRENT").touch()
            (self._folder / "000005.ldb").write_bytes(pickle.dumps({}))
        self._records: dict[bytes, bytes] = pickle.loads((self._folder / "000005.ldb").read_bytes())  # noqa: S301 - our own
        _open.add(self._folder)
        self.closed = False

    def put(self, key: bytes, value: bytes) -> None:
        self._records[key] = value

    def get(self, key: bytes, *, verify_checksums: bool = False) -> bytes | None:  # noqa: ARG002
        return self._records.get(key)

    @contextmanager
    def iterator(self, *, include_value: bool) -> Iterator[Iterator[bytes]]:
        assert not include_value
        yield iter(sorted(self._records))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            (self._folder / "000005.ldb").write_bytes(pickle.dumps(self._records))
            _open.discard(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "closed"):  # else another has it open
            _open.discard(self._folder)
