"""The priority of the device's own streams: within the GPU's range, and asked for by name too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import pytest

from memory import OptionValueError, open_device

if TYPE_CHECKING:
    from collections.abc import Callable

runtime = cupy.cuda.runtime


def made_with(device: Any) -> tuple[int, int]:
    with device.make_stream() as stream:
        return runtime.streamGetPriority(stream.handle), runtime.streamGetFlags(stream.handle)


def test_streams_have_it_and_are_ordered_by_nothing_else(open_checked: Callable[..., Any]) -> None:
    for chosen, number in (("low", 0), (0, 0), (-1, -1)):
        assert made_with(open_checked(stream_priority=chosen)) == (
            number,
            runtime.streamNonBlocking,
        )


def test_high_is_the_default(open_checked: Callable[..., Any]) -> None:
    number, _ = made_with(open_checked())
    assert number < 0
    assert made_with(open_checked(stream_priority="high"))[0] == number


@pytest.mark.parametrize("given", ["higher", -1000, 1, True, 0.0, None])
def test_what_the_gpu_does_not_have_is_refused_with_what_it_has(cuda: Any, given: object) -> None:
    highest, _ = made_with(cuda)
    expected = (
        rf"stream_priority: expected 'high', 'low' or a number from {highest} \(high\) to 0 "
        r"\(low\), which cuda:0 has, found "
    )
    with pytest.raises(OptionValueError, match=expected):
        open_device("cuda:0", stream_priority=given)
