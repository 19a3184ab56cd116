"""Names for the array types that the decoder's functions take and give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
RealArray = npt.NDArray[np.floating[Any]]
"""Single or double precision."""
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
WordArray = npt.NDArray[np.uint32]
PositionArray = npt.NDArray[np.int16]

if TYPE_CHECKING:
    from scipy import sparse

    SparseMatrix = sparse.csr_array[np.float64, tuple[int, int]]
else:

    def __getattr__(name: str) -> Any:
        """Return `SparseMatrix`, so that SciPy is imported by those alone who ask for it."""
        if name != "SparseMatrix":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from scipy import sparse  # noqa: PLC0415 - takes twice as long as all else of a ledger

        return sparse.csr_array  # no generic before SciPy 1.16
