"""CUDA graphs that the consumer captures in global mode while the feed's readers are at work.

Such a capture is spoilt by many a call of any thread, and whoever makes one is refused. So a feed
could fail the capture, or take a refusal for an answer and overwrite a batch in use.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpu_checks.bench import BATCH, RECORDS, Outcome, is_fake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    import prefetch
    from gpu_checks.bench import Bench

_WORK_S: Final = 0.2  # the longest that a capture is kept open for the readers to do something


def check_capture(bench: Bench) -> Outcome:
    """Capture, run and check graphs through CUDA's own calls."""
    bench.need_cuda()
    import cupy  # noqa: PLC0415 - of a CUDA device alone

    device, runtime = bench.device, cupy.cuda.runtime
    resident, result = (device.alloc_device(bench.batch_bytes) for _ in range(2))
    host = device.alloc_host(bench.batch_bytes).array
    tally = _Tally()
    captured = cupy.cuda.Stream(non_blocking=True)
    with (
        bench.open(prefetch=2, threads=4) as feed,
        device.make_stream("consumer") as stream,
        device.use_stream(stream),
    ):
        for batch in _batches(bench, feed):
            number = batch.number
            device.copy_on_device(resident, batch.data.gpu_data(), stream=stream)
            del batch  # from here on a reader may fill its memory again
            runtime.streamBeginCapture(captured.ptr, runtime.streamCaptureModeGlobal)
            runtime.memcpyAsync(
                *(result.ptr, resident.ptr, bench.batch_bytes),
                *(runtime.memcpyDeviceToDevice, captured.ptr),
            )
            tally.busy += _readers_work(feed)
            try:
                graph = runtime.streamEndCapture(captured.ptr)
            except runtime.CUDARuntimeError:
                tally.spoilt += 1
                continue
            if is_fake(device):  # its graphs cannot run
                device.copy_on_device(result, resident, stream=stream)
            else:
                _launch(runtime, graph, stream)
            runtime.graphDestroy(graph)
            device.copy_to_host(host, result, stream=stream)
            stream.synchronize()
            tally.count(number, host)
    return tally.outcome("graph capture")


def _launch(runtime: Any, graph: int, stream: Any) -> None:
    """Run a graph on a stream, and wait for it."""
    executable = runtime.graphInstantiate(graph)
    runtime.graphLaunch(executable, stream.handle)
    stream.synchronize()
    runtime.graphExecDestroy(executable)


def check_torch_graph(bench: Bench) -> Outcome:
    """Capture, run and check graphs by ``torch.cuda.graph``, as its own manual has it."""
    bench.on_gpu_only()
    torch = bench.torch()
    resident = torch.zeros(
        bench.batch_bytes, dtype=torch.uint8, device=f"cuda:{bench.device.ordinal}"
    )
    tally = _Tally()
    with bench.open(prefetch=2, threads=4) as feed:
        feed.to_stream(torch.cuda.current_stream())
        for batch in _batches(bench, feed):
            number = batch.number
            resident.copy_(torch.from_dlpack(batch.data).flatten())
            del batch
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    result = resident + 1
                    tally.busy += _readers_work(feed)
            except RuntimeError:
                tally.spoilt += 1
                continue
            graph.replay()
            tally.count(number, (result - 1).cpu().numpy())
    return tally.outcome("torch graph")


class _Tally:
    """What the captures came to.

    Attributes:
        num: Graphs that have run.
        busy: Captures during which a reader has got on.
        spoilt: Captures that CUDA has given up.
        torn: Graphs that saw other bytes than their batch's.
    """

    def __init__(self) -> None:
        self.num = self.busy = self.spoilt = self.torn = 0

    def count(self, number: int, data: NDArray[np.uint8]) -> None:
        """Look at what a graph has read of a batch."""
        records = (number * BATCH + np.arange(BATCH)) % RECORDS
        self.num += 1
        self.torn += not bool((data.reshape(BATCH, -1) == records[:, None] % 251).all())

    def outcome(self, name: str) -> Outcome:
        """Say it."""
        return Outcome(
            name,
            "wrong" if self.spoilt or self.torn else "right",
            f"{self.num} graphs captured and run, {self.torn} saw torn batches, {self.spoilt} "
            f"captures were spoilt; readers got on during {self.busy}",
            {"graphs": self.num, "torn": self.torn, "spoilt": self.spoilt, "busy": self.busy},
        )


def _batches(bench: Bench, feed: prefetch.Feed) -> Iterator[prefetch.Batch]:
    """Yield as many batches as are to be captured beside, while there is time."""
    batches = iter(feed)
    for _ in range(10 if bench.rehearse else 50 if bench.quick else 300):
        if time.monotonic() > bench.until:
            return
        yield next(batches)


def _readers_work(feed: prefetch.Feed) -> bool:
    """Return whether a slot that was given back has been filled and pushed by now, or soon is."""
    end = time.monotonic() + _WORK_S
    while (stats := feed.stats()).slots_ready < stats.prefetch or stats.slots_draining:
        if time.monotonic() > end:
            return False
        time.sleep(0.0005)
    return True


CAPTURES: Final[dict[str, Callable[[Bench], Outcome]]] = {
    "graph capture": check_capture,
    "torch graph": check_torch_graph,
}
