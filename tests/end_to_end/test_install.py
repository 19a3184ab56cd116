"""What an app's author gets from `pip install hubbub`: the client and mmh3, nothing else."""

import json
import re
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from hubbub.client import __version__

THIRD_PARTY = """
import json, sys, sysconfig
before = set(sys.modules)
import hubbub.client
site = sysconfig.get_path("purelib"), sysconfig.get_path("platlib")
files = {n: getattr(sys.modules[n], "__file__", None) or "" for n in set(sys.modules) - before}
found = {n.split(".")[0] for n, f in files.items() if f.startswith(site)}
print(json.dumps(sorted(found - {"hubbub"})))
"""
HEAVY = ("asyncio", "email", "http.client", "multiprocessing", "ssl", "urllib.request")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def fresh_python(request, tmp_path_factory) -> Path:
    """Return the interpreter of a new environment into which the project was installed."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", request.config.rootpath)
    return python


@pytest.mark.long
def test_install_brings_hubbub_and_mmh3_alone(fresh_python):
    listed = json.loads(run(fresh_python, "-I", "-m", "pip", "list", "--format", "json"))
    assert {package["name"] for package in listed} - {"pip", "setuptools"} == {"hubbub", "mmh3"}


def test_client_loads_no_third_party_module_but_mmh3():
    assert json.loads(run(sys.executable, "-I", "-c", THIRD_PARTY)) == ["mmh3"]


def test_app_that_only_imports_the_client_loads_no_network_stack():
    script = f"import sys, hubbub.client; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(sys.executable, "-I", "-c", script).strip() == "[]"


@pytest.mark.long
def test_types_are_shipped_with_all_packages(fresh_python):
    script = (
        "import importlib.util as u, pathlib as p; "
        "names = 'client collector decoder protocol release simulations'.split(); "
        "print([n for n in names if not "
        "p.Path(u.find_spec(f'hubbub.{n}').origin).with_name('py.typed').exists()])"
    )
    assert run(fresh_python, "-I", "-c", script).strip() == "[]"


def test_python_npm_citation_and_installed_package_have_one_version(request):
    javascript = request.config.rootpath / "client" / "javascript" / "package.json"
    assert json.loads(javascript.read_text(encoding="utf-8"))["version"] == __version__
    assert metadata("hubbub")["Version"] == __version__
    citation = (request.config.rootpath / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation


def test_links_of_the_page_on_pypi_lead_somewhere():
    page = metadata("hubbub").json["description"]
    assert isinstance(page, str)
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
