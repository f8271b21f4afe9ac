"""Which of how many processes this one is, as what started it says."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory.wording import printable_value
from prefetch._errors.classes import ConfigError, ConfigFault, PrefetchWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prefetch._config.feed_config import FeedConfig

logger = logging.getLogger("prefetch")

# In the order in which they are asked. SLURM_NTASKS is none of them: a lone process in a batch
# script has it too, while srun gives SLURM_STEP_NUM_TASKS to each process of a step.
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
_MOST_DIGITS: Final = 15  # below 2^53, the most that shard.world_size takes


class Ranks(NamedTuple):
    """One process among several.

    Attributes:
        rank: Its number, from 0.
        world_size: How many there are.
        origin: What says so; empty where nothing does, and the process is alone.
    """

    rank: int
    world_size: int
    origin: str


def resolve_ranks(config: FeedConfig) -> Ranks:
    """Return which of how many processes a feed is for, and log it.

    Warns where a configuration for one process is opened in one of several.

    Raises:
        ConfigError: There are several and no seed, so that each would draw its own.
    """
    rank, world_size = config.shard.rank, config.shard.world_size
    if rank != "auto" and world_size != "auto":
        if world_size == 1:
            _warn_of_others(find_ranks(warn=lambda _: None))
        return Ranks(rank, world_size, "")
    ranks = find_ranks()
    if ranks.origin:
        logger.info("shard: auto resolved to rank %d of %d, by %s", *ranks)
    else:
        logger.info("shard: auto resolved to rank 0 of 1: nothing says that there are others")
    refuse_missing_seed(config, ranks.world_size)
    return ranks


def refuse_missing_seed(config: FeedConfig, world_size: int) -> None:
    """Refuse several ranks without a seed.

    Raises:
        ConfigError: There are.
    """
    if config.seed is None and world_size > 1:
        from prefetch._config.contradictions import explain_missing_seed  # noqa: PLC0415 - see open

        fault = ConfigFault("seed", explain_missing_seed(config.rng, world_size))
        raise ConfigError("shard", (fault,))


def refuse_fixed_ranks(config: FeedConfig, world_size: int) -> None:
    """Refuse to change the ranks of a feed where each has a stream of its own, or may not be.

    Raises:
        ConfigError: It is so.
    """
    for option, value in (("rng", config.rng), ("shard.policy", config.shard.policy)):
        if value == "caffe":
            reason = (
                "with caffe every rank has a stream of its own, which cannot be shared out anew; "
                "take the default, or open another feed"
            )
            raise ConfigError("reshard()", (ConfigFault(option, reason),))
    refuse_missing_seed(config, world_size)


class StartCheck:
    """Compares a feed's ranks with the process group, when its first batch is asked for.

    Programs initialise the group after they have opened a feed, too. It warns once.

    Args:
        config: The feed's configuration.
        ranks: What was found when the feed was opened.
    """

    def __init__(self, config: FeedConfig, ranks: Ranks) -> None:
        self._ranks = ranks
        self._is_auto = config.shard.rank == "auto"
        # For more than one process an explicit shard is right whatever the group says, as for
        # model-parallel ranks.
        self._is_done = not self._is_auto and ranks.world_size > 1

    def __call__(self) -> None:
        """Warn if the group says otherwise."""
        if self._is_done:
            return
        self._is_done = True  # before: the warning may be an error, and next() called again
        group = process_group_ranks()
        if group is None or group[:2] == self._ranks[:2]:
            return
        if self._is_auto:
            _warn(
                f"this is rank {group.rank} of {group.world_size} by {group.origin}, and was rank "
                f"{self._ranks.rank} of {self._ranks.world_size} when the feed was opened, which "
                f"goes by that; open the feed after init_process_group(), or give rank and "
                f"world_size of shard"
            )
        else:
            _warn_of_others(group)


def never_checked() -> None:
    """Check nothing: for ranks that were given after the feed was opened."""


def _warn_of_others(found: Ranks) -> None:
    if found.world_size > 1:
        _warn(
            f"this is rank {found.rank} of {found.world_size} by {found.origin}, and the feed's "
            f"shard is rank 0 of 1, so that every rank is served all records; write shard: auto, "
            f"or give rank and world_size"
        )


def _warn(message: str) -> None:
    warnings.warn(message, PrefetchWarning, stacklevel=2)


def find_ranks(
    *,
    environ: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    warn: Callable[[str], object] = _warn,
) -> Ranks:
    """Return this process's rank: of the first that knows it, or 0 of 1.

    Asked are, in this order: torch.distributed, where it has been imported and initialised; the
    variables of torchrun, of Slurm's srun and of Open MPI; Ray Train. Nothing is imported for it.

    Args:
        environ: Variables; None for those of the process.
        modules: Imported modules by name; None for those of the process.
        warn: Called with what was ignored, and why.
    """
    environ = os.environ if environ is None else environ
    modules = sys.modules if modules is None else modules
    in_group = process_group_ranks(modules)
    if in_group is not None:
        return in_group
    # The first valid pair decides; those behind it are neither asked nor warned of.
    for found in _in_environment(environ, warn):
        return found
    return _in_ray(modules) or Ranks(0, 1, "")


def process_group_ranks(modules: Mapping[str, Any] | None = None) -> Ranks | None:
    """Return what torch.distributed says, None while it is not imported or not initialised.

    Args:
        modules: Imported modules by name; None for those of the process.
    """
    distributed = (sys.modules if modules is None else modules).get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available():
            return None
        if not distributed.is_initialized():
            return None
        return Ranks(
            distributed.get_rank(),
            distributed.get_world_size(),
            "torch.distributed's process group",
        )
    except AttributeError:  # another thread is importing it at this moment
        return None


def _in_environment(environ: Mapping[str, str], warn: Callable[[str], object]) -> Iterator[Ranks]:
    for rank_name, size_name in RANK_VARIABLES:
        rank, size = environ.get(rank_name), environ.get(size_name)
        if rank is None and size is None:
            continue
        if rank is None or size is None:
            # srun sets both; SLURM_PROCID alone is what sbatch gives a script that is one process.
            if size is not None or rank_name != "SLURM_PROCID":
                given, lacking = (size_name, rank_name) if rank is None else (rank_name, size_name)
                warn(
                    f"{given} is set and {lacking} is not, so both are ignored; with shard: auto "
                    f"set both or neither, or give shard.rank and shard.world_size"
                )
            continue
        are_numbers = all(text.isdecimal() and len(text) <= _MOST_DIGITS for text in (rank, size))
        if not are_numbers or not 0 <= int(rank) < int(size):
            warn(
                f"{rank_name} is {printable_value(rank)} and {size_name} is "
                f"{printable_value(size)}, which is no rank of so many processes, so both are "
                f"ignored; give shard.rank and shard.world_size"
            )
            continue
        yield Ranks(int(rank), int(size), f"{rank_name} and {size_name}")


def _in_ray(modules: Mapping[str, Any]) -> Ranks | None:
    train = modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
    except Exception:  # noqa: BLE001 - outside of a training worker it raises, by version another
        return None
    if rank is None or size is None:
        return None
    return Ranks(int(rank), int(size), "Ray Train's context")
