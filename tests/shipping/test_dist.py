"""The files of a release: the same bytes each time, and each works where nothing else is."""

import json
import re
import shutil
import sys
import tarfile

import pytest

from package.npm import npm
from shipping.conftest import BUILDER, DIST, NODES, PYTHONS, ROOT, built, install, run

RECORD = """
import tempfile
from hubbub.client import Telemetry
with tempfile.TemporaryDirectory() as state:
    app = Telemetry("docs/examples/metrics.toml", "http://127.0.0.1:9", state, development=True)
    print(app.preview("sync", True).epsilon_report)
    app.close(0)
"""
pytestmark = pytest.mark.timeout(1800)  # all that an environment has is fetched
MOST_MIB = 1.5
"""Of the wheel, all packages in it: what an app that embeds the client downloads besides mmh3."""


def test_wheel_is_the_same_bytes_when_it_is_built_from_the_sdist(tmp_path, monkeypatch):
    """So are two sdists of one folder; the date is that of the files in the sdist."""
    sdist, wheel = built("*.tar.gz"), built("*.whl")
    with tarfile.open(sdist) as archive:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(archive.getmembers()[0].mtime)))
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = (BUILDER, "-m", "hatchling", "build", "-d", tmp_path / "again", "-t")
    run(*build, "wheel", folder=source)
    run(*build, "sdist")
    for first in (wheel, sdist):
        assert (tmp_path / "again" / first.name).read_bytes() == first.read_bytes(), first.name


def test_npm_tarball_is_the_same_bytes_when_it_is_packed_again(tmp_path):
    folder = ROOT / "client" / "javascript"
    npm("pack", "--pack-destination", tmp_path, folder=folder)
    (again,) = tmp_path.iterdir()
    assert again.read_bytes() == built("hubbub-client-*.tgz").read_bytes()


def test_wheel_is_small():
    assert built("*.whl").stat().st_size < MOST_MIB * 2**20


@pytest.mark.parametrize("file", ["*.whl", "*.tar.gz"])
@pytest.mark.parametrize("python", PYTHONS)
def test_bare_install_records(python, file, tmp_path):
    inside = install(python, tmp_path / "venv", str(built(file)))
    listed = json.loads(run(inside, "-m", "pip", "list", "--format", "json"))
    assert {each["name"] for each in listed} - {"pip", "setuptools"} == {"hubbub", "mmh3"}
    assert float(run(inside, "-c", RECORD)) > 0


@pytest.mark.timeout(1800)  # a whole environment is installed, on a slow machine too
@pytest.mark.parametrize("python", PYTHONS)
def test_installed_wheel_passes_the_clients_tests_and_runs_the_demonstration(python, tmp_path):
    inside = install(python, tmp_path / "venv", f"{built('*.whl')}[test]")
    where = run(inside, "-c", "import hubbub.client; print(hubbub.client.__file__)")
    assert where.startswith(str(tmp_path))
    run(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/client")
    demo = ("--reports", "20000", "--clients", "20", "--output", tmp_path / "demo")
    run(inside, "-m", "hubbub.simulations", "demo", *demo)
    result = json.loads((tmp_path / "demo" / "result.json").read_text(encoding="utf-8"))
    assert result["true_positives"] > 0


@pytest.mark.parametrize("node", NODES, ids=range(len(NODES)))
def test_installed_tarball_passes_the_clients_tests(node, tmp_path):
    (tmp_path / "package.json").write_text('{"private": true}', encoding="utf-8")
    npm("install", "--offline", built("hubbub-client-*.tgz"), folder=tmp_path)
    installed = tmp_path / "node_modules" / "hubbub-client"
    for name in ("test", "testing"):
        shutil.copytree(ROOT / "client" / "javascript" / name, installed / name)
    for name in ("docs", "tests"):  # vectors and texts that all clients share
        (tmp_path / name).symlink_to(ROOT / name)
    run(node, "--test", "--test-reporter", "spec", folder=installed)  # failures come last


def test_npm_package_brings_nothing_but_itself():
    """And the list of what its users get says so, the same bytes each time."""
    options = ("--sbom-format", "cyclonedx", "--sbom-type", "library", "--omit", "dev")
    text = npm("sbom", *options, "--package-lock-only", folder=ROOT / "client" / "javascript")
    bill = json.loads(text)
    del bill["serialNumber"], bill["metadata"]["timestamp"]
    package = bill["metadata"]["component"]
    package["name"] = "hubbub-client"  # npm takes the folder's
    path = built("hubbub-client-*.tgz").with_suffix(".cdx.json")
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    assert package["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert bill["components"] == []


def test_folder_of_the_javascript_client_installs_with_types(tmp_path):
    (tmp_path / "package.json").write_text('{"private": true}', encoding="utf-8")
    copied = tmp_path / "copy"
    made = shutil.ignore_patterns("node_modules", "types")
    shutil.copytree(ROOT / "client" / "javascript", copied, ignore=made)
    npm("install", copied, folder=tmp_path)
    assert (tmp_path / "node_modules" / "hubbub-client" / "types" / "index.d.ts").exists()


def test_every_package_that_users_get_has_a_licence_without_conditions_for_them(all_extras):
    bill = DIST / f"{built('*.whl').name.removesuffix('-py3-none-any.whl')}.cdx.json"
    options = ("--output-reproducible", "--output-file", bill)
    run(sys.executable, "-m", "cyclonedx_py", "environment", *options, all_extras)
    components = json.loads(bill.read_text(encoding="utf-8"))["components"]
    licences = {each["name"]: json.dumps(each.get("licenses", [])) for each in components}
    assert {"mmh3", "numpy", "sqlalchemy", "opendp"} <= {name.lower() for name in licences}
    # partd's BSD licence is a file that its metadata names in words that SBOMs don't know.
    assert {name for name, text in licences.items() if text == "[]"} <= {"partd"}
    # libgfortran, in the wheels of numpy and SciPy, may be linked to anything.
    conditional = re.compile(r"GPL(?!-3\.0-with-GCC-exception)|SSPL|BUSL|Commons Clause")
    assert {name: text for name, text in licences.items() if conditional.search(text)} == {}
