"""Where a feed is: what its consumer has taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Position:
    """Where a feed continues.

    Attributes:
        epoch: The epoch.
        served: Samples of it that all ranks together have been served.
        seed: The seed in use; where the configuration says null, the one that was drawn.
        rng: State of Caffe's generator before the next sample; None under ``rng: counter``.
    """

    epoch: int
    served: int
    seed: int
    rng: Mapping[str, Any] | None
