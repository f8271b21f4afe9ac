"""Build the C kernels; all else about the distribution is in pyproject.toml.

Where there is no compiler the install succeeds without them, and their NumPy twin takes over.
"""

from __future__ import annotations

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_NATIVE = "prefetch/_kernels/native"
_SOURCES = (
    "py_module.c",
    "py_arguments.c",
    "py_fill.c",
    "py_spans.c",
    "spans.c",
    "py_sums.c",
    "sums.c",
    "part.c",
    "philox.c",
    "datum.c",
    "check.c",
    "transform.c",
    "lines.c",
    "loops_baseline.c",
    "loops_avx2.c",
)
_HEADERS = (
    "py_arguments.h",
    "py_fill.h",
    "kernels.h",
    "loops.h",
    "philox.h",
    "py_spans.h",
    "spans.h",
    "py_sums.h",
    "sums.h",
    "vectors.h",
    "window.h",
)

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
        super().build_extension(ext)


setup(
    ext_modules=[
        Extension(
            "prefetch._kernels._c",
            [f"{_NATIVE}/{name}" for name in _SOURCES],
            depends=[f"{_NATIVE}/{name}" for name in _HEADERS],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
