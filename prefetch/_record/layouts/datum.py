"""Values that are Caffe's Datums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.image_format import format_of
from prefetch._record.wire import DatumError, parse_datum

if TYPE_CHECKING:
    from prefetch._record.datum_view import DatumView

# Formats whose first bytes are hardly ever those of something else.
_SURE_FORMATS: Final = frozenset(("jpeg", "png", "gif", "webp"))


class DatumLayout:
    """See `prefetch._record.layout.RecordLayout`."""

    is_native = True  # _kernels/native/datum.c

    def read(self, value: memoryview) -> DatumView:
        """Read a Datum.

        Raises:
            BadRecordError: The value is none.
        """
        try:
            return parse_datum(value)
        except DatumError as bad:
            raise self.unreadable(bad.reason, bad.numbers, value) from None

    def unreadable(
        self, reason: int, numbers: tuple[int, ...], value: memoryview
    ) -> BadRecordError:
        """Return what is wrong with a value that is no Datum, and what it seems to be instead."""
        name = format_of(bytes(value[:16]))
        detail = ""
        if name in _SURE_FORMATS:
            detail = (
                f"the value is a {name.upper()} file itself; in a Datum the file is in the field "
                f"data, with encoded: true"
            )
        return BadRecordError(Reason(reason), numbers, detail=detail)


DATUM: Final = DatumLayout()
