"""What every command prints and writes, kept as files: a change of any of it shows.

`cases/*.toml` are commands on the inputs of `inputs.py`; `expected/CASE/` is what they gave. A test
per case runs them again and compares; `make golden` writes them anew.
"""

import os

# As tests/conftest.py: sums of several threads would depend on how many cores there are.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
