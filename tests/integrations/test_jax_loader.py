"""prefetch.jax.DataLoader, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import prefetch

if TYPE_CHECKING:
    from collections.abc import Iterable

jax: Any = pytest.importorskip("jax", reason="JAX is not installed: make test-integrations")
jnp: Any = pytest.importorskip("jax.numpy")
ringjax: Any = pytest.importorskip("prefetch.jax")


@pytest.fixture(autouse=True, scope="module")
def _started() -> None:
    """Let JAX start the threads that it keeps."""
    (jnp.zeros(4) + 1).block_until_ready()


def losses_of(batches: Iterable[Any]) -> list[float]:
    """Train a linear model; every loss depends on all bytes before it."""

    def loss_of(weights: Any, images: Any, labels: Any) -> Any:
        logits = images.reshape(len(images), -1) / 60 @ weights
        return -jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels % 4].mean()

    step = jax.jit(jax.value_and_grad(loss_of))
    weights, losses = jnp.zeros((16, 4)), []
    for images, labels in batches:
        loss, gradient = step(weights, images, labels)
        weights -= 0.1 * gradient
        losses.append(float(loss))
    return losses


def test_a_drop_in_gives_the_losses_of_a_plain_loop_bit_for_bit(options: dict[str, Any]) -> None:
    with prefetch.open(options) as feed:
        plain = [
            (jnp.array(batch.data.numpy()), jnp.array(batch.label.numpy()))
            for _ in range(2)
            for batch in feed
        ]
    with ringjax.DataLoader(options) as loader:
        losses = losses_of(item for _ in range(2) for item in loader)
    assert len(losses) == 16
    assert losses == losses_of(plain)


def test_images_are_the_batchs_own_memory_and_labels_are_copies_that_hold_none(
    options: dict[str, Any],
) -> None:
    with ringjax.DataLoader(options, batch_size=2, max_batches_held=4) as loader:
        labels = [labels for _, labels in loader]
        assert sorted(jnp.concatenate(labels).tolist()) == list(range(60))
        images, labels = next(iter(loader))
        assert (images.shape, images.dtype) == ((2, 1, 4, 4), jnp.float32)
        assert labels.dtype == jnp.int32  # as all of 64 bits are
        assert loader.feed.stats().slots_leased == 1
        del images


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_every_dtype_of_a_batch_is_one_of_jaxs(
    options: dict[str, Any], dtype: str, device: str
) -> None:
    with ringjax.DataLoader(options, transform={"dtype": dtype}, device=device) as loader:
        for images, labels in loader:
            assert images.dtype == getattr(jnp, dtype)
            assert images[:, 0, 0, 0].tolist() == labels.tolist()
            del images


def test_a_step_that_donates_its_images_gets_none_that_are_filled_again(
    options: dict[str, Any],
) -> None:
    step = jax.jit(lambda images: images * 1, donate_argnums=0)
    found = []
    with ringjax.DataLoader(options, prefetch=1) as loader:
        for _ in range(5):
            for images, labels in loader:
                found.append((step(images), labels))
                del images
        assert all((made[:, 0, 0, 0] == labels).all() for made, labels in found)


def test_a_batchs_arrays_are_taken_by_jaxs_own_functions(options: dict[str, Any]) -> None:
    with prefetch.open(options) as feed, next(iter(feed)) as batch:
        expected = batch.data.numpy(writable=False).tolist()
        for take in (jnp.asarray, jnp.array, jax.dlpack.from_dlpack):
            assert expected == take(batch.data).tolist()
        taken = jax.tree.map(jnp.asarray, {"label": batch.label})
        assert batch.label.tolist() == taken["label"].tolist()


def test_without_labels_an_item_is_a_dict_of_images(options: dict[str, Any]) -> None:
    with ringjax.DataLoader(options, labels=False) as loader:
        assert {"image": (8, 1, 4, 4)} == {
            name: array.shape for name, array in next(iter(loader)).items()
        }


def test_mixed_batches_with_pairs_are_dicts_by_field(options: dict[str, Any]) -> None:
    options = {**options, "transform": {"mixup": {"alpha": 0.8}}}
    with (
        ringjax.DataLoader(options, labels="pairs") as pairs,
        ringjax.DataLoader(options, labels="one_hot", num_classes=60) as shares,
    ):
        for item, (images, labels) in zip(pairs, shares, strict=True):
            assert list(item) == ["image", "label", "label2", "lam"]
            assert (item["image"] == images).all()
            lam, rows = item["lam"][0], jnp.arange(len(images))
            expected = jnp.zeros((len(images), 60)).at[rows, item["label"]].add(lam)
            expected = expected.at[rows, item["label2"]].add(1 - lam)
            assert jnp.allclose(labels, expected)


def test_a_saved_state_goes_on_within_an_epoch(options: dict[str, Any]) -> None:
    with ringjax.DataLoader(options) as loader:
        loader.set_epoch(2)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = [labels.tolist() for _, labels in batches]
    with ringjax.DataLoader(options) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(2)
        assert expected == [labels.tolist() for _, labels in loader]


def test_options_of_pytorchs_loader_are_taken_or_refused_here_too(options: dict[str, Any]) -> None:
    with ringjax.DataLoader(options, num_workers=3, drop_last=True) as loader:
        assert len(list(loader)) == len(loader) == 7
    with pytest.raises(prefetch.ConfigError, match="per_batch"):
        ringjax.DataLoader(options, collate_fn=list)
