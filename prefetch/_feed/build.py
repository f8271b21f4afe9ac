"""Build what a feed runs on: from each room its part, by the options that are the room's.

This is the one place where options become objects, and where a backend (`build_source`), a record
layout (`build_transform`) and a device (`build_device`) are chosen. To add one, see docs/design.
"""

from __future__ import annotations

import logging
import math
import secrets
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memory import MissingPackageError, bfloat16, open_device
from prefetch._bad_records.policy import BadRecords
from prefetch._bad_records.quarantine import Quarantine
from prefetch._bad_records.quarantine_folder import why_not_a_quarantine
from prefetch._errors.classes import ConfigError, ConfigFault, PrefetchWarning, StateError
from prefetch._errors.context import error_context
from prefetch._errors.os_errors import describe_os_error
from prefetch._feed.open_cache import note_raw_records, open_cache
from prefetch._feed.opening_warnings import explain_classes, find_warnings, note_channel_order
from prefetch._feed.own_functions import load_function
from prefetch._feed.saved_state import Identity
from prefetch._feed.subset_labels import read_labels
from prefetch._kernels import selection
from prefetch._kernels.boxes import both_sides
from prefetch._kernels.contract import (
    UNCHANGED,
    Erasing,
    ErasingMode,
    Jitter,
    ResizeKind,
    Resizing,
)
from prefetch._kernels.erasing import noise_table
from prefetch._pipeline.components import Components
from prefetch._pipeline.prefetcher import Prefetcher
from prefetch._plan.draws import CaffeDraws, CounterDraws, NoDraws
from prefetch._plan.mixing import Mixing
from prefetch._plan.order import Order
from prefetch._plan.position import Position
from prefetch._plan.random_words import Word
from prefetch._plan.subset import draw_subset
from prefetch._process.nested_calls import mark_entry
from prefetch._process.resource_limits import num_cores
from prefetch._record.layouts.datum import DATUM
from prefetch._source.sidecar_files import CHANNELS_FILE, raw_channel_order
from prefetch._source.source import RecordSource
from prefetch._transform.first_record import find_first_record
from prefetch._transform.label_form import LabelForm
from prefetch._transform.mean_file import load_mean
from prefetch._transform.options import Decoding, Transform
from prefetch._transform.placement import choose_placement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from memory import Device
    from prefetch._config.feed_config import FeedConfig
    from prefetch._config.models import TransformConfig
    from prefetch._decoded_cache.cache import DecodedCache
    from prefetch._decoded_cache.memory_cache import MemoryCache
    from prefetch._feed.ranks import Ranks
    from prefetch._plan.draws import DrawSource
    from prefetch._process.resource_limits import MemoryLimit
    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.first_record import FirstRecord

mark_entry(__file__)

logger = logging.getLogger("prefetch")

_RAW_THREADS = 2  # one nearly saturates memory; a second hides its hand-offs
# In smaller batches two readers mostly wait for each other's Python: of 256 times 3x32x32 cropped
# to 28, 2.4 MB, one reads about as many as two. In the smallest one suffices, and works alone.
_LEAST_BYTES_FOR_TWO = 4 << 20


