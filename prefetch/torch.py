"""Batches as tensors of PyTorch.

::

    import prefetch.torch as ringtorch

    with ringtorch.DataLoader("train.yaml", batch_size=64, shuffle=True) as loader:
        for images, labels in loader:
            ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._feed.loader import Loader

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "prefetch.torch needs PyTorch, which is not installed: pip install torch, or as "
        "pytorch.org says for this machine",
        name="torch",
    ) from None

if TYPE_CHECKING:
    from typing import Unpack

    from memory import Blob
    from prefetch._config.keywords import LoaderKeywords
    from prefetch._feed.iterators import FeedIterator

__all__ = ["DataLoader"]


class DataLoader(Loader["tuple[torch.Tensor, torch.Tensor]"]):
    """Serve a feed as pairs of tensors, in place of ``torch.utils.data.DataLoader``.

    It is no subclass of that: frameworks would shard it once more, and the feed has its ``shard``.
    Each ``for`` serves one epoch. Items are ``(images, labels)``; with ``labels: false`` they are
    ``{"image": images}``, and with ``labels: pairs`` a dict of image, label, label2 and lam.

    Images are the batch's own memory, without a copy: (N, C, H, W), or (N, H, W, C) with
    ``transform.layout: nhwc``, of ``transform.dtype``. Their memory is filled again when they, and
    all views of them, are gone; keeping more than ``max_batches_held`` of them is a
    BatchesHeldError. Labels are (N,) of ``label_dtype``, or (N, num_classes) float32 with
    ``labels: one_hot``, small copies that may be kept for ever.

    On a GPU both are there, ordered on the stream that is PyTorch's current one at ``next()``, and
    the memory is not filled again before the work that the stream was given until they were let
    go. ``device: auto`` is PyTorch's current GPU, or the CPU where this PyTorch has no CUDA.

    Args:
        what: What `prefetch.open` takes, or an open `prefetch.Feed`, which close() leaves open.
        **options: Those of `prefetch.open`, and ``drop_last`` (``last_batch: drop``).
            ``num_workers``, ``pin_memory``, ``persistent_workers``, ``prefetch_factor`` and the
            like are taken without effect, with one line in the log. ``sampler``,
            ``batch_sampler``, ``collate_fn``, ``worker_init_fn`` and ``generator`` are refused.

    Raises:
        ConfigError: The configuration has faults, or an option has no counterpart here; it says
            what to use. Also of a feed on a GPU that this PyTorch cannot use.

    Example:
        >>> import prefetch.testing, prefetch.torch as ringtorch
        >>> with prefetch.testing.example_database() as path:
        ...     with ringtorch.DataLoader(path, batch_size=6) as loader:
        ...         for images, labels in loader:
        ...             print(tuple(images.shape), labels.tolist())
        (6, 3, 8, 8) [0, 1, 2, 3, 4, 5]
        (4, 3, 8, 8) [6, 7, 8, 9]
    """

    _library = "PyTorch"

    def __init__(self, what: Any = None, /, **options: Unpack[LoaderKeywords]) -> None:
        if isinstance(what, torch.utils.data.Dataset | torch.utils.data.DataLoader):
            reason = (
                f"expected a database or a configuration, found a {type(what).__name__}; write its "
                "examples to a database once (ringfeed convert), and give that"
            )
            raise ConfigError("loader", (ConfigFault("", reason),))
        super().__init__(what, **options)
        device, _, ordinal = self.feed.device.name.partition(":")
        self._cuda = int(ordinal) if device == "cuda" else None
        self._stream: Any = None
        self._is_pair = self.feed.config.labels in {True, "one_hot"}
        # PyTorch knows NumPy's bfloat16 by DLPack only; for all others this way is quicker.
        self._by_dlpack = self._cuda is not None or self.feed.config.transform.dtype == "bfloat16"

    def _take(self, batches: FeedIterator) -> tuple[torch.Tensor, torch.Tensor]:
        if self._cuda is not None:
            self._follow_stream()
        batch = next(batches)
        if self._by_dlpack:
            images = torch.from_dlpack(batch.data)
        else:
            images = torch.from_numpy(batch.data.numpy())
        if not self._is_pair:
            return {  # type: ignore[return-value] # as documented
                name: images if name == "image" else self._copy(blob)
                for name, blob in batch.fields.items()
            }
        return images, self._copy(batch.label)

    def _copy(self, blob: Blob) -> torch.Tensor:
        if self._cuda is None:
            return torch.from_numpy(blob.numpy().copy())
        return torch.from_dlpack(blob).clone()

    def _follow_stream(self) -> None:
        """Have the feed hand over on PyTorch's current stream, which only PyTorch knows."""
        stream = torch.cuda.current_stream(self._cuda)
        if stream != self._stream:
            self.feed.to_stream(stream)
            self._stream = stream

    def _find_device(self) -> str:
        return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"


DataLoader.__module__ = __name__
