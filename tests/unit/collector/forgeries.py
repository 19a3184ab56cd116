"""Records made of rows of bits, for the tests of what honest and forged reports look like."""

import numpy as np
import numpy.typing as npt

from hubbub.protocol import Records


def records_of(bits: npt.ArrayLike, cohorts: npt.ArrayLike = 0) -> Records:
    """Return records of reports whose bits are rows of 0 and 1, shape (n, k)."""
    rows = np.packbits(np.asarray(bits, dtype=np.uint8), axis=1, bitorder="little")
    columns = np.broadcast_to(np.asarray(cohorts, dtype="<u2"), len(rows)).copy()
    data = np.hstack([columns.view(np.uint8).reshape(-1, 2), rows])
    return Records(data.shape[1], data.tobytes())


def joined(*parts: Records) -> Records:
    return Records(parts[0].width, b"".join(part.data for part in parts))
