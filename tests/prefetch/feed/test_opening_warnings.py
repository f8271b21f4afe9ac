"""What opening a feed warns of: each thing where it is so, and not where it only looks like it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch._feed import opening_warnings
from prefetch._record.wire import encode_datum
from prefetch._tools.check_config import check_config
from prefetch._tools.survey import survey_database
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def picture(seed: int, shape: tuple[int, ...] = (3, 8, 8)) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def raw(pixels: Any, label: int | None = 0) -> bytes:
    channels, height, width = pixels.shape
    return encode_datum(
        channels=channels, height=height, width=width, data=pixels.tobytes(), label=label
    )


def png(pixels: Any, label: int = 0) -> bytes:
    file = cv2.imencode(".png", np.ascontiguousarray(pixels.transpose(1, 2, 0)))[1]
    return encode_datum(label=label, encoded=True, data=file.tobytes())


@pytest.fixture
def opening(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """Return a function that opens a feed of some records and returns what is warned of."""

    def warned(values: Iterable[bytes], **options: Any) -> list[str]:
        folder = tmp_path / "db"
        if not folder.exists():
            write_database(folder, [(b"%06d" % n, value) for n, value in enumerate(values)])
        caplog.clear()
        with prefetch.open({"source": folder, "batch_size": 7, "device": "cpu"} | options) as feed:
            assert feed.num_records
        return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]

    return warned


def by_label(*labels: int) -> list[bytes]:
    return [raw(picture(number), label) for number, label in enumerate(labels)]


SORTED = [label for label in range(4) for _ in range(40)]
SHUFFLED = np.random.default_rng(1).permutation(SORTED).tolist()


class TestOrder:
    def test_sorted_labels_without_shuffle_are_warned_of(self, opening: Any) -> None:
        (warning,) = opening(by_label(*SORTED))
        assert "sorted by label" in warning
        assert "000000" in warning
        assert "write shuffle: true" in warning

    @pytest.mark.parametrize(
        "options", [{"shuffle": True}, {"phase": "test"}, {"labels": False}], ids=str
    )
    def test_not_where_the_order_is_another_or_as_meant(
        self, opening: Any, options: dict[str, Any]
    ) -> None:
        assert [] == opening(by_label(*SORTED), **options)

    @pytest.mark.parametrize("options", [{"shuffle": True}, {"phase": "test"}, {}], ids=str)
    def test_a_subset_of_sorted_records_is_warned_of_shuffled_or_not(
        self, opening: Any, options: dict[str, Any]
    ) -> None:
        (warning,) = opening(by_label(*SORTED), subset={"start": 0, "stop": 69}, **options)
        assert "subset cuts a range" in warning
        assert "convert --shuffle" in warning

    @pytest.mark.parametrize(
        "labels",
        [
            SHUFFLED,
            [0] * 160,
            list(range(160)),
            [0] * 158 + [1, 1],
            [number % 4 for number in range(160)],
            [1, 1, 2, 2],
        ],
        ids=["shuffled", "one label", "a label each", "one rare label", "in turn", "few records"],
    )
    def test_not_where_labels_only_look_sorted(self, opening: Any, labels: list[int]) -> None:
        assert [] == opening(by_label(*labels), subset=None)

    def test_caffes_order_is_mended_in_the_database(self, opening: Any) -> None:
        (warning,) = opening(by_label(*SORTED), rng="caffe", seed=1)
        assert "make the database anew" in warning


class TestOptions:
    def test_a_mirror_in_phase_test_is_warned_of(self, opening: Any) -> None:
        values = by_label(*SHUFFLED)
        (warning,) = opening(values, phase="test", transform={"mirror": True})
        assert "mirror: false" in warning
        assert [] == opening(values, transform={"mirror": True})
        assert [] == opening(values, phase="test", transform={"mirror": "train"})

    def test_the_recipe_of_validation_in_phase_train_is_warned_of(self, opening: Any) -> None:
        values = by_label(*SHUFFLED)
        small = {"resize": {"shorter": 4}, "crop_size": 3, "force_color": False}
        transform = {"preset": "imagenet-eval", "normalize": None, "channels": "stored"} | small
        (warning,) = opening(values, transform=transform)
        assert "write phase: test" in warning
        assert [] == opening(values, phase="test", transform=transform)

    def test_a_mean_of_0_to_255_for_pixels_of_0_to_1_is_warned_of(self, opening: Any) -> None:
        values = by_label(*SHUFFLED)
        (warning,) = opening(values, transform={"normalize": {"mean": 123.7, "std": 58.4}})
        assert "divide mean and std by 255" in warning
        assert [] == opening(values, transform={"normalize": {"mean": 0.485, "std": 0.229}})

    def test_a_last_batch_of_one_is_warned_of(self, opening: Any) -> None:
        values = by_label(*SHUFFLED[:15])
        (warning,) = opening(values)
        assert "15 = 2 x 7 + 1" in warning
        assert "last_batch: drop" in warning

    @pytest.mark.parametrize(
        "options",
        [{"last_batch": "drop"}, {"batch_size": 1}, {"batch_size": 8}, {"phase": "test"}],
        ids=str,
    )
    def test_not_where_there_is_none(self, opening: Any, options: dict[str, Any]) -> None:
        assert [] == opening(by_label(*SHUFFLED[:15]), **options)


class TestRecords:
    def test_records_without_labels_are_warned_of(self, opening: Any) -> None:
        values = [raw(picture(number), None) for number in range(14)]
        (warning,) = opening(values)
        assert "labels: false" in warning
        assert "000000" in warning
        assert [] == opening(values, labels=False)

    def test_a_label_of_0_is_a_label(self, opening: Any) -> None:
        assert [] == opening([raw(picture(number), 0) for number in range(14)])

    @pytest.mark.parametrize("kind", [raw, png])
    def test_grey_in_three_channels_is_warned_of(self, opening: Any, kind: Any) -> None:
        values = [kind(np.repeat(picture(number, (1, 8, 8)), 3, axis=0)) for number in range(14)]
        (warning,) = opening(values)
        assert "three equal channels" in warning
        assert "--gray" in warning

    def test_not_where_some_images_have_colours_or_all_are_of_one(self, opening: Any) -> None:
        grey = [raw(np.repeat(picture(number, (1, 8, 8)), 3, axis=0)) for number in range(13)]
        assert [] == opening([*grey, raw(picture(1))])

    def test_images_of_one_colour_are_not_taken_for_grey(self, opening: Any) -> None:
        assert [] == opening([raw(np.full((3, 8, 8), number, np.uint8)) for number in range(14)])

    def test_transparent_images_are_warned_of_where_alpha_is_left_out(self, opening: Any) -> None:
        values = [png(picture(number, (4, 8, 8))) for number in range(14)]
        (warning,) = opening(values, transform={"force_color": True})
        assert "--background" in warning
        assert [] == opening(values)

    def test_an_alpha_that_hides_nothing_is_not(self, opening: Any) -> None:
        opaque = np.full((1, 8, 8), 255, np.uint8)
        values = [png(np.concatenate([picture(number), opaque])) for number in range(14)]
        assert [] == opening(values, transform={"force_color": True})

    def test_a_record_that_cannot_be_read_is_left_to_who_reads_it(self, opening: Any) -> None:
        assert [] == opening([raw(picture(0)), b"\xff\xff", *by_label(*SHUFFLED[:12])])


def test_looking_ends_when_its_time_is_up(
    opening: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    num = 0
    opening(by_label(*SORTED))
    with prefetch.open({"source": tmp_path / "db", "batch_size": 7}) as feed:
        components = feed._prefetcher.components

        def clock() -> float:
            nonlocal num
            num += 1
            return float(num)

        assert () == opening_warnings.find_warnings(
            feed.config, components.source, components.order, clock=clock
        )
    assert num < 30


def test_a_state_that_is_loaded_warns_of_nothing_again(
    opening: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    opening(by_label(*SORTED))
    with prefetch.open({"source": tmp_path / "db", "batch_size": 7}) as feed:
        caplog.clear()
        feed.load_state_dict(feed.state_dict())
    assert [] == [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_an_inspection_reports_the_same(tmp_path: Path) -> None:
    values = [png(np.repeat(picture(number, (1, 8, 8)), 3, axis=0), label=0) for number in range(6)]
    write_database(tmp_path / "grey", [(b"%d" % n, value) for n, value in enumerate(values)])
    kinds = [problem.kind for problem in survey_database(tmp_path / "grey").problems]
    assert "grey_in_colour" in kinds
    values = [raw(picture(number), None) for number in range(6)]
    values += [png(picture(number, (4, 8, 8))) for number in range(6)]
    write_database(tmp_path / "alpha", [(b"%02d" % n, value) for n, value in enumerate(values)])
    kinds = [problem.kind for problem in survey_database(tmp_path / "alpha").problems]
    assert "transparent" in kinds
    assert "no_labels" not in kinds
    write_database(tmp_path / "none", [(b"%d" % n, value) for n, value in enumerate(values[:6])])
    (problem,) = (
        one for one in survey_database(tmp_path / "none").problems if one.kind == "no_labels"
    )
    assert 6 == problem.num_records
    assert b"0" in problem.keys


def test_databases_that_number_their_classes_differently_are_warned_of(tmp_path: Path) -> None:
    for name, classes in (("a", "0\tcat\n1\tdog\n"), ("b", "0\tdog\n")):
        write_database(tmp_path / name, fingerprinted_images(4))
        (tmp_path / name / "classes.tsv").write_text(classes)
    sources = [tmp_path / "a", tmp_path / "b"]
    with pytest.warns(prefetch.PrefetchWarning, match="label 0 is cat in .*a and dog in .*b: "):
        prefetch.open({"source": sources}).close()
    with pytest.warns(prefetch.PrefetchWarning):
        report = check_config(prefetch.FeedConfig(source=sources))
    assert any("label 0 is cat in" in line for line in report.warnings)


def test_a_database_with_more_classes_than_another_is_fine(tmp_path: Path) -> None:
    for name, classes in (("a", "0\tcat\n1\tdog\n"), ("b", "0\tcat\n")):
        write_database(tmp_path / name, fingerprinted_images(4))
        (tmp_path / name / "classes.tsv").write_text(classes)
    prefetch.open({"source": [tmp_path / "a", tmp_path / "b"]}).close()
