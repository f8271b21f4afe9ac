"""prefetch.torch.DataLoader in place of PyTorch's own, in one process."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch._record.wire import encode_datum
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make test-integrations")
ringtorch: Any = pytest.importorskip("prefetch.torch")


@pytest.fixture
def loader(options: dict[str, Any]) -> Iterator[Any]:
    with ringtorch.DataLoader(options) as loader:
        yield loader


def losses_of(batches: Iterable[Any]) -> list[float]:
    """Train a small network with momentum; every loss depends on all bytes before it."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 9)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for images, labels in batches:
        loss = torch.nn.functional.cross_entropy(model(images / 60), labels % 9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Records(torch.utils.data.Dataset):  # type: ignore[misc] # of what may be missing
    """The same records in the same order, as PyTorch's own loader is given them."""

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        label = self.order[place]
        return torch.full((1, 4, 4), float(label)), label


def test_a_drop_in_gives_the_losses_of_pytorchs_own_loader_bit_for_bit(
    options: dict[str, Any], loader: Any
) -> None:
    with prefetch.open(options) as feed:
        order = [index for _ in range(3) for batch in feed for index in batch.indices.tolist()]

    def own() -> Iterator[Any]:
        for epoch in range(3):
            records = Records(order[60 * epoch : 60 * (epoch + 1)])
            yield from torch.utils.data.DataLoader(records, batch_size=8)

    def dropped_in() -> Iterator[Any]:
        for _ in range(3):
            yield from loader

    losses = losses_of(own())
    assert len(losses) == 24
    assert losses == losses_of(dropped_in())


def test_it_gives_the_losses_of_a_plain_loop_over_a_feed_bit_for_bit(
    options: dict[str, Any], loader: Any
) -> None:
    with prefetch.open(options) as feed:
        plain = ((torch.from_dlpack(batch.data), torch.from_dlpack(batch.label)) for batch in feed)
        losses = losses_of(plain)
        del plain
    assert losses == losses_of(loader)


def test_images_are_the_batchs_own_memory_and_labels_are_copies_that_hold_none(
    options: dict[str, Any],
) -> None:
    with prefetch.open(options) as feed:
        images, labels = next(iter(ringtorch.DataLoader(feed)))
        assert (images.shape, images.dtype) == ((8, 1, 4, 4), torch.float32)
        assert (labels.shape, labels.dtype) == ((8,), torch.int64)
        assert feed.stats().slots_leased == 1
        first = images[:, 0, 0, 0].tolist()
        del images
        assert feed.stats().slots_leased == 0
        for _ in ringtorch.DataLoader(feed):
            pass
        assert labels.tolist() == first


def test_the_labels_of_an_epoch_may_be_kept_although_its_images_may_not(
    options: dict[str, Any],
) -> None:
    with ringtorch.DataLoader(options, batch_size=2, max_batches_held=2) as loader:
        labels = torch.cat([labels for _, labels in loader])
        assert sorted(labels.tolist()) == list(range(60))
        loader.set_epoch(0)
        third = labels[4:6].tolist()
        batches = iter(loader)
        held = [next(batches), next(batches)]
        with pytest.raises(prefetch.BatchesHeldError):
            next(batches)
        del held
        assert next(batches)[1].tolist() == third


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_every_dtype_of_a_batch_is_one_of_torchs(
    options: dict[str, Any], dtype: str, device: str
) -> None:
    with ringtorch.DataLoader(options, transform={"dtype": dtype}, device=device) as loader:
        for images, labels in loader:
            assert images.dtype is getattr(torch, dtype)
            assert images[:, 0, 0, 0].tolist() == labels.tolist()
            del images


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # what [i] gives
def test_a_batchs_arrays_are_taken_by_pytorchs_own_functions(options: dict[str, Any]) -> None:
    with prefetch.open(options) as feed, next(iter(feed)) as batch:
        address = np.asarray(batch.data).__array_interface__["data"][0]
        for take in (torch.from_dlpack, torch.as_tensor, torch.asarray):
            assert address == take(batch.data).data_ptr()
            assert batch.label.tolist() == take(batch.label).tolist()
        images = torch.utils.data.default_collate(batch.data)  # as a list of images
        assert address != images.data_ptr()
        for same in (images, torch.tensor(batch.data)):
            assert torch.equal(torch.as_tensor(batch.data), same)
            assert bool((batch.data == same).all())
        (labels,) = torch.utils._pytree.tree_map(torch.as_tensor, [batch.label])
        assert batch.label.tolist() == labels.tolist()


def test_without_labels_an_item_is_a_dict_of_images(options: dict[str, Any]) -> None:
    with ringtorch.DataLoader(options, labels=False) as loader:
        item = next(iter(loader))
        assert list(item) == ["image"]
        assert item["image"].shape == (8, 1, 4, 4)


def test_mixed_batches_with_pairs_are_dicts_by_field_and_one_hot_labels_go_into_a_loss(
    options: dict[str, Any],
) -> None:
    options = {**options, "transform": {"mixup": {"alpha": 0.8}}}
    loss = torch.nn.functional.cross_entropy
    with (
        ringtorch.DataLoader(options, labels="pairs") as pairs,
        ringtorch.DataLoader(options, labels="one_hot", num_classes=60) as shares,
    ):
        for item, (images, labels) in zip(pairs, shares, strict=True):
            assert list(item) == ["image", "label", "label2", "lam"]
            assert [item[name].dtype for name in ("label2", "lam")] == [torch.int64, torch.float32]
            assert torch.equal(item["image"], images)
            logits, lam = torch.randn(len(images), 60), item["lam"][0]
            expected = lam * loss(logits, item["label"]) + (1 - lam) * loss(logits, item["label2"])
            assert torch.allclose(loss(logits, labels), expected)
            del images, item


def test_epochs_count_up_and_set_epoch_chooses_one(loader: Any) -> None:
    def labels() -> list[int]:
        return [label for _, batch in loader for label in batch.tolist()]

    first, second, third = labels(), labels(), labels()
    assert Counter(first) == Counter(second) == Counter(third) == Counter(range(60))
    assert first != second != third
    loader.set_epoch(1)
    assert labels() == second
    loader.set_epoch(2)
    assert labels() == third
    loader.sampler.set_epoch(0)  # as those do who had a DistributedSampler
    assert labels() == first


def test_a_saved_state_goes_on_within_an_epoch_although_the_epoch_is_set(
    options: dict[str, Any], loader: Any
) -> None:
    loader.set_epoch(4)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    expected = [labels.tolist() for _, labels in batches]
    file.seek(0)
    with ringtorch.DataLoader(options) as other:
        other.load_state_dict(torch.load(file, weights_only=True))
        other.set_epoch(4)
        assert expected == [labels.tolist() for _, labels in other]


def test_it_has_what_people_and_frameworks_read_of_a_loader(loader: Any) -> None:
    assert not isinstance(loader, torch.utils.data.DataLoader)
    assert (len(loader), len(iter(loader)), loader.batch_size, loader.drop_last) == (8, 8, 8, False)
    assert (len(loader.dataset), len(loader.sampler), len(loader.batch_sampler)) == (60, 60, 8)
    assert (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last) == (8, False)
    own = torch.utils.data.DataLoader(loader.dataset, batch_size=8, sampler=[0])
    for name in vars(own):
        if not name.startswith("_") and name not in {"pin_memory_device", "in_order"}:
            assert hasattr(loader, name), name
    assert bool(loader)
    assert "batch_size=8" in repr(loader)


def test_what_has_no_records_says_what_to_use(loader: Any) -> None:
    with pytest.raises(TypeError, match="no single records"):
        loader.dataset[0]
    with pytest.raises(TypeError, match=r"loader\.state_dict\(\)"):
        iter(loader.batch_sampler)
    assert not hasattr(loader.sampler, "generator")


@pytest.mark.parametrize(("drop_last", "num"), [(True, 7), (False, 8)])
def test_drop_last_is_last_batch(options: dict[str, Any], drop_last: bool, num: int) -> None:  # noqa: FBT001 - a parameter
    with ringtorch.DataLoader(options, drop_last=drop_last) as loader:
        assert loader.drop_last is drop_last
        assert len(list(loader)) == len(loader) == num


def test_drop_last_beside_last_batch_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(prefetch.ConfigError, match="drop_last"):
        ringtorch.DataLoader(options, drop_last=True, last_batch="wrap")


def test_options_without_effect_are_said_in_one_line(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "prefetch"),
        ringtorch.DataLoader(
            options, num_workers=4, pin_memory=True, persistent_workers=True, prefetch_factor=2
        ),
    ):
        pass
    (line,) = [text for text in caplog.messages if "without effect" in text]
    for name in ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor"):
        assert name in line


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("sampler", "shuffle: true"),
        ("batch_sampler", "batch_size"),
        ("collate_fn", "per_batch"),
        ("worker_init_fn", "seed: N"),
        ("generator", "seed: N"),
    ],
)
def test_options_without_a_counterpart_are_refused_with_what_to_use(
    options: dict[str, Any], name: str, cure: str
) -> None:
    with pytest.raises(prefetch.ConfigError, match=cure) as caught:
        ringtorch.DataLoader(options, **{name: object()})
    assert [fault.key for fault in caught.value.faults] == [name]
    with ringtorch.DataLoader(options, **{name: None}):
        pass  # as PyTorch's own default


