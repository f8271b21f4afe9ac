"""Which streams have been handed a device buffer, and what comes after their work.

Whoever is handed device memory works on it later, on the stream that was current when it asked, and
nothing tells when. So the streams are noted, and the next use that could collide with that work is
put behind it by an event recorded *then*, which covers all that they were given in the meantime.
The host waits for none of this, and where one stream does everything it costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory._errors import ClosedError

if TYPE_CHECKING:
    from memory._device import Stream


def with_stream(streams: tuple[Stream, ...], stream: Stream) -> tuple[Stream, ...]:
    """Add a stream to those noted, in place of one with the same handle, which is closed."""
    if stream in streams:
        return streams
    return (*(noted for noted in streams if noted.handle != stream.handle), stream)


def order_behind(stream: Stream, streams: tuple[Stream, ...]) -> None:
    """Let later work of ``stream`` wait for all that the noted streams were given until now."""
    for noted in streams:
        if noted.handle == stream.handle:
            continue
        try:
            event = noted.record()
        except ClosedError:
            # Closing has finished its work; the handle of a closed stream may be another's by now.
            continue
        stream.wait(event)
