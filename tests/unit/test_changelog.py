"""The changelog's fragments become a section, and nothing else lies between them."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def draft(folder: Path) -> subprocess.CompletedProcess[str]:
    """Return what `make changelog` prints in a copy of what it reads."""
    command = (sys.executable, "-m", "towncrier", "build", "--draft", "--version", "1.2.3")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def copied(folder: Path) -> Path:
    """Copy what a draft is made of."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "changelog.d", folder / "changelog.d")
    return folder / "changelog.d"


def test_fragments_become_a_section(tmp_path):
    fragments = copied(tmp_path)
    (fragments / "+twice-as-fast.changed.md").write_text("`decode` takes half the time.\n")
    section = draft(tmp_path)
    assert section.returncode == 0, section.stderr
    assert "## [1.2.3] - " in section.stdout
    assert "### Changed\n\n" in section.stdout
    assert "- `decode` takes half the time." in section.stdout


def test_a_fragment_of_no_type_is_refused(tmp_path):
    (copied(tmp_path) / "+faster.quick.md").write_text("Quick.\n")
    refused = draft(tmp_path)
    assert refused.returncode != 0
    assert "+faster.quick.md" in refused.stdout + refused.stderr
