"""The demo and its database."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from processes import DEADLINE_S
from sklearn.datasets import load_digits

import demo
import make_digits
from digit_network import DigitNetwork
from prefetch.caffe import Datum

_DEMO = Path(demo.__file__)


def _records(folder: Path) -> list[tuple[bytes, Datum]]:
    with (
        lmdb.open(str(folder), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return [(key, Datum.FromString(value)) for key, value in transaction.cursor()]


def test_the_database_holds_every_scan_once_as_it_was(digits: Path) -> None:
    scans = load_digits()
    expected = sorted(
        (image.astype(np.uint8).tobytes(), label)
        for image, label in zip(scans.images, scans.target, strict=True)
    )
    records = _records(digits)
    assert [b"%08d" % place for place in range(1797)] == [key for key, _ in records]
    assert expected == sorted((datum.data, datum.label) for _, datum in records)


def test_the_scans_to_test_with_have_their_share_of_every_class(digits: Path) -> None:
    labels = [datum.label for _, datum in _records(digits)]
    train, test = (
        np.bincount(part, minlength=make_digits.NUM_CLASSES)
        for part in (labels[: make_digits.NUM_TRAIN], labels[make_digits.NUM_TRAIN :])
    )
    assert make_digits.NUM_TEST == test.sum()
    assert (np.abs(test - train * make_digits.NUM_TEST / make_digits.NUM_TRAIN) < 1).all()


def test_an_interrupted_run_leaves_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = make_digits._write

    def interrupted(folder: Path) -> None:
        write(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(make_digits, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_digits.make_digits(tmp_path / "digits_lmdb")
    assert [] == list(tmp_path.iterdir())


def test_of_two_runs_at_once_the_slower_one_keeps_the_database_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "digits_lmdb"
    write = make_digits._write

    def overtaken(draft: Path) -> None:
        write(draft)
        write(folder)

    monkeypatch.setattr(make_digits, "_write", overtaken)
    assert not make_digits.make_digits(folder)
    assert 1797 == len(_records(folder))
    assert [folder] == list(tmp_path.iterdir())


def test_the_network_s_gradients_are_the_slopes_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    scans, labels = rng.random((4, 1, 8, 8), np.float32), rng.integers(0, 10, 4)
    network = DigitNetwork(seed=0)
    network.train(scans, labels, learning_rate=0.0)
    for layer in network._layers:
        weights = layer._weights  # type: ignore[attr-defined]
        place = np.unravel_index(np.abs(weights.gradient[0]).argmax(), weights.matrix.shape)
        expected = float(weights.gradient[0][place])
        losses = []
        for step in (0.01, -0.02):
            weights.matrix[place] += step
            losses.append(network.train(scans, labels, learning_rate=0.0))
        weights.matrix[place] += 0.01
        assert expected == pytest.approx((losses[0] - losses[1]) / 0.02, rel=0.1)


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_the_demo_reports_and_succeeds_above_the_wanted_accuracy(
    digits: Path, device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "WANTED_ACCURACY", 0.5)
    status = demo.main(["--epochs", "1", "--device", device, "--data", str(digits)])
    report = capsys.readouterr().out
    assert 0 == status
    for line in (
        "test accuracy",
        "images/s",
        "waited for data",
        "ring",
        f"device          {device}",
    ):
        assert line in report


def test_the_demo_fails_at_or_below_the_wanted_accuracy(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "WANTED_ACCURACY", 1.0)
    assert 1 == demo.main(["--epochs", "1", "--data", str(digits)])


def test_an_unusable_device_is_one_line_and_no_traceback(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = demo.main(["--device", "gpu", "--data", str(digits)])
    assert (2, 1) == (status, len(capsys.readouterr().err.splitlines()))


def test_ctrl_c_ends_the_demo_at_once_and_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-u", str(_DEMO), "--epochs", "100000", "--data"]
    with subprocess.Popen(
        [*command, str(tmp_path / "digits_lmdb")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert "Wrote" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=DEADLINE_S)
    assert (130, "\nInterrupted.\n") == (running.returncode, errors)
