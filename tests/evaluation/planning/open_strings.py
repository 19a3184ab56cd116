"""`python -m evaluation.planning.open_strings`: the plan's share of open strings, and the real one.

First names and surnames of the census, and domain names, with the parameters that the planner
chooses for them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import click
from rich import box
from rich.table import Table

from evaluation.planning.open_trials import OpenRuns, run_search
from hubbub.planning.goals import Plan
from hubbub.planning.noise import Budget
from hubbub.planning.open_strings import OpenGoal, choose_steps, open_test
from hubbub.planning.search import make_plan, plan
from hubbub.reporting.formats.terminal import stdout_console
from hubbub.reporting.progress import progress_bar

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_WIDTH_OFF_TERMINAL = 160
_NAMES, _DOMAINS = 8, 40
_POWER = 0.9


class OpenSetting(NamedTuple):
    """A population, how many report, and the epsilon of each one's only report."""

    population: str
    reports: int
    epsilon: float

    @property
    def goal(self) -> OpenGoal:
        """Strings of the population's length."""
        steps = choose_steps(_DOMAINS if self.population == "domains" else _NAMES)
        return OpenGoal(open_test(power=_POWER), steps)

    @property
    def plan(self) -> Plan:
        """What the planner chooses."""
        return plan(self.goal, Budget(float("inf"), self.epsilon), n_reports=self.reports).best


SETTINGS = (
    *(OpenSetting("census", n, eps) for eps in (2.0, 4.0) for n in (10**5, 10**6, 10**7)),
    OpenSetting("surnames", 10**6, 4.0),
    OpenSetting("surnames", 10**7, 4.0),
    OpenSetting("domains", 10**6, 4.0),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1), help="Searches.")
@click.option(
    "--choices",
    is_flag=True,
    help="Instead: first names, a million reports, epsilon 4, with other steps, k and m.",
)
@click.option(
    "--workers", default=os.cpu_count() or 1, show_default="one a core", help="Processes."
)
def main(seeds: int, choices: bool, workers: int) -> None:
    """Find strings without a list, with the planner's parameters, and see how rare they may be.

    \b
    predicted  share that the plan says is found with probability 0.9
    measured   share that is, by probit regression of "found" on the share
    ratio      measured over predicted
    right, false  strings found in a run that somebody holds, and that nobody holds
    """
    os.environ.update(_ONE_THREAD)
    context = multiprocessing.get_context("spawn")
    cases = (
        list(_choices())
        if choices
        else [(setting, setting.goal, setting.plan) for setting in SETTINGS]
    )
    results = []
    with ProcessPoolExecutor(workers, mp_context=context) as pool, progress_bar("searching") as bar:
        tasks = [
            [
                pool.submit(run_search, setting.population, goal, chosen, seed)
                for seed in range(seeds)
            ]
            for setting, goal, chosen in cases
        ]
        for (setting, goal, chosen), runs in zip(cases, tasks, strict=True):
            found = OpenRuns.of(setting.population, [run.result() for run in runs])
            results.append((setting, goal, chosen, found))
            bar(len(results), len(cases))
    stdout_console(_WIDTH_OFF_TERMINAL).print(make_table(results))


def _choices() -> Iterator[tuple[OpenSetting, OpenGoal, Plan]]:
    """Yield other choices than the planner's."""
    setting = OpenSetting("census", 10**6, 4.0)
    chosen = setting.plan
    shapes = [(steps, 256, 256) for steps in ((4, 7), (3, 5, 7), (4,), (5,))]
    shapes += [((4, 7), k, m) for k, m in ((64, 256), (256, 64), (512, 128))]
    for steps, k, m in shapes:
        params = chosen.params._replace(k=k, m=m)
        goal = OpenGoal(setting.goal.test, steps)
        yield setting, goal, make_plan(goal, "", params, setting.reports)


def make_table(results: Sequence[tuple[OpenSetting, OpenGoal, Plan, OpenRuns]]) -> Table:
    """Return a Markdown table with a line a setting."""
    table = Table(box=box.MARKDOWN)
    for heading in ("population", "epsilon", "reports", "steps; k, m", "predicted", "measured",
                    "ratio", "right", "false"):  # fmt: skip
        table.add_column(heading, justify="right")
    for setting, goal, chosen, runs in results:
        measured = runs.share_found(_POWER)
        table.add_row(
            setting.population,
            f"{setting.epsilon:g}",
            f"{setting.reports:,}",
            f"{', '.join(map(str, goal.steps))}; {chosen.params.k}, {chosen.params.m}",
            f"{chosen.limit:.3%}",
            f"{measured:.3%}",
            f"{measured / chosen.limit:.2f}",
            f"{runs.n_found:.1f}",
            f"{runs.n_false:.1f}",
        )
    return table


if __name__ == "__main__":
    main(prog_name="evaluation.planning.open_strings")
