"""Puts together what a feed's threads share: ring, planner, schedule, delivery and coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._pipeline.coordinator import Coordinator
from prefetch._pipeline.delivery import Delivery
from prefetch._pipeline.held_batches import HeldBatches
from prefetch._pipeline.light_batches import least_bytes_to_share
from prefetch._pipeline.planner import Planner
from prefetch._pipeline.reader_jobs import Schedule
from prefetch._ring.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefetch._pipeline.components import Components


def assemble(components: Components, *, on_over: Callable[[], object]) -> Coordinator:
    """Make the coordinator, and all that it works with.

    Args:
        components: What the feed works with.
        on_over: As for `Coordinator`.
    """
    order, prefetch = components.order, components.prefetch
    ring = Ring(components.device, prefetch + 1, transform=components.device_transform)
    schedule = Schedule(
        ring,
        order,
        num_threads=components.num_threads,
        prefetch=prefetch,
        least_bytes_to_share=least_bytes_to_share(components),
    )
    held = HeldBatches(ring, prefetch=prefetch, max_batches_held=components.max_batches_held)
    return Coordinator(
        components,
        ring=ring,
        planner=Planner(components),
        schedule=schedule,
        delivery=Delivery(ring, schedule, order, components.bad_records, held=held),
        on_over=on_over,
    )
