"""Named outputs that controllers drive, and that fall to 0 when their controller falls silent."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from embereye.units import SECOND
from embereye.v1.control_pb2 import Handshake

DEFAULT_TIMEOUT_NS = SECOND  # where a controller names none
SAFE = 0.0  # the value of an output that nobody drives


@dataclass
class Lease:
    """One controller's outputs. Their values hold until the timeout after its last command."""

    controller: str
    timeout_ns: int
    values: dict[str, float]
    commanded: int = 0  # steady nanoseconds; 0: never

    def in_force(self, now: int) -> dict[str, float]:
        """The outputs as they are at `now`."""
        if now - self.commanded > self.timeout_ns:
            return dict.fromkeys(self.values, SAFE)
        return dict(self.values)

    def command(self, values: Mapping[str, float], now: int) -> None:
        """Set outputs; those that are not named keep their value, unless the timeout took it."""
        self.values = {**self.in_force(now), **values}
        self.commanded = now


@dataclass
class Outputs:
    """Every output and who drives it: one controller each."""

    steady: Callable[[], int] = time.monotonic_ns
    _leases: list[Lease] = field(default_factory=list)

    def acquire(self, handshake: Handshake) -> Lease:
        """Give the outputs of `handshake` to its controller; ValueError where another drives one of them."""
        for lease in self._leases:
            taken = sorted(set(handshake.outputs) & lease.values.keys())
            if taken:
                raise ValueError(f'output "{taken[0]}" is driven by {lease.controller}')
        values = dict.fromkeys(handshake.outputs, SAFE)
        lease = Lease(handshake.controller, handshake.timeout_ns or DEFAULT_TIMEOUT_NS, values)
        self._leases.append(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """The controller is gone, and its outputs with it."""
        self._leases.remove(lease)

    def in_force(self) -> dict[str, dict[str, float]]:
        """Output values by controller."""
        now = self.steady()
        return {lease.controller: lease.in_force(now) for lease in self._leases}
