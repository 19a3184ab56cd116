"""`hubbub-collector init`: four questions, planned parameters, a metrics.toml with comments.

Only what --help needs is imported at once; planning needs the decoder's packages, which a collector
may lack.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from hubbub.protocol import explain_missing_packages

if TYPE_CHECKING:
    from hubbub.planning.goals import Goal

_CANDIDATES = 10_000
"""Strings that will be looked for: what a list of hosts or settings has."""
_COMMENTS = {
    "version": "raise it with any change but of description, owner and expires",
    "description": "your users may read this",
    "owner": "who answers for it",
    "expires": "clients stop reporting after this day",
    "mode": "one report each period, of its first value; nothing of it stays on the device",
    "period_days": "how often a client answers again; a new one waits up to this long to start",
    "max_periods": "a client is silent after so many",
    "k": "bits of a report",
    "h": "hash functions",
    "m": "cohorts, which hash differently",
    "p": "chance that a 0 is reported as 1",
    "q": "chance that what holds is reported",
    "response": "a random set of categories",
}


class _Values(click.ParamType):  # type: ignore[type-arg]  # a generic only in newer versions of click
    """`text`, `yes/no`, categories with commas, or two bounds as 0..60; gives itself back."""

    name = "values"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | tuple[float, float] | list[str]:
        """Return "text", the bounds, or the categories."""
        if not isinstance(value, str) or value == "text":
            return value
        if bounds := re.fullmatch(r"(-?[\d.]+)\.\.(-?[\d.]+)", value):
            return float(bounds[1]), float(bounds[2])
        categories = [part.strip() for part in value.replace("/", ",").split(",")]
        if len(set(categories)) < max(2, len(categories)) or not all(categories):
            self.fail(f"{value!r} must be text, yes/no, a,b,c or 0..60", param, ctx)
        return categories


class _Question(click.Option):
    """An option that is asked for if it isn't given; an error without a terminal."""

    def prompt_for_value(self, ctx: click.Context) -> Any:
        """Ask (raises UsageError at the end of a standard input that isn't a terminal)."""
        try:
            return super().prompt_for_value(ctx)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            raise click.UsageError(
                f"{self.opts[0]} isn't given, and standard input has no answer; give "
                "--application, --name, --values and --clients"
            ) from None


@click.command()
@click.option(
    "--application",
    cls=_Question,
    prompt="Your app's name, as a reversed domain",
    default="com.example.app",
    metavar="NAME",
    help="The app's name, as a reversed domain.",
)
@click.option(
    "--name",
    cls=_Question,
    prompt="What do you want to know? A short name",
    default="search_engine",
    metavar="NAME",
    help="The metric's name.",
)
@click.option(
    "--values",
    type=_Values(),
    cls=_Question,
    prompt="Its values: text, yes/no, light,dark,system, or a number such as 0..60",
    default="text",
    metavar="VALUES",
    help="text (you list the strings to look for later), yes/no, categories separated by commas, "
    "or the bounds of a number, such as 0..60.",
)
@click.option(
    "--clients",
    type=click.FloatRange(100, 1e12),
    cls=_Question,
    prompt="How many people will report? Roughly",
    default=100_000,
    metavar="N",
    help="Number of clients that will report, such as 1e5.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0.01, 20),
    default=2.0,
    show_default=True,
    help="How much a client's report may reveal in one period.",
)
@click.option(
    "--owner",
    default="privacy@example.com",
    show_default=True,
    help="Who is responsible for the metric.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="metrics.toml",
    show_default=True,
    help="The file to write; an existing file is never overwritten.",
)
def init(
    application: str,
    name: str,
    values: Any,
    clients: float,
    epsilon: float,
    owner: str,
    output: Path,
) -> None:
    """Ask four questions and write a metrics.toml with the best parameters for the answers.

    \b
      hubbub-collector init
      hubbub-collector init --application com.example.app --name theme \\
          --values light,dark,system --clients 1e5

    It asks only for missing options. Clients report once per period.
    docs/understand/planning.md explains the parameters; `hubbub-decoder plan` compares other ways
    to ask.
    """
    explain_missing_packages("collector,decoder")
    from hubbub.planning.goals import Schedule
    from hubbub.planning.modes import compare_modes
    from hubbub.protocol import ADDRESS, Registry
    from hubbub.reporting import atomic_write, cli_errors

    with cli_errors():
        schedule = Schedule("once")
        best = compare_modes(_goal(values), epsilon, schedule, n_clients=clients).best
        price = schedule.max_periods * epsilon
        described = {"description": "What we learn from it, and what for", "owner": owner}
        entry = best.goal.entry(best.params, name)
        if isinstance(values, list):
            texts = json.dumps(values, ensure_ascii=False)
            entry = re.sub(
                r"categories = \[.*?\]", lambda _: f"categories = {texts}", entry, flags=re.DOTALL
            )
        expires = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=365)
        entry = entry.replace("2099-12-31", str(expires))
        limit = best.goal.about_limit(best)
        lines = [
            f"#:schema {ADDRESS}",
            f"# Planned for {clients:,.0f} clients and epsilon {epsilon:g} a period.",
            f"# {limit}",
            f"application = {json.dumps(application)}",
            f"lifetime_epsilon = {price:.1f}  # of all answers that a client ever gives",
            "",
            *(_commented(line, described) for line in entry.splitlines()),
        ]
        text = "\n".join(lines) + "\n"
        Registry.parse(text)
        if output.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(output))

        def write(file: BinaryIO) -> None:
            file.write(text.encode())

        atomic_write(output, write)
    click.echo(limit)
    click.echo(f"Wrote {output}. Now: state its purpose in its description, and\n")
    click.echo(
        f"    hubbub-collector serve --metrics {output} --store sqlite:///hubbub.db --port 8100"
    )


def _goal(values: Any) -> Goal:
    """Return what the planner is asked."""
    from hubbub.planning.categories import categories_goal, number_goal
    from hubbub.planning.limits import DetectionTest
    from hubbub.planning.strings import StringsGoal

    if values == "text":
        return StringsGoal(DetectionTest(_CANDIDATES))
    return number_goal(*values) if isinstance(values, tuple) else categories_goal(len(values))


def _commented(line: str, texts: dict[str, str]) -> str:
    key = line.partition(" = ")[0]
    line = f"{key} = {json.dumps(texts[key], ensure_ascii=False)}" if key in texts else line
    return f"{line}  # {_COMMENTS[key]}" if key in _COMMENTS else line
