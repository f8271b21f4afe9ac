"""Which loaders there are, and which of them can be imported here."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bare_loops import find_compiler
from peers.works import WORKS

if TYPE_CHECKING:
    from peers.works import Settings, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One loader as it takes part.

    Attributes:
        name: What the report calls it.
        module: Its module, imported only in its own process.
        imports: What must be importable for it.
        distributions: The packages whose versions say what was measured.
        settings: How it is set up; None: the fastest of the module's candidates.
        works: Names of the works that it takes part in; empty: all.
        is_loader: Whether it does the whole work, rather than the least that any loader must do.
        is_built: Whether it is built by a C compiler first.
        wants_markers: Whether its database is the one whose JPEG files have restart markers.
    """

    name: str
    module: str
    imports: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    settings: Settings | None = None
    works: frozenset[str] = field(default_factory=frozenset)
    is_loader: bool = True
    is_built: bool = False
    wants_markers: bool = False

    @property
    def loader(self) -> str:
        """Which loader it is, however set up."""
        return self.name.split(",")[0]

    def takes_part(self, work: Work) -> bool:
        """Return whether it does a work."""
        return not self.works or work.name in self.works

    def missing(self) -> str | None:
        """Return the first import that cannot be found, or the compiler, or None."""
        if self.is_built and find_compiler() is None:
            return "a C compiler"
        for name in self.imports:
            try:
                found = importlib.util.find_spec(name)
            except ModuleNotFoundError:
                found = None
            if found is None:
                return name
        return None

    def versions(self) -> dict[str, str]:
        """Return the installed version of each distribution."""
        versions = {}
        for name in self.distributions:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = "not installed as a package"
        return versions


_JPEG = frozenset({"jpeg"})
_RAW = frozenset({"uint8"})
_FLOAT = frozenset({"float"})
_RRC = frozenset({"rrc"})
_NO_RRC = frozenset(work.name for work in WORKS) - _RRC

_OURS = ("ringfeed", "numpy", "lmdb")
_SPDL = ("spdl.pipeline", "spdl.io")
_SPDLS = ("spdl-core", "spdl-io", "numpy")
_THREADS = {1: "1 thread", 2: "2 threads"}

ROSTER = (
    Entry(
        name="ringfeed, 1 thread",
        module="peers.feed",
        distributions=_OURS,
        settings={"threads": 1},
    ),
    Entry(
        name="ringfeed, 2 threads",
        module="peers.feed",
        distributions=_OURS,
        settings={"threads": 2},
    ),
    Entry(
        name="PyTorch",
        module="peers.pytorch",
        imports=("torch",),
        distributions=("torch", "numpy"),
        works=_NO_RRC,
    ),
    Entry(
        name="SPDL",
        module="peers.spdl_pipeline",
        imports=_SPDL,
        distributions=_SPDLS,
        works=_NO_RRC,
    ),
    Entry(
        name="Grain",
        module="peers.grain_threads",
        imports=("grain",),
        distributions=("grain",),
        works=_NO_RRC,
    ),
    Entry(
        name="DALI",
        module="peers.dali_pipeline",
        imports=("nvidia.dali",),
        distributions=("nvidia-dali-cuda130",),
        works=_NO_RRC,
    ),
    # With one thread, as the feed that goals are set for; above each with what is its fastest here.
    Entry(
        name="SPDL, 1 thread",
        module="peers.spdl_pipeline",
        imports=_SPDL,
        distributions=_SPDLS,
        settings={"concurrency": 1},
        works=_FLOAT,
    ),
    Entry(
        name="DALI, 1 thread",
        module="peers.dali_pipeline",
        imports=("nvidia.dali",),
        distributions=("nvidia-dali-cuda130",),
        settings={"num_threads": 1, "exec_dynamic": False},
        works=_FLOAT,
    ),
    Entry(
        name="memcpy alone",
        module="peers.bare",
        settings={"threads": 1},
        works=_RAW,
        is_loader=False,
    ),
    Entry(
        name="crop and normalise alone",
        module="peers.bare",
        settings={"threads": 1},
        works=_FLOAT,
        is_loader=False,
        is_built=True,
    ),
    Entry(
        name="decode alone, 1 thread",
        module="peers.bare",
        distributions=("simplejpeg",),
        settings={"threads": 1},
        works=_JPEG,
        is_loader=False,
    ),
    Entry(
        name="decode alone, 2 threads",
        module="peers.bare",
        distributions=("simplejpeg",),
        settings={"threads": 2},
        works=_JPEG,
        is_loader=False,
    ),
    # Crops that are resized: each with one and two threads or workers.
    *(
        Entry(
            name=f"ringfeed, restart markers, {threads}",
            module="peers.feed",
            distributions=_OURS,
            settings={"threads": number},
            works=_RRC,
            wants_markers=True,
        )
        for number, threads in _THREADS.items()
    ),
    Entry(
        name="decode and resize of the crop alone",
        module="peers.resizing.kernel_loop",
        distributions=_OURS,
        settings={"threads": 1},
        works=_RRC,
        wants_markers=True,
    ),
    # What every epoch behind the first is like; starting and a first epoch do not count.
    Entry(
        name="ringfeed, decoded cache, 1 thread",
        module="peers.feed",
        distributions=_OURS,
        settings={"threads": 1, "decoded_cache": True},
        works=_JPEG | _RRC,
    ),
    *(
        Entry(
            name=f"DALI, {decodes}, {threads}",
            module="peers.dali_pipeline",
            imports=("nvidia.dali",),
            distributions=("nvidia-dali-cuda130",),
            settings={"num_threads": number, "exec_dynamic": False, "decoder": decoder},
            works=_RRC,
        )
        for decodes, decoder in (("the crop", "image_random_crop"), ("the whole", "image"))
        for number, threads in _THREADS.items()
    ),
    *(
        Entry(
            name=f"torchvision, {number} worker{'s' if number > 1 else ''}",
            module="peers.resizing.torchvision_loader",
            imports=("torch", "torchvision", "PIL"),
            distributions=("torch", "torchvision", "pillow"),
            settings={"num_workers": number},
            works=_RRC,
        )
        for number in _THREADS
    ),
    *(
        Entry(
            name=f"SPDL, FFmpeg's filters, {threads}",
            module="peers.resizing.spdl_images",
            imports=_SPDL,
            distributions=_SPDLS,
            settings={"concurrency": number},
            works=_RRC,
        )
        for number, threads in _THREADS.items()
    ),
    Entry(
        name="FFCV's method",
        module="peers.resizing.loops",
        distributions=("simplejpeg", "opencv-python-headless"),
        settings={"method": "FFCV's"},
        works=_RRC,
    ),
    Entry(
        name="Pillow",
        module="peers.resizing.loops",
        imports=("PIL",),
        distributions=("pillow", "numpy"),
        settings={"method": "Pillow"},
        works=_RRC,
    ),
)
