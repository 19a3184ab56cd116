"""`python -m hubbub.collector`."""

from hubbub.collector.cli import main

if __name__ == "__main__":  # worker processes import this module again, under another name
    main(prog_name="hubbub-collector")
