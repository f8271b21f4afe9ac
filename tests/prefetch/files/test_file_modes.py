"""Whatever is made may be read and written by all whom the umask does not shut out."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

import cv2
import lmdb
import numpy as np
import pytest

import prefetch
from prefetch._tools.convert.draft import Draft
from prefetch.cli import main
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[0o002, 0o077, 0o000], ids="{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    umask: int = request.param
    before = os.umask(umask)
    yield umask
    os.umask(before)


def _wrong(place: Path, umask: int) -> dict[str, str]:
    """Return what has another mode than it ought to, by its path."""
    modes = {path: path.stat().st_mode for path in place.rglob("*")}
    assert modes
    return {
        str(path.relative_to(place)): oct(stat.S_IMODE(mode))
        for path, mode in modes.items()
        if stat.S_IMODE(mode) != (0o777 if stat.S_ISDIR(mode) else 0o666) & ~umask
    }


def test_a_database_and_what_the_commands_write(tmp_path: Path, umask: int) -> None:
    images = tmp_path / "images"
    for number, name in enumerate(("cat", "dog", "none")):
        (images / name).mkdir(parents=True)
        cv2.imwrite(str(images / name / f"{number}.png"), np.full((4, 4, 3), number, np.uint8))
    (images / "none" / "2.png").write_bytes(b"no image")
    network = tmp_path / "net.prototxt"
    network.write_text(
        'layer { name: "d" type: "Data" top: "d" '
        'data_param { source: "made/new/db" batch_size: 2 backend: LMDB } }'
    )
    made = tmp_path / "made"
    database = str(made / "new" / "db")
    report = ["--skip-unreadable", "--report", str(made / "report.tsv")]
    made.mkdir()
    assert 0 == main(["convert", str(images), database, *report])
    assert 0 == main(["mean", database, str(made / "mean.binaryproto")])
    assert 0 == main(["mean", database, str(made / "mean.npy")])
    assert 0 == main(["inspect", database, "--show", str(made / "sheet.png")])
    config = ["from-prototxt", str(network), str(made / "net.yaml"), "--root", str(tmp_path)]
    assert 0 == main(config)
    assert 0 == main(["show", str(made / "net.yaml"), str(made / "batches.png")])
    assert {} == _wrong(made, umask)


def test_a_database_that_is_copied_without_its_free_pages(tmp_path: Path, umask: int) -> None:
    with Draft(tmp_path / "made" / "db", {"input": "a"}, commit_bytes=1) as draft:
        for index in range(20):
            draft.put(b"%08d" % index, bytes(5000))
        assert {} == _wrong(tmp_path, umask)  # the draft itself, while it is one
        draft.finish()
    assert {} == _wrong(tmp_path, umask)


def test_a_quarantine_and_the_lock_file_beside_a_source(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "db"
    write_database(folder, [(b"!", b"\xff"), *fingerprinted_images(3)])
    with prefetch.open(
        {"source": folder, "epochs": 1, "lock": True, "device": "cpu"},
        on_bad_record="quarantine",
        quarantine=tmp_path / "aside",
    ) as feed:
        list(feed)
    assert (folder / "lock.mdb").exists()
    with lmdb.open(str(tmp_path / "aside"), readonly=True, lock=False) as environment:
        assert 1 == environment.stat()["entries"]
    assert {} == _wrong(tmp_path, umask)


def test_the_lock_file_of_a_single_file(tmp_path: Path, umask: int) -> None:
    folder = write_database(tmp_path / "db", fingerprinted_images(3))
    shutil.copyfile(folder / "data.mdb", tmp_path / "one.mdb")
    prefetch.open({"source": tmp_path / "one.mdb", "lock": True, "device": "cpu"}).close()
    assert (tmp_path / "one.mdb-lock").exists()
    assert {} == _wrong(tmp_path, umask)
