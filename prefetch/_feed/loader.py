"""What the loaders for PyTorch and JAX share: a feed behind the habits of a data loader."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from prefetch._config.foreign_names import CALLED_HERE
from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._feed.feed import Feed
from prefetch._feed.open import open as open_feed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self, Unpack

    from prefetch._config.keywords import LoaderKeywords
    from prefetch._feed.iterators import FeedIterator

logger = logging.getLogger("prefetch")

_WITHOUT_EFFECT: Final = frozenset(
    {
        "in_order",
        "multiprocessing_context",
        "num_workers",
        "persistent_workers",
        "pin_memory",
        "pin_memory_device",
        "prefetch_factor",
        "timeout",
    }
)

_CUDA: Final = "cuda"

_REFUSED: Final = ("batch_sampler", "collate_fn", "generator", "sampler", "worker_init_fn")
_ORDER: Final = CALLED_HERE["sampler"]

Item = TypeVar("Item")


class Loader(ABC, Generic[Item]):
    """A feed that is iterated as the loaders of other libraries are.

    Each ``for`` serves one epoch, as one over the feed does: the same records, in the same order.

    Why it is this large: frameworks read a dozen attributes of whatever they are given as a
    loader, and most of the others pass on to the feed.

    Attributes:
        feed: What the batches come from.
        batch_size: Records in a batch.
        drop_last: Whether a smaller last batch is left out.
        dataset: Has a length, the number of records; there is nothing to index.
        sampler: Has a length, the records that this process serves in an epoch, and
            ``set_epoch``.
        batch_sampler: Has a length, the batches of an epoch, and ``batch_size``, ``drop_last``.
    """

    _library = ""  # its name

    # What frameworks read of a loader, with the values of one that loads in its own process.
    num_workers: Final = 0
    pin_memory: Final = False
    persistent_workers: Final = False
    prefetch_factor: Final = None
    timeout: Final = 0
    collate_fn: Final = None
    generator: Final = None
    multiprocessing_context: Final = None
    worker_init_fn: Any = None  # assigned to where a framework seeds workers

    def __init__(self, what: Any = None, /, **options: Unpack[LoaderKeywords]) -> None:
        self._owns_feed = not isinstance(what, Feed)
        self.feed = self._opened(what, _translated(options))
        config = self.feed.config
        self.batch_size: int = config.batch_size
        self.drop_last: bool = config.last_batch == "drop"
        self.dataset = Standin("dataset", self, _NO_RECORDS)
        self.sampler = SamplerStandin("sampler", self, _ORDER)
        self.batch_sampler = BatchStandin("batch_sampler", self, _ORDER)
        self._warn_of_bgr()

    def __iter__(self) -> LoaderIterator[Item]:
        """Return an iterator over an epoch; nothing happens until its first next()."""
        return LoaderIterator(self, iter(self.feed))

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch.

        Raises:
            TypeError: With ``last_batch: wrap``, which has no epochs.
        """
        return len(self.feed)

    def __bool__(self) -> bool:
        """Return True: a loader is there, whatever its length is."""
        return True

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``for`` serve a certain epoch; see `Feed.set_epoch`."""
        self.feed.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop is; see `Feed.state_dict`. It is the same on every rank."""
        return self.feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a loop was; see `Feed.load_state_dict`."""
        self.feed.load_state_dict(state)

    def close(self) -> None:
        """Close the feed, unless it was handed in; idempotent."""
        if self._owns_feed:
            self.feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} batch_size={self.batch_size} of {self.feed!r}>"

    @abstractmethod
    def _take(self, batches: FeedIterator) -> Item:
        """Return what the next batch is served as."""

    @abstractmethod
    def _find_device(self) -> str:
        """Return the device that the library works on: ``cpu``, or ``cuda:N``."""

    def _opened(self, what: Any, options: dict[str, Any]) -> Feed:
        """Return the feed that was given, or one that is opened on the library's device.

        Raises:
            ConfigError: There are options beside a feed, or it is on a GPU without the library.
        """
        if isinstance(what, Feed):
            feed = what
            if options:
                reason = "the feed is open and has its options; give them where it is opened"
                raise ConfigError("loader", tuple(ConfigFault(name, reason) for name in options))
        else:
            feed = open_feed(what, **options)
        found, chosen = feed.device.name, feed.config.device
        if not found.startswith(_CUDA):
            return feed
        usable = self._find_device()
        has_cuda = usable.startswith(_CUDA)
        is_free = self._owns_feed and (chosen == "auto" or (has_cuda and chosen == _CUDA))
        if found == usable or (has_cuda and not is_free):
            return feed
        if self._owns_feed:
            feed.close()
        if not is_free:
            reason = (
                f"the feed is on {found}, where this {self._library} does not work; install one "
                "for CUDA, or write device: cpu"
            )
            raise ConfigError("loader", (ConfigFault("device", reason),))
        logger.info("device %s is %s, as for %s, and not %s", chosen, usable, self._library, found)
        return open_feed(what, **options | {"device": usable})

    def _warn_of_bgr(self) -> None:
        components = self.feed._prefetcher.components  # noqa: SLF001 - of its own room
        first = components.first
        is_colour = first.image is not None and first.image[0] == 3
        if first.kind == "encoded" and is_colour and components.transform.channels == "stored":
            logger.warning(
                "the channels of encoded images come as BGR, as in Caffe, since transform.channels "
                "is stored; for what was trained on RGB write transform={'channels': 'rgb'}"
            )


class LoaderIterator(Generic[Item]):
    """Serves one epoch of a loader; made by ``iter(loader)``. Raises as `FeedIterator` does."""

    __slots__ = ("_batches", "_loader")

    def __init__(self, loader: Loader[Item], batches: FeedIterator) -> None:
        self._loader = loader
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        """Return what the next batch is served as; blocks until it is ready."""
        return self._loader._take(self._batches)  # noqa: SLF001 - the loader's own iterator

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, as PyTorch's iterators do."""
        return len(self._loader)


