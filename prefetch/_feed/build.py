"""Opening a feed: from a configuration to the parts that do the work."""

from __future__ import annotations

import logging
import math
import os
import secrets
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from memory import MissingPackageError, bfloat16, open_device
from prefetch._bad_records.policy import BadRecords
from prefetch._bad_records.quarantine import Quarantine
from prefetch._bad_records.quarantine_folder import why_not_a_quarantine
from prefetch._errors.classes import ConfigError, ConfigFault, SourceError, StateError
from prefetch._errors.context import error_context
from prefetch._errors.os_limits import describe_limit, describe_os_error
from prefetch._feed.feed import Feed
from prefetch._feed.state import Identity
from prefetch._kernels import selection
from prefetch._pipeline.components import Components
from prefetch._pipeline.prefetcher import Prefetcher
from prefetch._plan.draws import CaffeDraws, CounterDraws, NoDraws
from prefetch._plan.order import Order
from prefetch._plan.position import Position
from prefetch._plan.words import Word
from prefetch._process.limits import MemoryLimit, memory_limit, num_cores
from prefetch._process.nested import mark_entry
from prefetch._source.source import RecordSource
from prefetch._transform.first_record import find_first_record
from prefetch._transform.mean_file import load_mean
from prefetch._transform.options import Decoding, Transform
from prefetch._transform.placement import choose_placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from prefetch._config.load import FeedConfig, TransformConfig
    from prefetch._plan.draws import DrawSource
    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.first_record import FirstRecord, RecordKind

mark_entry(__file__)

logger = logging.getLogger("prefetch")

# Options that are compared with the records and the device, after the rest of the configuration.
_FOUND_AT_OPENING = ("source", "shard", "quarantine", "transform")
_RAW_THREADS = 2  # one nearly saturates memory; a second hides its hand-offs
# In smaller batches two readers mostly wait for each other's Python: of 256 times 1x28x28, 0.8 MB,
# one reads 1.5 times as many as two; of 3x32x32 cropped to 28, 2.4 MB, about as many.
_LEAST_BYTES_FOR_TWO = 4 << 20


def _assemble(config: FeedConfig, origin: str) -> Feed:
    # Asked once: after load_state_dict the ring that goes would count as memory that is taken.
    host_limit = memory_limit()
    return Feed(config, lambda state: _prefetcher(config, origin, host_limit, state))


@contextmanager
def _naming_limits(config: object) -> Iterator[None]:
    """Have a block that reads a configuration say so where the process may open no more files."""
    try:
        yield
    except (OSError, ImportError) as error:
        limit = describe_limit(error)
        if limit is None:
            raise
        name = os.fsdecode(config) if isinstance(config, str | os.PathLike) else "configuration"
        raise SourceError(name, f"cannot be read: {limit}") from error


@contextmanager
def _naming_origin(config: FeedConfig, origin: str) -> Iterator[None]:
    """Have the faults that show at opening name the configuration, as those before do.

    Raises:
        ConfigError: There are some.
    """
    try:
        yield
    except ConfigError as error:
        from prefetch._config.origin import placed  # noqa: PLC0415 - pydantic is slow to import

        better = placed(error, config)
        if better is error and error.origin not in _FOUND_AT_OPENING:
            raise
        if better is error:
            better = ConfigError(origin, error.faults)
        raise better from error.__cause__


def _prefetcher(
    config: FeedConfig, origin: str, host_limit: MemoryLimit, state: Mapping[str, Any] | None
) -> Prefetcher:
    """Open what a configuration names, at the start or where a saved state goes on."""
    with _naming_origin(config, origin):
        return _opened(config, host_limit, state)


def _opened(
    config: FeedConfig, host_limit: MemoryLimit, state: Mapping[str, Any] | None
) -> Prefetcher:
    with error_context(str(config.source[0]), "open"), ExitStack() as undo:
        subset = None if config.subset is None else (config.subset.start, config.subset.stop)
        source = RecordSource.open(config.source, subset=subset, lock=config.lock)
        undo.callback(source.close)
        transform = _transform(config.transform, phase=config.phase, rng=config.rng)
        identity = Identity.of(config, source, transform)
        position = (
            Position(0, 0, _seed(config), None) if state is None else identity.position(state)
        )
        order = Order(
            source.num_records,
            config.batch_size,
            shuffle=config.shuffle,
            seed=position.seed,
            last_batch=config.last_batch,
            rank=config.shard.rank,
            world_size=config.shard.world_size,
            policy=config.shard.policy,
            phase_test=config.phase == "test",
            epochs=config.epochs,
            first_epoch=position.epoch,
            first_served=position.served,
        )
        if order.last_batch == "wrap" and order.samples_per_epoch == 0:
            raise ConfigError("shard", (_no_share(order),))
        bad_records = BadRecords(
            skip=config.on_bad_record != "raise",
            max_bad_records=config.max_bad_records,
            quarantine=_quarantine(config.quarantine, source),
        )
        first = find_first_record(
            source,
            transform,
            skip=bad_records.skip,
            max_bad_records=bad_records.max_bad_records,
        )
        owns_device = isinstance(config.device, str)
        device = open_device(config.device)
        if owns_device:
            undo.callback(device.close)
        on_device = choose_placement(
            config.transform.where, transform=transform, device=device, kind=first.kind
        )
        first_shape = _first_shape(first, transform, on_device)
        itemsize = transform.dtype.itemsize if on_device is None else 1
        batch_bytes = (
            None if first_shape is None else math.prod(first_shape) * itemsize * config.batch_size
        )
        components = Components(
            source=source,
            order=order,
            augmentation=_augmentation(config, position, transform),
            state_of=identity.state,
            transform=transform,
            first=first,
            first_shape=first_shape,
            bad_records=bad_records,
            device=device,
            device_transform=on_device,
            owns_device=owns_device,
            label_dtype=np.dtype(config.label_dtype) if config.labels else None,
            num_threads=_num_threads(config.threads, first.kind, batch_bytes=batch_bytes),
            prefetch=config.prefetch,
            host_limit=host_limit,
            max_batches_held=config.max_batches_held,
            stall_warning_s=config.stall_warning_s,
        )
        _report_memory(components)
        prefetcher = Prefetcher(components)
        undo.pop_all()  # last: Ctrl-C before it closes everything, and after it finalizers do
        return prefetcher


