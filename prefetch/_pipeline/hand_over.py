"""Handing over: the consumer's batch is made of what its slot was filled with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._bad_records.policy import log
from prefetch._ring.batch import Batch

if TYPE_CHECKING:
    from memory import Stream
    from prefetch._pipeline.consumer_state import Taken
    from prefetch._ring.filling import Filling


def hand_over(taken: Taken, stream: Stream | None = None) -> Batch:
    """Make the consumer's batch of a slot that was just taken, and order its device work.

    The consumer's stream is made to wait for the copies; the host does not wait. Called without
    the lock: the slot has no other user until its lease is gone. May be called again where an
    exception came in between.

    Args:
        taken: What was taken; the batch is noted there until the loop has it.
        stream: The consumer's stream; None for the calling thread's current one.

    Raises:
        DeviceError: The consumer's stream takes no more work; the slot is as it was.
    """
    filling, batch = taken.filling, taken.batch
    assert filling is not None
    if batch is None:
        batch = taken.batch = _make_batch(filling, stream)
    filling.forget()
    return batch


def _make_batch(filling: Filling, stream: Stream | None) -> Batch:
    slot, planned, lease = filling.slot, filling.planned, filling.lease
    assert planned is not None
    assert lease is not None
    assert filling.indices is not None
    assert filling.contents is not None
    data, labels = filling.contents
    batch = Batch(
        data,
        labels,
        device=slot.device,
        lease=lease,
        epoch=planned.epoch,
        number=planned.number,
        indices=filling.indices,
        keys=list(map(filling.keys.__getitem__, sorted(filling.keys))),
        padding=planned.padding,
        more=filling.more,
    )
    if slot.events:
        if stream is None:
            stream = slot.device.current_stream()
        slot.note_use(stream)
        for event in slot.events:
            stream.wait(event)
    if filling.bad_to_log:
        to_log, filling.bad_to_log = filling.bad_to_log, ()
        log(to_log)
    return batch
