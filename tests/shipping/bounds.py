"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-lowest`."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
_LEFT_OUT = {"all", "dev", "dist", "test"}


def lowest(requirements: list[str]) -> dict[str, str]:
    """Return the least version of each package that has one."""
    bounds = (re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", each) for each in requirements)
    return {bound[1]: bound[2] for bound in bounds if bound}


def constraints() -> list[str]:
    """Return one line for each package that users install with hubbub."""
    extras = PROJECT["optional-dependencies"]
    shipped = [extras[name] for name in extras if name not in _LEFT_OUT]
    pairs = {pair for each in (PROJECT["dependencies"], *shipped) for pair in lowest(each).items()}
    return [f"{name}=={version}" for name, version in sorted(pairs)]


if __name__ == "__main__":
    print("\n".join(constraints()))
