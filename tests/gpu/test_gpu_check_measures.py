"""What scripts/gpu_check.py measures: not how much, which means nothing here, but that it runs."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import cupy
import gpu_consumers
import pytest
from databases import images_fixture

from gpu_checks import (
    batch_bytes,
    graph_capture,
    jax_arrays,
    peer_loaders,
    registered_mapping,
    sanitizer,
    speed,
)
from gpu_checks.bench import RECORDS, Bench, NotHereError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.fake_only

SIDE = 16


source = images_fixture(RECORDS, (3, SIDE, SIDE), scope="module")


@pytest.fixture
def bench(source: Path, cuda: Any) -> Bench:
    """A bench that takes this device for a GPU."""
    return Bench(
        device=cuda,
        source=source,
        side=SIDE,
        on_fake=False,
        batches=20,
        epochs=3,
        quick=True,
        until=time.monotonic() + 60,
        rehearse=True,
    )


def test_the_rates_of_copies_and_feeds(bench: Bench) -> None:
    numbers = speed.check_bandwidth(bench).numbers
    assert len(numbers) == 5
    assert min(numbers.values()) > 0


def test_the_transformation_on_both_sides(bench: Bench) -> None:
    numbers = speed.check_transform_speed(bench).numbers
    assert len(numbers) == 2 * len(batch_bytes.transforms(SIDE))
    assert min(numbers.values()) > 0


def test_the_hunt_makes_its_consumer_slow(bench: Bench) -> None:
    outcome = batch_bytes.check_torn(bench)
    assert outcome.verdict == "right"
    assert outcome.numbers["ballast_copies"] >= 1


def test_loops_of_pytorchs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", gpu_consumers.torch_on_cupy())
    assert speed.check_step_time(bench).numbers["feed_s"] > 0
    assert min(peer_loaders.check_torch_loader(bench).numbers.values()) > 0


def test_dalis_pipeline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    dali = gpu_consumers.dali_on_cupy(bench)
    monkeypatch.setitem(sys.modules, "nvidia.dali", dali)
    assert min(peer_loaders.check_dali(bench).numbers.values()) > 0
    assert dali.pipeline.build.called
    assert dali.pipeline.run.call_count >= 15


def test_without_another_library_or_its_gpu_it_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "jax", "nvidia.dali"):
        monkeypatch.setitem(sys.modules, name, None)
    checks: dict[str, Callable[[Bench], Any]] = {
        "PyTorch": speed.check_step_time,
        "JAX": jax_arrays.check_jax,
        "DALI": peer_loaders.check_dali,
    }
    for name, check in checks.items():
        with pytest.raises(NotHereError, match=f"{name} is not installed"):
            check(bench)
    blind = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", blind)
    with pytest.raises(NotHereError, match="sees no GPU"):
        peer_loaders.check_torch_loader(bench)


def test_jax_reads_whole_batches_and_torn_ones_are_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jax = gpu_consumers.jax_on_cupy()
    monkeypatch.setitem(sys.modules, "jax", jax)
    outcome = jax_arrays.check_jax(bench)
    assert (outcome.verdict, outcome.numbers["batches"]) == ("right", 20)
    read = jax.dlpack.from_dlpack
    jax.dlpack.from_dlpack = lambda blob: read(blob) | 128
    assert jax_arrays.check_jax(bench).verdict == "wrong"


class TestGraphs:
    def test_the_readers_get_on_while_one_is_captured(self, bench: Bench) -> None:
        outcome = graph_capture.check_capture(bench)
        assert outcome.verdict == "right"
        assert outcome.numbers == {"graphs": 10, "torn": 0, "spoilt": 0, "busy": 10}

    def test_spoilt_captures_and_torn_batches_are_found(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        work = graph_capture._readers_work

        def spoil(feed: Any) -> bool:
            thread = threading.Thread(target=_refused, args=(cupy.cuda.runtime.malloc, 64))
            thread.start()
            thread.join()
            return work(feed)

        with monkeypatch.context() as patch:
            patch.setattr(graph_capture, "_readers_work", spoil)
            outcome = graph_capture.check_capture(bench)
        assert (outcome.verdict, outcome.numbers["spoilt"]) == ("wrong", 10)
        monkeypatch.setattr(graph_capture, "RECORDS", RECORDS - 1)
        outcome = graph_capture.check_capture(bench)
        assert (outcome.verdict, outcome.numbers["spoilt"]) == ("wrong", 0)
        assert outcome.numbers["torn"] >= 1

    def test_those_of_pytorch(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", gpu_consumers.torch_with_graphs())
        outcome = graph_capture.check_torch_graph(bench)
        assert outcome.verdict == "right"
        assert outcome.numbers["graphs"] == 10
        spoiling = gpu_consumers.torch_with_graphs(lambda: _refused(cupy.cuda.runtime.malloc, 64))
        monkeypatch.setitem(sys.modules, "torch", spoiling)
        assert graph_capture.check_torch_graph(bench).numbers["spoilt"] == 10


def _refused(call: Callable[..., object], *arguments: Any) -> None:
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        call(*arguments)


class TestTheMapping:
    def test_every_way_of_registering_it_is_told(self, bench: Bench) -> None:
        outcome = registered_mapping.check_mapping(bench)
        assert outcome.verdict == "measured"
        assert outcome.text.count(": supported") == 3
        assert len(outcome.numbers) == 8

    def test_what_is_refused_is_told_with_cudas_reason(self, bench: Bench, fake: Any) -> None:
        fake.inject("cuMemHostRegister@1+=801")
        outcome = registered_mapping.check_mapping(bench)
        assert outcome.verdict == "measured"
        assert outcome.text.count(": refused, cudaErrorNotSupported") == 3
        assert set(outcome.numbers) == {"read_only_supported", "not_registered_bytes_per_s"}

    def test_other_bytes_than_the_files_are_wrong(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registered_mapping, "_copy", lambda *_: (1.0, False))
        assert registered_mapping.check_mapping(bench).verdict == "wrong"


class TestComputeSanitizer:
    @pytest.fixture
    def install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Install a program by that name: a shell script."""

        def write(script: str) -> None:
            program = tmp_path / "compute-sanitizer"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

        return write

    def test_the_transformation_runs_under_each_tool(
        self, bench: Bench, install: Callable[[str], None]
    ) -> None:
        install('shift 4; "$@" && echo "========= ERROR SUMMARY: 0 errors"')
        outcome = sanitizer.check_sanitizer(bench)
        assert (
            outcome.text == "memcheck: ERROR SUMMARY: 0 errors; initcheck: ERROR SUMMARY: 0 errors"
        )
        assert outcome.verdict == "right"

    @pytest.mark.parametrize(
        ("script", "verdict", "text"),
        [
            ("echo '========= Invalid __global__ read of size 4'; exit 86", "wrong", "Invalid"),
            ("echo 'DIFFERENT BYTES: float32'; exit 1", "wrong", "DIFFERENT BYTES"),
            ("echo '========= Error: Device not supported'; exit 255", "not run", "not supported"),
            ("sleep 60", "not run", "did not end in time"),
        ],
    )
    def test_what_it_says_is_told(
        self,
        bench: Bench,
        install: Callable[[str], None],
        script: str,
        verdict: str,
        text: str,
    ) -> None:
        install(script.replace("sleep", "exec sleep"))
        until = time.monotonic() + (0 if "sleep" in script else 60)
        outcome = sanitizer.check_sanitizer(dataclasses.replace(bench, until=until))
        assert outcome.verdict == verdict
        assert text in outcome.text
