"""Compute anew what follows from the inputs of docs/protocol's test vectors, and write it.

To add a vector, write a row with its inputs into the file, then run `python -m
evaluation.reference`.
"""

import json

from evaluation.reference.vectors import FOLDER, OUTPUTS, read

for name, outputs in OUTPUTS.items():
    lines = ",\n".join(json.dumps(row | outputs(row)) for row in read(name))
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
