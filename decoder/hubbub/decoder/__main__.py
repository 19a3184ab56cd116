"""`python -m hubbub.decoder`."""

from hubbub.decoder.cli.group import main

main(prog_name="hubbub-decoder")
