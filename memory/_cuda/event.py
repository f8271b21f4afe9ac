"""Events of a GPU's streams, and the waits of its streams for events of other kinds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from memory._cuda.capture import out_of_captures
from memory._cuda.runtime import CAPTURE_ERRORS, NOT_READY, runtime
from memory._device.event import Failure, HostEvent, held_too_long
from memory._errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._cuda.context import CudaContext, EventToken
    from memory._cuda.keepalive import KeepAlive
    from memory._device.event import Event

_logger = logging.getLogger("memory")


class HostWait:
    """A stream's wait for an event that host code passes; CUDA calls it on a thread of its own.

    It may make no call to CUDA there: that thread serves every stream's callbacks.

    Args:
        event: Not one of a GPU's.
        limit_s: Seconds after which to give up and fail; None for no limit.
        device: Name of the device, for errors.

    Attributes:
        failure: What the event or the wait ended with; None while all is well.
        over: Whether the wait is over.
    """

    __slots__ = ("_device", "_event", "_limit_s", "failure", "over")

    def __init__(self, event: Event, *, limit_s: float | None, device: str) -> None:
        self._event = event
        self._limit_s = limit_s
        self._device = device
        self.failure: Failure | None = None
        self.over = False

    @property
    def matters(self) -> bool:
        """Whether it has failed, or may yet."""
        return not self.over or self.failure is not None

    def __call__(self, _: object) -> None:
        """Wait, and take over the event's failure if there is one."""
        try:
            self._wait()
        except BaseException as error:  # noqa: BLE001 - it shows at the stream's next event
            self.failure = Failure(self._device, operation="waiting for an event", error=error)
        self.over = True

    def _wait(self) -> None:
        # By way of an event of our own, which can be waited for with a limit.
        passed = HostEvent()
        self._event.notify(passed.complete)
        if not passed.wait_for(self._limit_s):
            late = held_too_long(self._limit_s)
            self.failure = Failure(self._device, operation="a hold", error=late)
        else:
            self._event.synchronize()


class CudaEvent:
    """A point in the work of a GPU's stream; see ``Event``. Made by ``CudaStream.record``."""

    __slots__ = (
        "__weakref__",
        "_context",
        "_host_waits",
        "_keep_alive",
        "_number",
        "_passed",
        "token",
    )

    def __init__(
        self,
        token: EventToken,
        *,
        context: CudaContext,
        keep_alive: KeepAlive,
        number: int,
        host_waits: tuple[HostWait, ...],
    ) -> None:
        self.token = token
        self._context = context
        self._keep_alive = keep_alive
        self._number = number
        self._host_waits = host_waits
        self._passed = False

    @property
    def host_waits(self) -> tuple[HostWait, ...]:
        """Waits before it that have failed, or may yet."""
        return tuple(wait for wait in self._host_waits if wait.matters)

    def done(self) -> bool:
        """Return whether the event has passed, as in a lost context all have. Never blocks."""
        if self._passed:
            return True
        with out_of_captures():
            status = runtime.eventQuery(self.token.handle)
        if status == 0:
            self._pass()
            return True
        if status == NOT_READY or status in CAPTURE_ERRORS:
            return False
        # Any other status says nothing of the work unless the context is lost: a slot that is
        # filled again because of one would be torn.
        return self._context.is_lost()

    def synchronize(self) -> None:
        """Block until the event has passed.

        Raises:
            DeviceError: If work before it failed.
        """
        if not self._passed:
            self._context.refuse_forked("synchronize")
            try:
                # Needs no current device; the GIL is released meanwhile.
                runtime.eventSynchronize(self.token.handle)
            except runtime.CUDARuntimeError as error:
                raise self._context.failure(
                    "synchronize", error, pending=self._keep_alive.pending()
                ) from error
            self._pass()
        for wait in self._host_waits:
            if wait.failure is not None:
                raise wait.failure.error()

    def notify(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once, when the event has passed or failed; see ``Event``.

        Raises:
            DeviceError: If the system gives no thread for the wait.
        """
        if self.done():
            try:
                callback()
            except Exception:
                _logger.exception("a callback of an event failed")
            return
        try:
            self._context.waiters.wait(self, callback)
        except RuntimeError as error:
            raise DeviceError(
                self._context.name, operation="notify", reason=f"no thread to wait on: {error}"
            ) from error

    def _pass(self) -> None:
        # This first: a finalizer that release() sets off may ask again, and must not recurse.
        self._passed = True
        self._keep_alive.release(self._number)

    def __repr__(self) -> str:
        return f"<CudaEvent on {self._context.name}, {'passed' if self.done() else 'pending'}>"
