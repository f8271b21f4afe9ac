"""A feed with a cache of decoded images serves what it serves without one."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import cv2
import lmdb
import numpy as np
import pytest
from databases import records_of
from PIL import Image
from processes import environment

import prefetch
from prefetch._record.decode import ImageDecoder
from prefetch._record.wire import encode_datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

NUM = 23


def picture(number: int, size: tuple[int, int] = (40, 52)) -> NDArray[np.uint8]:
    rng = np.random.default_rng(number)
    small = rng.integers(0, 256, (6, 8, 3), np.uint8)
    return np.ascontiguousarray(cv2.resize(small, size[::-1]), np.uint8)


def record(number: int, *, kind: str = ".jpg", seed: int = 0) -> bytes:
    ok, encoded = cv2.imencode(kind, picture(number + 1000 * seed))
    assert ok
    return encode_datum(data=encoded.tobytes(), label=number, encoded=True)


def records(num: int = NUM, *, seed: int = 0) -> dict[bytes, bytes]:
    return {
        b"%08d" % i: record(i, kind=".png" if i % 5 == 4 else ".jpg", seed=seed) for i in range(num)
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_database(tmp_path / "db", records().items())


def options(source: Path, **more: Any) -> dict[str, Any]:
    transform = {"crop_size": 24, "mirror": True, "scale": 0.5, **more.pop("transform", {})}
    return {
        "source": source,
        "batch_size": 5,
        "shuffle": True,
        "seed": 3,
        "device": "cpu",
        "transform": transform,
        **more,
    }


def in_file(tmp_path: Path, num_bytes: int = 1 << 22) -> dict[str, Any]:
    return {"decoded": {"path": tmp_path / "cache", "bytes": num_bytes}}


IN_MEMORY: dict[str, Any] = {"decoded": {"memory": True, "bytes": 1 << 22}}


def invert(image: NDArray[np.uint8], label: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    return 255 - image


def taken(batches: Iterable[prefetch.Batch]) -> list[tuple[bytes, ...]]:
    return [
        (
            batch.data.numpy().tobytes(),
            batch.label.numpy().tobytes(),
            batch.indices.tobytes(),
            b" ".join(batch.keys),
        )
        for batch in batches
    ]


def epochs(num: int, **given: Any) -> tuple[list[list[tuple[bytes, ...]]], prefetch.FeedStats]:
    with prefetch.open(given) as feed:
        found = [taken(feed) for _ in range(num)]
        return found, feed.stats()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("place", ["file", "memory"])
def test_every_epoch_is_what_it_is_without_a_cache(
    source: Path, tmp_path: Path, place: str, threads: int
) -> None:
    expected, _ = epochs(3, **options(source, epochs=3))
    cache = in_file(tmp_path) if place == "file" else IN_MEMORY
    found, stats = epochs(3, **options(source, threads=threads, cache=cache, epochs=3))
    assert expected == found
    assert 3 * NUM == stats.decoded_hits + stats.decoded_misses
    # Several threads may be at the second epoch before the first is through.
    assert NUM == stats.decoded_misses if threads == 1 else NUM <= stats.decoded_misses < 2 * NUM
    again, stats = epochs(3, **options(source, threads=threads, cache=cache, epochs=3))
    assert expected == again
    assert stats.decoded_misses >= NUM if place == "memory" else stats.decoded_misses == 0


@pytest.mark.parametrize(
    "more",
    [
        {"transform": {"force_gray": True}},
        {"transform": {"channels": "rgb", "layout": "nhwc", "dtype": "uint8", "scale": 1.0}},
        {"transform": {"crop_size": 0, "random_resized_crop": {"size": 24}}},
        {"transform": {"resize": {"shorter": 30}}},
        {"per_record": invert},
        {"device": "simulated"},
        {"device": "simulated", "transform": {"where": "device"}},
        {"rng": "caffe", "last_batch": "wrap", "shuffle": False},
        {"phase": "test", "shuffle": False},
    ],
    ids=[
        "grey",
        "bytes",
        "resized crop",
        "resize",
        "function",
        "simulated",
        "on the device",
        "caffe",
        "test",
    ],
)
def test_it_is_so_with_other_options(source: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    def served(**cache: Any) -> tuple[list[tuple[bytes, ...]], prefetch.FeedStats]:
        with prefetch.open(options(source, epochs=3, **more, **cache)) as feed:
            return taken(feed), feed.stats()

    expected, _ = served()
    found, stats = served(cache=in_file(tmp_path))
    assert expected == found
    again, stats = served(cache=in_file(tmp_path))
    assert expected == again
    assert 0 == stats.decoded_misses


SHORTER = 30


def smaller(number: int) -> NDArray[np.uint8]:
    """Return what Pillow makes of a decoded image; blue first."""
    ok, encoded = cv2.imencode(".png" if number % 5 == 4 else ".jpg", picture(number))
    assert ok
    image = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED)
    assert image is not None
    return np.asarray(Image.fromarray(image).resize((39, SHORTER), Image.Resampling.BILINEAR))


@pytest.mark.parametrize("place", ["file", "memory", "full"])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_shorter_images_are_those_of_pillow_in_every_epoch(
    source: Path, tmp_path: Path, place: str, device: str
) -> None:
    cache = (
        IN_MEMORY
        if place == "memory"
        else in_file(tmp_path, 20_000 if place == "full" else 1 << 22)
    )
    given = options(
        source,
        epochs=2,
        batch_size=NUM,
        device=device,
        transform={
            "crop_size": 0,
            "mirror": False,
            "scale": 1.0,
            "layout": "nhwc",
            "dtype": "uint8",
            "where": "host" if device == "cpu" else "device",
        },
    )
    for _ in range(2):
        with prefetch.open(
            given, cache={"decoded": {**cache["decoded"], "shorter": SHORTER}}
        ) as feed:
            for _ in range(2):
                (batch,) = feed
                for index, image in zip(batch.indices.tolist(), batch.data.numpy(), strict=True):
                    np.testing.assert_array_equal(smaller(index), image)


def test_crops_and_bad_records_go_by_the_smaller_size(source: Path, tmp_path: Path) -> None:
    def cached(shorter: int) -> dict[str, Any]:
        return {"decoded": {**IN_MEMORY["decoded"], "shorter": shorter}}

    with pytest.raises(prefetch.ConfigError, match="20 x 26"):
        prefetch.open(options(source, cache=cached(20)))
    found, _ = epochs(1, **options(source, epochs=1, cache=cached(80), transform={"crop_size": 70}))
    assert 5 == len(found[0])


def test_a_state_of_another_shorter_is_refused(source: Path, tmp_path: Path) -> None:
    cache = {"decoded": {**IN_MEMORY["decoded"], "shorter": SHORTER}}
    with prefetch.open(options(source, cache=cache)) as feed:
        state = feed.state_dict()
        feed.load_state_dict(state)
    for other in ({}, {"cache": IN_MEMORY}):
        with (
            prefetch.open(options(source, **other)) as feed,
            pytest.raises(prefetch.StateError, match=r"cache\.decoded\.shorter: was 30, is null"),
        ):
            feed.load_state_dict(state)
    with (
        prefetch.open(options(source)) as feed,
        prefetch.open(options(source, cache=cache)) as another,
        pytest.raises(prefetch.StateError, match=r"shorter: was null, is 30"),
    ):
        another.load_state_dict(feed.state_dict())


def test_an_image_that_would_become_too_large_is_a_bad_record(tmp_path: Path) -> None:
    ok, line = cv2.imencode(".png", np.zeros((1, 50000, 3), np.uint8))
    assert ok
    datum = encode_datum(data=line.tobytes(), label=0, encoded=True)
    source = write_database(tmp_path / "line", [(b"0", datum)])
    cache = {"decoded": {**IN_MEMORY["decoded"], "shorter": 256}}
    with pytest.raises(prefetch.RecordError, match="its shorter side made 256 pixels"):
        epochs(1, **options(source, epochs=1, cache=cache))


def test_nothing_is_decoded_twice(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs(1, **options(source, epochs=1, cache=in_file(tmp_path)))

    decoded = []
    decode = ImageDecoder.decode

    def note(self: ImageDecoder, data: memoryview) -> NDArray[np.uint8]:
        decoded.append(len(data))
        return decode(self, data)

    with prefetch.open(options(source, epochs=2, cache=in_file(tmp_path))) as feed:
        monkeypatch.setattr(ImageDecoder, "decode", note)  # opening looks at some images
        assert 2 * NUM == sum(len(batch) for _ in range(2) for batch in feed)
        stats = feed.stats()
    assert [] == decoded
    assert (2 * NUM, 0) == (stats.decoded_hits, stats.decoded_misses)


@pytest.mark.parametrize("cached", ["before", "after", "both"])
def test_a_state_goes_on_with_or_without_a_cache(source: Path, tmp_path: Path, cached: str) -> None:
    def with_cache(when: str) -> dict[str, Any]:
        return {"cache": in_file(tmp_path)} if cached in (when, "both") else {}

    expected, _ = epochs(2, **options(source, epochs=2))
    with prefetch.open(options(source, epochs=2, **with_cache("before"))) as feed:
        batches = iter(feed)
        head = taken(next(batches) for _ in range(3))
        state = feed.state_dict()
    with prefetch.open(options(source, epochs=2, **with_cache("after"))) as feed:
        feed.load_state_dict(state)
        assert expected == [head + taken(feed), taken(feed)]


def test_a_state_made_before_there_were_caches_loads(source: Path, tmp_path: Path) -> None:
    with prefetch.open(options(source, cache=in_file(tmp_path))) as feed:
        state = feed.state_dict()
        assert [name for name in state["config"] if "cache" in name] == ["cache.decoded.shorter"]
        del state["config"]["cache.decoded.shorter"]
        feed.load_state_dict(state)


@pytest.mark.parametrize("act", ["set_epoch", "load", "reshard"])
def test_a_cache_in_memory_lives_as_long_as_its_feed(source: Path, act: str) -> None:
    with prefetch.open(
        options(source, cache=IN_MEMORY, shard={"rank": 0, "world_size": 1})
    ) as feed:
        taken(feed)
        kept = feed.stats().decoded_bytes
        if act == "set_epoch":
            feed.set_epoch(7)
        elif act == "load":
            feed.load_state_dict(feed.state_dict())
        else:
            feed.reshard(1, 2)
        before = feed.stats()
        assert kept == before.decoded_bytes
        taken(feed)
        assert before.decoded_misses == feed.stats().decoded_misses
    assert 0 == feed.stats().decoded_bytes


def test_a_full_cache_serves_the_rest_undecoded_and_says_so_once(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected, _ = epochs(3, **options(source, epochs=3))
    most = 4096 + 64 * 64 + 7 * 40 * 52 * 3
    found, stats = epochs(3, **options(source, epochs=3, cache=in_file(tmp_path, most)))
    assert expected == found
    assert (2 * 7, 3 * NUM - 2 * 7) == (stats.decoded_hits, stats.decoded_misses)
    assert stats.decoded_bytes <= most
    assert 1 == sum("is full" in record.getMessage() for record in caplog.records)


def test_a_full_disk_is_a_full_cache(source: Path, tmp_path: Path) -> None:
    code = """
        import resource, signal, sys
        import prefetch

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
        cache = {"decoded": {"path": sys.argv[2], "bytes": 1 << 30}}
        with prefetch.open(sys.argv[1], batch_size=5, epochs=2, device="cpu", cache=cache) as feed:
            for batch in feed:
                pass
            for batch in feed:
                pass
            print(feed.stats().decoded_hits, feed.stats().decoded_misses)
    """
    for limit, printed in ((50_000, ""), (1000, "0 0")):
        path = tmp_path / f"cache{limit}"
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), str(source), str(path), str(limit)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert 0 == ended.returncode, ended.stderr
        hits, misses = map(int, ended.stdout.split())
        assert f"{hits} {misses}" == printed if printed else 0 < hits < NUM
        assert path.stat().st_size <= limit


def test_a_changed_database_gets_a_new_cache(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = in_file(tmp_path)
    first, _ = epochs(1, **options(source, epochs=1, cache=cache))
    with lmdb.open(str(source), map_size=1 << 24) as database, database.begin(write=True) as change:
        for key, value in records(seed=1).items():
            change.put(key, value)
    expected, _ = epochs(1, **options(source, epochs=1))
    found, stats = epochs(1, **options(source, epochs=1, cache=cache))
    assert expected == found != first
    assert NUM == stats.decoded_misses
    assert "the database has changed since" in caplog.text


def test_a_database_put_in_the_place_of_another_never_gets_its_images(
    source: Path, tmp_path: Path
) -> None:
    cache = in_file(tmp_path)
    first, _ = epochs(1, **options(source, epochs=1, cache=cache))
    # Both of its ends are the same, its last transaction has the same number.
    changed = records_of(source)
    changed[b"%08d" % 11] = record(11, kind=".png", seed=1)
    shutil.rmtree(source)
    write_database(source, changed.items())
    expected, _ = epochs(1, **options(source, epochs=1))
    found, stats = epochs(1, **options(source, epochs=1, cache=cache))
    assert expected == found != first
    assert 1 <= stats.decoded_misses


def test_a_cache_of_another_database_is_refused_by_name(source: Path, tmp_path: Path) -> None:
    epochs(1, **options(source, epochs=1, cache=in_file(tmp_path)))
    other = write_database(tmp_path / "other", records(7, seed=2).items())
    with pytest.raises(prefetch.ConfigError, match=r"cache\.decoded\.path: .* another database"):
        prefetch.open(options(other, cache=in_file(tmp_path)))
    gray = options(source, transform={"force_gray": True}, cache=in_file(tmp_path))
    with pytest.raises(prefetch.ConfigError, match="force_gray: false instead of true"):
        prefetch.open(gray)


def test_what_is_no_cache_is_refused_and_left(source: Path, tmp_path: Path) -> None:
    data = (source / "data.mdb").read_bytes()
    for path, text in (
        (source / "data.mdb", "is no cache of decoded images"),
        (tmp_path, "cannot be opened: Is a directory"),
        (source / "data.mdb" / "x", "cannot be opened"),
    ):
        with pytest.raises(prefetch.ConfigError, match=text) as caught:
            prefetch.open(options(source, cache={"decoded": {"path": path, "bytes": 1 << 20}}))
        assert ["cache.decoded.path"] == [fault.key for fault in caught.value.faults]
    assert data == (source / "data.mdb").read_bytes()


def test_feeds_of_parts_of_a_database_share_its_cache(source: Path, tmp_path: Path) -> None:
    cache = in_file(tmp_path)
    epochs(1, **options(source, epochs=1, cache=cache, subset={"start": 4, "stop": 15}))
    for subset, misses in (
        ({"start": 0, "stop": 10}, 4),
        ({"fraction": 0.5, "seed": 1}, None),
        (None, None),
        ({"fraction": 0.5, "seed": 1}, 0),
    ):
        expected, _ = epochs(1, **options(source, epochs=1, subset=subset))
        found, stats = epochs(1, **options(source, epochs=1, subset=subset, cache=cache))
        assert expected == found
        assert misses is None or misses == stats.decoded_misses


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_a_bad_image_is_never_kept_and_is_met_each_time(tmp_path: Path, policy: str) -> None:
    made = records()
    ok, encoded = cv2.imencode(".jpg", picture(11))
    assert ok
    cut = encoded.tobytes()[: len(encoded) // 2]
    made[b"%08d" % 11] = encode_datum(data=cut, label=11, encoded=True)
    source = write_database(tmp_path / "bad", made.items())
    given = options(source, on_bad_record=policy, epochs=2)
    if policy == "quarantine":
        given["quarantine"] = tmp_path / "quarantine"
    expected, before = epochs(2, **given)
    assert 1 == before.bad_records
    for _ in range(2):
        found, stats = epochs(2, **given, cache=in_file(tmp_path))
        assert expected == found
        assert 1 == stats.bad_records
        assert 2 <= stats.decoded_misses
    errors = []
    for cache in ({}, {"cache": in_file(tmp_path)}):
        with pytest.raises(prefetch.RecordError) as caught:
            epochs(1, **options(source, epochs=1, **cache))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_an_image_that_does_not_fit_is_met_each_time(tmp_path: Path) -> None:
    made = records()
    ok, small = cv2.imencode(".jpg", picture(5, (20, 30)))
    assert ok
    made[b"%08d" % 11] = encode_datum(data=small.tobytes(), label=1, encoded=True)
    source = write_database(tmp_path / "odd", made.items())
    for _ in range(2):
        with pytest.raises(prefetch.RecordError, match="20 x 30"):
            epochs(1, **options(source, epochs=1, cache=in_file(tmp_path)))
    expected, _ = epochs(2, **options(source, epochs=2, on_bad_record="skip"))
    cached = options(source, epochs=2, on_bad_record="skip", cache=in_file(tmp_path))
    assert expected == epochs(2, **cached)[0]


def test_raw_records_are_served_and_the_cache_does_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = [(b"%08d" % i, encode_image(picture(i).transpose(2, 0, 1), label=i)) for i in range(9)]
    source = write_database(tmp_path / "raw", images)
    expected, _ = epochs(1, **options(source, epochs=1))
    with caplog.at_level(logging.INFO):
        found, stats = epochs(1, **options(source, epochs=1, cache=in_file(tmp_path)))
    assert expected == found
    assert (0, 0) == (stats.decoded_hits, stats.decoded_misses)
    assert "does nothing for raw records" in caplog.text


def test_two_processes_fill_one_cache(source: Path, tmp_path: Path) -> None:
    code = """
        import sys
        import prefetch

        cache = {"decoded": {"path": sys.argv[2], "bytes": 1 << 22}}
        shard = {"rank": int(sys.argv[3]), "world_size": 2}
        with prefetch.open(sys.argv[1], batch_size=5, epochs=2, seed=3, shuffle=True, shard=shard,
                           device="cpu", cache=cache) as feed:
            for epoch in range(2):
                for batch in feed:
                    print(epoch, batch.number, batch.data.numpy().sum(), *batch.indices)
    """

    def run(path: str) -> list[str]:
        command = [sys.executable, "-c", textwrap.dedent(code), str(source), path]
        running = [
            subprocess.Popen(
                [*command, str(rank)], env=environment(), stdout=subprocess.PIPE, text=True
            )
            for rank in range(2)
        ]
        return [one.communicate(timeout=100)[0] for one in running]

    first = run(str(tmp_path / "cache"))
    assert all(len(text.splitlines()) == 6 for text in first)
    assert first == run(str(tmp_path / "cache")) == run(str(tmp_path / "another"))
    given = options(
        source, epochs=1, cache={"decoded": {"path": tmp_path / "cache", "bytes": 1 << 22}}
    )
    _, stats = epochs(1, **given)
    assert 0 == stats.decoded_misses


@pytest.mark.parametrize(
    ("cache", "text"),
    [
        ({"decoded": {"bytes": 100}}, "needs a place"),
        ({"decoded": {"bytes": 100, "path": "x", "memory": True}}, "not in both"),
        ({"decoded": {"path": "x"}}, "cache.decoded.bytes"),
        ({"decoded": {"path": "x", "bytes": 0}}, "cache.decoded.bytes"),
        ({"decoded": {"path": "x", "bytes": 9, "shorter": 0}}, "cache.decoded.shorter"),
        ({"encoded": {}}, "cache.encoded"),
    ],
)
def test_what_cannot_hold_is_refused(source: Path, cache: dict[str, Any], text: str) -> None:
    with pytest.raises(prefetch.ConfigError, match=text):
        prefetch.FeedConfig(source=source, cache=cache)


def test_a_path_in_a_file_is_relative_to_it(source: Path, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("source: db\ncache:\n  decoded: {path: kept/cache, bytes: 4000000}\n")
    with prefetch.open(config) as feed:
        taken(feed)
    assert (tmp_path / "kept" / "cache").stat().st_size > 10_000
