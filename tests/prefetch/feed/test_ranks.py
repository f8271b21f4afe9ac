"""The rank of this process, by its surroundings."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from prefetch._feed.ranks import Ranks, find_ranks, process_group_ranks

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4"}
SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}


def process_group(rank: int, world_size: int, *, initialised: bool = True) -> dict[str, Any]:
    return {
        "torch.distributed": SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: initialised,
            get_rank=lambda: rank,
            get_world_size=lambda: world_size,
        )
    }


def ray_train(rank: int | None, world_size: int | None) -> dict[str, Any]:
    context = SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: world_size)
    return {"ray.train": SimpleNamespace(get_context=lambda: context)}


def found(
    environ: dict[str, str], modules: dict[str, Any] | None = None
) -> tuple[Ranks, list[str]]:
    warned: list[str] = []
    return find_ranks(environ=environ, modules=modules or {}, warn=warned.append), warned


def test_a_process_of_which_nothing_is_said_is_alone() -> None:
    assert (Ranks(0, 1, ""), []) == found({})


@pytest.mark.parametrize(
    ("environ", "modules", "expected"),
    [
        (TORCHRUN, {}, Ranks(2, 4, "RANK and WORLD_SIZE")),
        (SRUN, {}, Ranks(1, 3, "SLURM_PROCID and SLURM_STEP_NUM_TASKS")),
        (OPEN_MPI, {}, Ranks(5, 6, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE")),
        ({}, ray_train(3, 8), Ranks(3, 8, "Ray Train's context")),
        ({}, process_group(1, 2), Ranks(1, 2, "torch.distributed's process group")),
    ],
)
def test_each_of_the_surroundings_is_asked(
    environ: dict[str, str], modules: dict[str, Any], expected: Ranks
) -> None:
    assert (expected, []) == found(environ, modules)


def test_they_are_asked_in_a_fixed_order() -> None:
    environ, modules = {**OPEN_MPI, **SRUN, **TORCHRUN}, {**process_group(0, 9), **ray_train(3, 8)}
    origins = []
    for names in ((), ("RANK", "WORLD_SIZE"), tuple(SRUN), tuple(OPEN_MPI)):
        for name in names:
            del environ[name]
        origins.append(found(environ, modules)[0].world_size)
        modules.pop("torch.distributed", None)
    assert [9, 3, 6, 8] == origins


def test_a_process_group_that_is_not_initialised_says_nothing() -> None:
    assert (
        Ranks(2, 4, "RANK and WORLD_SIZE")
        == found(TORCHRUN, process_group(0, 9, initialised=False))[0]
    )
    assert process_group_ranks(process_group(0, 9, initialised=False)) is None


def test_a_module_in_the_middle_of_its_import_says_nothing() -> None:
    assert process_group_ranks({"torch.distributed": SimpleNamespace()}) is None


def test_the_tasks_of_a_whole_slurm_job_are_not_asked() -> None:
    """A lone process in a batch script has SLURM_NTASKS and SLURM_PROCID as well."""
    assert (Ranks(0, 1, ""), []) == found({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"})


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_half_a_pair_is_ignored_with_a_warning(name: str) -> None:
    ranks, warned = found({name: "1"}, ray_train(3, 8))
    assert (Ranks(3, 8, "Ray Train's context"), 1) == (ranks, len(warned))
    assert warned[0].startswith(f"{name} is set and ")


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("4", "4"),
        ("0", "9" * 5000),
        (str(10**20 - 1), str(10**20)),
        ("-1", "4"),
        ("x", "2"),
        ("0", "0"),
        ("", ""),
    ],
)
def test_numbers_that_are_no_rank_are_ignored_with_a_warning(rank: str, size: str) -> None:
    ranks, warned = found({"RANK": rank, "WORLD_SIZE": size})
    assert (Ranks(0, 1, ""), 1) == (ranks, len(warned))


def test_outside_of_a_training_worker_ray_says_nothing() -> None:
    def get_context() -> None:
        raise RuntimeError("this is no worker")

    outside = {"ray.train": SimpleNamespace(get_context=get_context)}
    assert Ranks(0, 1, "") == found({}, outside)[0]
    assert Ranks(0, 1, "") == found({}, ray_train(None, None))[0]


def test_nothing_is_imported_to_find_out() -> None:
    code = (
        "import sys, prefetch._feed.ranks as ranks; before = set(sys.modules); ranks.find_ranks();"
        "print(sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == run.stdout


def test_what_stands_behind_the_pair_that_decides_is_not_looked_at() -> None:
    def get_context() -> None:
        raise AssertionError("Ray was asked")

    asked = {"ray.train": SimpleNamespace(get_context=get_context)}
    environ = {**TORCHRUN, "OMPI_COMM_WORLD_SIZE": "8"}
    assert (Ranks(2, 4, "RANK and WORLD_SIZE"), []) == found(environ, asked)
