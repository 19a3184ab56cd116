"""MkDocs calls these while it builds the site (`make docs`).

`<!-- made: NAME -->` is replaced by what `website.tables` or `website.pictures` makes under that
name, and `<!-- prints -->` below an indented command by what the command prints. Above a line that
links to a measured table (data/NAME.csv) comes the table, and below it what measured it. Links that
lead out of docs/ lead to the repository's page on the web; a file that isn't there is a warning,
and so an error of the strict build.
"""

import logging
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from website.pictures import PICTURES
from website.tables import MEASURED, TABLES, measured

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/hubbub-telemetry/hubbub/blob/main"
MADE: dict[str, Callable[[], str]] = TABLES | PICTURES
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
_PRINTS = re.compile(r"((?:^    .*\n)+)\n<!-- prints -->\n", re.MULTILINE)
_log = logging.getLogger("mkdocs.plugins.website")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put in what is made or printed, and let links lead somewhere."""
    markdown = _PRINTS.sub(lambda match: f"{match[1]}\n{printed(match[1])}", markdown)
    markdown = re.sub(r"<!-- made: (\w+) -->", lambda match: MADE[match[1]](), markdown)
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")
    markdown = MEASURED.sub(lambda match: measured(match[0], ROOT / folder / match[1]), markdown)
    return _LINK.sub(lambda match: _link(match, folder), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Leave out how mkdocs-click shows that there is no default, and headings of no words."""
    without = html.replace("<code>Sentinel.UNSET</code>", "")
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", without)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Load nothing from other hosts, and name the search for those who hear the page."""
    return _completed(output, "../" * page.file.dest_uri.count("/"))


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for pages that aren't made from Markdown (404.html)."""
    return _completed(output_content, "")


def _completed(html: str, up: str) -> str:
    # What lets the search work from files is beside the pages.
    local = html.replace("https://unpkg.com/iframe-worker/shim", f"{up}assets/iframe-worker.js")
    return local.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def printed(command: str) -> str:
    """Return a fenced block with what a documented command prints about the example's registry."""
    (line,) = (
        x for x in command.replace("\\\n", " ").splitlines() if x.strip().startswith("hubbub")
    )
    program, *words = shlex.split(line)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "docs" / "examples" / "metrics.toml", folder)
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *words],
            cwd=folder,
            env={"COLUMNS": "100", "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        _log.warning("%s: %s", line.strip(), done.stderr.strip())
    return f"```text\n{done.stdout.rstrip()}\n```\n"


def _link(match: re.Match[str], folder: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, match[1]))
    if not (ROOT / path).exists():
        _log.warning("%s: no such file: %s", folder, match[1])
    if path.startswith("docs/") and (ROOT / path).is_file():
        return match[0]
    return f"]({REPOSITORY}/{path}{match[2] or ''})"
