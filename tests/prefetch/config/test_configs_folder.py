"""The configurations that people copy, the schema that editors check them by, and the table."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prefetch._config.load import load_config
from prefetch._config.schema import config_schema, option_table

if TYPE_CHECKING:
    from types import ModuleType

CHECKOUT = Path(__file__).resolve().parents[3]
CONFIGS = sorted((CHECKOUT / "configs").glob("*.yaml"))

every_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


@pytest.fixture
def gen_schema(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, writing into a folder of the test's own."""
    script = CHECKOUT / "scripts" / "gen_schema.py"
    spec = importlib.util.spec_from_file_location("gen_schema", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SCHEMA", tmp_path / "schema.json")
    return module


def test_there_is_one_for_each_kind_of_data() -> None:
    assert [path.stem for path in CONFIGS] == ["cifar10", "digits", "imagenet-today", "imagenet"]


@every_config
def test_every_configuration_is_valid_and_reads_beside_its_folder(path: Path) -> None:
    (source,) = load_config(path).source

    assert isinstance(source, Path)
    assert source.parent == CHECKOUT / "data"


def _value(config: object, name: str) -> object:
    """Return an option by its dotted name; None within a group that is null."""
    for part in name.split("."):
        config = getattr(config, part, None)
    return config


@every_config
def test_every_configuration_has_every_option_with_a_comment_of_its_own(path: Path) -> None:
    config = load_config(path)
    rows = option_table()
    # The options of a group that is null are left out.
    nulls = tuple(f"{row.name}." for row in rows if _value(config, row.name) is None)
    expected = [row.name.rpartition(".")[2] for row in rows if not row.name.startswith(nulls)]
    lines = path.read_text(encoding="utf-8").splitlines()
    commented = [
        line.partition(":")[0].strip()
        for above, line in itertools.pairwise(lines)
        if above.lstrip().startswith("# ") and re.match(r" *\w+:", line)
    ]

    assert [name for name in commented if name not in {"cache", "shard", "transform"}] == expected


def test_the_recipe_of_today_is_its_preset_written_out() -> None:
    path = CHECKOUT / "configs" / "imagenet-today.yaml"
    written = load_config(path).transform

    assert (
        written == load_config({"source": "x", "transform": {"preset": "imagenet-train"}}).transform
    )


@every_config
def test_every_configuration_names_the_schema_for_editors(path: Path) -> None:
    first = path.read_text(encoding="utf-8").partition("\n")[0]

    assert first == "# yaml-language-server: $schema=schema.json"


def test_the_schema_file_is_up_to_date() -> None:
    text = (CHECKOUT / "configs" / "schema.json").read_text(encoding="utf-8")

    assert json.loads(text) == config_schema()


def test_the_schema_knows_what_the_models_know() -> None:
    schema = config_schema()
    transform = schema["$defs"]["TransformConfig"]

    assert schema["required"] == ["source"]
    assert not schema["additionalProperties"]
    assert not transform["additionalProperties"]
    assert schema["properties"]["batch_size"] == {
        "default": 64,
        "description": "Records in a batch, 1 or more.",
        "maximum": 2**24,
        "minimum": 1,
        "type": "integer",
    }
    assert transform["properties"]["dtype"]["enum"] == ["float32", "float16", "bfloat16", "uint8"]
    assert transform["properties"]["scale"]["anyOf"][1]["minItems"] == 1


def test_every_option_of_the_schema_is_described() -> None:
    schema = config_schema()
    options: dict[str, Any] = dict(schema["properties"])
    for group in schema["$defs"].values():
        options |= group["properties"]

    assert [name for name, option in options.items() if not option.get("description")] == []


def test_the_table_of_options_has_names_defaults_and_descriptions() -> None:
    table = {row.name: row for row in option_table()}

    assert list(table)[:3] == ["source", "subset", "subset.start"]
    assert table["source"].default == "required"
    assert table["seed"].default == "0"
    assert table["shuffle"].default == "false"
    assert table["epochs"].default == "null"
    assert table["threads"].default == "auto"
    assert table["transform.mean_value"].default == "[]"
    assert table["labels"].default == "true"
    assert all(row.description.endswith((".", ").")) for row in table.values())


def test_the_script_writes_the_schema_and_check_tells_whether_it_is_current(
    gen_schema: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gen_schema.main(["--check"]) == 1
    assert "run: python scripts/gen_schema.py" in capsys.readouterr().err

    assert gen_schema.main([]) == 0
    assert json.loads(gen_schema.SCHEMA.read_text(encoding="utf-8")) == config_schema()
    assert gen_schema.main(["--check"]) == 0

    gen_schema.SCHEMA.write_text("{}", encoding="utf-8")
    assert gen_schema.main(["--check"]) == 1
    assert gen_schema.SCHEMA.read_text(encoding="utf-8") == "{}"
