"""Databases to folders of files: a list or class folders, as conversions read them.

The folder takes its name when it is whole. Before, its files are in ``NAME.partial/files``, and
``NAME.partial/conversion.json`` says of what; the same call with ``resume`` writes what is missing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prefetch._errors.printable import counted, printable_short_key
from prefetch._files.output import cure
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM
from prefetch._source.sidecar_files import CLASSES_FILE, format_classes, raw_channel_order
from prefetch._tools.convert.draft_folder import agree_on_description, lock_description, sync
from prefetch._tools.convert.errors import ConversionError, Unreadable, UnreadableError
from prefetch._tools.stored.record_file import ENDINGS, RecordFile, record_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from prefetch._source.source import RecordSource

logger = logging.getLogger(__name__)

LIST_FILE: Final = "list.txt"
_BLOCK: Final = 64
_CAFFES_KEY: Final = re.compile(rb"[0-9]{8,}_(.+)", re.DOTALL)
_MAX_NAME_BYTES: Final = 255 - len(".part")
_RESERVED: Final = frozenset((LIST_FILE.encode(), CLASSES_FILE.encode()))

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did.

    Attributes:
        num_records: Records of the database.
        num_files: Files that were written, or were there from an earlier process.
        num_resumed: The latter.
        kinds: How many have which ending.
        unreadable: Records that have no pixels, left out.
    """

    num_records: int
    num_files: int
    num_resumed: int
    kinds: dict[str, int]
    unreadable: tuple[Unreadable, ...]


