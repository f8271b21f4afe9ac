"""The cache of decoded images that a configuration asks for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prefetch._decoded_cache.belonging import Belonging
from prefetch._decoded_cache.file_cache import FileCache
from prefetch._decoded_cache.memory_cache import MemoryCache
from prefetch._decoded_cache.open_file import ForeignCacheError, is_full
from prefetch._errors.classes import ConfigError, ConfigFault
from prefetch._errors.os_errors import describe_os_error
from prefetch._errors.printable import printable_path

if TYPE_CHECKING:
    from prefetch._config.feed_config import FeedConfig
    from prefetch._decoded_cache.cache import DecodedCache
    from prefetch._record.layout import RecordKind
    from prefetch._source.source import RecordSource

logger = logging.getLogger("prefetch")


def make_memory_cache(config: FeedConfig) -> MemoryCache | None:
    """Return a feed's cache in memory, which it has for all its life; None where it has none."""
    decoded = config.cache.decoded
    return None if decoded is None or not decoded.memory else MemoryCache(decoded.bytes)


def open_cache(
    config: FeedConfig, source: RecordSource, memory_cache: MemoryCache | None
) -> DecodedCache | None:
    """Return the cache for one prefetcher, which closes it; None where there is to be none.

    Where there is no room for a file, or another process keeps it locked, the feed goes without.

    Args:
        config: The configuration.
        source: The databases, open.
        memory_cache: What `make_memory_cache` has made for the feed.

    Raises:
        ConfigError: The file is no cache, or that of another feed; or there can be none there.
    """
    decoded = config.cache.decoded
    if memory_cache is not None:
        return memory_cache.hold()
    if decoded is None or decoded.path is None:
        return None
    options = config.transform
    fingerprints = source.fingerprints()
    belonging = Belonging.of(
        source.paths,
        fingerprints,
        {
            "force_color": options.force_color,
            "force_gray": options.force_gray,
            "max_pixels_per_byte": options.max_pixels_per_byte,
            "shorter": decoded.shorter,
        },
    )
    try:
        return FileCache(
            decoded.path,
            belonging,
            num_records=sum(one.num_records for one in fingerprints),
            most_bytes=decoded.bytes,
        )
    except ForeignCacheError as error:
        raise _refusal(str(error)) from error
    except OSError as error:
        name = printable_path(str(decoded.path))
        reason = str(error) if isinstance(error, TimeoutError) else describe_os_error(error)
        if isinstance(error, TimeoutError) or is_full(error):
            logger.warning("%s cannot be used, and images are decoded each time: %s", name, reason)
            return None
        raise _refusal(
            f"expected a file that decoded images can be kept in; {name} cannot be opened: "
            f"{error.strerror or error}; name a file in a folder where you may write"
        ) from error


def _refusal(reason: str) -> ConfigError:
    return ConfigError("cache", (ConfigFault("cache.decoded.path", reason),))


def note_raw_records(config: FeedConfig, kind: RecordKind) -> None:
    """Say where there is a cache and nothing to decode."""
    if config.cache.decoded is not None and kind == "raw":
        logger.info(
            "cache.decoded keeps encoded images only, and does nothing for raw records, such as "
            "the first of this source"
        )
