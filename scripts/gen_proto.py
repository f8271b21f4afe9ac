"""Generate prefetch/_proto from proto/caffe_data.proto.

The generator is the oldest that the project claims (see proto/README.md). It is installed into a
temporary virtual environment, so that neither the checkout nor the caller's environment changes.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

GENERATOR = "grpcio-tools==1.71.0"
ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "proto/caffe_data.proto"
GENERATED = ("prefetch/_proto/caffe_data_pb2.py", "prefetch/_proto/caffe_data_pb2.pyi")
DIGESTS = "prefetch/_proto/SOURCE.sha256"
# The generated code's own check warns from one major version of protobuf to the next, and on older
# ones it fails without a word of which is needed; prefetch.caffe checks before it is imported.
VERSION_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version as _runtime_version\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\(\n(?:    .*\n)*\)\n",
    re.MULTILINE,
)


def generate(destination: Path) -> None:
    """Generate the modules of the schema.

    Args:
        destination: Folder to write ``prefetch/_proto/...`` under; must exist.

    Raises:
        subprocess.CalledProcessError: The generator could not be installed, or refused the schema.
        ValueError: The generated code has no check of protobuf's version, or another.
    """
    with tempfile.TemporaryDirectory(prefix="gen_proto-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GENERATOR)
        # The virtual path makes the module's import path and the file's name in the pool.
        _run(
            python,
            *("-m", "grpc_tools.protoc", "-I", "prefetch/_proto=proto"),
            *(f"--python_out={destination}", f"--pyi_out={destination}"),
            "prefetch/_proto/caffe_data.proto",
        )
    module = destination / GENERATED[0]
    text, num_parts = VERSION_CHECK.subn("", module.read_text(encoding="utf-8"))
    if num_parts != 2:
        raise ValueError(
            f"expected the check of protobuf's version in two parts, found {num_parts}"
        )
    module.write_text(text, encoding="utf-8")


def digests(generated_under: Path) -> str:
    """Return the SHA-256 of the schema and of what was generated, in the form of sha256sum."""
    files = [(SCHEMA, ROOT / SCHEMA)]
    files += [(name, generated_under / name) for name in GENERATED]
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where the generated files differ"
    )
    check: bool = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory(prefix="gen_proto-out-") as folder:
        fresh = Path(folder)
        generate(fresh)
        contents = {name: (fresh / name).read_bytes() for name in GENERATED}
        contents[DIGESTS] = digests(fresh).encode()
    stale = [
        name
        for name, content in contents.items()
        if not (ROOT / name).is_file() or (ROOT / name).read_bytes() != content
    ]
    if check:
        for name in stale:
            print(f"{name} is stale: run python scripts/gen_proto.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_bytes(contents[name])
        print(f"wrote {name}")
    return 0


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - the command is written above


if __name__ == "__main__":
    sys.exit(main())
