"""A wait that lasts too long says, once, what every reader and slot is doing."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import prefetch
from memory import open_device
from memory.testing import hold
from prefetch._pipeline.gates import Gates
from prefetch._transform.host import RecordTransformer
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def test_a_stall_is_reported_once_with_readers_and_slots(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[[Callable[[], bool]], None],
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(40))
    device = open_device("simulated")
    stream = device.make_stream("consumer")
    with (
        prefetch.open(
            {
                "source": source,
                "batch_size": 4,
                "prefetch": 1,
                "threads": 2,
                "stall_warning_s": 1e6,
            },
            device=device,
        ) as feed,
        device.use_stream(stream),
    ):
        iterator = iter(feed)
        with hold(stream) as held:
            for _ in range(2):
                next(iterator).release()  # the consumer's stream may still read both slots
            on_report = logging.Handler()
            on_report.emit = lambda _: held.release()  # type: ignore[assignment,method-assign]
            logging.getLogger("prefetch").addHandler(on_report)
            prefetcher, limits = feed._prefetcher, []
            wait = prefetcher.coordinator.gates.wait

            def wait_in_vain(gate: threading.Lock, limit_s: float | None) -> bool:
                """Let the time be up, at first: when nobody can do anything any more."""
                limits.append(limit_s)
                if limit_s is None:
                    return wait(gate, limit_s)
                until(lambda: prefetcher.coordinator.schedule.num_idle == 2)
                return False

            monkeypatch.setattr(prefetcher.coordinator.gates, "wait", wait_in_vain)
            assert next(iterator).number == 2
            logging.getLogger("prefetch").removeHandler(on_report)
        for batch in iterator:
            batch.release()
        assert limits == [1e6] + [None] * (len(limits) - 1)
    stalls = [record.message for record in caplog.records if "has waited" in record.message]
    assert len(stalls) == 1
    assert "ringfeed-reader-0: waiting for work" in stalls[0]
    assert "<Slot 0 draining>" in stalls[0]
    assert "<Slot 1 draining>" in stalls[0]
    stream.close()
    device.close()


async def test_an_event_loop_is_told_so_too_and_waits_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(40))
    told = threading.Event()
    on_report = logging.Handler()
    on_report.emit = lambda _: told.set()  # type: ignore[assignment,method-assign]
    real = RecordTransformer.fill

    def fill(*arguments: Any) -> Any:
        assert told.wait(60)
        return real(*arguments)

    monkeypatch.setattr(RecordTransformer, "fill", fill)
    options = {"source": source, "batch_size": 8, "threads": 1, "stall_warning_s": 0.05}
    logging.getLogger("prefetch").addHandler(on_report)
    with prefetch.open(options) as feed:
        assert [batch.number async for batch in feed] == list(range(5))
    logging.getLogger("prefetch").removeHandler(on_report)
    stalls = [record.message for record in caplog.records if "has waited 0.05 s" in record.message]
    assert len(stalls) == 1
    assert "ringfeed-reader-0: " in stalls[0]
    assert "filling epoch 0 batch 0" in stalls[0]


def test_a_wait_is_given_up_when_its_time_is_up_and_not_before() -> None:
    news = Gates()
    assert not news.wait(news.gate(), 0.01)
    gate = news.gate()
    threading.Timer(0.01, news.notify_all).start()
    assert news.wait(gate, 60)


def test_a_limit_longer_than_any_clock_counts_is_none(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(40))
    with prefetch.open({"source": source, "batch_size": 4, "stall_warning_s": 1e300}) as feed:
        assert [batch.number for batch in feed] == list(range(10))


def test_no_lock_is_let_go_of_and_taken_again_in_a_wait_that_ctrl_c_may_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a condition does: between the two, the lock around the wait is not the waiter's."""

    def interrupted(condition: threading.Condition, _state: object) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            raise KeyboardInterrupt
        condition.acquire()

    source = write_database(tmp_path / "db", fingerprinted_images(400))
    monkeypatch.setattr(threading.Condition, "_acquire_restore", interrupted)
    with prefetch.open({"source": source, "batch_size": 100, "prefetch": 1}) as feed:
        assert sum(len(batch) for batch in feed) == 400
        assert feed.stats().waits > 0