def build_prefetcher(
    config: FeedConfig,
    ranks: Ranks,
    host_limit: MemoryLimit,
    state: Mapping[str, Any] | None,
    *,
    check_start: Callable[[], object],
    memory_cache: MemoryCache | None = None,
) -> Prefetcher:
    """Open what a configuration names, at the start or where a state was saved.

    Args:
        config: The configuration.
        ranks: Which of how many processes the feed is for.
        host_limit: What the process might have of the machine's memory without this feed.
        state: A saved state; None for the start.
        check_start: Called when the first batch is asked for.
        memory_cache: The feed's cache in memory, if it has one, which outlives a prefetcher.
    """
    with error_context(str(config.source[0]), "open"), ExitStack() as undo:
        source = build_source(config, undo)
        cache = open_cache(config, source, memory_cache)
        if cache is not None:
            undo.callback(cache.close)
        transform = build_transform(config, source.paths, cache)
        identity = Identity.of(config, source, transform, world_size=ranks.world_size)
        position = (
            Position(0, 0, _choose_seed(config), None)
            if state is None
            else identity.position(state)
        )
        order = build_order(config, ranks, source, position)
        bad_records = build_bad_records(config, source)
        first = find_first_record(
            source, transform, skip=bad_records.skip, max_bad_records=bad_records.max_bad_records
        )
        device = build_device(config, undo)
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
            augmentation=build_draws(config, transform, position),
            state_of=identity.state,
            transform=transform,
            first=first,
            first_shape=first_shape,
            bad_records=bad_records,
            device=device,
            device_transform=on_device,
            owns_device=_owns_device(config),
            label_dtype=np.dtype(config.label_dtype) if config.labels else None,
            num_threads=_choose_num_threads(config, first, batch_bytes=batch_bytes),
            prefetch=config.prefetch,
            host_limit=host_limit,
            max_batches_held=config.max_batches_held,
            stall_warning_s=config.stall_warning_s,
            check_start=check_start,
            per_batch=load_function("per_batch", config.per_batch),
            label_form=_choose_label_form(config),
        )
        _check_ring_memory(components)
        if state is None:  # what is loaded goes on, and was told before
            note_channel_order(config, source, first.kind)
            note_raw_records(config, first.kind)
            for doubt in find_warnings(config, source, order):
                logger.warning("%s", doubt)
            # It trains on wrong labels: to be seen also where nobody has set up logging.
            different = explain_classes(source)
            if different is not None:
                warnings.warn(different, PrefetchWarning, stacklevel=2)
        prefetcher = Prefetcher(components)
        undo.pop_all()  # last: Ctrl-C before it closes everything, and after it finalizers do
        return prefetcher


def build_source(config: FeedConfig, undo: ExitStack) -> RecordSource:
    """Open the databases; ``undo`` closes them.

    `open_database` takes the backend by what is at the path.
    """
    subset = config.subset
    ends = None if subset is None else (subset.start, subset.stop)
    source = RecordSource.open(config.source, subset=ends, lock=config.lock)
    undo.callback(source.close)
    if subset is not None and subset.fraction is not None:
        drawn = draw_subset(
            source.num_records,
            subset.fraction,
            seed=subset.seed,
            complement=subset.complement,
            labels=read_labels(source) if subset.stratify else None,
        )
        source.choose(drawn)
    return source


def build_transform(
    config: FeedConfig, databases: Sequence[str] = (), cache: DecodedCache | None = None
) -> Transform:
    """Resolve what is done to each record; reads the mean's file, imports ``per_record``.

    Args:
        config: The configuration.
        databases: Paths of the databases, beside which the order of their channels may stand.
        cache: Where decoded images are kept.

    Raises:
        ConfigError: It is not the same for all.
    """
    options = config.transform
    train = config.phase == "train"
    mean_value = options.mean_value
    scale = options.scale if isinstance(options.scale, tuple) else (options.scale,)
    if options.normalize is not None:
        mean_value = options.normalize.mean
        scale = tuple(1 / std for std in options.normalize.std)
    return Transform(
        train=train,
        resizing=_choose_resizing(options),
        pad=options.pad,
        crop_size=options.crop_size,
        mirror=options.mirror is True or (options.mirror == "train" and train),
        jitter=_choose_jitter(options, databases),
        unit_range=options.normalize is not None,
        mean_value=mean_value,
        mean_image=None if options.mean_file is None else load_mean(options.mean_file),
        scale=scale,
        erasing=_choose_erasing(options),
        decoding=Decoding(
            record_layout=DATUM,
            force_color=options.force_color,
            force_gray=options.force_gray,
            max_pixels_per_byte=options.max_pixels_per_byte,
            cache=cache,
            shorter=None if config.cache.decoded is None else config.cache.decoded.shorter,
        ),
        channels=_choose_channels(options.channels, databases),
        layout=options.layout,
        dtype=_find_dtype(options.dtype),
        modulo=config.rng == "caffe",
        per_record=load_function("per_record", config.per_record),
        mixing=_choose_mixing(options),
    )


