"""Names for the array types that the decoder's functions take and give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

FloatArray = npt.NDArray[np.float64]
RealArray = npt.NDArray[np.floating[Any]]
"""Of single or double precision."""
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
WordArray = npt.NDArray[np.uint32]
NumberArray = npt.NDArray[np.uint64]
PositionArray = npt.NDArray[np.int16]

if TYPE_CHECKING:
    SparseMatrix = sparse.csr_array[np.float64, tuple[int, int]]
else:
    SparseMatrix = sparse.csr_array  # no generic before SciPy 1.16
