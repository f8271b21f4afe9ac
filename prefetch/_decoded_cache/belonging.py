"""What a file of decoded images belongs to: databases, and how their images are decoded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_NAME = 300  # characters of a path, each up to 6 bytes of JSON: they fit the first page
_DECODERS = ("simplejpeg", "opencv-python-headless")


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """What a file of decoded images belongs to.

    Attributes:
        name: Path of the first database, shortened, for messages.
        paths: Digest of all the databases' paths, in hexadecimal.
        databases: Digest of what tells the databases' states apart, likewise.
        decoding: The options that decide about an image's pixels, by name.
        decoders: Versions of the packages that decode.
    """

    name: str
    paths: str
    databases: str
    decoding: Mapping[str, bool | int | None]
    decoders: Mapping[str, str]

    @classmethod
    def of(
        cls,
        paths: Sequence[str],
        fingerprints: Sequence[Sequence[object]],
        decoding: Mapping[str, bool | int | None],
    ) -> Belonging:
        """Return what a file for some databases belongs to.

        Args:
            paths: Where they are.
            fingerprints: What tells the state of each from others, such as the number of its last
                transaction; JSON can hold it.
            decoding: As above.
        """
        return cls(
            name=paths[0].encode("utf-8", "backslashreplace").decode()[:_MOST_NAME],
            paths=_hexdigest(paths),
            databases=_hexdigest(fingerprints),
            decoding=dict(decoding),
            decoders={name: _version(name) for name in _DECODERS},
        )

    def to_json(self) -> bytes:
        """Return it as the file holds it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Belonging:
        """Return what a file holds.

        Raises:
            ValueError: It is none.
        """
        try:
            found: Any = json.loads(text)
            return cls(**found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected what a cache belongs to: {error}") from None

    def why_outdated(self, present: Belonging) -> str | None:
        """Return why a file's images are of no more use to anybody; None where they are of some.

        Args:
            present: What the feed at hand wants.
        """
        if self.decoders != present.decoders:
            return "its images were decoded by other versions of simplejpeg or OpenCV"
        if self.databases != present.databases and self.paths == present.paths:
            return "the database has changed since"
        return None

    def why_foreign(self, present: Belonging) -> str | None:
        """Return why a file's images are another feed's; None where they are this one's."""
        if self.databases != present.databases:
            return f"holds images of another database, {self.name}"
        differing = [
            f"{name}: {json.dumps(self.decoding.get(name))} instead of {json.dumps(wanted)}"
            for name, wanted in present.decoding.items()
            if self.decoding.get(name) != wanted
        ]
        return f"holds images decoded with {', '.join(differing)}" if differing else None


def _hexdigest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"
