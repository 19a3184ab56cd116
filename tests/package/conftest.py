"""The package as npm makes it, and empty projects that install it."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from package.npm import npm, run
from unit.javascript.node import CLIENT


@dataclass(frozen=True, slots=True)
class Package:
    """A copy of client/javascript with its development tools installed, and its tarball."""

    folder: Path  # the copy
    tarball: Path  # what `npm publish` would upload
    files: frozenset[str]  # the paths in the tarball, as npm lists them

    def run_tool(self, path: str, *arguments: str | Path, folder: Path | None = None) -> str:
        """Run a program of the development tools, which must succeed; return what it prints."""
        program = self.folder / "node_modules" / path
        return run(program, *arguments, folder=folder or self.folder)


@pytest.fixture(scope="session")
def package(request) -> Package:
    """Make the package from a copy, so that the checkout stays as it is."""
    out = request.config.rootpath / "out" / "package"
    shutil.rmtree(out, ignore_errors=True)
    folder = out / "source"
    not_in_git = shutil.ignore_patterns("node_modules", "types", "*.tgz")
    shutil.copytree(CLIENT, folder, ignore=not_in_git)
    npm("ci", "--ignore-scripts", folder=folder)
    (packed,) = json.loads(npm("pack", "--json", "--pack-destination", out, folder=folder))
    files = frozenset(file["path"] for file in packed["files"])
    return Package(folder, out / packed["filename"], files)


@pytest.fixture
def project(package, tmp_path) -> Path:
    """Install the tarball, without any network, in a project that has nothing else."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
    npm("install", "--offline", "--ignore-scripts", package.tarball, folder=folder)
    return folder