def test_a_dataset_of_pytorchs_is_answered_with_what_to_do() -> None:
    with pytest.raises(prefetch.ConfigError, match="ringfeed convert"):
        ringtorch.DataLoader(Records([1]))


def test_options_beside_an_open_feed_are_refused_and_its_owner_closes_it(
    options: dict[str, Any],
) -> None:
    with prefetch.open(options) as feed:
        with pytest.raises(prefetch.ConfigError, match="batch_size"):
            ringtorch.DataLoader(feed, batch_size=3)
        with ringtorch.DataLoader(feed) as loader:
            assert loader.feed is feed
        assert not feed.closed
        assert len(list(loader)) == 8


def test_the_loader_closes_the_feed_that_it_opened(options: dict[str, Any]) -> None:
    with ringtorch.DataLoader(options) as loader:
        next(iter(loader))
    assert loader.feed.closed
    with pytest.raises(prefetch.FeedClosedError):
        next(iter(loader))


def test_an_endless_stream_has_no_length_and_no_epochs(options: dict[str, Any]) -> None:
    with ringtorch.DataLoader(options, last_batch="wrap") as loader:
        with pytest.raises(TypeError):
            len(loader)
        with pytest.raises(TypeError, match="endless"):
            loader.set_epoch(1)
        assert sum(1 for _ in zip(range(20), loader, strict=False)) == 20


