"""``ringfeed schema``: the JSON schema of a configuration."""

from __future__ import annotations

from prefetch.cli.reports.printing import print_json


def schema() -> None:
    """Print the JSON schema of configuration files, by which editors complete and check options."""
    from prefetch._config.schema import config_schema  # noqa: PLC0415 - pydantic is slow to import

    print_json(config_schema())
