"""`python -m hubbub.release`."""

from hubbub.release.cli.group import main

main(prog_name="hubbub-release")
