"""What the packages log and warn of, forwarded as lines beside the output."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prefetch._errors.classes import PrefetchWarning
from prefetch.cli.terminal.streams import print_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect the packages' warnings while a block runs; print their other messages as before."""
    collected: list[str] = []

    def collect(level: str, message: str) -> None:
        if level == "warning":
            collected.append(message)
        else:
            print_message(level, message)

    # The level is that of the block around this one: what it shows is still shown.
    with forward_messages(collect, level=logging.getLogger("prefetch").getEffectiveLevel()):
        yield collected


@contextmanager
def forward_messages(
    forward: Callable[[str, str], None], *, level: int = logging.WARNING
) -> Iterator[None]:
    """Forward what the packages log, and what they warn of, while a block runs.

    Args:
        forward: Called with the level, such as ``warning``, and the message.
        level: The lowest level that is forwarded.
    """
    handler = _ForwardingHandler(level, forward)
    loggers = [logging.getLogger(name) for name in ("memory", "prefetch")]
    before = [(logger, logger.level, logger.propagate, logger.handlers) for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("always", PrefetchWarning)
        usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *where: Any, **further: Any
        ) -> None:
            if issubclass(category, PrefetchWarning):
                forward("warning", str(message))
            else:
                usual(message, category, *where, **further)

        warnings.showwarning = show
        for logger in loggers:
            # No other handler gets it: neither that of the block around this one nor the root's.
            logger.handlers, logger.propagate = [handler], False
            logger.setLevel(level)
        try:
            yield
        finally:
            for logger, old_level, propagate, handlers in before:
                logger.handlers, logger.propagate = handlers, propagate
                logger.setLevel(old_level)


def without_repeats(forward: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Return a function that forwards each message once, however often it is called with it."""
    seen: set[tuple[str, str]] = set()

    def forward_once(level: str, message: str) -> None:
        if (level, message) not in seen:
            seen.add((level, message))
            forward(level, message)

    return forward_once


class _ForwardingHandler(logging.Handler):
    def __init__(self, level: int, forward: Callable[[str, str], None]) -> None:
        super().__init__(level)
        self._forward = forward

    def emit(self, record: logging.LogRecord) -> None:
        self._forward(record.levelname.lower(), record.getMessage())
