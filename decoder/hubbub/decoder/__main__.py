"""`python -m hubbub.decoder`."""

from hubbub.decoder.cli import main

main(prog_name="hubbub-decoder")
