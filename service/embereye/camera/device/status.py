"""One camera's status for the hub and for people: covered or not, and why.

A camera is covered if it was heard and analysed within its deadline and can see. Otherwise `reason` names the cause: it
is refused, blind, silent, or waits in an overloaded shard. Everything is derived on each call from the camera's
`Watch`, `Arrivals` and `Analyser`. Only the latest still and the states of the sources, set by the tasks that play
them, are stored here.
"""

from collections.abc import Iterable, Sequence

from embereye.camera.device.analyser import Analyser
from embereye.camera.device.arrivals import Arrivals
from embereye.camera.device.judged import judged
from embereye.camera.device.peaks import Peaks
from embereye.detect.vision.observation import Finding
from embereye.levels import Level
from embereye.shard.coverage import Watch
from embereye.v1.evidence_pb2 import DeviceStatus, Judged
from embereye.v1.types_pb2 import Device, Term

STILL_NS = 1_200_000_000  # how long a still goes out with the status; coverage is reported every second


class CameraStatus:
    """A camera's status, read from `arrivals` and `analyser`. Times are nanoseconds since the Unix epoch."""

    def __init__(self, watch: Watch, arrivals: Arrivals, analyser: Analyser) -> None:
        self.source_state = "waiting for a sender"
        self.record_state = ""  # the same for the separate record stream; empty: none is declared
        self.unopened = ""  # why the source cannot be opened at all
        self.pushed = False  # a sender pushes its frames; else we read a source
        self.still = b""  # JPEG, the latest
        self.judged: Sequence[Judged] = ()  # in the latest still
        self.peaks = Peaks()  # the strongest findings since the last margin
        self._still_ns = 0
        self._watch = watch
        self._arrivals = arrivals
        self._analyser = analyser

    def forget_still(self) -> None:
        """Drop the latest still."""
        self.still, self.judged = b"", ()

    def show_still(self, still: bytes, findings: Iterable[Finding], now_ns: int) -> None:
        """Set the latest still (JPEG), with the detectors' findings in it; empty: no change."""
        if still:
            self.still, self._still_ns = still, now_ns
            self.judged = [judged(finding, self._analyser.setup) for finding in findings]

    @property
    def level(self) -> Level:
        """The level of the latest observation."""
        seen = self._analyser.observation
        return seen.level if seen else Level.CLEAR

    def blindness(self, now_ns: int) -> str:
        """Return why this camera cannot see although frames arrive, or ''."""
        if fault := self._analyser.fault or self._arrivals.fault(now_ns):
            return fault
        return "" if self._analyser.setup.has_builtin else self._analyser.degraded(now_ns)

    def reason(self, now_ns: int) -> str:
        """Return one sentence why this camera is not covered, or ''."""
        arrivals, watch = self._arrivals, self._watch
        if self.unopened or arrivals.refused:
            return self.unopened or arrivals.refused
        watch.blind = self.blindness(now_ns)
        reason = watch.reason(now_ns, arrivals.deadline_ns)
        if not reason or reason == watch.blind:
            return reason
        silent = now_ns - watch.heard_ns > arrivals.deadline_ns
        if watch.blind and (self._analyser.idle_detectors or not silent):
            return watch.blind
        return reason + self._cause(now_ns, silent=silent)

    def _cause(self, now_ns: int, *, silent: bool) -> str:
        """Return a clause that explains why no frame arrived or was analysed, or ''."""
        mailbox = self._arrivals.mailbox
        if silent:
            return f"; source: {self.state(now_ns)}"
        if mailbox.waiting:
            return "; the shard is overloaded, so frames wait"
        if self._arrivals.is_rejecting(now_ns):
            return f"; rejected frames: {mailbox.rejected_reason}"
        return ""

    def state(self, now_ns: int) -> str:
        """Describe the state of its sources for people."""
        watched = self._watched_state(now_ns)
        calm = self._arrivals.calm
        if calm.is_calm:
            watched = f"{watched}; calm: {calm.words}"
        elif why := calm.hindrance(now_ns):
            watched = f"{watched}; never calm: {why}"
        return f"{watched}; record stream: {self.record_state}" if self.is_record_failing else watched

    @property
    def is_record_failing(self) -> bool:
        """True if a separate record stream is declared but fails, so that clips use the detect stream."""
        return bool(self.record_state) and not self.record_state.startswith("streaming")

    def _watched_state(self, now_ns: int) -> str:
        heard_ns = self._watch.heard_ns
        if self.pushed and heard_ns and now_ns - heard_ns > self._arrivals.deadline_ns:
            return "waiting for a sender"
        return self.source_state

    def message(self, device: Device, now_ns: int) -> DeviceStatus:
        """The status message of `device`."""
        reason = self.reason(now_ns)
        is_shown = now_ns - self._still_ns < STILL_NS
        return DeviceStatus(
            id=device.id,
            zone=device.zone,
            covered=not reason,
            reason=reason,
            heard_ns=self._watch.heard_ns,
            analysed_ns=self._watch.analysed_ns,
            ledger=self._arrivals.mailbox.ledger.message(),
            latest=self._terms(now_ns),
            picture=self.still if is_shown else b"",
            judged=self.judged if is_shown else (),
            state=self.state(now_ns),
            degraded=self.degraded(now_ns),
        )

    def degraded(self, now_ns: int) -> str:
        """Return why detection is limited, or ''."""
        arrivals = self._arrivals
        slow = arrivals.shortfall.slow if self._analyser.has_flame_detector else ""
        limited = self._analyser.degraded(now_ns) or arrivals.shortfall.reason or slow
        return limited or arrivals.unfinished(now_ns)

    def _terms(self, now_ns: int) -> list[Term]:
        arrivals, model = self._arrivals, self._analyser.model
        rate = arrivals.rate_in_force
        terms = [
            Term(name="fps", value=arrivals.frame_rate(now_ns), unit="1/s"),
            Term(name="fps.target", value=rate, threshold=arrivals.least_rate, unit="1/s"),
        ]
        if seen := self._analyser.observation:
            terms += [
                Term(name="age", value=(now_ns - seen.time_ns) / 1e6, unit="ms"),
                Term(name="motion", value=100 * seen.motion, unit="%"),
            ]
            terms += [
                Term(name=term.name, value=term.value, unit=term.unit)
                for finding in seen.findings
                for term in finding.terms
                if term.name == "temperature.max" or term.name.startswith("area.")
            ]
            terms += [
                Term(name=f"{finding.kind.word}.score", value=finding.score, unit="1") for finding in seen.findings
            ]
        if known := self._analyser.usual_levels.known_share(now_ns):
            terms.append(Term(name="view.familiar", value=100 * known, unit="%"))
        if model and model.runs:
            terms.append(Term(name="model.run", value=model.seconds * 1e3, unit="ms"))
        return terms
