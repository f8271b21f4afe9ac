"""NVIDIA's compilers from their wheels: NVRTC of CUDA 12 and 13, and nvdisasm. None needs a GPU."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NVIDIA: Final = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
_LIBRARIES: Final = {
    12: _NVIDIA / "cuda_nvrtc" / "lib" / "libnvrtc.so.12",
    13: _NVIDIA / "cu13" / "lib" / "libnvrtc.so.13",
}
_TOOLS: Final = _NVIDIA / "cu13" / "bin"


@dataclass(frozen=True)
class Compiled:
    """What NVRTC makes of a source.

    Attributes:
        ptx: The text.
        cubin: The machine code, an ELF file.
    """

    ptx: str
    cubin: bytes

    def run_tool(self, folder: Path, *command: str) -> str:
        """Run one of CUDA's tools on the machine code; return what it prints."""
        file = folder / "kernels.cubin"
        file.write_bytes(self.cubin)
        tool, *options = command
        done = subprocess.run(
            [str(_TOOLS / tool), *options, str(file)], capture_output=True, text=True, check=True
        )
        return done.stdout


@functools.cache
def compile_source(version: int, arch: str, source: str, options: tuple[str, ...]) -> Compiled:
    """Compile CUDA C++.

    Args:
        version: Of CUDA: 12 or 13.
        arch: As ``sm_90``.
        source: The source.
        options: More of NVRTC's options.

    Raises:
        RuntimeError: It does not compile; with the compiler's words.
    """
    library = ctypes.CDLL(str(_LIBRARIES[version]))
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
        )
    )
    given = [f"--gpu-architecture={arch}".encode(), *(option.encode() for option in options)]
    status = library.nvrtcCompileProgram(
        program, len(given), (ctypes.c_char_p * len(given))(*given)
    )
    if status:
        raise RuntimeError(_output(library, program, "ProgramLog").decode())
    compiled = Compiled(
        _output(library, program, "PTX").rstrip(b"\0").decode(),
        _output(library, program, "CUBIN"),
    )
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return compiled


def _output(library: Any, program: Any, name: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{name}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{name}")(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC failed with status {status}")
