"""JAX as a consumer: it computes on a stream of its own that it does not name."""

from __future__ import annotations

import importlib
import os
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpu_checks.bench import BATCH, RECORDS, NotHereError, Outcome, is_fake

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_checks.bench import Bench


def check_jax(bench: Bench) -> Outcome:
    """Run the guide's loop, slowed down by work on every batch, and look at what it has read."""
    bench.on_gpu_only()
    # Otherwise JAX takes three quarters of the GPU's memory, and the ring has to do without.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        jax: Any = importlib.import_module("jax")
    except ImportError as error:
        raise NotHereError("JAX is not installed") from error
    try:
        backend = jax.default_backend()
    except RuntimeError as error:
        raise NotHereError(f"this JAX does not start: {error}") from error
    if backend != "gpu":
        raise NotHereError("this JAX sees no GPU")
    numpy = jax.numpy

    def look(images: Any, weights: Any) -> tuple[Any, Any, Any]:
        for _ in range(16):
            weights = numpy.tanh(weights @ weights)
        # Read after the products, so that the batch is still in use while the feed goes on.
        rows = images.reshape(BATCH, -1) + (weights[0, 0] > 2).astype(numpy.uint8)
        return rows.min(axis=1), rows.max(axis=1), weights

    step = jax.jit(look)
    size = 8 if is_fake(bench.device) else 2048
    weights = numpy.full((size, size), 1e-3, numpy.float32)
    seen: list[tuple[int, Any, Any]] = []
    with bench.open(prefetch=2, threads=4) as feed:
        batches = iter(feed)
        while len(seen) < min(bench.batches, 2000) and time.monotonic() < bench.until:
            batch = next(batches)
            least, most, weights = step(jax.dlpack.from_dlpack(batch.data), weights)
            batch.keep_until((least, most))
            seen.append((batch.number, least, most))
            del batch
        found = [(number, np.asarray(least), np.asarray(most)) for number, least, most in seen]
    torn = sum(not _is_whole(*batch) for batch in found)
    return Outcome(
        "JAX",
        "wrong" if torn else "right",
        f"{torn} of {len(found)} batches were torn",
        {"batches": len(found), "torn": torn},
    )


def _is_whole(number: int, least: Any, most: Any) -> bool:
    pixels = (number * BATCH + np.arange(BATCH)) % RECORDS % 251
    return bool((least == pixels).all() and (most == pixels).all())


JAX: Final[dict[str, Callable[[Bench], Outcome]]] = {"JAX": check_jax}
