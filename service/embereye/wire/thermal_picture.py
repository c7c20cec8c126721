"""A thermal picture as browsers get it live: a mark, the kind of its values, and a value for each pixel.

Bytes: `T`; 0 for °C or 1 for raw counts; then 768 big-endian integers of 16 bits, row by row: tenths of a degree, or
counts. A pixel that was not measured is MISSING.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MARK = b"T"
MISSING = -32_768
LIMIT = 32_767  # of a value; hotter pixels have it


def pack_thermal(pixels: "NDArray[np.float32]", *, relative: bool) -> bytes:
    """Pack `pixels`: °C, NaN where nothing was measured, or raw counts if `relative`."""
    import numpy as np  # 20 MB, which the hub does not need to know MARK

    values = np.clip(np.rint(pixels.ravel() * np.float32(1 if relative else 10)), -LIMIT, LIMIT)
    known = np.where(np.isnan(values), MISSING, values).astype(">i2")
    return MARK + bytes([relative]) + known.tobytes()
