"""JAX as a consumer of batches, on the CPU.

JAX lets go of memory of others lazily: at one of its own calls after the last reference is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

jax: Any = pytest.importorskip("jax", reason="JAX is not installed: pip install --group consumers")
jnp: Any = pytest.importorskip("jax.numpy")

SHARED: dict[str, Callable[[Any], Any]] = {
    "jax.dlpack.from_dlpack": jax.dlpack.from_dlpack,
    "jnp.from_dlpack": jnp.from_dlpack,
    "device_put": lambda blob: jax.device_put(blob.numpy()),
}
ALL: dict[str, Callable[[Any], Any]] = {
    **SHARED,
    "jnp.asarray": lambda blob: jnp.asarray(blob.numpy()),
}


@pytest.fixture(autouse=True, scope="module")
def _started() -> None:
    """Let JAX start the threads that it keeps."""
    (jnp.zeros(4) + 1).block_until_ready()


def exported(feed: prefetch.Feed, export: Callable[[Any], Any]) -> Iterator[Any]:
    for batch in feed:
        array = export(batch.data)
        del batch
        yield array
        del array


def let_go() -> None:
    jnp.zeros(1).block_until_ready()


@pytest.mark.parametrize("export", SHARED.values(), ids=SHARED)
def test_an_array_is_the_batchs_own_memory(
    feed: prefetch.Feed, export: Callable[[Any], Any]
) -> None:
    batch = next(iter(feed))
    array = export(batch.data)
    assert (array.shape, array.dtype) == ((4, 3, 8, 8), jnp.float32)
    assert array.unsafe_buffer_pointer() == batch.data.cpu_data().ctypes.data


@pytest.mark.parametrize("export", ALL.values(), ids=ALL)
def test_an_array_of_batch_3_is_itself_at_batch_300(
    feed: prefetch.Feed, export: Callable[[Any], Any]
) -> None:
    kept = []
    for number, array in zip(range(301), exported(feed, export), strict=False):
        if number == 3:
            kept.append(array)
        del array
    assert kept[0][:, 0, 0, 0].tolist() == [12, 13, 14, 15]
    kept.clear()
    let_go()
    assert feed.stats().slots_leased == 0


def test_a_computation_in_flight_has_the_batch_it_was_given(feed: prefetch.Feed) -> None:
    def work(images: Any) -> Any:
        flat = images.reshape(4, -1)
        return (flat @ flat.T @ flat).mean() * 0 + images.sum()

    step = jax.jit(work)
    sums = []
    for number, batch in enumerate(feed):
        sums.append(step(jax.dlpack.from_dlpack(batch.data)))  # dispatched, not awaited
        del batch
        if number == 100:
            break
    expected = [3 * 64 * (16 * (number % 10) + 6) for number in range(101)]
    assert [float(found) for found in sums] == expected


def test_an_array_outlives_the_feed(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        arrays = [jax.dlpack.from_dlpack(batch.data) for batch in feed]
    del feed
    values = jnp.stack(arrays)[:, :, 0, 0, 0].ravel()
    assert values.tolist() == list(range(40))


def test_labels_of_64_bits_become_32_as_all_do_in_jax(feed: prefetch.Feed) -> None:
    label = jax.dlpack.from_dlpack(next(iter(feed)).label)
    assert (label.dtype, label.tolist()) == (jnp.int32, [0, 1, 2, 3])


def test_the_guides_example_works(run_guide: Callable[[str], None]) -> None:
    run_guide("jax")