def _no_share(order: Order) -> ConfigFault:
    return ConfigFault(
        "shard.policy",
        f"rank {order.rank} of {order.world_size} gets none of the {order.num_records} records "
        f"with policy {order.policy}; use policy pad, or fewer ranks",
    )


def _quarantine(path: Path | None, source: RecordSource) -> Quarantine | None:
    if path is None:
        return None
    try:
        is_file = path.is_file()
    except OSError as error:
        reason = f"cannot be looked at: {describe_os_error(error)}"
        raise ConfigError("quarantine", (ConfigFault("quarantine", reason),)) from error
    if is_file:
        reason = f"expected a folder for an LMDB of its own, found the file {path}"
    elif source.is_at(path):
        reason = f"{path} is the source itself; name another folder, which will be made"
    else:
        foreign = why_not_a_quarantine(path)
        if foreign is None:
            return Quarantine(path)
        reason = f"{path}: {foreign}; name another folder, which will be made"
    raise ConfigError("quarantine", (ConfigFault("quarantine", reason),))


def _seed(config: FeedConfig) -> int:
    if config.seed is not None:
        return config.seed
    seed = secrets.randbits(32)
    logger.info("seed is null: drew %d; give it as seed to repeat this run", seed)
    return seed


def _transform(options: TransformConfig, *, phase: str, rng: str) -> Transform:
    scale = options.scale if isinstance(options.scale, tuple) else (options.scale,)
    return Transform(
        train=phase == "train",
        crop_size=options.crop_size,
        mirror=options.mirror,
        mean_value=options.mean_value,
        mean_image=None if options.mean_file is None else load_mean(options.mean_file),
        scale=scale,
        decoding=Decoding(
            force_color=options.force_color,
            force_gray=options.force_gray,
            max_pixels_per_byte=options.max_pixels_per_byte,
        ),
        channels=options.channels,
        layout=options.layout,
        dtype=_dtype(options.dtype),
        modulo=rng == "caffe",
    )


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return bfloat16() if name == "bfloat16" else np.dtype(name)
    except MissingPackageError as error:
        raise ConfigError("transform", (ConfigFault("transform.dtype", str(error)),)) from error


def _augmentation(config: FeedConfig, position: Position, transform: Transform) -> DrawSource:
    if config.rng == "counter":
        if not transform.drawn_words:
            return NoDraws()
        native = selection.native
        return CounterDraws(position.seed, draw=None if native is None else native.philox_words)
    try:
        return CaffeDraws(
            position.seed,
            mirror=Word.MIRROR in transform.drawn_words,
            crop=Word.ROW in transform.drawn_words,
            draws_before=config.draws_before,
            state=position.rng,
        )
    except ValueError as error:
        if position.rng is None:
            raise
        raise StateError((f"rng: {error}",)) from error


def _num_threads(threads: int | str, first: RecordKind, *, batch_bytes: int | None) -> int:
    """Resolve ``auto`` by the first record: decoding wants every core, copying few.

    Args:
        threads: A number, or ``auto``.
        first: Kind of the record that the feed is opened by.
        batch_bytes: What readers write for a batch; None where that one is bad.
    """
    if isinstance(threads, int):
        return threads
    cores = num_cores()
    encoded = first == "encoded"
    is_small = batch_bytes is not None and batch_bytes < _LEAST_BYTES_FOR_TWO
    num = cores if encoded else min(cores, 1 if is_small else _RAW_THREADS)
    kind = "encoded" if encoded else "raw, small batches of" if is_small else "raw"
    logger.info("threads: auto resolved to %d (%s records, %d cores)", num, kind, cores)
    return num


def _first_shape(
    first: FirstRecord, transform: Transform, on_device: DeviceTransform | None
) -> tuple[int, ...] | None:
    """Return what a slot has for the first record; None for a bad one, which its batch reports."""
    if first.image is None:
        return None
    if on_device is not None:
        return on_device.choose_place(first.image)
    return transform.recipe.sample_shape(*first.image[:3])


def _report_memory(components: Components) -> None:
    """Log what the ring will take.

    Raises:
        RingTooLargeError: It is more than there is.
    """
    if components.first_shape is None:
        logger.info("what the ring takes shows with the first batch: the first record is bad")
        return
    components.refuse_too_large(components.first_shape)
    logger.info("the ring takes %s", components.expected_memory)
