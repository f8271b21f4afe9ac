"""Open a feed: from options, from a network file."""

from __future__ import annotations

import inspect
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from prefetch._config.keywords import OPTIONS, OpenKeywords
from prefetch._errors.classes import ConfigError, SourceError
from prefetch._errors.os_errors import describe_limit
from prefetch._feed.build import build_prefetcher
from prefetch._feed.feed import Feed
from prefetch._feed.open_cache import make_memory_cache
from prefetch._feed.ranks import StartCheck, never_checked, resolve_ranks
from prefetch._process.resource_limits import memory_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias, Unpack

    from prefetch._config.feed_config import FeedConfig
    from prefetch._feed.ranks import Ranks
    from prefetch._pipeline.prefetcher import Prefetcher
    from prefetch._source.backend import Source

    What: TypeAlias = Source | Sequence[Source] | Mapping[str, Any] | FeedConfig

# Options that are compared with the records and the device, after the rest of the configuration.
_FOUND_AT_OPENING = (
    "source",
    "shard",
    "subset",
    "quarantine",
    "cache",
    "transform",
    "per_record",
    "per_batch",
)


def open(  # noqa: A001 - reads as prefetch.open
    what: What | None = None, /, **options: Unpack[OpenKeywords]
) -> Feed:
    """Open a feed from a database, a configuration, or a network's file.

    The database is opened and its first record looked at, from which follows what the ring will
    take: the log says it, and `Feed.stats`. Threads start with the first batch.

    Args:
        what: A database: its folder, its ``data.mdb``, a pattern (``shards/*_lmdb``), a list of
            such, which are read in turn, or an open ``lmdb.Environment``. Or a configuration: a
            ``.yaml`` file (paths in it are relative to that file), a mapping, or a `FeedConfig`.
            Or a network's ``.prototxt``: what `open_prototxt` serves. A leading ``~`` is the user's
            home. None: the options are all there is.
        **options: Those of `FeedConfig`, which win over what ``what`` says; mappings merge key by
            key, and paths are relative to the working directory. ``config`` names a configuration
            in place of ``what``. Beside a network's file there are those of `open_prototxt` too.

    Returns:
        The feed; close it, or use it in a ``with`` statement.

    Raises:
        ConfigError: The configuration has faults; all of them are listed.
        ConfigNotFoundError: ``what`` is a text that names nothing; it says what may be named.
        SourceError: There is no usable database at the source.
        DeviceUnavailableError: The device is not there.
        RingTooLargeError: The process or the device has no memory for the ring.
        OutOfMemoryError: The process has no memory left for the opening itself.

    Example:
        >>> import prefetch, prefetch.testing
        >>> with prefetch.testing.example_database() as path:
        ...     with prefetch.open(path, transform={"crop_size": 6}) as feed:
        ...         print(next(iter(feed)).data.shape)
        (10, 3, 6, 6)
    """
    with _limit_context(what if what is not None else options.get("config")):
        from prefetch._config.load import load_config, origin_name  # noqa: PLC0415 - as above
        from prefetch._config.open_argument import sort_argument  # noqa: PLC0415 - pydantic is slow

        argument = sort_argument(what, options)
        if argument.network is None:
            config = load_config(argument.config, **argument.options)
            origin = origin_name(argument.config, argument.options)
        else:
            from prefetch._prototxt.data_layer import read_data_layer  # noqa: PLC0415 - as above

            # Called from here, for its warnings are on behalf of the caller's caller.
            config = read_data_layer(argument.network, **argument.options).config
            origin = os.fspath(argument.network)
    return _open_feed(config, origin)


# For help() and for completion in a notebook, which do not follow Unpack.
open.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # functions may have one
    [
        inspect.Parameter("what", inspect.Parameter.POSITIONAL_ONLY, default=None),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...)
            for name in OpenKeywords.__annotations__
        ),
    ]
)
if open.__doc__:  # python -OO leaves it out
    open.__doc__ = f"{inspect.cleandoc(open.__doc__)}\n\n{OPTIONS}"


