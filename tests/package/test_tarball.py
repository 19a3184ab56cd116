"""What `npm publish` would upload: complete, nothing more, and found right by every tool."""

import json
import tarfile

from package.conftest import Package
from unit.javascript.node import CLIENT

ROOT = CLIENT.parents[1]


def read(package: Package) -> dict[str, bytes]:
    """Return all files of the tarball."""
    with tarfile.open(package.tarball) as archive:
        return {
            member.name.removeprefix("package/"): content.read()
            for member in archive
            if (content := archive.extractfile(member))
        }


def test_tarball_has_sources_their_types_and_the_license_alone(package):
    modules = [path.stem for path in (CLIENT / "src").glob("*.js")]
    assert len(modules) > 10
    sources = {f"src/{module}.js" for module in modules}
    types = {f"types/{module}.d.ts{end}" for module in modules for end in ("", ".map")}
    assert package.files == {"LICENSE", "README.md", "package.json"} | sources | types


def test_license_is_that_of_the_project(package):
    assert read(package)["LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_no_file_shows_where_it_was_made(package):
    contents = read(package)
    assert set(contents) == package.files
    here = str(ROOT).encode()
    assert [name for name, content in contents.items() if here in content] == []


def test_package_brings_no_other(project):
    installed = [path.name for path in (project / "node_modules").iterdir()]
    assert [name for name in installed if not name.startswith(".")] == ["hubbub-client"]


def test_lock_names_no_registry(package):
    lock = json.loads((package.folder / "package-lock.json").read_text(encoding="utf-8"))
    assert len(lock["packages"]) > 50
    assert [name for name, entry in lock["packages"].items() if "resolved" in entry] == []


def test_publint_finds_nothing(package):
    assert "All good!" in package.run_tool(".bin/publint", "run", "--strict", package.tarball)


def test_every_resolution_of_es_modules_finds_the_right_types(package):
    """CommonJS and node10, which the profile leaves out, can't have a package of ES modules."""
    options = ["--profile", "esm-only", "--no-emoji", "--no-color"]
    printed = package.run_tool(".bin/attw", package.tarball, *options)
    assert '"hubbub-client/node"' in printed
