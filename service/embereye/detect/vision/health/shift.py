"""Whether the whole picture has shifted: the camera pans, is carried, or shakes."""

import math

import cv2
import numpy as np

from embereye.detect.vision.health.view import Field
from embereye.detect.vision.thresholds import HealthThresholds


def shift_between(before: Field, now: Field, limits: HealthThresholds) -> float:
    """By how much the scene of `before` has moved in `now` (edges of whole pictures), as a share of the longer side.

    0 where most of the scene stands still, whatever passes before it, and where it is not found again at all.
    """
    unmoved = float(np.vdot(before, now))
    if unmoved >= limits.unmoved_min:
        return 0.0
    rows, columns = now.shape
    window = cv2.createHanningWindow((columns, rows), cv2.CV_32F)
    # OpenCV multiplies the window into pictures of some sizes where they are: into copies, then.
    (across, down), response = cv2.phaseCorrelate(before.copy(), now.copy(), window)
    x, y = round(across), round(down)
    if response < limits.shift_response_min or max(2 * abs(x), 2 * abs(y)) >= min(rows, columns):
        return 0.0
    here = slice(max(0, y), rows - max(0, -y)), slice(max(0, x), columns - max(0, -x))
    there = slice(max(0, -y), rows - max(0, y)), slice(max(0, -x), columns - max(0, x))
    if _agreement(before[there], now[here]) < limits.shift_agreement_min:
        return 0.0
    # A lorry that fills half of the picture leaves the other half where it was.
    quarters = zip(_quarters(before[there]), _quarters(before[here]), _quarters(now[here]), strict=True)
    structured = limits.shift_quarter_min * float(np.vdot(now[here], now[here]))
    told = [one for one in quarters if float(np.vdot(one[2], one[2])) >= structured]
    # Where there is little else to be seen, what passes is all that there is: headlights at night, a ball on black.
    if len(told) < limits.shift_quarters:
        return 0.0
    if any(_agreement(moved, seen) <= _agreement(still, seen) for moved, still, seen in told):
        return 0.0
    return math.hypot(x, y) / float(max(rows, columns))


def _agreement(one: Field, other: Field) -> float:
    """-1..1: correlation of two fields of edges."""
    return float(np.vdot(one, other)) / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-9)


def _quarters(field: Field) -> list[Field]:
    """Its quarters, each of mean 0: a flat sky has nothing left."""
    middle, centre = field.shape[0] // 2, field.shape[1] // 2
    quarters = [field[rows, columns] for rows in (slice(middle), slice(middle, None))
                for columns in (slice(centre), slice(centre, None))]  # fmt: skip
    return [quarter - quarter.mean() for quarter in quarters]
