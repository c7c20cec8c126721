"""Re-encoding of an uploaded picture from its pixels, in a separate process that may crash safely.

Run as `python -m embereye.camera.rewrite MEDIA` with the file on standard input. It writes a line of JSON, {"media",
"width", "height"}, followed by the picture, or {"refused": reason}. The caller checks the declared size before.
"""

import json
import resource
import sys
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

LONGEST = 4_096  # pixels of the longer side
MAX_BYTES = 6 * 2**20  # of the result
QUALITIES = (90, 80, 65, 50)
MEMORY = 2 * 2**30  # bytes of address space for decoding, at most


def rewrite(data: bytes, media: str) -> tuple[dict[str, Any], bytes]:
    """Return the description and the bytes: a PNG, or a JPEG if the input was one or PNG is too large."""
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR if media == "image/jpeg" else -1)
    except cv2.error:
        pixels = None
    if pixels is None:
        return {"refused": f"the {media} cannot be decoded: it is damaged or incomplete"}, b""
    flat = _flattened(pixels)
    if (share := LONGEST / max(flat.shape[:2])) < 1:
        size = (max(1, round(flat.shape[1] * share)), max(1, round(flat.shape[0] * share)))
        flat = cv2.resize(flat, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    height, width = flat.shape[:2]
    if media != "image/jpeg":
        encoded = bytes(cv2.imencode(".png", flat)[1])
        if len(encoded) <= MAX_BYTES:
            return {"media": "image/png", "width": width, "height": height}, encoded
    for quality in QUALITIES:
        encoded = bytes(cv2.imencode(".jpg", flat, [cv2.IMWRITE_JPEG_QUALITY, quality])[1])
        if len(encoded) <= MAX_BYTES:
            return {"media": "image/jpeg", "width": width, "height": height}, encoded
    return {"refused": "it cannot be made small enough. Upload a picture with fewer pixels or less detail"}, b""


def _flattened(pixels: NDArray[Any]) -> NDArray[Any]:
    """Convert to three colours of eight bits, on white where the picture is transparent."""
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    if pixels.ndim == 2:
        return np.repeat(pixels[:, :, None], 3, axis=2)
    if pixels.shape[2] == 4:
        share = pixels[:, :, 3:].astype(np.uint16)
        return ((pixels[:, :, :3] * share + 255 * (255 - share)) // 255).astype(np.uint8)
    return pixels


def main() -> int:
    """Rewrite standard input. Returns the exit code."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    cv2.setNumThreads(1)
    about, picture = rewrite(sys.stdin.buffer.read(), sys.argv[1])
    sys.stdout.buffer.write(json.dumps(about).encode() + b"\n" + picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
