"""What is reported about one camera: whether it is covered, why not, and its status for the hub and for people."""

from embereye.camera.device.analyser import Analyser
from embereye.camera.device.arrivals import Arrivals
from embereye.levels import Level
from embereye.shard.coverage import Watch
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.types_pb2 import Device, Term

STILL_NS = 1_200_000_000  # for which a still goes with the status: coverage is reported every second


class CameraStatus:
    """Put together from `arrivals` and `analyser`, which it only reads. Times are nanoseconds since the Unix epoch."""

    def __init__(self, watch: Watch, arrivals: Arrivals, analyser: Analyser) -> None:
        self.source_state = "waiting for a sender"
        self.record_state = ""  # the same of the stream to record; empty: none is declared
        self.unopened = ""  # why the source cannot be opened at all
        self.pushed = False  # whether its frames come from a sender, not from a source of ours
        self.still = b""  # JPEG, the latest
        self._still_ns = 0
        self._watch = watch
        self._arrivals = arrivals
        self._analyser = analyser

    def show_still(self, still: bytes, now_ns: int) -> None:
        """Show `still` (JPEG) from now on; empty: there is no new one."""
        if still:
            self.still, self._still_ns = still, now_ns

    @property
    def level(self) -> Level:
        """The level of the latest observation."""
        seen = self._analyser.observation
        return seen.level if seen else Level.CLEAR

    def blindness(self, now_ns: int) -> str:
        """Why this camera cannot see although frames arrive, or ''."""
        if fault := self._analyser.fault or self._arrivals.fault(now_ns):
            return fault
        return "" if self._analyser.setup.builtin else self._analyser.degraded(now_ns)

    def reason(self, now_ns: int) -> str:
        """One sentence why this camera is not covered, or '' where it is."""
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
        """What is known of why nothing was heard or analysed, to stand behind that; or ''."""
        mailbox = self._arrivals.mailbox
        if silent:
            return f"; source: {self.state(now_ns)}"
        if mailbox.waiting:
            return "; the shard is overloaded: its frames wait for their turn"
        if self._arrivals.rejecting(now_ns):
            return f"; frames are rejected: {mailbox.rejected_reason}"
        return ""

    def state(self, now_ns: int) -> str:
        """How its source is, for people."""
        watched = self._watched_state(now_ns)
        return f"{watched}; the stream to record: {self.record_state}" if self.record_failing else watched

    @property
    def record_failing(self) -> bool:
        """Whether the stream to record is declared and does not come: clips are of the one that is looked at."""
        return bool(self.record_state) and not self.record_state.startswith("streaming")

    def _watched_state(self, now_ns: int) -> str:
        heard_ns = self._watch.heard_ns
        if self.pushed and heard_ns and now_ns - heard_ns > self._arrivals.deadline_ns:
            return "waiting for a sender"
        return self.source_state

    def message(self, device: Device, now_ns: int) -> DeviceStatus:
        """The status of `device`, as it travels."""
        reason = self.reason(now_ns)
        return DeviceStatus(
            id=device.id,
            zone=device.zone,
            covered=not reason,
            reason=reason,
            heard_ns=self._watch.heard_ns,
            analysed_ns=self._watch.analysed_ns,
            ledger=self._arrivals.mailbox.ledger.message(),
            latest=self._terms(now_ns),
            picture=self.still if now_ns - self._still_ns < STILL_NS else b"",
            state=self.state(now_ns),
            degraded=self.degraded(now_ns),
        )

    def degraded(self, now_ns: int) -> str:
        """Why less is detected here than was asked for, or ''."""
        arrivals = self._arrivals
        slow = arrivals.shortfall.slow if self._analyser.watches_flicker else ""
        return self._analyser.degraded(now_ns) or arrivals.shortage or arrivals.shortfall.reason or slow

    def _terms(self, now_ns: int) -> list[Term]:
        arrivals, model = self._arrivals, self._analyser.model
        rate = arrivals.mailbox.rate_controller.rate
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
                if term.unit == "°C" and term.name == "temperature.max"
            ]
            terms += [Term(name=f"{of.kind.word}.score", value=of.score, unit="1") for of in seen.findings]
        if known := self._analyser.familiar.share(now_ns):
            terms.append(Term(name="view.familiar", value=100 * known, unit="%"))
        if model and model.runs:
            terms.append(Term(name="model.run", value=model.seconds * 1e3, unit="ms"))
        return terms
