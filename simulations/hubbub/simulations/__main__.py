"""`python -m hubbub.simulations`."""

from hubbub.simulations.cli import main

main(prog_name="hubbub-simulate")
