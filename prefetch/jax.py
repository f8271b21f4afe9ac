"""Batches as arrays of JAX.

::

    import prefetch.jax as ringjax

    with ringjax.DataLoader("train.yaml", batch_size=64, shuffle=True) as loader:
        for images, labels in loader:
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefetch._feed.loader import Loader

try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError(
        "prefetch.jax needs JAX, which is not installed: pip install jax, or 'jax[cuda13]' for a "
        "GPU",
        name="jax",
    ) from None

if TYPE_CHECKING:
    from typing import Unpack

    from prefetch._config.keywords import LoaderKeywords
    from prefetch._feed.iterators import FeedIterator

__all__ = ["DataLoader"]


class DataLoader(Loader["tuple[jax.Array, jax.Array]"]):
    """Serve a feed as pairs of JAX's arrays.

    Each ``for`` serves one epoch. Items are ``(images, labels)``; with ``labels: false`` they are
    ``{"image": images}``, and with ``labels: pairs`` a dict of image, label, label2 and lam.

    On the CPU images are the batch's own memory where JAX takes it: (N, C, H, W), or (N, H, W, C)
    with ``transform.layout: nhwc``, of ``transform.dtype``. It is filled again when JAX has
    released it. On a GPU they are a copy within its memory, since JAX names no stream to order its
    work on; the batch's memory is filled again once the copy is made. Labels are small copies of
    shape (N,), of ``label_dtype``, or of 32 bits unless ``jax_enable_x64`` is set; with
    ``labels: one_hot`` of shape (N, num_classes), float32.

    ``device: auto`` is JAX's default device where that is a GPU, else the CPU; for other devices
    give the arrays to ``jax.device_put``.

    Args:
        what: What `prefetch.open` takes, or an open `prefetch.Feed`, which close() leaves open.
        **options: Those of `prefetch.open`, and of PyTorch's loader those that
            `prefetch.torch.DataLoader` takes.

    Raises:
        ConfigError: The configuration has faults, or an option has no counterpart here; it says
            what to use. Also of a feed on a GPU that this JAX cannot use.

    Example:
        >>> import prefetch.testing, prefetch.jax as ringjax
        >>> with prefetch.testing.example_database() as path:
        ...     with ringjax.DataLoader(path, batch_size=6) as loader:
        ...         for images, labels in loader:
        ...             print(tuple(images.shape), labels.tolist())
        (6, 3, 8, 8) [0, 1, 2, 3, 4, 5]
        (4, 3, 8, 8) [6, 7, 8, 9]
    """

    _library = "JAX"

    def __init__(self, what: Any = None, /, **options: Unpack[LoaderKeywords]) -> None:
        super().__init__(what, **options)
        self._is_on_gpu = self.feed.device.name.startswith("cuda")
        self._is_pair = self.feed.config.labels in {True, "one_hot"}

    def _take(self, batches: FeedIterator) -> tuple[jax.Array, jax.Array]:
        batch = next(batches)
        blobs = batch.fields
        if self._is_on_gpu:
            made = {name: jnp.copy(jax.dlpack.from_dlpack(blob)) for name, blob in blobs.items()}
            # Of each a first element, which is there when the copy is: the loop may donate the
            # copies themselves, and what JAX has deleted cannot be waited for.
            batch.keep_until([array.ravel()[:1] for array in made.values()])
        else:
            made = {
                name: jax.dlpack.from_dlpack(blob) if name == "image" else jnp.array(blob.numpy())
                for name, blob in blobs.items()
            }
        if self._is_pair:
            return made["image"], made["label"]
        return made  # type: ignore[return-value] # as documented

    def _find_device(self) -> str:
        device = jax.local_devices()[0]
        return f"cuda:{device.local_hardware_id}" if device.platform == "gpu" else "cpu"


DataLoader.__module__ = __name__
