"""The reasons why a device raised no alarm in a span of time: an explanation made of its margins. Pure.

For each kind of fire it names the result that was nearest to an alarm, and how much was missing: the smallest change
that would have raised one. It also names everything that was suppressed, and by what.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from embereye.levels import Level
from embereye.margins import Margin, Measured, Peak, Suppressed, share
from embereye.units import counted
from embereye.v1.alarms_pb2 import AlarmEvent, FalseAlarm
from embereye.zone.false_alarms import resemblance
from embereye.zone.sentences import duration, quantity

LEVELS = {level.word: level for level in Level}
DIFFERENCES = {"°C": "K"}  # unit of a value → unit of a difference


@dataclass(frozen=True)
class Nearest:
    """The result of one kind of fire that was nearest to an alarm."""

    at_ns: int
    peak: Peak

    @property
    def words(self) -> str:
        """The result and how much was missing: "heat 61.2 °C of 90 °C: 28.8 K short, 68 % of the limit"."""
        kind, term = self.peak["kind"], self.peak.get("nearest")
        if LEVELS[self.peak["level"]] >= Level.ALARM:
            return f"{kind}: {self.peak['level']}, {measured_words(term)}" if term else f"{kind}: {self.peak['level']}"
        if term is None:
            return f"{kind}: nothing that could raise an alarm"
        return f"{kind}: {measured_words(term)}: {shortfall(term)}"


@dataclass(frozen=True)
class Explanation:
    """The reasons why there was no alarm."""

    nearest: list[Nearest]  # at most one of a kind, the nearest first
    suppressed: list[Suppressed] = field(default_factory=list)

    @property
    def raised(self) -> bool:
        """True if a detector did raise an alarm."""
        return any(LEVELS[nearest.peak["level"]] >= Level.ALARM for nearest in self.nearest)


def measured_words(term: Measured) -> str:
    """A value beside its limit: "temperature.max 61.2 °C of 90 °C"."""
    name, value, limit, unit = term
    return f"{name} {quantity(value, unit)} of {quantity(limit, unit)}"


def shortfall(term: Measured) -> str:
    """The smallest change that would have raised an alarm: "28.8 K short, 68 % of the limit"."""
    _, value, limit, unit = term
    if value >= limit:
        return "at its limit, but not confirmed"
    return f"{quantity(limit - value, DIFFERENCES.get(unit, unit))} short, {100 * share(term):.0f} % of the limit"


def explain(margins: Iterable[Margin]) -> Explanation:
    """Find what was nearest to an alarm in `margins`, and what was suppressed."""
    best: dict[str, tuple[tuple[Level, float, float], Nearest]] = {}
    spans = list(margins)
    for margin in spans:
        for peak in margin.get("peaks", ()):
            term = peak.get("nearest")
            rank = LEVELS.get(peak["level"], Level.UNSPECIFIED), share(term) if term else 0.0, peak["score"]
            if peak["kind"] not in best or rank > best[peak["kind"]][0]:
                best[peak["kind"]] = rank, Nearest(margin["untilNs"], peak)
    ranked = sorted(best.values(), key=lambda entry: entry[0], reverse=True)
    return Explanation([nearest for _, nearest in ranked], list(_suppressed(spans)))


def _suppressed(margins: list[Margin]) -> Iterator[Suppressed]:
    """Yield each reason once, in the order of their first occurrence."""
    reasons: dict[tuple[str, str], None] = {}
    blind: dict[str, int] = {}
    masked = max((margin.get("masked", 0.0) for margin in margins), default=0.0)
    for margin in margins:
        if why := margin.get("blind"):
            blind[why] = blind.get(why, 0) + margin["untilNs"] - margin["fromNs"]
        for peak in margin.get("peaks", ()):
            for item in peak.get("suppressed", ()):
                reasons.setdefault((item["by"], f"{peak['kind']}: {item['why']}"))
    for why, span_ns in blind.items():
        yield Suppressed(by="blind", why=f"for {duration(span_ns)}: {why}")
    for by, why in reasons:
        yield Suppressed(by=by, why=why)
    for name, sentence in (("shed", "not analysed"), ("rejected", "refused")):
        counts: dict[str, int] = {}
        for margin in margins:
            parts = margin.get("shed", {}) if name == "shed" else margin.get("rejected", {})
            for reason, count in parts.items():
                counts[reason] = counts.get(reason, 0) + count
        for reason, count in counts.items():
            yield Suppressed(
                by=name, why=f"{counted(count, 'frame or reading', 'frames or readings')} {sentence}: {reason}"
            )
    if masked:
        yield Suppressed(by="mask", why=f"masks hide {100 * masked:.0f} % of the picture, which is not analysed")


def silences_in(events: Iterable[AlarmEvent], device: str, from_ns: int, until_ns: int) -> Iterator[Suppressed]:
    """Yield the silences and profiles that applied in a span; `events` are the zone's of a day before, ascending."""
    begun: dict[str, tuple[AlarmEvent, int]] = {}  # by id, with its end
    for event in events:
        silence = event.silence
        if event.type != AlarmEvent.TYPE_SILENCE or silence.device not in {"", device}:
            continue
        if silence.id in begun:
            begun[silence.id] = begun[silence.id][0], event.time_ns
        else:
            begun[silence.id] = event, silence.until_ns
    for event, end_ns in begun.values():
        if event.time_ns < until_ns and end_ns > from_ns:
            yield Suppressed(by="silence", why=event.why)


def marks_of(marks: Iterable[FalseAlarm], fleet: str, device: str, until_ns: int) -> Iterator[Suppressed]:
    """Yield the marked false alarms that make similar signs of a device a pre-alarm only."""
    for mark in marks:
        if mark.time_ns < until_ns and any((sign.fleet, sign.device) == (fleet, device) for sign in mark.signs):
            yield Suppressed(by="marked", why=f"signs {resemblance(mark)} are a pre-alarm only")


def profile_reason(name: str) -> Suppressed:
    """The effect of a zone's profile, scheduled or by a permit."""
    why = f"the zone had the profile {name}: signs that it expects are a pre-alarm at most"
    return Suppressed(by="profile", why=why)
