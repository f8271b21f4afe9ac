"""The project's own kernels, for the fake device to run: built from their sources for the host.

NVRTC compiles the same sources when the project asks CuPy for the kernels, so both are tried.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fakecuda_build import OUTPUT, fingerprint, locked

if TYPE_CHECKING:
    from hostcuda import HostKernel

_HOSTCUDA = Path(__file__).resolve().parents[3] / "hostcuda"


def build() -> list[HostKernel]:
    """Build them, unless that has been done, and load them."""
    if str(_HOSTCUDA) not in sys.path:
        sys.path.append(str(_HOSTCUDA))
    import hostcuda  # noqa: PLC0415 - found only now

    kernels: list[HostKernel] = []
    # Another process may be at it.
    with locked(OUTPUT / "lock"):
        for source, names in _sources():
            mark = fingerprint(*_HOSTCUDA.glob("hostcuda.*"), text=source)
            folder = OUTPUT / f"kernels-{mark}"
            folder.mkdir(exist_ok=True)
            kernels += hostcuda.build(source, *names, folder=folder).values()
    return kernels


def _sources() -> list[tuple[str, tuple[str, ...]]]:
    """Return each source with the names of its kernels."""
    # The project is imported only when its kernels are asked for, and CuPy with it.
    from memory._cuda import maths  # noqa: PLC0415
    from prefetch._kernels import device_boxes, device_kernel, device_mixing  # noqa: PLC0415

    modules = (device_kernel, device_boxes, device_mixing, maths)
    return [(module.SOURCE, module.kernel_names()) for module in modules]
