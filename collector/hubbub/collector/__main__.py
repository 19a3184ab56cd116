"""`python -m hubbub.collector`."""

from hubbub.collector.cli import main

main(prog_name="hubbub-collector")
