"""Whether a configuration works: open a feed, read one batch, report what it resolved to."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._config.load import load_config
from prefetch._errors.classes import LabelsNotProducedError
from prefetch._errors.printable import counted
from prefetch._feed.endless import endless
from prefetch._feed.open import open as open_feed
from prefetch._feed.opening_warnings import explain_classes, find_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from prefetch._config.feed_config import FeedConfig
    from prefetch._plan.order import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a feed does with a configuration.

    Why it is this large: it is printed as it is, a field a line, by ``ringfeed check --json``.

    Attributes:
        sources: Absolute paths of the databases.
        num_records: Records served in an epoch, of all ranks together.
        batches_per_epoch: This rank's; None for an endless stream.
        data_shape: Of the first batch, as what follows up to first_keys.
        label_dtype: None where the feed makes none.
        first_keys: The first few.
        device: Name of the device, after ``auto`` was resolved.
        threads: Reader threads, after ``auto`` was resolved.
        slots: Batches that the ring has room for: those kept ahead, and the one in use.
        host_bytes: Host memory of the whole ring.
        device_bytes: Device memory of the whole ring.
        most_host_bytes: Host memory where the consumer holds as many batches as it may.
        first_batch_s: From opening to the first batch.
        warnings: What works, but hardly as meant, one sentence each.
    """

    sources: tuple[str, ...]
    num_records: int
    phase: str
    batches_per_epoch: int | None
    data_shape: tuple[int, ...]
    data_dtype: str
    label_dtype: str | None
    least: float
    most: float
    mean: float
    first_keys: tuple[bytes, ...]
    device: str
    threads: int
    slots: int
    host_bytes: int
    device_bytes: int
    most_host_bytes: int
    first_batch_s: float
    warnings: tuple[str, ...]


def check_config(config: FeedConfig) -> CheckReport:
    """Open a feed and read one batch; blocks until it is there.

    A bad record is put into no quarantine; with ``on_bad_record: quarantine`` it is skipped.

    Raises:
        PrefetchError: What is wrong, as opening and reading the feed would say it.
        SyncedMemoryError: The device is not there, or its memory does not suffice.
    """
    if config.quarantine is not None:
        config = load_config(config, quarantine=None, on_bad_record="skip")
    began = time.perf_counter()
    with open_feed(config) as feed:
        batch = next(endless(feed))
        first_batch_s = time.perf_counter() - began
        stats = feed.stats()
        values = batch.data.numpy(writable=False)
        with np.errstate(invalid="ignore"):  # infinite values are warned of below
            mean = float(values.mean(dtype=np.float64))
        label_dtype = None
        with contextlib.suppress(LabelsNotProducedError):
            label_dtype = str(batch.label.dtype)
        # Not the feed's own estimate, which its first record may have been too bad for.
        components = feed._prefetcher.components  # noqa: SLF001 - as in stats(), but for this batch
        ring = components.expected_memory or components.ring_memory(batch.data.shape[1:])
        most_on_host = ring.num_host_batches
        if not ring.device_batch_bytes:
            most_on_host = config.prefetch + config.max_batches_held
        return CheckReport(
            sources=tuple(str(source) for source in config.source),
            num_records=feed.num_records,
            phase=config.phase,
            batches_per_epoch=None if config.last_batch == "wrap" else len(feed),
            data_shape=batch.data.shape,
            data_dtype=str(batch.data.dtype),
            label_dtype=label_dtype,
            least=float(values.min()),
            most=float(values.max()),
            mean=mean,
            first_keys=tuple(batch.keys[:3]),
            device=stats.device,
            threads=stats.threads,
            slots=ring.num_batches,
            host_bytes=ring.host_bytes,
            device_bytes=ring.device_bytes,
            most_host_bytes=most_on_host * ring.host_batch_bytes,
            first_batch_s=first_batch_s,
            warnings=(
                *_warnings(config, components.order),
                *_doubts_about(values),
                *find_warnings(config, components.source, components.order),
                *filter(None, [explain_classes(components.source)]),
            ),
        )


def _doubts_about(values: NDArray[Any]) -> Iterator[str]:
    """Yield what is hardly meant about a batch."""
    num_odd = values.size - int(np.isfinite(values).sum())
    if num_odd:
        yield (
            f"of {values.size} values of the first batch {num_odd} are no finite numbers: the "
            f"records hold such, or {values.dtype} cannot hold what mean and scale make of them"
        )


def _warnings(config: FeedConfig, order: Order) -> Iterator[str]:
    """Yield what is hardly meant about a configuration that works."""
    per_rank, world_size = order.samples_per_epoch, order.world_size
    if config.batch_size > max(per_rank, 1) and config.last_batch != "drop":
        of_rank = "" if world_size == 1 else f" of one of {world_size} ranks"
        becomes = (
            "a batch holds records several times"
            if config.last_batch == "wrap"
            else "an epoch is one batch, smaller than that"
        )
        yield (
            f"batch_size is {config.batch_size}, more than the {counted(per_rank, 'record')}"
            f"{of_rank}: {becomes}"
        )
