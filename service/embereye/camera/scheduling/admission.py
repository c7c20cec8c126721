"""Refusal of cameras if the shard's pool is too small to serve all of them.

`RateAdapter` passes the demands of all cameras about once a second, the oldest camera first. If the served cameras need
more than the pool has for some seconds, those that do not fit are refused, counted from the oldest on. A refused camera
returns once there is clearly more room: the lower limit prevents it from alternating.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from embereye.units import SECOND

FULL = 0.9  # of the pool's time; above it cameras are refused
ROOM = 0.75  # of the pool's time; below it refused cameras are served again
REFUSE_NS = 5 * SECOND  # how long the pool has to be too small before a camera is refused


@dataclass(frozen=True)
class Demand:
    """The minimum that one camera needs from the pool."""

    camera: str
    rate: float  # frames/s
    cost: float  # seconds of one decoder per frame; 0: not known yet

    @property
    def share(self) -> float:
        """The share of one decoder's time that it needs."""
        return self.rate * self.cost


class CameraAdmission:
    """Refuses cameras that the pool cannot serve even at their minimum rates; the others are served normally.

    First come, first served: a new camera must not make a watched one dark.
    """

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}  # reasons, for people, by camera
        self._short_ns = 0  # since when the pool has been too small; 0: it is large enough

    def decide(self, demands: Iterable[Demand], decoders: int, now_ns: int) -> None:
        """Update `refused` from all cameras' demands, the oldest camera first."""
        demands = list(demands)
        known = {demand.camera for demand in demands}
        served = sum(demand.share for demand in demands if demand.camera not in self.refused)
        self.refused = {camera: why for camera, why in self.refused.items() if camera in known}
        if served <= FULL * decoders:
            self._short_ns = 0
            self._readmit(demands, served, decoders)
            return
        self._short_ns = self._short_ns or now_ns
        if now_ns - self._short_ns < REFUSE_NS:
            return
        used = 0.0
        for demand in demands:
            if demand.camera in self.refused:
                continue
            if used + demand.share > FULL * decoders:
                self.refused[demand.camera] = _refusal(demand, used, decoders)
            else:
                used += demand.share

    def _readmit(self, demands: list[Demand], served: float, decoders: int) -> None:
        for demand in demands:
            if demand.camera in self.refused:
                if served + demand.share <= ROOM * decoders:
                    served += demand.share
                    del self.refused[demand.camera]
                else:
                    self.refused[demand.camera] = _refusal(demand, served, decoders)


def _refusal(demand: Demand, used: float, decoders: int) -> str:
    return (
        f"refused: {demand.rate:g} frames/s of {1e3 * demand.cost:.0f} ms need {100 * demand.share:.0f} % of a decoder,"
        f" other cameras {100 * used:.0f} % of this shard's {100 * decoders} %."
        " Add shards, or lower this camera's fps.min or resolution"
    )
