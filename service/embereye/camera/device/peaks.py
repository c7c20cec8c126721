"""The strongest findings of one camera, for its margins."""

from collections.abc import Iterable

from embereye.detect.vision.observation import Finding
from embereye.levels import Kind
from embereye.shard.counts import CountedSpan


class Peaks:
    """The strongest finding of each kind since they were last taken. Called for every frame."""

    __slots__ = ("_peaks", "span")

    def __init__(self) -> None:
        self.span = CountedSpan()
        self._peaks: dict[Kind, Finding] = {}

    def note(self, findings: Iterable[Finding]) -> None:
        """Note the findings of a frame."""
        for finding in findings:
            peak = self._peaks.get(finding.kind)
            if peak is None or _is_stronger(finding, peak):
                self._peaks[finding.kind] = finding

    def take_all(self) -> dict[Kind, Finding]:
        """Return the strongest findings, and start again."""
        peaks, self._peaks = self._peaks, {}
        return peaks


def _is_stronger(finding: Finding, peak: Finding) -> bool:
    """True if `finding` is nearer to an alarm than `peak`, of the same kind."""
    if finding.level != peak.level:
        return finding.level > peak.level
    if finding.decisive and peak.decisive:
        return finding.decisive[1] > peak.decisive[1]
    if finding.lasted_ns != peak.lasted_ns:
        return finding.lasted_ns > peak.lasted_ns
    return finding.score > peak.score