def _choose_mixing(options: TransformConfig) -> Mixing | None:
    mixup, cutmix = options.mixup, options.cutmix
    if mixup is None and cutmix is None:
        return None
    return Mixing(
        mixup=None if mixup is None else mixup.alpha,
        cutmix=None if cutmix is None else cutmix.alpha,
    )


def _choose_label_form(config: FeedConfig) -> LabelForm | None:
    if isinstance(config.labels, bool):
        return None
    return LabelForm(config.num_classes)  # which only one_hot has


def _choose_resizing(options: TransformConfig) -> Resizing | None:
    """Return how images are resized: both of a square's sides, or those that were given."""
    random_crop, resize = options.random_resized_crop, options.resize
    if random_crop is not None:
        least, most = random_crop.ratio
        return Resizing(
            ResizeKind.RANDOM_CROP,
            *both_sides(random_crop.size),
            random_crop.interpolation == "bicubic",
            *random_crop.scale,
            least,
            most,
            math.log(least),
            math.log(most),
        )
    if resize is None:
        return None
    size = resize.shorter if resize.size is None else resize.size
    assert size is not None
    kind = ResizeKind.SHORTER_SIDE if resize.size is None else ResizeKind.BOTH_SIDES
    return Resizing(kind, *both_sides(size), resize.interpolation == "bicubic")


def _choose_jitter(options: TransformConfig, databases: Sequence[str]) -> Jitter | None:
    """Return how colours are changed; None where no factor would change any.

    Raises:
        ConfigError: One database holds RGB and another BGR.
    """
    given = options.color_jitter
    if given is None:
        return None
    brightness, contrast, saturation = (
        factors if isinstance(factors, tuple) else (max(0.0, 1 - factors), 1 + factors)
        for factors in (given.brightness, given.contrast, given.saturation)
    )
    if brightness == contrast == saturation == UNCHANGED:
        return None
    orders = _channel_orders(databases)
    if len(orders) > 1:
        raise _refusal(
            "transform.color_jitter",
            f"colours are not those of databases of both orders: {orders['rgb']} holds RGB, "
            f"{orders['bgr']} BGR; open them one by one",
        )
    return Jitter(brightness, contrast, saturation, red_first="rgb" in orders)


def _choose_erasing(options: TransformConfig) -> Erasing | None:
    """Return how images are written over."""
    given = options.random_erasing
    if given is None:
        return None
    mode = ErasingMode[given.mode.upper()]
    least, most = given.ratio
    return Erasing(
        given.probability,
        *given.scale,
        math.log(least),
        math.log(most),
        mode,
        None if mode is ErasingMode.CONST else noise_table(),
    )


def _choose_channels(
    wanted: Literal["stored", "rgb", "bgr"], databases: Sequence[str]
) -> Literal["stored", "rgb", "bgr"]:
    """Return what a transform that takes records for BGR has to be asked for.

    Raises:
        ConfigError: One database holds RGB and another BGR.
    """
    orders = _channel_orders(databases)
    if wanted == "stored" or "rgb" not in orders:
        return wanted
    if len(orders) > 1:
        raise _refusal(
            "transform.channels",
            f"{wanted} cannot be made of databases of both orders: {orders['rgb']} holds RGB, "
            f"{orders['bgr']} BGR; write channels: stored, or open them one by one",
        )
    wanted_of_bgr: Literal["stored", "rgb"] = "stored" if wanted == "rgb" else "rgb"
    logger.info("records of %s hold RGB, as %s beside it says", orders["rgb"], CHANNELS_FILE)
    return wanted_of_bgr


def _channel_orders(databases: Sequence[str]) -> dict[str, str]:
    """Return the orders of raw records' channels, rgb and bgr, each with a database that has it."""
    return {raw_channel_order(path) or "bgr": path for path in databases}


def _find_dtype(name: str) -> np.dtype[Any]:
    try:
        return bfloat16() if name == "bfloat16" else np.dtype(name)
    except MissingPackageError as error:
        raise _refusal("transform.dtype", str(error)) from error


def _choose_seed(config: FeedConfig) -> int:
    if config.seed is not None:
        return config.seed
    seed = secrets.randbits(32)
    logger.info("seed is null: drew %d; give it as seed to repeat this run", seed)
    return seed