_NO_RECORDS: Final = "a feed has no single records; iterate the loader, or use ringfeed show"


class Standin:
    """What frameworks ask of a loader's dataset or samplers: lengths, and nothing to draw from.

    Args:
        name: The attribute of the loader that it is.
        loader: The loader.
        cure: What to do in place of using it.
    """

    def __init__(self, name: str, loader: Loader[Any], cure: str) -> None:
        self._name = name
        self._loader = loader
        self._cure = cure

    def __len__(self) -> int:
        """Return the number of records, or of those that this process serves in an epoch."""
        order = self._loader.feed._prefetcher.components.order  # noqa: SLF001 - of its own room
        return order.num_records if self._name == "dataset" else order.samples_per_epoch

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"{self._name} of a feed's loader cannot be indexed: {self._cure}")

    def __iter__(self) -> NoReturn:
        """Refuse, such as those who would skip batches by drawing from it.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{self._name} of a feed's loader cannot be iterated: {self._cure}. To go on within an "
            "epoch save loader.state_dict() and load it; no batches need skipping"
        )

    def __repr__(self) -> str:
        return f"<{self._name} of {self._loader!r}>"


class SamplerStandin(Standin):
    """The same for ``sampler``, where frameworks set the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``for`` over the loader serve a certain epoch; see `Feed.set_epoch`."""
        self._loader.set_epoch(epoch)


class BatchStandin(Standin):
    """The same for ``batch_sampler``, of which sizes are asked too."""

    sampler: Final = None

    @property
    def batch_size(self) -> int:
        """Records in a batch."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a smaller last batch is left out."""
        return self._loader.drop_last

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch."""
        return len(self._loader)


def _translated(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a feed's options for those of PyTorch's loader.

    Raises:
        ConfigError: Some of them have no counterpart; it says what to use.
    """
    translated = dict(options)
    unused = sorted(_WITHOUT_EFFECT & translated.keys())
    for name in unused:
        del translated[name]
    faults = [
        ConfigFault(name, CALLED_HERE[name])
        for name in _REFUSED
        if translated.pop(name, None) is not None
    ]
    drop_last = translated.pop("drop_last", None)
    if drop_last is not None:
        if "last_batch" in translated:
            reason = "stands beside last_batch, which says the same in one word; leave one out"
            faults.append(ConfigFault("drop_last", reason))
        translated["last_batch"] = "drop" if drop_last else "partial"
    if faults:
        raise ConfigError("loader", tuple(sorted(faults, key=lambda fault: fault.key)))
    if unused:
        logger.info(
            "without effect here: %s; readers are threads of this process, threads and prefetch "
            "say how many and how far ahead, and on a GPU batches are in pinned memory",
            ", ".join(unused),
        )
    return translated
