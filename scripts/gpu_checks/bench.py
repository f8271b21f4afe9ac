"""What the checks of gpu_check.py work with: the device, the data, and how time is taken."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import prefetch
from prefetch._kernels.selection import native

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH: Final = 64
RECORDS: Final = 512


class NotHereError(Exception):
    """The check cannot run on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check has found.

    Attributes:
        check: Its name.
        verdict: ``right``, ``wrong``, ``measured`` or ``not run``; ``rehearsed`` for what measures
            and has run to its end where a figure would mean nothing.
        text: What was found, for people.
        numbers: What was measured; units are in the names.
    """

    check: str
    verdict: str
    text: str
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all checks work with.

    Attributes:
        device: The CUDA device.
        source: A database of RECORDS fingerprinted images.
        side: Of the images, in pixels; they have three channels.
        on_fake: Whether the device is the fake or the simulated one.
        batches: Batches of the hunt for torn ones.
        epochs: Epochs of the check of memory.
        quick: Whether to spend a fraction of the time.
        until: When to have ended, by ``time.monotonic``.
        rehearse: Whether what measures runs on a fake device too, as little of it as there is, only
            to see that it runs.
    """

    device: Any
    source: Path
    side: int
    on_fake: bool
    batches: int
    epochs: int
    quick: bool
    until: float
    rehearse: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an image."""
        return 3, self.side, self.side

    @property
    def batch_bytes(self) -> int:
        """Of a batch of images, as they are stored."""
        return BATCH * int(np.prod(self.shape))

    def open(self, **options: Any) -> prefetch.Feed:
        """Open an endless feed of uint8 batches on the device."""
        chosen = {
            "source": self.source,
            "batch_size": BATCH,
            "prefetch": 4,
            "last_batch": "wrap",
            "transform": {"dtype": "uint8"},
            "device": self.device,
            **options,
        }
        device = chosen.pop("device")
        return prefetch.open(chosen, device=device)

    def on_gpu_only(self) -> None:
        """Raise NotHereError on a fake device, unless this is a rehearsal with CUDA's calls."""
        if self.on_fake and (self.device.name == "simulated" or not self.rehearse):
            raise NotHereError("a fake device has no speed")

    def seconds_each(self, run: Callable[[int], None]) -> float:
        """Return the median time of one repetition, in seconds.

        Args:
            run: Does what is measured a number of times, and returns when all of it is over, on the
                GPU as well.
        """
        rounds, round_s = 3, 0.3 if self.quick else 1.0
        if self.rehearse:
            rounds, round_s = 1, 0.0
        run(5)  # whatever is set up once
        began = time.perf_counter()
        run(10)
        each_s = (time.perf_counter() - began) / 10
        count = max(5, min(2000, int(round_s / each_s)))
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            run(count)
            times.append((time.perf_counter() - began) / count)
        return statistics.median(times)

    def need_cuda(self) -> None:
        """Raise NotHereError on the simulated device, which is none of CUDA's."""
        if self.device.name == "simulated":
            raise NotHereError("the simulated device is none of CUDA's")

    def torch(self) -> Any:
        """Return PyTorch, with this GPU as its current one.

        Raises:
            NotHereError: It is not installed, or sees no GPU.
        """
        try:
            torch: Any = importlib.import_module("torch")
        except ModuleNotFoundError as error:
            raise NotHereError("PyTorch is not installed") from error
        except (ImportError, OSError) as error:  # a library that it needs
            raise NotHereError(f"PyTorch cannot be imported: {error}") from error
        if not torch.cuda.is_available():
            raise NotHereError("this PyTorch sees no GPU")
        torch.cuda.set_device(self.device.ordinal)
        return torch


def this_python() -> list[str]:
    """Return the command that starts another Python on the same device, fake or not."""
    return [sys.executable, *(("-m", "fakecuda") if "fakecuda" in sys.modules else ())]


def is_fake(device: Any) -> bool:
    """Return whether a device is the fake CUDA device or the simulated one."""
    return "fakecuda" in sys.modules or device.name == "simulated"


def describe(device: Any) -> str:
    """Say in words what the checks run on."""
    kernels = "NumPy" if native is None else "C"
    python = f"Python {sys.version.split()[0]}, {kernels} kernels"
    if device.name == "simulated":
        return f"simulated, {python}"
    import cupy  # noqa: PLC0415 - after the device was found

    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(device.ordinal)["name"].decode()
    driver = runtime.driverGetVersion()
    texts = [f"{name}, driver for CUDA {driver}, CuPy {cupy.__version__}"]
    for library in ("torch", "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            texts.append(f"{library} {importlib.metadata.version(library)}")
    return ", ".join([*texts, python])
