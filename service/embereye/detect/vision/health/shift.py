"""Detection of a shift of the whole picture: the camera pans, is carried, or shakes."""

import math

import cv2
import numpy as np

from embereye.detect.vision.health.view import Field
from embereye.detect.vision.thresholds import HealthThresholds


def shift_between(before: Field, now: Field, limits: HealthThresholds) -> float:
    """Return how far the scene of `before` has moved in `now` (edges of whole pictures), as a share of the longer side.

    0 if most of the scene is still, even if something passes in front, or if the scene is not found again.
    """
    unmoved = float(np.vdot(before, now))
    if unmoved >= limits.unmoved_min:
        return 0.0
    rows, columns = now.shape
    window = cv2.createHanningWindow((columns, rows), cv2.CV_32F)
    # OpenCV multiplies pictures of some sizes by the window in place, so pass copies.
    (across, down), response = cv2.phaseCorrelate(before.copy(), now.copy(), window)
    x, y = round(across), round(down)
    if response < limits.shift_response_min or max(2 * abs(x), 2 * abs(y)) >= min(rows, columns):
        return 0.0
    here = slice(max(0, y), rows - max(0, -y)), slice(max(0, x), columns - max(0, -x))
    there = slice(max(0, -y), rows - max(0, y)), slice(max(0, -x), columns - max(0, x))
    if _agreement(before[there], now[here]) < limits.shift_agreement_min:
        return 0.0
    # A lorry that fills half of the picture leaves the other half unmoved.
    quarters = zip(_quarters(before[there]), _quarters(before[here]), _quarters(now[here]), strict=True)
    structured = limits.shift_quarter_min * float(np.vdot(now[here], now[here]))
    judged_quarters = [quarter for quarter in quarters if float(np.vdot(quarter[2], quarter[2])) >= structured]
    # If little else is visible, a passing thing seems to be the whole scene: headlights at night, a ball on black.
    if len(judged_quarters) < limits.shift_quarters:
        return 0.0
    if any(_agreement(moved, seen) <= _agreement(still, seen) for moved, still, seen in judged_quarters):
        return 0.0
    return math.hypot(x, y) / float(max(rows, columns))


def _agreement(first: Field, second: Field) -> float:
    """Return the correlation, -1..1, of two fields of edges."""
    return float(np.vdot(first, second)) / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-9)


def _quarters(field: Field) -> list[Field]:
    """Return the field's quarters, each shifted to mean 0, so that a flat sky becomes zero."""
    middle, centre = field.shape[0] // 2, field.shape[1] // 2
    quarters = [field[rows, columns] for rows in (slice(middle), slice(middle, None))
                for columns in (slice(centre), slice(centre, None))]  # fmt: skip
    return [quarter - quarter.mean() for quarter in quarters]
