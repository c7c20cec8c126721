"""The results of `embereye doctor`. Add-ons add checks in a module `doctor`."""

from dataclasses import dataclass

from embereye_operator.api.fleets import Fleet
from embereye_operator.api.sensors import SensorFleetSpec

__all__ = ["FAIL", "OK", "WARN", "Finding", "Fleet", "SensorFleetSpec"]

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """One checked thing, what was seen, and what to do if that is not good."""

    subject: str  # for example "port 8080" or "camera gate"
    level: str  # OK, WARN or FAIL
    text: str
    remedy: str = ""
