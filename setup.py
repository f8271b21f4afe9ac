"""Build the C kernels; all else about the distribution is in pyproject.toml.

Where there is no compiler the install succeeds without them, and their NumPy twin takes over.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_HERE = Path(__file__).parent
_NATIVE = "prefetch/_kernels/native"


def _files(pattern: str) -> list[str]:
    """Return files of the kernels; setuptools wants paths relative to this file."""
    return sorted(path.relative_to(_HERE).as_posix() for path in (_HERE / _NATIVE).glob(pattern))


# One rounding an operation: results are Caffe's to the bit. The last flag of a kind wins, so these
# also win over the flags that the interpreter was built with.
_FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-g0"]
_MSVC_FLAGS = ["/std:c11", "/O2", "/fp:precise"]


class BuildKernels(build_ext):
    """Give the compiler the flags in its own language."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension."""
        is_msvc = self.compiler.compiler_type == "msvc"
        ext.extra_compile_args = _MSVC_FLAGS if is_msvc else _FLAGS
        ext.libraries = [] if is_msvc else ["m"]
        super().build_extension(ext)


setup(
    ext_modules=[
        Extension(
            "prefetch._kernels._c",
            _files("*.c"),
            depends=_files("*.h"),
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
