from __future__ import annotations

import pytest

from memory.wording import nearest

_OPTIONS = ("batch_size", "transform.crop_size", "crop_size", "Mirror", "seed")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("batchsize", "batch_size"),
        ("BATCH_SIZE", "batch_size"),
        ("mirror", "Mirror"),
        ("batch", "batch_size"),
        ("croop", "crop_size"),
        ("volume", None),
        ("", None),
        (5, None),
    ],
)
def test_the_nearest_name_is_the_one_meant_or_none(word: object, meant: str | None) -> None:
    assert meant == nearest(word, _OPTIONS)
