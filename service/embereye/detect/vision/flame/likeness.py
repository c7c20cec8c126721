"""Fires without a site: the network finds the whole picture fire-like for long, and something in it moves.

Flames that bloom, or burn dark red in their own smoke, neither flicker nor have the flame colour that `flame` measures.
Such a fire raises an alarm if the network's odds exceed those of all its known errors and the view's usual odds. The
picture also has to move, because a poster of a fire does not.
"""

import math

from embereye.detect.vision.flame.flame import Flame
from embereye.detect.vision.flame.usual_levels import UsualLevels
from embereye.detect.vision.networks.appearance import EVERY_NS, Inspection, Inspections, Interest
from embereye.detect.vision.thresholds import FlameThresholds
from embereye.units import SECOND
from embereye.v1.types_pb2 import Term

LAPSED_NS = 2 * EVERY_NS[Interest.MOVES]  # without an inspection, after which the previous result is invalid


class Likeness:
    """The sum of the network's inspections of one camera's whole pictures. Not thread-safe."""

    def __init__(self, limits: FlameThresholds, inspections: Inspections, usual_levels: UsualLevels) -> None:
        self._limits, self._inspections, self._usual_levels = limits, inspections, usual_levels
        self._motion = 0.0  # largest motion since the latest inspection, share of the picture
        self._inspected_ns = 0
        self._alike = False  # fire-like at the latest inspection
        self._persistence_ns = 0
        self._odds = self._usual = 0.0

    @property
    def is_fire_like(self) -> bool:
        """True if the picture is, or was recently, fire-like."""
        return self._alike or self._persistence_ns > 0

    @property
    def has_moved(self) -> bool:
        """True if enough has moved for a fire since the latest inspection."""
        return self._motion >= self._limits.likeness_motion_min

    def move(self, share: float, time_ns: int) -> None:
        """Record that `share` (0..1) of the picture of `time_ns` moves."""
        self._motion = max(self._motion, share)
        self._lapse(time_ns)

    def _lapse(self, time_ns: int) -> None:
        """Reset the result if no inspection has confirmed it for too long."""
        if not 0 <= time_ns - self._inspected_ns <= LAPSED_NS:
            self._persistence_ns, self._alike = 0, False

    def note(self, inspection: Inspection) -> None:
        """Evaluate `inspection`, which is the latest of the inspections."""
        limits, elapsed = self._limits, max(0, inspection.time_ns - self._inspected_ns)
        known_ns = elapsed if elapsed <= 2 * EVERY_NS[Interest.STILL] else 0
        self._lapse(inspection.time_ns)
        odds = self._inspections.whole(inspection.time_ns)
        assert odds is not None
        self._odds, self._usual = odds, self._usual_levels.usual_odds(inspection.time_ns)
        alike = odds - self._usual >= limits.likeness_min and self.has_moved
        gained = (elapsed if self._alike else 0) if alike else -2 * elapsed
        self._persistence_ns, self._alike = min(max(0, self._persistence_ns + gained), limits.persistence_max_ns), alike
        self._usual_levels.learn_usual(inspection.whole, known_ns / SECOND, inspection.time_ns)
        self._inspected_ns, self._motion = inspection.time_ns, 0.0

    def seen(self, *, colourless: bool) -> Flame:
        """Return the result as a flame without a place."""
        limits = self._limits
        if not self._persistence_ns:
            return Flame()
        terms = (
            Term(name="flame.likeness", value=self._odds, threshold=limits.likeness_min + self._usual),
            Term(
                name="flame.lasted",
                value=self._persistence_ns / SECOND,
                threshold=limits.likeness_alarm_ns / SECOND,
                unit="s",
            ),
        )
        score = 1.0 / (1.0 + math.exp(self._usual + limits.likeness_min - self._odds))
        return Flame(score, self._persistence_ns, limits.likeness_alarm_ns, None, terms, colourless)
