"""The table of a slot's transitions: what it allows works on a slot, and all else is refused."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import SimulatedDevice, open_device
from memory.testing import hold
from prefetch._ring.filling import Filling
from prefetch._ring.keep_until import Keeper
from prefetch._ring.slot import Occupancy, Slot
from prefetch._ring.slot_state import (
    BEGIN,
    DRAIN,
    PUBLISH,
    SET_FREE,
    TAKE,
    UPLOAD,
    SlotState,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FREE, FILLING, UPLOADING, READY, LEASED, DRAINING = SlotState

TABLE: dict[str, tuple[Step, dict[SlotState, SlotState]]] = {
    "begin": (BEGIN, {FREE: FILLING}),
    "upload": (UPLOAD, {FILLING: UPLOADING}),
    "publish": (PUBLISH, {FILLING: READY, UPLOADING: READY}),
    "take": (TAKE, {READY: LEASED}),
    "drain": (DRAIN, dict.fromkeys((FILLING, UPLOADING, READY, LEASED), DRAINING)),
    "set_free": (SET_FREE, dict.fromkeys((FILLING, UPLOADING, READY, LEASED, DRAINING), FREE)),
}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("state", SlotState)
def test_every_step_of_the_table_leads_where_it_says_and_every_other_raises(
    name: str, state: SlotState
) -> None:
    step, leads_to = TABLE[name]
    if state in leads_to:
        assert step[state] is leads_to[state]
    else:
        with pytest.raises(RuntimeError, match=f"that is {state.name} cannot {name}"):
            step[state]


def made(device: Any) -> tuple[Slot, Occupancy]:
    occupancy = Occupancy()
    return Slot(0, device, SimpleQueue(), occupancy=occupancy, keeper=Keeper(device)), occupancy


STEPS: dict[str, Callable[[Slot], object]] = {
    "begin": lambda slot: Filling(slot, 0),
    "upload": Slot.upload,
    "publish": Slot.publish,
    "take": Slot.take,
}


@given(st.lists(st.sampled_from([*STEPS, "set_free"]), max_size=20))
def test_a_slot_goes_the_way_of_the_table_and_counts_itself(steps: list[str]) -> None:
    slot, occupancy = made(open_device("cpu"))
    for step in steps:
        state = slot.state
        leads_to = TABLE[step][1]
        if step == "set_free":  # as it drains: nothing is waited for
            if state is FREE:
                continue
            assert slot.drain() == ()
            assert slot.state is FREE
        elif state in leads_to:
            STEPS[step](slot)
            assert slot.state is leads_to[state]
        else:
            with pytest.raises(RuntimeError):
                STEPS[step](slot)
            assert slot.state is state
        ahead = slot.state in {FILLING, UPLOADING, READY}
        assert (occupancy.num_ahead, occupancy.num_leased) == (ahead, slot.state is LEASED)
        assert (slot.filling is None) == (slot.state is FREE)


@pytest.mark.parametrize("before", [FILLING, UPLOADING, READY, LEASED])
def test_a_slot_drains_from_everywhere_until_its_last_event_has_passed(before: SlotState) -> None:
    with SimulatedDevice() as device, device.make_stream("work") as stream:
        slot, occupancy = made(device)
        Filling(slot, 0)
        for step in ("upload", "publish", "take")[: before - FILLING]:
            STEPS[step](slot)
        assert slot.state is before
        with hold(stream):
            slot.note_use(stream)
            (event,) = slot.drain()
            assert (slot.state, slot.num_pending) == (DRAINING, 1)
            assert (occupancy.num_ahead, occupancy.num_leased) == (0, 0)
            for refused in STEPS.values():
                with pytest.raises(RuntimeError):
                    refused(slot)
        stream.synchronize()
        assert event.done()
        assert slot.event_passed()
        assert (slot.state, slot.filling, slot.events) == (FREE, None, [])