def build_order(
    config: FeedConfig, ranks: Ranks, source: RecordSource, position: Position
) -> Order:
    """Return which record is in which batch, from a position on.

    Raises:
        ConfigError: This rank gets no record at all.
    """
    order = Order(
        source.num_records,
        config.batch_size,
        shuffle=config.shuffle,
        seed=position.seed,
        last_batch=config.last_batch,
        rank=ranks.rank,
        world_size=ranks.world_size,
        policy=config.shard.policy,
        phase_test=config.phase == "test",
        epochs=config.epochs,
        first_epoch=position.epoch,
        first_served=position.served,
    )
    if order.last_batch == "wrap" and order.samples_per_epoch == 0:
        raise _refusal(
            "shard.policy",
            f"rank {order.rank} of {order.world_size} gets none of the {order.num_records} records "
            f"with policy {order.policy}; use policy pad, or fewer ranks",
        )
    return order


def build_bad_records(config: FeedConfig, source: RecordSource) -> BadRecords:
    """Return what is done about bad records; the quarantine is made with the first of them."""
    return BadRecords(
        skip=config.on_bad_record != "raise",
        max_bad_records=config.max_bad_records,
        quarantine=None if config.quarantine is None else _quarantine(config.quarantine, source),
    )


def _quarantine(path: Path, source: RecordSource) -> Quarantine:
    try:
        is_file = path.is_file()
    except OSError as error:
        reason = f"cannot be looked at: {describe_os_error(error)}"
        raise _refusal("quarantine", reason) from error
    if is_file:
        reason = f"expected a folder for an LMDB of its own, found the file {path}"
    elif source.is_at(path):
        reason = f"{path} is the source itself; name another folder, which will be made"
    else:
        foreign = why_not_a_quarantine(path)
        if foreign is None:
            return Quarantine(path)
        reason = f"{path}: {foreign}; name another folder, which will be made"
    raise _refusal("quarantine", reason)


def _refusal(option: str, reason: str) -> ConfigError:
    return ConfigError(option.partition(".")[0], (ConfigFault(option, reason),))


def build_device(config: FeedConfig, undo: ExitStack) -> Device:
    """Open the device; ``undo`` closes it where it was named, and not given open.

    `memory.open_device` knows the devices by their names.
    """
    device = open_device(config.device)
    if _owns_device(config):
        undo.callback(device.close)
    return device


def _owns_device(config: FeedConfig) -> bool:
    return isinstance(config.device, str)


def build_draws(config: FeedConfig, transform: Transform, position: Position) -> DrawSource:
    """Return the records' random words.

    Raises:
        StateError: The position's generator is damaged.
    """
    if config.rng == "counter":
        if not transform.drawn_words and not transform.drawn_blocks:
            return NoDraws()
        native = selection.native
        return CounterDraws(
            position.seed,
            draw=None if native is None else native.philox_words,
            blocks=np.array(transform.drawn_blocks, np.int64),
        )
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


def _choose_num_threads(config: FeedConfig, first: FirstRecord, *, batch_bytes: int | None) -> int:
    """Resolve ``auto`` by the first record: decoding wants every core, copying few.

    So does a function of the user's, of which nothing is known.

    Args:
        config: The configuration.
        first: The record that the feed is opened by.
        batch_bytes: What readers write for a batch; None where that record is bad.
    """
    if isinstance(config.threads, int):
        return config.threads
    cores = num_cores()
    encoded = first.kind == "encoded"
    is_small = batch_bytes is not None and batch_bytes < _LEAST_BYTES_FOR_TWO
    has_function = config.per_record is not None or config.per_batch is not None
    num = cores if encoded or has_function else min(cores, 1 if is_small else _RAW_THREADS)
    kind = "encoded" if encoded else "raw, small batches of" if is_small else "raw"
    kind = f"own functions, {kind}" if has_function else kind
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


def _check_ring_memory(components: Components) -> None:
    """Log what the ring will take.

    Raises:
        RingTooLargeError: It is more than there is.
    """
    if components.first_shape is None:
        logger.info("what the ring takes shows with the first batch: the first record is bad")
        return
    components.refuse_too_large(components.first_shape)
    logger.info("the ring takes %s", components.expected_memory)
