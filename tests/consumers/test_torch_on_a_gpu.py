"""PyTorch on a GPU as a consumer of batches: on its own streams, without a wait of the host."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import prefetch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch: Any = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install --group consumers"
)
if not torch.cuda.is_available():
    pytest.skip("this PyTorch sees no GPU", allow_module_level=True)

CYCLES = 2_000_000  # of the GPU's clock, about a millisecond: the stream stays behind the feed

STREAMS: dict[str, Callable[[], Any]] = {
    "default": torch.cuda.default_stream,
    "own": torch.cuda.Stream,
}


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_every_tensor_is_its_batch_although_the_stream_is_behind(
    source: Path, make: Callable[[], Any], where: str
) -> None:
    means = []
    options = {"source": source, "batch_size": 4, "prefetch": 2, "device": "cuda:0"}
    with (
        prefetch.open(options, transform={"where": where}) as feed,
        torch.cuda.stream(make()),
    ):
        feed.to_stream(torch.cuda.current_stream())
        for _ in range(5):
            for batch in feed:
                torch.cuda._sleep(CYCLES)
                images, labels = torch.from_dlpack(batch.data), torch.from_dlpack(batch.label)
                means.append(images.mean(dim=(1, 2, 3)) - labels)
                del batch, images, labels
        assert not torch.cuda.current_stream().query()  # nobody has waited for it
        torch.cuda.current_stream().synchronize()
    assert torch.cat(means).tolist() == [0] * 200


@pytest.mark.parametrize("captured", [False, True])
def test_a_graph_runs_on_copies_of_the_batches(source: Path, captured: bool) -> None:  # noqa: FBT001 - a parameter
    resident = torch.zeros((4, 3, 8, 8), device="cuda:0")
    graph = torch.cuda.CUDAGraph()
    means = []
    with prefetch.open({"source": source, "batch_size": 4, "device": "cuda:0"}) as feed:
        feed.to_stream(torch.cuda.current_stream())
        capture = torch.cuda.graph(graph) if captured else nullcontext()
        batches = iter(feed)
        first = next(batches)  # the feed's threads are at work meanwhile
        with capture:
            mean = resident.mean(dim=(1, 2, 3))
        for batch in (first, *batches):
            resident.copy_(torch.from_dlpack(batch.data))
            if captured:
                graph.replay()
            else:
                mean = resident.mean(dim=(1, 2, 3))
            means.append(mean.clone())
            del batch
        del first
    assert torch.cat(means).tolist() == list(range(40))
