"""Steps of a long piece of work, run on a thread of their own, where Ctrl-C is never raised.

Raised within a library's code, such as a thread pool's, it may leave a lock taken for ever. So the
main thread, where it is raised, only waits for the next step, on a queue.
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


def step_on_thread(
    make: Callable[[], Generator[_Step, None, _Result]],
    *,
    give_up: Callable[[], object] | None = None,
) -> Generator[_Step, None, _Result]:
    """Run the steps of a generator on a thread of its own, each when it is asked for.

    The generator is closed on that thread, which has ended when this one has.

    Args:
        make: Makes the generator, on that thread.
        give_up: Called, on this thread, when no further step is wanted: cuts one in progress short.

    Example:
        >>> list(step_on_thread(lambda: (number**2 for number in range(4))))
        [0, 1, 4, 9]
    """
    turns: SimpleQueue[bool] = SimpleQueue()
    answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    thread = threading.Thread(
        target=_serve_steps, args=(make, turns, answers), name="ringfeed-steps", daemon=True
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


def run_steps(
    steps: Generator[_Step, None, _Result], each: Callable[[_Step], object] | None = None
) -> _Result:
    """Run all remaining steps, pass each to a function, and return the result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        if each is not None:
            each(step)


def _serve_steps(
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
