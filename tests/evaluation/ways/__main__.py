"""Do a job in each way: python -m evaluation.ways JOB [--size N] [--ways WAY ...]."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from evaluation.ways.jobs import JOBS


def main() -> None:
    """Do the job, and print what each way took."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.ways", description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--size", type=float, help="reports, or candidates")
    parser.add_argument("--ways", nargs="+")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "DIR"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    job = JOBS[given.job]
    if given.measure:
        way, folder = given.measure
        print(json.dumps(job.measure(way, Path(folder))))
        return
    print(job.table(given.job, int(given.size or job.size), given.ways or job.ways).text())


if __name__ == "__main__":
    main()
