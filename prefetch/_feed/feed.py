"""The public feed and its two iterators: thin shells around a prefetcher.

The threads hold the prefetcher and never the feed, so that an abandoned feed is collected; the
iterators hold the feed, so that ``for batch in prefetch.open(...)`` keeps it.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

from memory.wording import printable_value
from prefetch._errors.classes import (
    FeedBusyError,
    FeedClosedError,
    PrefetchWarning,
    StaleIteratorError,
    StateError,
)
from prefetch._errors.printable import counted
from prefetch._feed import display
from prefetch._feed.into import Into
from prefetch._feed.iterators import AsyncFeedIterator, FeedIterator
from prefetch._feed.ranks import Ranks, refuse_fixed_ranks
from prefetch._feed.saved_state import MOST
from prefetch._process.nested_calls import is_nested, mark_entry
from prefetch._source.sidecar_files import class_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from memory import Device, Stream
    from prefetch._config.feed_config import FeedConfig
    from prefetch._pipeline.consumer_state import Taken
    from prefetch._pipeline.prefetcher import Prefetcher
    from prefetch._pipeline.stats import FeedStats
    from prefetch._plan.position import Position
    from prefetch._report.sheet import ContactSheet

mark_entry(__file__)


class Feed:
    """Batches of a database, prepared by background threads ahead of the loop.

    Made by `prefetch.open` and `prefetch.open_prototxt`. Each ``for`` over it serves one epoch and
    the next ``for`` the next one; reading ahead does not stop in between. With
    ``last_batch: wrap`` it is one endless stream, and a new ``for`` continues with the next batch.
    It serves one iterator at a time: a newer one ends an older one. The threads start with the
    first batch that is asked for. Safe to use, and to close, from any thread of the process that
    opened it; a signal handler may save its state and close it at any point. What a handler
    raises comes out of next() and leaves the feed open: the next next() serves the batch.

    Why it has so many methods: it is all that a training loop has of the library, and half of them
    are properties that say what was found at opening.

    Args:
        config: The configuration.
        start: Builds the prefetcher, from the start or from a saved state, for the ranks that the
            opening has found, or for others.
        open_another: Opens a feed of another configuration with given ranks, for `show`.

    Attributes:
        config: The configuration; ``shard`` is ``auto`` there if it was, and ``rank`` and
            ``world_size`` of the feed are the numbers.

    Example:
        >>> import prefetch, prefetch.testing
        >>> with prefetch.testing.example_database() as path:
        ...     with prefetch.open({"source": path}, batch_size=6) as feed:
        ...         print(len(feed), [len(batch) for batch in feed])
        2 [6, 4]
    """

    def __init__(
        self,
        config: FeedConfig,
        start: Callable[[Mapping[str, Any] | None, Ranks | None], Prefetcher],
        *,
        open_another: Callable[[FeedConfig, Ranks], Feed],
    ) -> None:
        self.config = config
        self._start = start
        self._open_another = open_another
        self._stream: object = None
        self._warned_empty = False
        self._class_names: tuple[str, ...] | None = None
        self._loaded: Position | None = None
        self._prefetcher = start(None, None)
        self._prefetcher.attach(self)
        display.note_feed(self)

    def __iter__(self) -> FeedIterator:
        """Return an iterator over an epoch; nothing happens until its first next()."""
        return FeedIterator(self)

    def __aiter__(self) -> AsyncFeedIterator:
        """Return an asynchronous iterator over an epoch; it never blocks the event loop."""
        return AsyncFeedIterator(self)

    def __bool__(self) -> bool:
        """Return True: a feed is there, whatever its length is."""
        return True

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch.

        Raises:
            TypeError: With ``last_batch: wrap``, which has no epochs.
        """
        return self._prefetcher.components.order.batches_per_epoch

    @property
    def num_records(self) -> int:
        """Records in the source, after ``subset``."""
        return self._prefetcher.components.order.num_records

    @property
    def rank(self) -> int:
        """Number of this process among those that share each epoch, from 0."""
        return self._prefetcher.components.order.rank

    @property
    def world_size(self) -> int:
        """How many processes share each epoch."""
        return self._prefetcher.components.order.world_size

    @property
    def class_names(self) -> tuple[str, ...]:
        r"""Names of the classes by label; empty where none are known.

        They are read once, from the ``classes.tsv`` beside the database, which ``ringfeed convert``
        writes for class folders. A label without a name between others is named by its number.

        Example:
            >>> import pathlib, prefetch, prefetch.testing
            >>> with prefetch.testing.example_database() as path:
            ...     _ = pathlib.Path(path, "classes.tsv").write_text("0\tcat\n1\tdog\n")
            ...     with prefetch.open({"source": path}, batch_size=6) as feed:
            ...         print(feed.class_names[1])
            dog
        """
        if self._class_names is None:
            self._class_names = class_names(self._prefetcher.components.source.paths)
        return self._class_names

    @property
    def epoch(self) -> int:
        """Epoch of the batch served last; after an epoch's end, that of the next; from 0."""
        return self._prefetcher.epoch

    @property
    def device(self) -> Device:
        """Where the batches are pushed."""
        return self._prefetcher.components.device

    def to_stream(self, stream: object) -> None:
        """Hand over the batches on a stream of yours, from the next batch on.

        That stream is made to wait for a batch's copies to the device, without the host waiting,
        and the batch's memory is not filled again before the work is done that the stream was given
        until the batch was released. Unless this is called, it is the stream that is current on the
        thread that calls next(): CuPy's, or that of ``feed.device.use_stream``. PyTorch's current
        stream is not one that CUDA or CuPy knows of, hence
        ``feed.to_stream(torch.cuda.current_stream())``.

        Args:
            stream: One of ``feed.device``'s; on a GPU also a ``torch.cuda.Stream``, anything with
                ``__cuda_stream__``, or CUDA's handle as an integer, whose owner has to keep the
                stream for as long as the feed uses it. None: the current stream again.

        Raises:
            NoDeviceMemoryError: The device has no memory of its own, and so no streams: ``cpu``.
            DeviceMismatchError: It is another device's stream.
            BufferMismatchError: It is no stream at all.
        """
        self._prefetcher.consumer.stream = _adopt(stream, self._prefetcher)
        self._stream = stream

    def into(self, data: object, label: object = None) -> Into:
        """Serve the batches in arrays of yours, at the same addresses every time.

        For CUDA graphs, and for ``torch.compile(mode="reduce-overhead")``. Each ``for`` over what
        is returned serves an epoch, as one over the feed does: every batch is copied on your
        stream, the current one or that of `to_stream`, behind the work that it was given before.
        The batch is released at once. The host does not wait: on a device with memory of its own
        the bytes are there for later work on that stream, and for others once it has come so far.

        Args:
            data: A writable, C-contiguous array of the batches' dtype and shape (batch_size, C, H,
                W), or (batch_size, H, W, C). On a GPU anything in its memory that offers
                ``__cuda_array_interface__`` or DLPack, such as a tensor of PyTorch's that needs no
                gradient; on every device an array of NumPy's, or a tensor on the host.
            label: Likewise, of shape (batch_size,), or (batch_size, num_classes) with ``labels:
                one_hot``; None to leave the labels out, the only choice with ``labels: pairs``.

        Returns:
            What serves a `Filled` for every batch, and is to be iterated once an epoch. A last
            batch that is smaller is in the first ``n`` rows, and leaves the others as they were.

        Raises:
            BufferMismatchError: An array is of another kind; next() raises it for another dtype or
                shape, names both, and serves the batch again when it is asked again.
            DeviceMismatchError: An array is on another GPU.

        Example:
            >>> import numpy, prefetch, prefetch.testing
            >>> images = numpy.empty((6, 3, 8, 8), numpy.float32)
            >>> with prefetch.testing.example_database() as path:
            ...     with prefetch.open({"source": path}, batch_size=6) as feed:
            ...         for filled in feed.into(images):
            ...             print(filled.number, filled.n, images[: filled.n].shape)
            0 6 (6, 3, 8, 8)
            1 4 (4, 3, 8, 8)
        """
        return Into(self, data, label)

    @property
    def closed(self) -> bool:
        """Whether the feed is closed: by `close`, or by an error."""
        return self._prefetcher.closed

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer is, as a mapping that JSON and torch can save.

        It says what has been *taken* from the feed, not what was read ahead. After equally many
        batches it is the same on every rank, except under ``rng: caffe``. A feed that loads it
        continues with exactly the remaining samples, crops and mirrors included, also in another
        process and with other threads, prefetch, device, batch_size and (except under ``rng:
        caffe``) world_size. Works on a closed feed too. Waits for nothing, so that a signal handler
        may call it: within next() it says the place before the batch that is on its way.
        """
        prefetcher = self._prefetcher
        return prefetcher.components.state_of(prefetcher.position())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a feed was when ``state`` was made.

        The first ``for`` serves the rest of the epoch. What was read ahead is dropped, and an
        earlier iterator ends.

        Args:
            state: What `state_dict` returned, perhaps by way of JSON.

        Raises:
            StateError: It belongs to other records or another configuration; names each difference.
            FeedClosedError: The feed is closed.
            DeviceMismatchError: `to_stream` was given a stream of the feed's own device, which is
                opened anew: give it None before, and a stream of the new device afterwards.
        """
        if self.closed:
            raise self._prefetcher.coordinator.closed_error(
                "open another one and load the state there"
            )
        if state is None:
            raise StateError(("expected what state_dict() returned, found None",))
        self._restart(state, Ranks(self.rank, self.world_size, ""))

    def reshard(self, rank: int, world_size: int) -> None:
        """Share what remains of the epoch out anew, among other processes.

        All ranks call it at the same place, between two batches that they have all been served, as
        when one of them has left or joined. The loop that is running continues: it serves the
        rest of the epoch in the new shares, as a feed would that loads the state with that number
        of ranks, and later epochs are shared so too. What was read ahead is dropped, and the
        counters of `stats` start again. Batches that the loop holds stay valid.

        Args:
            rank: Number of this process from now on, from 0.
            world_size: How many processes share each epoch from now on.

        Raises:
            ValueError: There is no such rank.
            TypeError: One of them is no integer.
            ConfigError: ``rng: caffe`` and ``shard.policy: caffe`` tie a rank to a stream of its
                own; or ``seed`` is null, which several ranks cannot share.
            FeedBusyError: It is called within next(), as by a signal handler.
            FeedClosedError: The feed is closed.
            DeviceMismatchError: As `load_state_dict`.

        Example:
            >>> import prefetch, prefetch.testing
            >>> with prefetch.testing.example_database() as path:
            ...     with prefetch.open({"source": path}, batch_size=2) as feed:
            ...         for batch in feed:
            ...             print(batch.indices)
            ...             if batch.number == 1:
            ...                 feed.reshard(1, 2)
            [0 1]
            [2 3]
            [5 7]
            [9]
        """
        rank, world_size = index(rank), index(world_size)
        if not 0 <= rank < world_size:
            raise ValueError(
                f"expected a rank from 0 and a world_size above it, found rank {rank} and "
                f"world_size {world_size}"
            )
        if self.closed:
            raise self._prefetcher.coordinator.closed_error("open another one with that shard")
        refuse_fixed_ranks(self.config, world_size)
        if (rank, world_size) == (self.rank, self.world_size):
            return
        earlier = self._prefetcher
        if any(taken.is_pending for taken in earlier.coordinator.delivery.served.in_hand):
            raise FeedBusyError(
                "reshard() was called within next(), and would take a batch back that is on its "
                "way to the loop; call it between two batches"
            )
        self._restart(self.state_dict(), Ranks(rank, world_size, ""), is_running=True)

    def _restart(
        self, state: Mapping[str, Any] | None, ranks: Ranks, *, is_running: bool = False
    ) -> None:
        """Continue with another prefetcher, from a state and with some ranks.

        Args:
            state: The state.
            ranks: The ranks.
            is_running: Whether the iterator that is being served continues, too.
        """
        prefetcher = self._start(state, ranks)
        try:
            prefetcher.consumer.stream = _adopt(self._stream, prefetcher)
            prefetcher.attach(self, self._prefetcher)
            position = prefetcher.position()
            is_within = is_running and prefetcher.take_over(self._prefetcher, position)
            self._loaded = None if is_within else position
            self._prefetcher = prefetcher
        except BaseException:
            # Ctrl-C may come right behind the assignment, and then the feed has the new one.
            if self._prefetcher is not prefetcher:
                prefetcher.forgo()
            raise
        # Last, for it blocks: should Ctrl-C interrupt it, the first next() does the rest.
        prefetcher.end_predecessor()

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``for`` serve a certain epoch from its start.

        Unless it is called, epochs count up, and every one has an order of its own. Where the epoch
        is the next one anyhow nothing happens, so that a loop may call this before each of its
        epochs. Otherwise what was read ahead is dropped, and an earlier iterator ends. A state
        that was loaded in the middle of the epoch stays: then the rest of it is served. Under
        ``rng: caffe`` the generator continues from where it is.

        Args:
            epoch: Its number, from 0.

        Raises:
            TypeError: With ``last_batch: wrap``, which has no epochs, or for what is no integer.
            ValueError: There is no such epoch.
            FeedClosedError: The feed is closed.

        Example:
            >>> import prefetch, prefetch.testing
            >>> with prefetch.testing.example_database() as path:
            ...     with prefetch.open({"source": path}, batch_size=6) as feed:
            ...         feed.set_epoch(3)
            ...         print([(batch.epoch, batch.number) for batch in feed])
            [(3, 0), (3, 1)]
        """
        prefetcher = self._prefetcher
        if prefetcher.components.order.last_batch == "wrap":
            raise TypeError("a feed with last_batch: wrap is one endless stream without epochs")
        epoch, most = index(epoch), self.config.epochs
        if not 0 <= epoch < (most or MOST):
            bound = f" to {MOST - 1}" if epoch > 0 else ""
            if most is not None:
                bound = f" to {most - 1}, since epochs is {most}"
            raise ValueError(f"expected an epoch from 0{bound}, found {printable_value(epoch)}")
        here = prefetcher.position()
        # Within an epoch that was begun the next iterator starts the next one.
        upcoming = here.epoch + (here.served > 0 and here != self._loaded)
        if epoch != upcoming:
            there = replace(here, epoch=epoch, served=0)
            self.load_state_dict(prefetcher.components.state_of(there))

    def _translate_error(
        self, error: BaseException, prefetcher: Prefetcher, taken: Taken
    ) -> BaseException:
        """Handle an exception out of next(), and return the one that its caller gets.

        A batch's own failure closes the feed. Anything else, such as what a signal handler raises,
        does not, and the next call serves the batch.
        """
        prefetcher.consumer.lose(taken)
        if error is taken.fate:
            prefetcher.request_stop(f" since next() raised {type(error).__name__}")
        if not isinstance(error, FeedClosedError) or self._prefetcher is prefetcher:
            return error
        # load_state_dict() stopped the readers that this iterator waited for; the feed is open.
        return StaleIteratorError(
            "the feed was moved to another place while the iterator waited, as load_state_dict() "
            "and reshard() do; a new for-loop continues from there"
        )

    def stats(self) -> FeedStats:
        """Return a snapshot of what the feed has counted; works on a closed feed too.

        Waits for nothing, so that a signal handler may call it.
        """
        return self._prefetcher.stats()

    def show(self, num: int = 24) -> ContactSheet:
        """Draw the first images of an epoch with labels, names of classes and keys.

        They are cropped, mirrored and ordered as served, without mean, scale and ``per_batch``. A
        feed of its own reads them and is closed again: this one's place does not change. Works on a
        closed feed.

        Args:
            num: How many, of the first batch, and 24 at the most.

        Returns:
            A `ContactSheet`: as the last expression of a notebook's cell it is drawn there, and
            ``feed.show().save("feed.png")`` writes it.

        Raises:
            ValueError: ``num`` is less than 1.
            TypeError: It is no integer.
            PrefetchError: The records cannot be read, or there are none.
        """
        return display.show_feed(self, num)

    def _repr_html_(self) -> str:
        return display.feed_html(self)

    def close(self) -> None:
        """Stop and join the threads and close the database; idempotent, from any thread.

        Waits for the records that are being decoded, one a thread, and for parts of batches of raw
        ones; interrupts every other wait, here and in next(). Batches that the consumer holds stay
        valid. A failure behind the last batch taken, which no next() can raise any more, is logged.

        In a signal handler or a finalizer that interrupts another call of the feed on the same
        thread it only asks the threads to stop: that call joins them, or the end of the process.
        """
        self._prefetcher.close(wait=not is_nested())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._prefetcher.close(wait=not is_nested())

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: threads and an open database cannot be.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a feed has threads and an open database, which cannot be copied or pickled; open "
            "another one from feed.config, in the other process if it is for one"
        )

    def __repr__(self) -> str:
        stats = self.stats()
        state = "closed" if self.closed else f"epoch={self.epoch}"
        return (
            f"<Feed {state} records={self.num_records} batches={stats.batches} "
            f"ready={stats.slots_ready}/{stats.slots} threads={stats.threads} "
            f"device={stats.device}>"
        )

    def _note_end(self) -> None:
        """Forget the place that was loaded; warn, once, after an epoch that had nothing in it."""
        self._loaded = None  # of its epoch the rest is over, even where that was no batch
        order = self._prefetcher.components.order
        if self._warned_empty or order.last_batch == "wrap" or order.batches_per_epoch:
            return
        self._warned_empty = True
        cure = "lower batch_size, or use last_batch: partial"
        if order.samples_per_epoch == 0:
            cure = "use shard.policy: pad, or fewer ranks"
        warnings.warn(
            f"an epoch has no batch at all: {counted(order.num_records, 'record')}, batch_size "
            f"{order.batch_size}, world_size {order.world_size}, last_batch {order.last_batch}, "
            f"shard.policy {order.policy}; {cure}",
            PrefetchWarning,
            stacklevel=3,
        )

    def __del__(self) -> None:
        prefetcher = getattr(self, "_prefetcher", None)
        if prefetcher is None:
            return
        was_closed = prefetcher.closed
        prefetcher.abandon(wait=not is_nested())
        if not was_closed:
            warnings.warn(
                "a feed was collected while it was open; close() it, or use it in a with statement",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )


def _adopt(stream: object, prefetcher: Prefetcher) -> Stream | None:
    """Return a consumer's stream as one of the prefetcher's device; None stays None."""
    return None if stream is None else prefetcher.components.device.stream_from(stream)
