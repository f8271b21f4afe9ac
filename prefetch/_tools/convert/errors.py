"""What can go wrong with a conversion.

::

    PrefetchError
      ConversionError             it failed; what is stored so far is kept, to be resumed
        InputError (ValueError)     the input cannot be converted at all, with every fault in it
        ChangedInputError           what was converted has changed since; names it
        ShapesDifferError           records have several shapes, and one was asked for
        UnreadableImagesError       some images cannot be read; lists them
        NothingConvertedError       not one could be read; nothing is left behind
      OptionsError (ValueError)   options that contradict each other or the kind of input
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefetch._errors.classes import PrefetchError
from prefetch._errors.printable import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 20


class ConversionError(PrefetchError):
    """Raised for a conversion that failed."""


class OptionsError(PrefetchError, ValueError):
    """Raised for options that contradict each other or the kind of input."""


class InputError(ConversionError, ValueError):
    """Raised for an input that cannot be converted at all.

    Attributes:
        path: The file or folder.
        faults: What is wrong with it, one after the other.
    """

    def __init__(self, path: str, *faults: str) -> None:
        self.path = path
        self.faults = faults
        super().__init__(f"{path}: {_list_faults(faults)}")


UNWRITABLE = "cannot be written: "
"""Begins the reasons of images that can be read, and not be stored as was asked."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An image that cannot be read, or not be written as was asked.

    Attributes:
        index: Its place in the list, counted from 0.
        path: Its file.
        reason: What is wrong with it.
    """

    index: int
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read_or_written(unreadable: Sequence[Unreadable]) -> str:
    """Return what images cannot be: ``read``, ``written`` or both."""
    num = sum(one.reason.startswith(UNWRITABLE) for one in unreadable)
    return "read" if not num else "written" if num == len(unreadable) else "read or written"


class ChangedInputError(ConversionError):
    """Raised for an input that is no longer what a draft holds of it.

    Attributes:
        folder: The draft.
        changed: What has changed: names, and how.
    """

    def __init__(self, folder: str, changed: Sequence[str], num_stored: int) -> None:
        self.folder = folder
        self.changed = tuple(changed)
        super().__init__(
            f"{folder}: cannot be resumed: {len(changed)} of the "
            f"{counted(num_stored, 'record')} in it {'is' if len(changed) == 1 else 'are'} of "
            f"something that has changed since: {_list_faults(self.changed)}\n"
            f"put back what was converted, or remove the folder to begin anew, without --resume"
        )


class ShapesDifferError(ConversionError):
    """Raised for a record that has not the shape of the first, where one shape is asked for."""


class UnreadableImagesError(ConversionError):
    """Raised at the end, for images that cannot be read; the others are stored and kept.

    Attributes:
        unreadable: All of them, in the order of the list.
        num_images: How many images there are in all.
    """

    def __init__(self, unreadable: tuple[Unreadable, ...], num_images: int) -> None:
        self.unreadable = unreadable
        self.num_images = num_images
        super().__init__(
            f"{len(unreadable)} of {counted(num_images, 'image')} cannot be "
            f"{read_or_written(unreadable)}: "
            f"{_list_faults([str(one) for one in unreadable])}\n"
            f"repair them or take them out with --skip-unreadable, and continue with --resume"
        )


class NothingConvertedError(ConversionError):
    """Raised where not one image can be read; nothing is left behind.

    Attributes:
        unreadable: All of them, in the order of the list.
    """

    def __init__(self, unreadable: tuple[Unreadable, ...]) -> None:
        self.unreadable = unreadable
        num = len(unreadable)
        which = f"none of the {num} images" if num > 1 else "the only image"
        negated = "can" if num > 1 else "cannot"
        first = "; the first is" if num > 1 else ":"
        is_missing = unreadable[0].reason == os.strerror(errno.ENOENT)
        super().__init__(
            f"{which} {negated} be {read_or_written(unreadable)}, so that no database is made"
            f"{first} {unreadable[0]}{'; are names relative to ROOT?' if is_missing else ''}"
        )


class UnreadableError(Exception):
    """Carries why one image cannot be read; never leaves this package."""


def _list_faults(faults: list[str] | tuple[str, ...]) -> str:
    if len(faults) == 1:
        return faults[0]
    more = len(faults) - _SHOWN
    rest = [f"and {more} more"] if more > 0 else []
    return "".join(f"\n  {fault}" for fault in [*faults[:_SHOWN], *rest])
