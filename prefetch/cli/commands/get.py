"""``ringfeed get``: one record, as a file or described."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefetch._errors.printable import counted, printable_key, printable_shape
from prefetch.cli.arguments.configs import JsonOption  # noqa: TC001 - as above
from prefetch.cli.arguments.outputs import (
    ForceOption,
    check_folder,
    check_free,
    check_no_input,
    database_files,
)
from prefetch.cli.reports.printing import print_fields, print_json
from prefetch.cli.terminal.progress import DelayedProgress

if TYPE_CHECKING:
    from prefetch._tools.stored.lookup import StoredRecord


def get(
    database: Annotated[
        Path, typer.Argument(metavar="DB", help="Folder of an LMDB, or its data.mdb.")
    ],
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="KEY|INDEX",
            help="The record's key, as it is or as reports print it; or its number in the order of "
            "the keys, from 0, where no record has such a key.",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write it as .png, .jpg or another image file; .npy: its pixels, channels x "
            "height x width; .datum: the record's own bytes.",
            callback=check_folder,
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Get one record: its file, or what it is.

    On a terminal, with --out and with --json a description is printed. Into a pipe goes the image
    file that an encoded record holds, as it is; of a raw one a PNG, or .npy where it has floats or
    neither 1 nor 3 channels.
    """
    from prefetch._files.output import write_whole  # noqa: PLC0415 - slow to import
    from prefetch._source.source import RecordSource  # noqa: PLC0415 - as above
    from prefetch._tools.stored.lookup import find_record  # noqa: PLC0415 - as above

    check_no_input(out, database_files(database))
    check_free(out, force=force)
    with (
        DelayedProgress() as progress,
        RecordSource.open(
            database, index_progress=lambda _, done, total: progress("indexing", done, total)
        ) as source,
    ):
        record = find_record(source, wanted)
        path = source.path_of(0)
    if out is not None:
        write_whole(out, _content(path, record, out))
    elif not (as_json or sys.stdout.isatty()):
        content = _content(path, record, None)
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    report = _describe(path, record, out)
    if as_json:
        print_json(report)
    else:
        print_fields(_as_fields(report))


def _content(path: str, record: StoredRecord, out: Path | None) -> bytes:
    """Return the content of a record's file.

    Args:
        path: Of the database.
        record: The record.
        out: The file's name, whose ending says its type; None for what loses nothing.

    Raises:
        BadParameter: The name has no ending, or one of no file that it could be.
        RecordError: The record has no pixels.
    """
    from prefetch._errors.classes import RecordError  # noqa: PLC0415 - slow to import
    from prefetch._files.output import is_written_into  # noqa: PLC0415 - as above
    from prefetch._record.faults import BadRecordError  # noqa: PLC0415 - as above
    from prefetch._source.sidecar_files import raw_channel_order  # noqa: PLC0415 - as above
    from prefetch._tools.convert.errors import UnreadableError  # noqa: PLC0415 - as above
    from prefetch._tools.stored import record_file  # noqa: PLC0415 - as above

    value = memoryview(record.value)
    is_rgb = raw_channel_order(path) == "rgb"
    try:
        if out is None or is_written_into(out):
            return record_file.record_file(value, is_rgb=is_rgb).content
        return record_file.record_file_of(value, out.suffix[1:].lower(), is_rgb=is_rgb)
    except BadRecordError as bad:
        fault = bad.at(0)
        raise RecordError(
            f"{fault.message()}; --json describes it, and --out NAME.datum writes its bytes",
            database=path,
            record=record.number,
            key=record.key,
            stage=fault.stage,
        ) from None
    except UnreadableError as error:
        raise typer.BadParameter(f"{out}: {error}; .npy takes any pixels") from None


def _describe(path: str, record: StoredRecord, out: Path | None) -> dict[str, Any]:
    from prefetch._tools.examine_record import Examiner  # noqa: PLC0415 - as above
    from prefetch._tools.stored.carried_files import read_class_names  # noqa: PLC0415 - as above

    finding = Examiner().examine(memoryview(record.value), decode=True)
    label = finding.label
    names = read_class_names(Path(path))
    return {
        "database": path,
        "record": record.number,
        "key": printable_key(record.key),
        "kind": finding.kind,
        "shape": None if finding.shape is None else list(finding.shape),
        "label": label,
        "class_name": None if label is None else names.get(label),
        "value_bytes": len(record.value),
        "fault": None if finding.fault is None else finding.fault.message(),
        "file": None if out is None else str(out.absolute()),
    }


def _as_fields(report: dict[str, Any]) -> list[tuple[str, str]]:
    shape, label = report["shape"], report["label"]
    name = report["class_name"]
    fields = [
        ("database", report["database"]),
        ("record", str(report["record"])),
        ("key", report["key"]),
        ("kind", report["kind"]),
        ("shape", "unknown" if shape is None else f"{printable_shape(shape)} (channels first)"),
        ("label", "none" if label is None else f"{label}{'' if name is None else f' ({name})'}"),
        ("value", counted(report["value_bytes"], "byte")),
    ]
    fields += [(name, report[name]) for name in ("fault", "file") if report[name] is not None]
    return fields
