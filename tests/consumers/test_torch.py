"""PyTorch as a consumer of batches."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

import prefetch
from gpu_checks.peer_loaders import Datums

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch: Any = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install --group consumers"
)

EXPORTS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": torch.from_dlpack,
    "from_numpy": lambda blob: torch.from_numpy(blob.numpy()),
    "as_tensor": lambda blob: torch.as_tensor(blob.numpy()),
}


def kept_from_3_to_300(feed: prefetch.Feed, export: Callable[[Any], Any]) -> Any:
    """Export batches 0 to 300; return what was made of batch 3."""
    kept = []
    for number, batch in zip(range(301), feed, strict=False):
        exported = export(batch.data)
        if number == 3:
            kept.append(exported)
    return kept[0]


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_a_tensor_is_the_batchs_own_memory(
    feed: prefetch.Feed, export: Callable[[Any], Any]
) -> None:
    batch = next(iter(feed))
    data, label = export(batch.data), export(batch.label)
    assert (data.shape, data.dtype, label.dtype) == ((4, 3, 8, 8), torch.float32, torch.int64)
    assert data.data_ptr() == batch.data.numpy().ctypes.data
    assert label.tolist() == [0, 1, 2, 3]
    data += 10
    assert (batch.data.numpy()[:, 0, 0, 0] == [10, 11, 12, 13]).all()


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_a_tensor_of_batch_3_is_itself_at_batch_300(
    feed: prefetch.Feed, export: Callable[[Any], Any]
) -> None:
    kept = kept_from_3_to_300(feed, lambda blob: export(blob)[1:, 0])  # a view of it
    assert (kept == torch.tensor([13.0, 14, 15])[:, None, None]).all()
    # What the host sees of a device's memory is a copy, which holds no slot.
    assert feed.stats().slots_leased == (1 if feed.device.name == "cpu" else 0)
    del kept
    assert feed.stats().slots_leased == 0


def test_a_tensor_outlives_the_feed(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        tensors = [torch.from_dlpack(batch.data) for batch in feed]
    del feed
    values = torch.stack(tensors)[:, :, 0, 0, 0].flatten()
    assert values.tolist() == list(range(40))


def test_what_a_backward_pass_needs_stays_although_the_batch_is_gone(feed: prefetch.Feed) -> None:
    weight = torch.zeros(3 * 8 * 8, requires_grad=True)
    batches = iter(feed)
    next(batches)
    loss = (torch.from_dlpack(next(batches).data).reshape(4, -1) @ weight).sum()
    for _ in range(20):
        next(batches)
    loss.backward()
    assert (weight.grad == 4 + 5 + 6 + 7).all()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_every_dtype_of_a_batch_is_one_of_torchs(source: Path, dtype: str) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "transform": {"dtype": dtype}}) as feed:
        tensor = torch.from_dlpack(next(iter(feed)).data)
        assert tensor.dtype is getattr(torch, dtype)
        assert tensor[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
        del tensor


def test_channels_last_is_a_permuted_view_without_a_copy(source: Path) -> None:
    options = {"source": source, "batch_size": 4, "transform": {"layout": "nhwc"}}
    with prefetch.open(options) as feed:
        tensor = torch.from_dlpack(next(iter(feed)).data).permute(0, 3, 1, 2)
        assert tensor.shape == (4, 3, 8, 8)
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        del tensor


def test_torch_saves_a_feeds_state(source: Path) -> None:
    options = {"source": source, "batch_size": 4, "shuffle": True, "seed": 3}
    file = io.BytesIO()
    with prefetch.open(options) as feed:
        batches = iter(feed)
        next(batches)
        torch.save({"feed": feed.state_dict()}, file)
        expected = [batch.indices.tolist() for batch in batches]
    file.seek(0)
    with prefetch.open(options) as feed:
        feed.load_state_dict(torch.load(file, weights_only=True)["feed"])
        assert expected == [batch.indices.tolist() for batch in feed]


def test_the_loader_that_gpu_check_compares_with_serves_the_same_records(source: Path) -> None:
    # Not forked: JAX, which other tests import, has threads.
    loader = iter(
        torch.utils.data.DataLoader(
            Datums(source), batch_size=4, num_workers=2, multiprocessing_context="spawn"
        )
    )
    expected = [next(loader) for _ in range(3)]
    del loader
    options = {"source": source, "batch_size": 4, "transform": {"dtype": "uint8"}}
    with prefetch.open(options, device="cpu") as feed:
        for (data, labels), batch in zip(expected, feed, strict=False):
            assert torch.equal(data, torch.from_dlpack(batch.data))
            assert torch.equal(labels, torch.from_dlpack(batch.label))
            del batch


def test_the_guides_example_works(run_guide: Callable[[str], None]) -> None:
    run_guide("torch")
