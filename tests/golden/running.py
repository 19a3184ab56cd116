"""A case -> what its commands print, and the files they make, as text.

Commands run in this process, by the entry points of the installed programs, in a new folder with a
copy of the inputs; no setting of the caller's environment reaches them.
"""

import contextlib
import os
import runpy
import shlex
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import click
from click.testing import CliRunner

from golden.inputs import import_commands, write_inputs
from golden.plain_text import TOLERANCE, file_text, hide, kept_name, stable

CASES = Path(__file__).parent / "cases"
EXPECTED = Path(__file__).parent / "expected"
TRANSCRIPT = Path("transcript.txt")
PROGRAMS = ("hubbub-collector", "hubbub-decoder", "hubbub-release", "hubbub-simulate")
WIDTH = 80
_KEPT = {"PATH", "HOME", "TMPDIR"}


@dataclass(frozen=True)
class Case:
    """Commands that run one after the other in one folder."""

    name: str
    # as in a shell; `< FILE` gives standard input, and nothing else of a shell's is understood.
    # `python FILE` runs a script in this process.
    commands: tuple[str, ...]
    # written into the folder first, beside the inputs
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables; there are no others
    hide: tuple[str, ...] = ()  # patterns whose first group differs from run to run
    # patterns of the paths of files that aren't kept; * stands for / as well
    leave_out: tuple[str, ...] = ()
    tolerance: float = TOLERANCE  # relative, of numbers of more than nine digits


def load_cases() -> dict[str, Case]:
    cases = {}
    for path in sorted(CASES.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
            case = Case(f"{path.stem}/{name}", **{**entry, **lists})
            cases[case.name] = case
    return cases


def run_case(case: Case) -> dict[Path, str]:
    """Return a transcript of the commands and the files that they made or changed."""
    with _folder() as folder:
        shutil.copytree(_inputs(), folder, dirs_exist_ok=True)
        for name, text in case.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        before = _stamps(folder)
        transcript = "\n".join(_run(command, case.environment) for command in case.commands)
        kept = {TRANSCRIPT: transcript}
        for path, stamp in _stamps(folder).items():
            if before.get(path) != stamp and not _fits(path, case.leave_out):
                kept[kept_name(path)] = file_text(folder / path)
        return {path: hide(stable(text, folder), case.hide) for path, text in kept.items()}


def _fits(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path.as_posix(), pattern) for pattern in patterns)


def kept_files(case: Case) -> dict[Path, str]:
    folder = EXPECTED / case.name
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes().decode() for path in paths}


def write_case(case: Case, found: Mapping[Path, str]) -> None:
    """Keep what a case gave, instead of what was kept of it before."""
    folder = EXPECTED / case.name
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in found.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())


@cache
def program(name: str) -> click.Command:
    """Return what an installed program runs."""
    if name == "python":
        return _python
    (entry,) = entry_points(group="console_scripts", name=name)
    command = entry.load()
    assert isinstance(command, click.Command)
    return command


def _forget_help(command: click.Command) -> None:
    """Forget how help is asked for.

    click keeps what the first caller in a process had, and somebody may have called a command of a
    group alone.
    """
    command._help_option = None
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (below := command.get_command(click.Context(command), name)) is not None:
                _forget_help(below)


@click.command()
@click.argument("script")
def _python(script: str) -> None:
    runpy.run_path(script)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    umask = os.umask(0o022)
    try:
        with tempfile.TemporaryDirectory(prefix="golden-") as name, contextlib.chdir(name):
            yield Path.cwd()
    finally:
        os.umask(umask)


@cache
def _inputs() -> Path:
    """Write the inputs once for all cases of this process."""
    holder = tempfile.TemporaryDirectory(prefix="golden-inputs-")
    _HOLDERS.append(holder)
    folder = Path(holder.name)
    write_inputs(folder)
    with contextlib.chdir(folder):
        for command in import_commands():
            done = _run(command, {})
            assert "[exit" not in done, done
    return folder


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""They are removed when the process ends."""


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.endswith(("-wal", "-shm")):
            status = path.stat()
            found[path.relative_to(folder)] = (status.st_mtime_ns, status.st_size)
    return found


def _run(line: str, variables: Mapping[str, str]) -> str:
    """Run a command and return it with what it printed, and its exit code unless that is 0."""
    name, *arguments = shlex.split(line)
    given = b""
    if "<" in arguments:
        place = arguments.index("<")
        given = Path(arguments[place + 1]).read_bytes()
        arguments = arguments[:place]
    environment: dict[str, str | None] = dict.fromkeys(os.environ.keys() - _KEPT)
    environment |= {"COLUMNS": f"{WIDTH}", "LC_ALL": "C.UTF-8", "TZ": "UTC", **variables}
    _forget_help(program(name))
    done = CliRunner().invoke(
        program(name), arguments, input=given, env=environment, prog_name=name
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"{line}: unexpected {done.exception!r}") from done.exception
    out, err = done.stdout_bytes.decode(), done.stderr_bytes.decode()
    parts = [f"$ {line}\n", _ended(out)]
    if err:
        parts += ["[standard error]\n", _ended(err)]
    if done.exit_code:
        parts.append(f"[exit {done.exit_code}]\n")
    return "".join(parts)


def _ended(text: str) -> str:
    return f"{text}[no line end]\n" if text and not text.endswith("\n") else text
