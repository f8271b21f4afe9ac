"""Threads are started by a thread that no signal reaches; an interrupted start can be settled."""

from __future__ import annotations

import threading

import pytest

from memory.threads import ThreadStart


def _threads(number: int) -> tuple[list[threading.Thread], threading.Event]:
    over = threading.Event()
    return [threading.Thread(target=over.wait, args=(20,)) for _ in range(number)], over


def test_all_of_them_run_when_it_returns() -> None:
    threads, over = _threads(3)
    start = ThreadStart(threads)
    assert not start.has_started()
    start.run()
    assert start.has_started()
    assert (start.num_started, [thread.is_alive() for thread in threads]) == (3, [True] * 3)
    over.set()
    for thread in threads:
        thread.join()


def test_those_before_the_one_that_is_refused_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, over = _threads(3)
    real = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread is threads[1]:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start = ThreadStart(threads)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start.run()
    assert start.num_started == 1
    assert [thread.is_alive() for thread in threads] == [True, False, False]
    over.set()
    threads[0].join()


def test_no_thread_at_all_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    threads, _ = _threads(1)
    start = ThreadStart(threads)
    monkeypatch.setattr("_thread.start_new_thread", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start.run()
    assert not start.has_started()


def _start_late(patch: pytest.MonkeyPatch) -> threading.Event:
    """Have threads start no earlier than an event, which is returned, is set."""
    may_start = threading.Event()
    real = threading.Thread.start

    def late(thread: threading.Thread) -> None:
        may_start.wait(20)
        real(thread)

    patch.setattr(threading.Thread, "start", late)
    return may_start


def test_an_interrupted_wait_leaves_it_to_be_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, over = _threads(1)

    def interrupted(_start: ThreadStart) -> None:
        raise KeyboardInterrupt

    start = ThreadStart(threads)
    with monkeypatch.context() as patch:
        may_start = _start_late(patch)
        with patch.context() as interruption:
            interruption.setattr(ThreadStart, "settle", interrupted)
            with pytest.raises(KeyboardInterrupt):
                start.run()
        assert start.num_started == 0
        may_start.set()
        assert start.has_started()  # which waits for it
    assert threads[0].is_alive()
    over.set()
    threads[0].join()


def test_a_thread_that_is_never_heard_of_is_an_error_and_no_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that finds no memory for its first steps: Python itself would wait for ever."""
    threads, over = _threads(1)
    with monkeypatch.context() as patch:
        patch.setattr("memory.threads.LIMIT_S", 0.1)
        may_start = _start_late(patch)
        start = ThreadStart(threads)
        with pytest.raises(RuntimeError, match="not heard of for"):
            start.run()
        assert not start.has_started()  # at once: it is waited for no longer
        may_start.set()
        over.set()
        while threads[0].ident is None or threads[0].is_alive():
            over.wait(0.001)
