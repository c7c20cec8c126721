"""A fire that no site shows: the whole picture looks like one to the network, for long, and something in it moves.

Flames that bloom, or burn dark red in their own smoke, neither flicker nor have a flame's colour as `flame` measures
them. What the network says of them alone has to be clearer than anything that it was wrong about, more than it usually
says of this view, and of a picture that is not still: a poster of a fire moves nothing.
"""

import math

from embereye.detect.vision.flame.familiar import Familiar
from embereye.detect.vision.flame.flame import Flame
from embereye.detect.vision.networks.appearance import EVERY_NS, Inspection, Inspections, Interest
from embereye.detect.vision.thresholds import FlameThresholds
from embereye.units import SECOND
from embereye.v1.types_pb2 import Term

LAPSED_NS = 2 * EVERY_NS[Interest.MOVES]  # without a look, after which what the one before said is over


class Likeness:
    """What the network's looks at one camera's whole pictures add up to. Not safe for two threads at once."""

    def __init__(self, limits: FlameThresholds, looks: Inspections, familiar: Familiar) -> None:
        self._limits, self._looks, self._familiar = limits, looks, familiar
        self._motion = 0.0  # the most since the latest look, share of the picture
        self._looked_ns = 0
        self._alike = False  # at the latest look
        self._held_ns = 0
        self._odds = self._usual = 0.0

    @property
    def holds(self) -> bool:
        """Whether the picture looks, or looked lately, like fire."""
        return self._alike or self._held_ns > 0

    @property
    def moved(self) -> bool:
        """Whether enough moved since the latest look for a fire."""
        return self._motion >= self._limits.likeness_motion_min

    def move(self, share: float, time_ns: int) -> None:
        """Take in that `share` of the picture of `time_ns` moves (0..1)."""
        self._motion = max(self._motion, share)
        self._lapse(time_ns)

    def _lapse(self, time_ns: int) -> None:
        """Let go of what no look has confirmed for too long."""
        if not 0 <= time_ns - self._looked_ns <= LAPSED_NS:
            self._held_ns, self._alike = 0, False

    def note(self, look: Inspection) -> None:
        """Take in `look`, which is among the looks."""
        limits, elapsed = self._limits, max(0, look.time_ns - self._looked_ns)
        known_ns = elapsed if elapsed <= 2 * EVERY_NS[Interest.STILL] else 0
        self._lapse(look.time_ns)
        odds = self._looks.whole(look.time_ns)
        assert odds is not None
        self._odds, self._usual = odds, self._familiar.usual(look.time_ns)
        alike = odds - self._usual >= limits.likeness_min and self.moved
        gained = (elapsed if self._alike else 0) if alike else -2 * elapsed
        self._held_ns, self._alike = min(max(0, self._held_ns + gained), limits.held_max_ns), alike
        self._familiar.learn_usual(look.whole, known_ns / SECOND, look.time_ns)
        self._looked_ns, self._motion = look.time_ns, 0.0

    def seen(self, *, colourless: bool) -> Flame:
        """What that says of a fire; nowhere in particular."""
        limits = self._limits
        if not self._held_ns:
            return Flame()
        terms = (
            Term(name="flame.likeness", value=self._odds, threshold=limits.likeness_min + self._usual),
            Term(
                name="flame.held", value=self._held_ns / SECOND, threshold=limits.likeness_alarm_ns / SECOND, unit="s"
            ),
        )
        score = 1.0 / (1.0 + math.exp(self._usual + limits.likeness_min - self._odds))
        return Flame(score, self._held_ns, limits.likeness_alarm_ns, None, terms, colourless)
