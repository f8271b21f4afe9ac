"""People's own functions, ``per_record`` and ``per_batch``, as the threads call them."""

from __future__ import annotations

import os
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Option = Literal["per_record", "per_batch"]

_FOLDER: Final = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - a plain string
_DOMAINS: Final = {"per_record": 0, "per_batch": 1}


class OwnFunction:
    """A function of the user's; shared between threads, which each make a `Caller` of it.

    Args:
        option: Which option names it.
        function: What is called.
        clock: Seconds from some fixed point.

    Attributes:
        threads_inside: Identifiers of the threads that are in a call of it at the moment.
    """

    def __init__(
        self,
        option: Option,
        function: Callable[..., Any],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.option: Final = option
        self.function: Final = function
        self.clock: Final = clock
        self.threads_inside: Final[set[int]] = set()
        self._callers: list[Caller] = []

    def __repr__(self) -> str:
        return f"<OwnFunction {self.option} {self.function!r}>"

    @property
    def busy_s(self) -> float:
        """How long all calls have taken, in seconds; takes no lock."""
        return sum([caller.busy_s for caller in self._callers])

    def caller(self) -> Caller:
        """Return what one thread calls it by."""
        caller = Caller(self)
        self._callers.append(caller)  # atomic
        return caller


class Caller:
    """Calls a function on one thread, times it, and keys its random numbers.

    Attributes:
        busy_s: How long the calls have taken, in seconds.
    """

    def __init__(self, own: OwnFunction) -> None:
        self.busy_s = 0.0
        self._function = own.function
        self._clock = own.clock
        self._threads_inside = own.threads_inside
        self._bits = np.random.Philox(key=0)
        self._state: Any = self._bits.state
        self._domain = _DOMAINS[own.option]

    def __call__(self, images: Any, labels: Any, *, seed: int, epoch: int, number: int) -> Any:
        """Call the function.

        Args:
            images: Its first argument.
            labels: Its second.
            seed: The run's; the first of three keys of its random numbers.
            epoch: The second key.
            number: The third: the record's index, or the batch's number in the global order.
        """
        rng = self._generator(seed, epoch, number)
        thread = threading.get_ident()
        began = self._clock()
        try:
            self._threads_inside.add(thread)  # atomic, as is discard
            return self._function(images, labels, rng)
        finally:
            self._threads_inside.discard(thread)
            self.busy_s += self._clock() - began

    def _generator(self, seed: int, epoch: int, number: int) -> np.random.Generator:
        """Return a generator at the start of the stream of these keys; valid until the next one.

        Frozen by test vectors: NumPy's Philox4x64 with the key (seed, epoch) and the counter (0,
        number, domain, 0), of which a stream counts the first word.
        """
        # The bit generator is set anew and not made anew: that takes 25 to 50 us, this one.
        self._state["state"] = {
            "counter": np.array((0, number, self._domain, 0), np.uint64),
            "key": np.array((seed, epoch), np.uint64),
        }
        self._bits.state = self._state
        return np.random.Generator(self._bits)


def name_of_function(value: Callable[..., Any] | str) -> str:
    """Return ``module:function``, as a YAML file names it; for an object that is called, its class.

    Args:
        value: The function, or its name already.
    """
    if isinstance(value, str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', None)}:{named.__qualname__}"


def without_own_frames(error: BaseException) -> BaseException:
    """Return an error whose traceback begins in the function that was called.

    Our frames hold records, which may not outlive their database, and rows of a batch.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_FOLDER):
        trace = trace.tb_next
    return error.with_traceback(trace)


def write_out_traceback(error: BaseException) -> None:
    """Replace an error's traceback, and those of what led to it, by a note of their text.

    A frame keeps the frames that called it, ours included, and with them a batch's lease: an error
    that is kept beside the batch, or in the log, would keep the slot for good.
    """
    error.add_note("".join(traceback.format_exception(error)).rstrip())
    pending, seen = [error], set()
    while pending:
        found = pending.pop()
        if id(found) not in seen:
            seen.add(id(found))
            found.__traceback__ = None
            inner = found.exceptions if isinstance(found, BaseExceptionGroup) else ()
            led_to_it = (found.__cause__, found.__context__, *inner)
            pending += [each for each in led_to_it if each is not None]


def describe_array(value: object) -> str:
    """Say what a function has returned, for errors."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None:
        return "None" if value is None else type(value).__name__
    return f"{dtype} of shape {tuple(shape)}"