def open_prototxt(
    path: str | os.PathLike[str],
    *,
    phase: str = "TRAIN",
    layer: str | None = None,
    stages: Sequence[str] = (),
    root: str | os.PathLike[str] = ".",
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    prefetch: int | None = None,
    threads: int | str = "auto",
    device: Any = "auto",
) -> Feed:
    """Open a feed that serves what Caffe's Data layer of a network file would, bit for bit.

    One endless stream of full batches that wrap at the end of the database, Caffe's random
    numbers and its shards, float32 labels.

    Args:
        path: A network's prototxt, in the present format or with V1 ``layers``.
        phase: ``TRAIN`` or ``TEST``.
        layer: Name of the layer, or of one of its tops; needed where the phase has several.
        stages: Stages of the network's state, for layers that only some stages include.
        root: Folder that relative paths in the file start from.
        seed: What Caffe's generator is seeded with before it sets the network up; layers before
            this one have drawn from it, as in Caffe. Caffe's solver takes its own seed plus the
            rank. None: from the system.
        rank: This process among the ranks. It is not taken from what has started the process;
            there is a warning where that says that there are several.
        world_size: How many ranks share the database.
        prefetch: Batches kept ahead; None: the file's (4 where it says nothing).
        threads: Reader threads, or ``auto``; the bytes do not depend on it.
        device: Where the batches are pushed.

    Returns:
        The feed.

    Raises:
        ConfigError: The file cannot be parsed, or its layer has faults.
        UnsupportedSourceError: The layer or its backend is of a kind that is not read here.
        SourceError: There is no usable database at the source.
    """
    with _limit_context(path):
        from prefetch._prototxt.data_layer import read_data_layer  # noqa: PLC0415 - see open

        ahead: dict[str, Any] = {} if prefetch is None else {"prefetch": prefetch}
        found = read_data_layer(
            path,
            phase=phase,
            layer=layer,
            stages=stages,
            root=root,
            seed=seed,
            rank=rank,
            world_size=world_size,
            threads=threads,
            device=device,
            **ahead,
        )
    return _open_feed(found.config, os.fspath(path))


def _open_feed(config: FeedConfig, origin: str, ranks: Ranks | None = None) -> Feed:
    # Asked once: after load_state_dict the ring that goes would count as memory that is taken.
    host_limit = memory_limit()

    with _config_context(config, origin):
        found = ranks or resolve_ranks(config)
    memory_cache = make_memory_cache(config)
    check_found = StartCheck(config, found) if ranks is None else never_checked

    def start(state: Mapping[str, Any] | None, given: Ranks | None) -> Prefetcher:
        present = given or found
        check = check_found if present[:2] == found[:2] else never_checked
        with _config_context(config, origin):
            return build_prefetcher(
                config,
                present,
                host_limit,
                state,
                check_start=check,
                memory_cache=memory_cache,
            )

    return Feed(config, start, open_another=lambda other, given: _open_feed(other, origin, given))


@contextmanager
def _config_context(config: FeedConfig, origin: str) -> Iterator[None]:
    """Have the faults that show at opening name the configuration, as those before do.

    Raises:
        ConfigError: There are some.
    """
    try:
        yield
    except ConfigError as error:
        from prefetch._config.fault_places import locate_faults  # noqa: PLC0415 - pydantic is slow to import

        better = locate_faults(error, config)
        if better is error and error.origin not in _FOUND_AT_OPENING:
            raise
        if better is error:
            better = ConfigError(origin, error.faults)
        raise better from error.__cause__


@contextmanager
def _limit_context(config: object) -> Iterator[None]:
    """Have a block that reads a configuration say so where the process may open no more files."""
    try:
        yield
    except (OSError, ImportError) as error:
        limit = describe_limit(error)
        if limit is None:
            raise
        name = os.fsdecode(config) if isinstance(config, str | os.PathLike) else "configuration"
        raise SourceError(name, f"cannot be read: {limit}") from error
