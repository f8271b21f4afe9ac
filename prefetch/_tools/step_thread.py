"""Steps of a long piece of work, taken on a thread of its own.

Ctrl-C is raised in the main thread, between any two steps of Python code. Where those are a
library's, such as of a thread pool, it may leave a lock taken that nobody gives back, and whoever
waits for the pool then waits for ever. So the main thread only asks for the next step here, and
waits in a way that an interrupt does no harm to.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from memory.threads import ThreadStart

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_Step = TypeVar("_Step")
_Result = TypeVar("_Result")


def aside(
    make: Callable[[], Generator[_Step, None, _Result]],
    *,
    give_up: Callable[[], object] | None = None,
) -> Generator[_Step, None, _Result]:
    """Take the steps of a generator on a thread of its own, each when it is asked for.

    The generator is closed on that thread, which has ended when this one has.

    Args:
        make: Makes the generator, on that thread.
        give_up: Called, on this one, where no further step is wanted: makes one under way short.

    Example:
        >>> list(aside(lambda: (number**2 for number in range(4))))
        [0, 1, 4, 9]
    """
    turns: SimpleQueue[bool] = SimpleQueue()
    answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    thread = threading.Thread(
        target=_take_steps, args=(make, turns, answers), name="ringfeed-aside", daemon=True
    )
    start = ThreadStart([thread])
    try:
        start.run()
        while True:
            turns.put(True)
            kind, value = answers.get()
            if kind == "result":
                result: _Result = value
                return result
            if kind == "error":
                try:
                    raise value
                finally:
                    del value  # its traceback would keep itself alive
            yield value
    finally:
        if give_up is not None:
            give_up()
        turns.put(False)
        start.settle()
        if start.num_started:
            thread.join()


def finish(
    steps: Generator[_Step, None, _Result], each: Callable[[_Step], object] | None = None
) -> _Result:
    """Take all steps that are left, do something with each, and return the result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        if each is not None:
            each(step)


def _take_steps(
    make: Callable[[], Generator[Any, None, Any]],
    turns: SimpleQueue[bool],
    answers: SimpleQueue[tuple[str, Any]],
) -> None:
    try:
        steps = make()
        try:
            while turns.get():
                try:
                    step = next(steps)
                except StopIteration as end:
                    answers.put(("result", end.value))
                    return
                answers.put(("step", step))
                del step
        finally:
            steps.close()
    except BaseException as error:  # noqa: BLE001 - raised again where the step is asked for
        answers.put(("error", error))
