"""Once a feed is open, none of its threads imports anything, whatever the records are.

By then the process may have given up its privileges, or live in another root, or have no file left
to open. Python reports each import that finds no module yet to an audit hook.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from processes import DEADLINE_S, environment

from prefetch.caffe import Datum
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """
    import asyncio, json, sys, threading
    import prefetch

    def note(event, arguments):
        if event == "import":
            imported.append([threading.current_thread().name, arguments[0]])

    async def count(feed):
        return sum([len(batch) async for batch in feed])

    asyncio.run(asyncio.sleep(0))
    imported = []
    feed = prefetch.open(json.loads(sys.argv[1]))
    sys.addaudithook(note)
    for batch in feed:
        batch.data.numpy(), batch.label.numpy(), batch.keys, batch.indices
        feed.stats(), repr(feed)
        state = json.dumps(feed.state_dict())
    asyncio.run(count(feed))
    feed.load_state_dict(json.loads(state))
    feed.close()
    print(json.dumps(imported))
"""

_IMAGE = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)


def _encoded(ending: str) -> bytes:
    file = cv2.imencode(f".{ending}", _IMAGE)[1].tobytes()
    return Datum(data=file, encoded=True, label=1).SerializeToString()


def _odd_records() -> list[tuple[bytes, bytes]]:
    """Return raw records first, then ones of all kinds, bad ones too, under keys of any bytes."""
    planes = _IMAGE.transpose(2, 0, 1)
    jpeg = _encoded("jpg")
    floats = Datum(channels=3, height=8, width=8, float_data=[0.5] * 192)
    values = [
        *[encode_image(planes, label=0)] * 9,
        jpeg,
        *(_encoded(ending) for ending in ("png", "webp", "tiff", "bmp")),
        floats.SerializeToString(),
        b"\xff\xff",
        jpeg[:-60],
        _encoded("png")[:-40],
        Datum(data=b"no image", encoded=True).SerializeToString(),
    ]
    return [(b"\x1b\n\xff%03d" % number, value) for number, value in enumerate(values)]


def _imported(options: dict[str, Any], **variables: str) -> list[list[str]]:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM), json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment() | variables,
    )
    assert 0 == ended.returncode, ended.stderr
    imported: list[list[str]] = json.loads(ended.stdout)
    return imported


@pytest.mark.parametrize("kernels", ["c", "numpy"])
@pytest.mark.parametrize("on_bad_record", ["skip", "quarantine"])
def test_records_of_every_kind_need_nothing_more(
    tmp_path: Path, kernels: str, on_bad_record: str
) -> None:
    source = write_database(tmp_path / "db", _odd_records())
    options = {
        "source": str(source),
        "batch_size": 4,
        "device": "cpu",
        "threads": 2,
        "on_bad_record": on_bad_record,
        "quarantine": str(tmp_path / "aside") if on_bad_record == "quarantine" else None,
    }
    assert [] == _imported(options, RINGFEED_KERNELS=kernels)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "shard": {"rank": 1, "world_size": 2}},
        {"rng": "caffe", "transform": {"crop_size": 6, "mirror": True}},
        {"lock": True, "device": "simulated", "transform": {"where": "device", "crop_size": 6}},
        {"stall_warning_s": 0.0001, "transform": {"dtype": "float16"}},
    ],
    ids=["shuffled", "caffe", "device", "stalling"],
)
def test_no_option_needs_anything_more(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(20))
    assert [] == _imported(
        {"source": [str(source)], "batch_size": 3, "device": "cpu", "threads": 2, **options}
    )
