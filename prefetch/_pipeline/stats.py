"""What a feed counts, as a frozen snapshot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefetch._decoded_cache.cache import NO_COUNTS
from prefetch._ring.slot_state import SlotState

if TYPE_CHECKING:
    from prefetch._pipeline.coordinator import Coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStats:
    """A snapshot of a feed's counters; all times are in seconds, all sizes in bytes.

    Attributes:
        batches: Batches served to the consumer so far.
        samples: Examples in them.
        wait_s: How long next() has waited for a batch in all. Near 0: the readers keep up. A large
            share of the run: the loop is waiting for data; more threads, a smaller transform or a
            faster disk help, a deeper ring does not.
        waits: How many of the calls of next() found no batch ready.
        mean_ready: Batches that stood ready when next() was called, before it waited, on average.
            Near ``prefetch``: the readers are ahead. Near 0: the loop is as fast as the readers, or
            faster.
        busy_s: Time that the readers spent on batches, summed over the threads.
        own_function_s: The part of ``busy_s`` that ``per_record`` and ``per_batch`` took; 0 without
            them. Near ``busy_s``: they decide how fast the feed is. On a GPU ``per_batch`` only
            queues its work; what that takes there is not counted.
        threads: Reader threads that the feed runs with.
        prefetch: Batches that are kept ahead of the consumer.
        slots: Slots in the ring now; it grows while the consumer holds batches, and gets smaller
            again 64 batches after it has released them.
        slots_free: Slots with nothing to do; at rest, none of them is.
        slots_filling: Slots that readers work on, copies to the device included.
        slots_ready: Slots with a batch that waits for the consumer.
        slots_leased: Slots whose batch is referenced by the consumer.
        slots_draining: Slots whose batch is gone, and that wait for its device work, or to be taken
            in again.
        ring_host_bytes: Host memory that the slots come to at the start, known before the first
            batch: as many times the largest batch, its samples as large as the first record's. On
            a GPU it is pinned, and room for three batches at most, which are filled and copied
            there. None where the first record is bad.
        ring_device_bytes: Device memory, likewise, of every slot.
        host_bytes: Host memory of all slots now: less than ``ring_host_bytes`` before each of them
            has been filled, more where batches are held (not on a GPU: these are on the device), or
            samples are larger than the first.
        device_bytes: Device memory of all slots now.
        bad_records: Different records that were found bad and replaced.
        decoded_hits: Images that were found in ``cache.decoded``. From the second epoch on, near
            ``samples``: nothing is decoded. 0 without a cache.
        decoded_misses: Images that were not, and were decoded.
        decoded_bytes: What the cache takes now, all processes' images included.
        device: Name of the device, such as ``cpu`` or ``cuda:0``.
    """

    batches: int
    samples: int
    wait_s: float
    waits: int
    mean_ready: float
    busy_s: float
    own_function_s: float
    threads: int
    prefetch: int
    slots: int
    slots_free: int
    slots_filling: int
    slots_ready: int
    slots_leased: int
    slots_draining: int
    ring_host_bytes: int | None
    ring_device_bytes: int | None
    host_bytes: int
    device_bytes: int
    bad_records: int
    decoded_hits: int
    decoded_misses: int
    decoded_bytes: int
    device: str


def take_snapshot(coordinator: Coordinator, *, waits: tuple[int, float]) -> FeedStats:
    """Return what a feed has counted; takes no lock."""
    components, ring = coordinator.components, coordinator.ring
    served, expected = coordinator.delivery.served.without_pending(), components.expected_memory
    cache = components.transform.decoding.cache
    decoded = NO_COUNTS if cache is None else cache.counts()
    slots = list(ring.slots)
    states = Counter(slot.reported_state for slot in slots)
    return FeedStats(
        batches=served.batches,
        samples=served.samples,
        wait_s=waits[1],
        waits=waits[0],
        mean_ready=served.ready_sum / max(served.batches, 1),
        busy_s=coordinator.busy_s,
        own_function_s=components.own_function_s,
        threads=components.num_threads,
        prefetch=components.prefetch,
        slots=len(slots),
        slots_free=states[SlotState.FREE],
        slots_filling=states[SlotState.FILLING] + states[SlotState.UPLOADING],
        slots_ready=states[SlotState.READY],
        slots_leased=states[SlotState.LEASED],
        slots_draining=states[SlotState.DRAINING],
        ring_host_bytes=None if expected is None else expected.host_bytes,
        ring_device_bytes=None if expected is None else expected.device_bytes,
        host_bytes=ring.host_bytes,
        device_bytes=sum(slot.memory.device_bytes for slot in slots),
        bad_records=len(components.bad_records),
        decoded_hits=decoded.hits,
        decoded_misses=decoded.misses,
        decoded_bytes=decoded.nbytes,
        device=components.device.name,
    )
