"""Numbers with the things that they count, as a sentence has them."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 image``, ``2 images``.

    Args:
        number: How many.
        noun: One of them.
        plural: Several of them; None for the noun with an s.

    Example:
        >>> counted(1, "image"), counted(0, "image"), counted(3, "batch", "batches")
        ('1 image', '0 images', '3 batches')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
