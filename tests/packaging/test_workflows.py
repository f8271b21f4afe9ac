"""The workflows of GitHub call what is in the checkout, on the Pythons that the project claims."""

from __future__ import annotations

import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from databases import names_in
from ruamel.yaml import YAML

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS = ("ci.yml", "wheel.yml")


@pytest.fixture(params=WORKFLOWS)
def workflow(request: pytest.FixtureRequest, checkout: Path) -> Any:
    return YAML(typ="safe").load(checkout / ".github" / "workflows" / request.param)


def commands(workflow: Any) -> list[str]:
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


def test_all_workflows_are_tested(checkout: Path) -> None:
    assert sorted(WORKFLOWS) == names_in(checkout / ".github" / "workflows")


def test_each_job_has_steps_which_run_something_or_use_an_action_of_a_version(
    workflow: Any,
) -> None:
    for job in workflow["jobs"].values():
        assert job["runs-on"].startswith("ubuntu-")
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@v[\d.]+", step.get("uses", "some/action@v1"))


def test_files_of_the_checkout_that_are_run_are_there(workflow: Any, checkout: Path) -> None:
    named = re.findall(r"(?:^|\s)(\.?[\w-]+/[\w./-]+)", "\n".join(commands(workflow)))
    files = [name for name in named if not name.startswith("wheelhouse/")]
    assert [] == [name for name in files if not os.access(checkout / name, os.X_OK)]


def test_every_make_target_that_ci_runs_exists(checkout: Path, workflow: Any) -> None:
    text = "\n".join([(checkout / ".ci" / "run").read_text(encoding="utf-8"), *commands(workflow)])
    called = set(re.findall(r"\bmake ([a-z][a-z-]*)$", text, re.MULTILINE))
    makefile = (checkout / "Makefile").read_text(encoding="utf-8")
    assert {"lint", "types", "docs", "test"} <= called
    assert set() == called - set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def test_ci_runs_on_every_python_that_the_project_names(checkout: Path) -> None:
    ci = YAML(typ="safe").load(checkout / ".github" / "workflows" / "ci.yml")
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["project"]["classifiers"]))
    assert named == ci["jobs"]["run"]["strategy"]["matrix"]["python"]
    built = [
        name.removeprefix("cp3").partition("-")[0]
        for name in project["tool"]["cibuildwheel"]["build"]
    ]
    assert named == [f"3.{minor}" for minor in built]
