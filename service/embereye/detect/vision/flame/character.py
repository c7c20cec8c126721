"""The character of a region's change: things travel, pass in front of resting ones, or change all at once.

`FlameDetector` asks when it weighs a site. `travel` searches the earlier pixels of the site around it in the later
picture: if one shift explains most of the change, a thing moved. `rest_and_unity` reads the site's pixels in the
samples of `Recent`. It measures how often they have their usual value, and how much of their change is common to all.
Pure.
"""

import cv2
import numpy as np
import numpy.typing as npt

from embereye.detect.vision.flame.recent import SPAN_NS, Recent, series_of
from embereye.units import PixelBox

Grey = npt.NDArray[np.uint8]

REACH = 6  # pixels that a thing may have travelled
MIN_FRAMES = 6
MIN_PIXELS = 6
MAX_PIXELS = 150  # of a region, at most, are analysed
NEAR = 0.4  # standard deviations from the median that count as rest: 31 % of noise, 38 to 45 % of flames
SHOWN_MIN = 0.5  # of the pixels that have to be unclipped to represent all of them
STEPS = 4  # of the power iteration


def travel(earlier: Grey, later: Grey, box: PixelBox, pixels: npt.NDArray[np.bool_]) -> float | None:
    """Return 0..1: the share of the change of `pixels` (inside `box`) that one shift explains.

    A thing that moves as a whole is found again a few pixels away; a flame is not. Returns None if there are too few
    pixels.
    """
    if np.count_nonzero(pixels) < MIN_PIXELS:
        return None
    x, y, width, height = box
    rows, columns = later.shape
    top, left = max(0, y - REACH), max(0, x - REACH)
    bottom, right = min(rows, y + height + REACH), min(columns, x + width + REACH)
    around = later[top:bottom, left:right].astype(np.float32)
    before = earlier[y : y + height, x : x + width].astype(np.float32)
    differences = cv2.matchTemplate(around, before, cv2.TM_SQDIFF, mask=pixels.astype(np.float32))
    unmoved = float(differences[y - top, x - left])
    if unmoved <= 0:
        return 0.0
    return 1.0 - max(0.0, float(differences.min())) / unmoved


def rest_and_unity(
    recent: Recent, box: PixelBox, pixels: npt.NDArray[np.bool_], time_ns: int, shown_max: float = 255.0
) -> tuple[float, float] | None:
    """Return (rest, unity) of `pixels` inside `box` over the last seconds, both 0..1; None if too little is known.

    Rest: the share of the time that a pixel has its usual value. Things that pass leave it there. Unity: the share of
    all change that is one common rise and fall, as of a lamp or the exposure. Pixels that rest brighter than
    `shown_max` are clipped and show no change, so rest ignores them if enough others remain.
    """
    x, y = box[:2]
    chosen = pixels[y % 2 :: 2, x % 2 :: 2]
    above, before = (edge.start for edge in recent.window)
    top, left = (y + y % 2 - above) // 2, (x + x % 2 - before) // 2
    lately = sum(time_ns - seen_ns <= SPAN_NS for seen_ns in recent.samples.times)
    pictures = recent.samples.pictures[-lately:]
    if lately < MIN_FRAMES or np.count_nonzero(chosen) < 2:
        return None
    rows, columns = np.nonzero(chosen)
    step = 1 + len(rows) // MAX_PIXELS
    indices = (rows[::step] + top) * pictures.shape[2] + columns[::step] + left
    series = series_of(pictures, indices)
    ordered, middle = np.sort(series, axis=0), len(series) // 2  # numpy's median takes three times as long
    median = 0.5 * (ordered[-1 - middle] + ordered[middle])
    resting = np.abs(series - median)
    series -= series.mean(axis=0)
    deviation = np.sqrt(np.einsum("ij,ij->j", series, series) / len(series)).mean()
    shown = median <= shown_max
    if SHOWN_MIN * shown.size <= np.count_nonzero(shown) < shown.size:
        resting = resting[:, shown]
    rest = np.count_nonzero(resting < NEAR * deviation) / resting.size
    products = series @ series.T
    total = float(np.trace(products))
    if total <= 0:
        return 1.0, 0.0
    vector = products[-1] + np.float32(1e-3)
    for _ in range(STEPS):
        vector = products @ vector
        vector /= np.sqrt(vector @ vector) + np.float32(1e-9)  # numpy's norm takes three times as long
    return rest, float(vector @ products @ vector) / total
