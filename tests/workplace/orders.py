"""What an order serves, counted from its plans."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefetch._plan.order import Order


def num_batches_in(order: Order, epoch: int) -> int:
    """Return how many batches an epoch has, from the resume point on; not for ``wrap``."""
    plans = map(order.plan, itertools.count(order.first_of_epoch(epoch)))
    found = itertools.takewhile(lambda plan: plan is not None and plan.epoch == epoch, plans)
    return sum(1 for _ in found)