def export(
    source: RecordSource,
    folder: Path,
    *,
    class_names: Mapping[int, str],
    by_class: bool = False,
    skip_unreadable: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Write every record of a database as a file, and a list of their names and labels.

    A record is named as its key says: what stands behind the number in Caffe's ``%08d_name``, or
    else the whole key; with the ending that its content has. A key that is no relative path, or
    whose name is taken already, is named by its number.

    Args:
        source: One database.
        folder: The folder to make; there must be nothing yet.
        class_names: The names of labels, for class folders; a label without one is its own name.
        by_class: Whether files go into a folder for each label.
        skip_unreadable: Leave out records without pixels, instead of failing.
        resume: Continue what an interrupted export has left.
        progress: Called now and then with the records done and the records in all.

    Raises:
        ConversionError: A record has no pixels, the place is taken or the disk is full.
    """
    final = folder.absolute()
    if os.path.lexists(final):
        raise ConversionError(f"{final}: is there already; remove it, or choose another name")
    partial = final.with_name(f"{final.name}.partial")
    description: dict[str, object] = {
        "format": 3,
        "export of": source.path_of(0),
        "records": source.num_records,
        "by class": by_class,
    }
    is_rgb = raw_channel_order(source.path_of(0)) == "rgb"
    if is_rgb:
        description["channels"] = "rgb"
    with ExitStack() as undo:
        try:
            partial.mkdir(parents=True, exist_ok=True)
            lock = lock_description(partial / "conversion.json")
            undo.callback(os.close, lock)
            agree_on_description(lock, partial, description, resume=resume)
            (partial / "files").mkdir(exist_ok=True)
        except OSError as error:
            raise _failure(partial, error) from error
        writer = _Writer(
            partial / "files",
            _Namer(source.num_records, class_names if by_class else None),
            skip_unreadable=skip_unreadable,
            is_rgb=is_rgb,
        )
        try:
            _write_all(source, writer, progress)
            tables = {LIST_FILE: b"".join(writer.lines)}
            if class_names:
                tables[CLASSES_FILE] = format_classes(class_names).encode(
                    "utf-8", "surrogateescape"
                )
            for name, content in tables.items():
                (partial / "files" / name).write_bytes(content)
                sync(partial / "files" / name)
            sync(partial / "files")
            if os.path.lexists(final):
                raise ConversionError(f"{final}: was made by another process meanwhile")
            (partial / "files").rename(final)
            sync(final.parent)
        except OSError as error:
            raise _failure(partial, error, what="; continue with --resume then") from error
        except KeyboardInterrupt:
            logger.warning(
                "%s: %d of %s written; --resume continues it",
                partial,
                len(writer.lines),
                counted(source.num_records, "record"),
            )
            raise
        shutil.rmtree(partial, ignore_errors=True)
    return writer.report(source.num_records)


def _write_all(source: RecordSource, writer: _Writer, progress: Progress | None) -> None:
    walker = source.walker()
    for start in range(0, source.num_records, _BLOCK):
        num = min(_BLOCK, source.num_records - start)
        with walker.take(start, num) as records:
            for row in range(num):
                writer.write(start + row, bytes(records.keys[row]), bytes(records.values[row]))
        source.check()
        if progress is not None:
            progress(start + num, source.num_records)


class _Writer:
    """Writes records as files.

    Args:
        folder: Where they go.
        namer: What they are called.
        skip_unreadable: Whether records without pixels are left out.
        is_rgb: Whether raw records have red first.
    """

    def __init__(self, folder: Path, namer: _Namer, *, skip_unreadable: bool, is_rgb: bool) -> None:
        self.lines: list[bytes] = []
        self._folder = os.fsencode(folder)
        self._namer = namer
        self._skip = skip_unreadable
        self._is_rgb = is_rgb
        self._folders: set[bytes] = set()
        self._kinds: dict[str, int] = {}
        self._num_resumed = 0
        self._unreadable: list[Unreadable] = []

    def write(self, number: int, key: bytes, value: bytes) -> None:
        """Write a record.

        Raises:
            ConversionError: It has no pixels.
            OSError: The disk is full, or fails.
        """
        try:
            label = DATUM.read(memoryview(value)).label
            file = record_file(memoryview(value), is_rgb=self._is_rgb)
        except (BadRecordError, UnreadableError) as error:
            reason = error.at(0).message() if isinstance(error, BadRecordError) else str(error)
            name = f"record {number} ({printable_short_key(key)})"
            if not self._skip:
                raise ConversionError(
                    f"{name}: {reason}; --skip-unreadable leaves such records out, and with "
                    f"--resume what is written so far is kept"
                ) from None
            self._unreadable.append(Unreadable(number, name, reason))
            return
        path = self._namer.name(number, key, label, file.ending)
        self._kinds[file.ending] = self._kinds.get(file.ending, 0) + 1
        self._put(path, file)
        self.lines.append(b"%b %d\n" % (path, label))

    def report(self, num_records: int) -> ExportReport:
        """Return what was done."""
        return ExportReport(
            num_records=num_records,
            num_files=len(self.lines),
            num_resumed=self._num_resumed,
            kinds=self._kinds,
            unreadable=tuple(self._unreadable),
        )

    def _put(self, name: bytes, file: RecordFile) -> None:
        path = self._folder + b"/" + name
        parent = os.path.dirname(path)  # noqa: PTH120 - bytes, of whatever encoding
        if parent not in self._folders:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - as above
            self._folders.add(parent)
        try:
            # A file takes its name when it is whole; one of another size is of a crash.
            if os.stat(path).st_size == len(file.content):  # noqa: PTH116 - as above
                self._num_resumed += 1
                return
        except FileNotFoundError:
            pass
        with open(path + b".part", "wb") as draft:  # noqa: PTH123 - as above
            draft.write(file.content)
        os.replace(path + b".part", path)  # noqa: PTH105 - as above


class _Namer:
    """Gives files their names, each another.

    Args:
        num_records: How many there are.
        class_names: The names of labels where files go into class folders, else None.
    """

    def __init__(self, num_records: int, class_names: Mapping[int, str] | None) -> None:
        self._digits = max(8, len(str(num_records - 1)))
        self._class_names = class_names
        self._files = set(_RESERVED)
        self._folders: set[bytes] = set()
        self._class_folders: dict[int, bytes] = {}

    def name(self, number: int, key: bytes, label: int, ending: str) -> bytes:
        """Return the name of a record's file, relative to the folder."""
        found = _CAFFES_KEY.fullmatch(key)
        name = key if found is None else found[1]
        inside = b"" if self._class_names is None else self._class_folder(label) + b"/"
        name = name.removeprefix(inside)
        dot = b"." + ending.encode()
        _, _, own = name.rpartition(b"/")[2].rpartition(b".")
        own_ending = own.lower().decode("latin-1")
        if ENDINGS.get(own_ending, own_ending) not in (ending, {"jpe": "jpg"}.get(own_ending)):
            name += dot
        for wanted in (inside + name, inside + b"%0*d" % (self._digits, number) + dot):
            if self._is_free(wanted):
                return self._take(wanted)
        return self._take(inside + b"record-%0*d" % (self._digits, number) + dot)

    def _class_folder(self, label: int) -> bytes:
        """Return the name of a label's folder, another one for each."""
        if label not in self._class_folders:
            assert self._class_names is not None
            name = os.fsencode(self._class_names.get(label, str(label)))
            is_taken = name in self._class_folders.values() or name in _RESERVED
            if b"/" in name or is_taken or name.startswith(b".") or not _is_path(name):
                name = b"class-%d" % label
            self._class_folders[label] = name
        return self._class_folders[label]

    def _is_free(self, name: bytes) -> bool:
        return (
            _is_path(name)
            and name not in self._files
            and name not in self._folders
            and self._files.isdisjoint(_folders_of(name))
        )

    def _take(self, name: bytes) -> bytes:
        self._files.add(name)
        self._folders.update(_folders_of(name))
        return name


def _is_path(name: bytes) -> bool:
    """Return whether bytes of a key can name a file in the folder, and stand in a list."""
    parts = name.split(b"/")
    return (
        not any(byte < 0x20 or byte == 0x7F for byte in name)
        and all(part not in {b"", b".", b".."} for part in parts)
        and all(len(part) <= _MAX_NAME_BYTES for part in parts)
        and not name.endswith(b".part")
    )


def _folders_of(name: bytes) -> list[bytes]:
    parts = name.split(b"/")
    return [b"/".join(parts[:end]) for end in range(1, len(parts))]


def _failure(folder: Path, error: OSError, what: str = "") -> ConversionError:
    reason = error.strerror or str(error)
    return ConversionError(f"{folder}: cannot be written: {reason}; {cure(error, folder)}{what}")
