"""The margins of cameras: their strongest findings, and what suppressed them. See `embereye.margins`."""

import math
from collections.abc import Iterator

import numpy as np

from embereye.camera.device.analyser import Analyser
from embereye.camera.device.camera import CameraDevice
from embereye.camera.device.judged import least_score, nearest
from embereye.detect.vision.detector import rasterize
from embereye.detect.vision.observation import Finding
from embereye.detect.vision.thresholds import FlameThresholds, least_odds
from embereye.levels import Kind
from embereye.margins import Margin, Peak, Suppressed, peak_of

GRID = 400  # pixels of the grid on which the area of masks is measured
FAMILIAR = "flame.familiar.below"
USUAL_SMOKE = "smoke.usual"
USUAL_MIN = 50.0  # % from which a place is usually smoke-like
WEIGHTS = FlameThresholds().weights


def margin_of(camera: CameraDevice, now_ns: int) -> Margin | None:
    """Return the margin of `camera` since the last call; None for the first call."""
    findings = camera.status.peaks.take_all()
    margin = camera.status.peaks.span.begin_margin(camera.device.id, camera.arrivals.mailbox.ledger, now_ns)
    if margin is None:
        return None
    if why := camera.reason(now_ns):
        margin["blind"] = why
    if camera.device.masks:
        drawn = rasterize(camera.device.masks, GRID, GRID)
        margin["masked"] = 0.0 if drawn is None else round(float(np.mean(drawn)), 3)
    margin["peaks"] = [peak_of_finding(finding, camera.analyser) for finding in findings.values()]
    return margin


def peak_of_finding(finding: Finding, analyser: Analyser) -> Peak:
    """Make the peak of a camera's strongest finding."""
    least = least_score(finding.kind, analyser.setup)
    return peak_of(
        finding.kind, finding, nearest(finding, least), suppressed=list(_suppressed(finding, least, analyser))
    )


def _suppressed(finding: Finding, least: float, analyser: Analyser) -> Iterator[Suppressed]:
    values = {term.name: term.value for term in finding.terms}
    if known := values.get(FAMILIAR):
        weight = WEIGHTS["familiar"]
        without = 1.0 / (1.0 + math.exp(weight.of(known / weight.scale) - least_odds(finding.score)))
        marked = bool(finding.box) and analyser.usual_levels.is_marked(finding.box or (0, 0, 0, 0))
        by = "marked" if marked else "familiar"
        place = "people marked this place as no fire" if marked else f"this place is {known:.0f} % familiar"
        yield Suppressed(by=by, why=f"{place}: without that, its score would be {without:.2f} of {least:.2g}")
    if (usual := values.get(USUAL_SMOKE, 0.0)) >= USUAL_MIN:
        yield Suppressed(by="familiar", why=f"this place is usually {usual:.0f} % smoke-like")
    if finding.lasted_ns and finding.needed_ns is None:
        if finding.kind == Kind.FLAME:
            why = "its picture has no colour, as at night: a flame is a pre-alarm at most"
            yield Suppressed(by="colourless", why=why)
        elif finding.kind == Kind.SMOKE:
            why = "only the appearance network sees it, and is not certain: a pre-alarm at most"
            yield Suppressed(by="confirmation", why=why)
