"""What a conversion asks of its input: records in an order, each with a key, a name and a stamp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Example:
    """One record, ready to be stored.

    Attributes:
        value: The bytes of a Datum.
        shape: (channels, height, width) of its pixels, decoded as they are stored.
        unchanged: Whether it holds the bytes of an image file as they are.
        is_turned: Whether these are of a JPEG that EXIF asks to turn.
        remark: What libjpeg says of the file and leaves its pixels as they are.
        is_grey: Whether it is stored as three equal planes.
        drops_alpha: Whether it is of a file with alpha, which is not stored.
        whole_because: Why a file has no restart markers, which it was to have; empty where it has,
            None where it was not to have any.
        bytes_added: How much larger the file is by them.
        stamp: That of the file when it was read; see `Examples.stamp`.
    """

    value: bytes
    shape: tuple[int, int, int]
    unchanged: bool = False
    is_turned: bool = False
    remark: str = ""
    is_grey: bool = False
    drops_alpha: bool = False
    whole_because: str | None = None
    bytes_added: int = 0
    stamp: bytes = b""


class Examples(Protocol):
    """Examples in the order of their keys. Any number of threads may read."""

    @property
    def chunk(self) -> int:
        """How many are worth a thread's waking."""

    def __len__(self) -> int: ...

    def key(self, index: int) -> bytes:
        """Return the key of one, different from all others."""

    def name(self, index: int) -> str:
        """Return what one is called in messages, such as the path of its file."""

    def read(self, index: int) -> Example:
        """Read one.

        Raises:
            UnreadableError: It cannot be read; says why.
        """

    def stamp(self, index: int) -> bytes:
        """Return the stamp of one's source, without reading it.

        Where it differs from an earlier one, the content may have changed, and need not have.

        Raises:
            UnreadableError: There is nothing to read any more.
        """

    def fingerprint(self) -> dict[str, str]:
        """Return digests of which examples these are and how they are stored, by what each is of.

        Their content is not in it.
        """
