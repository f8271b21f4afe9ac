"""A long run of bad records is looked through once a part, not once a place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import prefetch
from prefetch._transform.host import RecordTransformer
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_each_bad_record_is_looked_at_twice_at_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in its own place, once as a substitute; with 300 in a row that would be 45,000 times."""
    records = [
        (key, b"\xff" if number < 300 else value)
        for number, (key, value) in enumerate(fingerprinted_images(320))
    ]
    source = write_database(tmp_path / "db", records)
    looks = 0
    real = RecordTransformer.fill

    def counted(self: RecordTransformer, records: Any, *arguments: Any) -> Any:
        nonlocal looks
        looks += len(records)
        return real(self, records, *arguments)

    monkeypatch.setattr(RecordTransformer, "fill", counted)
    options: dict[str, Any] = {"on_bad_record": "skip", "max_bad_records": 300, "threads": 1}
    with prefetch.open({"source": source, "batch_size": 32, "prefetch": 1, **options}) as feed:
        batch = next(iter(feed))
        assert batch.indices.tolist() == [300] * 32
        assert batch.keys == [b"00000300"] * 32
        assert (batch.data.numpy() == 300 % 251).all()
        assert looks <= 2 * 32 + 2 * 300 + 32
