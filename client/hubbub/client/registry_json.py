"""metrics.toml -> the same registry as JSON, which browsers load: `python -m` this module.

The file is checked first, so that a page never gets a registry that the other sides refuse. Keys
and values stay as they are; dates, which JSON doesn't have, become texts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from hubbub.protocol.errors import MetricError
from hubbub.protocol.registry import Registry


def registry_json(path: Path) -> str:
    """Return the registry in a metrics.toml as JSON, in ASCII.

    Raises `MetricError` as `Registry.load`.
    """
    Registry.load(path)
    document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    return json.dumps(document, indent=2, allow_nan=False, default=dt.date.isoformat) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hubbub.client.registry_json",
        description="Check a metrics.toml, and print it as the JSON that browsers load.",
    )
    parser.add_argument("metrics", type=Path, metavar="metrics.toml")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="metrics.json", help="instead of standard output"
    )
    options = parser.parse_args(arguments)
    try:
        registry = registry_json(options.metrics)
        if options.output is None:
            sys.stdout.write(registry)
        else:
            options.output.write_text(registry, encoding="ascii")
    except (MetricError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
