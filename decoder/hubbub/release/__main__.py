"""`python -m hubbub.release`."""

from hubbub.release.cli import main

main(prog_name="hubbub-release")
