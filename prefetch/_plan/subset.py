"""Which records a part of a database has that was drawn at random: pure, the same on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prefetch._plan.permutation import shuffled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLACES_AT_ONCE = 1 << 20  # 8 MiB of places; more at once would be no faster


def draw_subset(
    num_records: int,
    fraction: float,
    *,
    seed: int,
    complement: bool = False,
    labels: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Draw a part of the records.

    It is the first ``round(fraction * num_records)`` places of the order that an epoch 0 shuffled
    by ``seed`` would have. With labels each label has its share of them: ``fraction`` of its
    records, rounded down, and one more where the remainders are largest (of equal ones the
    smaller label's), so that the total stays.

    Args:
        num_records: Records in all, N.
        fraction: Share of them that is drawn, 0 to 1.
        seed: Key of the order, 0 to 2^64 - 1.
        complement: Return those that are not drawn.
        labels: int64, shape (N,): of every record, where each label is to have its share.

    Returns:
        int64, shape (n,): the records' numbers, ascending.

    Example:
        >>> draw_subset(10, 0.3, seed=1).tolist()
        [0, 8, 9]
        >>> draw_subset(10, 0.3, seed=1, complement=True).tolist()
        [1, 2, 3, 4, 5, 6, 7]
    """
    num_drawn = round(fraction * num_records)
    is_drawn = np.zeros(num_records, np.bool_)
    by_label = None if labels is None else _Shares(labels, num_drawn)
    num_looked_at = num_drawn if by_label is None else num_records
    for start in range(0, num_looked_at, _PLACES_AT_ONCE):
        places = np.arange(start, min(start + _PLACES_AT_ONCE, num_looked_at))
        records = shuffled(places, 0, size=num_records, seed=seed)
        is_drawn[records if by_label is None else by_label.take(records)] = True
    return np.flatnonzero(is_drawn != complement)


class _Shares:
    """What each label's share still lacks.

    Args:
        labels: int64, shape (N,): the label of every record.
        num_drawn: Records drawn in all.
    """

    def __init__(self, labels: NDArray[np.int64], num_drawn: int) -> None:
        names, numbers = np.unique(labels, return_inverse=True)
        # NumPy sorts 16-bit integers by their digits, ten times as fast as wider ones.
        self._numbers = numbers.astype(np.uint16) if len(names) <= 1 << 16 else numbers
        self._left = _divide(num_drawn, np.bincount(numbers).tolist())

    def take(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of the records, in their order, that their labels' shares still lack."""
        numbers, left = self._numbers[records], self._left
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=len(left))
        rank_in_label = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = order[rank_in_label < left[numbers[order]]]
        self._left = left - np.minimum(left, counts)
        return records[chosen]


def _divide(total: int, counts: list[int]) -> NDArray[np.int64]:
    """Divide ``total`` in proportion to counts, by the method of largest remainders.

    In whole numbers, since rounding must not depend on the machine.
    """
    quotas = [divmod(total * count, sum(counts)) for count in counts]
    shares = np.array([share for share, _ in quotas], np.int64)
    by_remainder = sorted(range(len(quotas)), key=lambda label: (-quotas[label][1], label))
    shares[by_remainder[: total - int(shares.sum())]] += 1
    return shares
