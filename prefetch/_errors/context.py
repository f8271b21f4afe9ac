"""Where something went wrong, for errors that do not say so themselves.

What this package raises on purpose names its database. Python's MemoryError says nothing, and what
a device or a library raises knows nothing of databases and batches.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from memory import SyncedMemoryError
from prefetch._errors.classes import OutOfMemoryError, PrefetchError, SourceError
from prefetch._errors.os_errors import describe_limit
from prefetch._errors.printable import printable_path

if TYPE_CHECKING:
    from collections.abc import Iterator


def with_context(
    error: BaseException,
    *,
    database: str,
    stage: str,
    epoch: int | None = None,
    batch: int | None = None,
) -> BaseException:
    """Return an error that says where it happened.

    Args:
        error: What happened.
        database: Absolute path of the database at work.
        stage: The step; see `OutOfMemoryError`.
        epoch: Epoch of the batch it was for; None for none.
        batch: Number of that batch in its epoch; None for none.

    Returns:
        A bare MemoryError in words, by `OutOfMemoryError`; a `SourceError` where the process may
        open no more files; else the error itself, with a note unless it is one of this package's.
    """
    if isinstance(error, PrefetchError):
        return error
    try:
        if isinstance(error, MemoryError) and not isinstance(error, SyncedMemoryError):
            described = OutOfMemoryError(
                str(error), database=database, stage=stage, epoch=epoch, batch=batch
            )
            described.__cause__ = error
            return described
        limit = describe_limit(error)
        if limit is not None:
            refused = SourceError(database, f"stage {stage}: {limit}")
            refused.__cause__ = error
            return refused
        in_batch = "" if batch is None else f"epoch {epoch}, batch {batch}, "
        error.add_note(f"{printable_path(database)}: {in_batch}stage {stage}")
    except MemoryError:  # not even for that; the error as it is says more than this one
        pass
    return error


@contextmanager
def error_context(database: str, stage: str) -> Iterator[None]:
    """Have a block that meets a limit of the process say where it happened; see `with_context`."""
    try:
        yield
    except (MemoryError, OSError, ImportError) as error:
        if not isinstance(error, MemoryError) and describe_limit(error) is None:
            raise
        # In no variable here: its traceback would keep itself alive.
        raise with_context(error, database=database, stage=stage)  # noqa: B904 - it has its cause
