"""The options of what is kept for the epochs to come.

As for `prefetch._config.models`: the texts of the fields are the documentation.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from prefetch._config.option_types import MOST, MOST_SIDE, OptionalPath, Options


class DecodedCacheConfig(Options):
    """Where decoded images are kept for the epochs to come, and how many."""

    path: OptionalPath = Field(
        default=None,
        description=(
            "File that they are kept in, made if need be, which other processes on this machine "
            "may share; its disk should be a local one."
        ),
    )
    memory: bool = Field(
        default=False, description="In place of path: keep them in this process's memory."
    )
    bytes: int = Field(
        ge=1,
        le=MOST,
        description=(
            "What they may take in all, in bytes; when it is full, the rest is decoded each time."
        ),
    )
    shorter: Annotated[int, Field(ge=1, le=MOST_SIDE)] | None = Field(
        default=None,
        description=(
            "Keep them smaller: the shorter side so many pixels long, as transform.resize would "
            "make it. All that follows gets these in place of the originals, in the first epoch "
            "too, so results differ; null: as they are decoded."
        ),
    )


class CacheConfig(Options):
    """What is kept of the work on records for the epochs to come."""

    decoded: DecodedCacheConfig | None = Field(
        default=None,
        description=(
            "Pixels of encoded images, so that each is decoded once: {path: P, bytes: N}, or "
            "{memory: true, bytes: N}; null: each is decoded every time."
        ),
    )
