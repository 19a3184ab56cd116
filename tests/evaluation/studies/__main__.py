"""Make a table: python -m evaluation.studies NAME [options]."""

from __future__ import annotations

import click

from evaluation.studies import (
    ablation,
    categories,
    cells,
    change,
    comparisons,
    coverage,
    detected,
    joint,
    likelihood,
    open_populations,
    peers,
    periods,
    planned_comparisons,
    planned_joint,
    planned_open,
    planned_power,
    rappor_cases,
    releases,
    repeated_reports,
    sequential,
    trends,
)

STUDIES = {
    "categories": categories.STUDY,
    "comparisons": comparisons.STUDY,
    "coverage": coverage.STUDY,
    "detected": detected.STUDY,
    "joint": joint.STUDY,
    "likelihood": likelihood.STUDY,
    "means": cells.MEANS,
    "open-populations": open_populations.STUDY,
    "peers": peers.STUDY,
    "periods": periods.STUDY,
    "planned-comparisons": planned_comparisons.STUDY,
    "planned-joint": planned_joint.STUDY,
    "planned-open": planned_open.STUDY,
    "planned-power": planned_power.STUDY,
    "rappor-cases": rappor_cases.STUDY,
    "repeated-reports": repeated_reports.STUDY,
    "sequential": sequential.STUDY,
    "subsets": cells.SUBSETS,
    "trends": trends.STUDY,
    "trends-eight-weeks": trends.EIGHT,
    "trends-months": trends.MONTHS,
    "trends-whole": trends.WHOLE,
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Make a table that the documentation quotes, with the date and the machine."""


for name, study in STUDIES.items():
    main.add_command(study.command(name))
for command in (ablation.main, change.main, releases.main):
    main.add_command(command)


if __name__ == "__main__":
    main(prog_name="python -m evaluation.studies")
