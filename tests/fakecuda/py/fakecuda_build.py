"""Builds the fake device: a libcuda.so.1 from the C sources, and CuPy's runtime module against it.

``python tests/fakecuda/py/fakecuda_build.py`` does that, or says why it is not possible. Importing
``fakecuda`` does it too, so a step of its own is only needed where its failure is to be plain.

Needs gcc, g++ and Cython, and CuPy's wheel installed. What else it takes comes from PyPI, once:

* CUDA's headers, where ``CUDA_INC`` names no folder with them;
* the source distribution of exactly the installed CuPy, for the source of that one module.

Everything lies below ``build/fakecuda`` of the checkout, which git ignores: the downloads by their
versions, and each build in a folder named for all that went into it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.metadata
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("fakecuda")

SOURCES: Final = Path(__file__).resolve().parents[1] / "src"
OUTPUT: Final = Path(__file__).resolve().parents[3] / "build" / "fakecuda"
MODULE: Final = "cupy_backends.cuda.api.runtime"

_HEADERS: Final = (
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-cuda-profiler-api==13.5.25",
)
_C_FLAGS: Final = (
    *("-O2", "-g", "-std=gnu11", "-fPIC", "-pthread"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-enum-conversion", "-fvisibility=hidden"),
)


class BuildError(RuntimeError):
    """Raised when the fake device cannot be built; says what is missing."""


@dataclass(frozen=True)
class Built:
    """A fake device that is ready to be loaded.

    Attributes:
        library: The fake driver and runtime, libcuda.so.1.
        module: CuPy's runtime module, linked to the library.
    """

    library: Path
    module: Path


def build() -> Built:
    """Build the fake device, unless that has been done.

    Raises:
        BuildError: If it cannot be built.
    """
    cupy = _cupy_version()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    built = Built(
        library=OUTPUT / f"library-{fingerprint(*SOURCES.iterdir())}" / "libcuda.so.1",
        module=OUTPUT / f"cupy-{cupy}-{fingerprint()}" / f"runtime{suffix}",
    )
    OUTPUT.mkdir(parents=True, exist_ok=True)
    # Test processes may start at the same time.
    with locked(OUTPUT / "lock"):
        if not built.library.exists():
            logger.warning("building the fake CUDA device: %s", built.library)
            _compile_library(built.library, _headers())
        if not built.module.exists():
            logger.warning("building CuPy's runtime module for it: %s", built.module)
            _compile_module(built, _headers(), _cupy_source(cupy))
    return built


def _cupy_version() -> str:
    for name in ("cupy-cuda13x", "cupy-cuda12x"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise BuildError("neither cupy-cuda13x nor cupy-cuda12x is installed: install one of them")


def fingerprint(*sources: Path, text: str = "") -> str:
    """Name a folder for all that goes into what is in it: files, and a text."""
    digest = hashlib.sha256()
    for path in sorted([*sources, Path(__file__)]):
        digest.update(path.read_bytes())
    digest.update(os.environ.get("CUDA_INC", "").encode())
    digest.update(text.encode())
    return digest.hexdigest()[:12]


def _headers() -> Path:
    """Return a folder with cuda.h, cuda_runtime_api.h and cuda_profiler_api.h."""
    named = os.environ.get("CUDA_INC")
    if named:
        return Path(named)
    folder = OUTPUT / "headers" / "-".join(package.partition("==")[2] for package in _HEADERS)
    include = folder / "nvidia" / "cu13" / "include"
    if not (folder / "complete").exists():
        wheels = folder / "wheels"
        _download(wheels, *_HEADERS)
        for wheel in wheels.iterdir():
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if "/include/" in name:
                        archive.extract(name, folder)
        shutil.rmtree(wheels)
        (folder / "complete").touch()
    return include


def _cupy_source(version: str) -> Path:
    """Return the unpacked source distribution of CuPy."""
    folder = OUTPUT / "sources"
    tree = folder / f"cupy-{version}"
    if not (tree / "complete").exists():
        # The variable keeps CuPy's setup from looking for a CUDA installation.
        _download(folder, "--no-binary=cupy", f"cupy=={version}", READTHEDOCS="True")
        with tarfile.open(folder / f"cupy-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        (tree / "complete").touch()
    return tree


def _compile_library(library: Path, include: Path) -> None:
    library.parent.mkdir(exist_ok=True)
    objects = []
    for source in sorted(SOURCES.glob("*.c")):
        objects.append(library.with_name(source.stem + ".o"))
        _run("gcc", *_C_FLAGS, f"-I{include}", "-c", source, "-o", objects[-1])
    partial = library.with_suffix(".partial")
    _run(
        *("gcc", "-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-Wl,-z,defs"),
        *("-o", partial, *objects, "-ldl"),
    )
    partial.rename(library)


def _compile_module(built: Built, include: Path, source: Path) -> None:
    built.module.parent.mkdir(exist_ok=True)
    generated = built.module.with_name("runtime.cpp")
    _cythonize(source, include, generated)
    partial = built.module.with_suffix(".partial")
    # No path to the library goes in: whoever loads this has loaded a libcuda.so.1 before.
    _run(
        *("g++", "-O1", "-fPIC", "-shared", "-w", "-D_FORCE_INLINES=1"),
        *(f"-I{sysconfig.get_paths()['include']}", f"-I{include}"),
        *(f"-I{source / 'cupy_backends/cuda/api'}", generated, "-o", partial, built.library),
    )
    partial.rename(built.module)


def _cythonize(source: Path, include: Path, generated: Path) -> None:
    """Translate the module as CuPy's own build does (install/cupy_builder/_command.py)."""
    try:
        cython: Any = importlib.import_module("Cython")
        compiler: Any = importlib.import_module("Cython.Compiler.Main")
        defaults: Any = importlib.import_module("Cython.Compiler.Options").default_options
    except ImportError as error:
        raise BuildError("Cython is not installed: install Cython==3.2.4") from error
    found = re.search(r"#define CUDA_VERSION (\d+)", (include / "cuda.h").read_text())
    if found is None:
        raise BuildError(f"{include / 'cuda.h'} names no CUDA_VERSION")
    options = compiler.CompilationOptions(
        defaults,
        language_level=3,
        cplus=True,
        output_file=str(generated),
        include_path=[str(source)],
        compiler_directives={
            "embedsignature": True,
            "c_api_binop_methods": True,
            "binding": False,
            "warn.deprecated.IF": False,
            "freethreading_compatible": True,
        },
        compile_time_env={
            "CUPY_USE_CUDA_PYTHON": False,
            "CUPY_CUFFT_STATIC": False,
            "CUPY_HIP_VERSION": 0,
            "CUPY_CUDA_VERSION": int(found[1]),
            "CUPY_CYTHON_VERSION": cython.__version__,
        },
    )
    before = Path.cwd()
    os.chdir(source)  # Cython takes a module's name from its path below the current folder
    try:
        result = compiler.compile("cupy_backends/cuda/api/runtime.pyx", options)
    finally:
        os.chdir(before)
    if result.num_errors:
        raise BuildError("Cython refused CuPy's runtime.pyx; its errors are above")


def _download(folder: Path, *what: str, **environment: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--disable-pip-version-check", "--dest", folder, *what),
        **environment,
    )


def _run(*command: object, **environment: str) -> None:
    words = [str(part) for part in command]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{words[0]} is not installed") from error
    if done.returncode:
        raise BuildError(f"{' '.join(words)}\n{done.stdout}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build().library.parent}\n")
    except BuildError as error:
        sys.exit(f"the fake CUDA device cannot be built: {error}")
