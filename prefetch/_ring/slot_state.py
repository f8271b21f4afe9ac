"""Where a slot of the ring stands and where it may go next: one table, pure.

By the state before (a discarded batch skips the steps that are left)::

    step       FREE      FILLING    UPLOADING  READY     LEASED    DRAINING
    BEGIN      FILLING   -          -          -         -         -
    UPLOAD     -         UPLOADING  -          -         -         -
    PUBLISH    -         READY      READY      -         -         -
    TAKE       -         -          -          LEASED    -         -
    DRAIN      -         DRAINING   DRAINING   DRAINING  DRAINING  -
    SET_FREE   -         FREE       FREE       FREE      FREE      FREE
"""

from __future__ import annotations

import enum
from typing import Final


class SlotState(enum.IntEnum):
    """Where a slot stands.

    Attributes:
        FREE: It has no batch.
        FILLING: Its batch is planned, read and transformed.
        UPLOADING: The batch's copies to the device are being queued.
        READY: The batch, or its failure, waits for its turn.
        LEASED: The consumer has the batch.
        DRAINING: The lease is gone; work of the device's on the memory may not be.
    """

    FREE = 0
    FILLING = 1
    UPLOADING = 2
    READY = 3
    LEASED = 4
    DRAINING = 5


class Step(dict[SlotState, SlotState]):
    """A row of the table: ``step[state]`` is the state that a step leads to.

    A dict and no function: each batch takes four steps, and a look-up in C costs none of Python's.

    Args:
        name: Of the step, for errors.
        leads_to: The next state, by the state before.
    """

    def __init__(self, name: str, leads_to: dict[SlotState, SlotState]) -> None:
        super().__init__(leads_to)
        self.name = name

    def __missing__(self, state: SlotState) -> SlotState:
        """Refuse a step that is not in the table.

        Raises:
            RuntimeError: Always: it is an error of this package's.
        """
        raise RuntimeError(f"a slot that is {state.name} cannot {self.name}")


_FREE, _FILLING, _UPLOADING, _READY, _LEASED, _DRAINING = SlotState
_BUSY: Final = (_FILLING, _UPLOADING, _READY, _LEASED)

BEGIN: Final = Step("begin", {_FREE: _FILLING})
UPLOAD: Final = Step("upload", {_FILLING: _UPLOADING})
PUBLISH: Final = Step("publish", {_FILLING: _READY, _UPLOADING: _READY})
TAKE: Final = Step("take", {_READY: _LEASED})
DRAIN: Final = Step("drain", dict.fromkeys(_BUSY, _DRAINING))
SET_FREE: Final = Step("set_free", dict.fromkeys((*_BUSY, _DRAINING), _FREE))
