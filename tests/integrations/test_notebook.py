"""Cells of a notebook, run by the IPython that runs them there."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import prefetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

source = images_fixture(40)


@pytest.fixture
def cell(source: Path) -> Iterator[Any]:
    """Return a function that runs a cell and returns what IPython says of it."""
    shell_class = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    shell_class.clear_instance()
    config = pytest.importorskip("traitlets.config").Config()
    config.HistoryManager.enabled = False  # or it has a thread and a database of its own
    shell = shell_class.instance(config=config)
    shell.user_ns |= {"prefetch": prefetch, "source": str(source)}
    yield lambda text: shell.run_cell(text, store_history=True)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    shell.run_cell("for one in [*Out.values(), feed]: getattr(one, 'close', int)()")
    shell.reset(new_session=False)
    shell.restore_sys_module_state()
    atexit.unregister(shell.atexit_operations)
    shell_class.clear_instance()
    gc.collect()


OPEN = "feed = prefetch.open({'source': source, 'batch_size': 4, 'device': 'cpu'})"


def test_a_cell_is_run_again(cell: Any) -> None:
    for _ in range(5):
        for text in (OPEN, "for images, labels in feed: break", "feed", "next(iter(feed))"):
            assert cell(text).success, text
    assert cell("feed.close()").success


def test_ctrl_c_in_a_cell_leaves_the_feed_usable(cell: Any) -> None:
    assert cell(OPEN).success
    for _ in range(3):
        result = cell("for batch in feed:\n    raise KeyboardInterrupt")
        assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert cell("assert len([1 for batch in feed]) == 10").success
    assert cell("feed.close()").success


def test_what_a_cell_shows_is_drawn(cell: Any) -> None:
    cell(OPEN)
    result = cell("next(iter(feed))").result
    assert "<img" in result._repr_html_()
    del result
    assert cell("feed.show(2)").result._repr_png_().startswith(b"\x89PNG")
    assert cell("feed.close()").success


def test_an_error_of_batches_held_names_where_they_are(cell: Any) -> None:
    cell(OPEN.replace("'device'", "'max_batches_held': 2, 'device'"))
    cell("batches = iter(feed)")
    cell("next(batches)")
    cell("next(batches)")
    error = cell("next(batches)").error_in_exec
    assert isinstance(error, prefetch.BatchesHeldError)
    assert "Out[3], Out[4]" in str(error)
    assert "Out[3].release()" in str(error)
    cell("Out[3].release()")
    assert cell("third = next(batches)").success
    assert cell("assert third.number == 2").success
    cell("feed.close()")


def test_completion_shows_what_is_common(cell: Any) -> None:
    cell(OPEN)
    cell("batch = next(iter(feed))")
    names = cell("dir(batch.data)").result
    assert "mean" in names
    assert "asum_data" not in names
    assert cell("feed.close()").success