@pytest.mark.parametrize(("channels", "num"), [("stored", 1), ("rgb", 0), ("bgr", 0)])
def test_encoded_images_in_bgr_are_said_once(
    tmp_path: Path, channels: str, num: int, caplog: pytest.LogCaptureFixture
) -> None:
    _, image = cv2.imencode(".png", np.full((4, 4, 3), (10, 20, 30), np.uint8))
    record = encode_datum(encoded=True, data=image.tobytes(), label=0)
    source = write_database(tmp_path / "png", [(b"0", record)])
    with ringtorch.DataLoader({"source": source, "transform": {"channels": channels}}) as loader:
        for _ in range(2):
            ((images, _),) = loader
            expected = [30, 20, 10] if channels == "rgb" else [10, 20, 30]
            assert images[0, :, 0, 0].tolist() == expected
            del images
    assert len([text for text in caplog.messages if "BGR" in text]) == num


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 4, 4)])
def test_nothing_is_said_of_raw_records(
    tmp_path: Path, shape: tuple[int, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    source = write_database(tmp_path / "raw", fingerprinted_images(4, shape))
    with ringtorch.DataLoader({"source": source}):
        pass
    assert not [text for text in caplog.messages if "BGR" in text]


def test_importing_the_library_imports_neither_pytorch_nor_jax() -> None:
    code = (
        "import sys, prefetch; feed = prefetch.open; prefetch.FeedConfig; "
        "assert not {'torch', 'jax'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
