"""Run the device of a measured control loop: outputs, sensors, and its own timings.

A benchmark starts it as a separate program and reads two lines: "ready", and at the end the report as JSON. `pace`
calls a step once a period, through the hub or with bare bytes, and records how late each one ended. The device has no
hardware, so only the loop is measured.
"""

import json
import socket
import sys
import time
from array import array
from collections.abc import Callable

from embereye.addons.control.client import CALL, ActuatorLink
from embereye.addons.control.link import Link, LinkError
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Command, Output, Sensor, State

BARE_BYTES = 215  # of a state


class Joints:
    """Outputs and sensors without hardware."""

    def __init__(self, outputs: int, sensors: int, period_ns: int) -> None:
        self.safe = 0  # number of commands with safe values
        self._values = [0.5] * outputs
        self._sensed = [0.5] * sensors
        self.actuator = Actuator(
            period_ns=period_ns,
            outputs=[Output(name=f"joint-{n}", kind=Output.KIND_ANGLE, min=-1, max=1) for n in range(outputs)],
            sensors=[Sensor(name=f"sensor-{n}", unit="1") for n in range(sensors)],
        )

    def measure(self, state: State) -> None:
        state.measured[:] = self._values
        state.sensors[:] = self._sensed

    def carry_out(self, command: Command) -> None:
        self.safe += command.safe

    def fall_back(self, reason: str) -> None:
        pass


def pace(step: Callable[[], bool], period: float, seconds: float) -> None:
    """Call `step` once a period until LinkError, or `seconds` (0: never) after its first True. Print a report.

    `step` returns True if it was controlled. The report: {"ticks": controlled steps, "late": those that ended after the
    next tick was due, "slept": ticks that this process started a period late, "arrivals": seconds from tick to command}
    """
    arrivals, late, slept = array("d"), 0, 0
    print("ready", flush=True)
    due, until = time.perf_counter(), float("inf")
    try:
        while due < until:
            pause = due - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            elif -pause > period:
                slept += 1
                due -= pause
            controlled = step()
            if controlled and seconds and until == float("inf"):
                until = due + seconds
            elif controlled:
                arrivals.append(time.perf_counter() - due)
                late += arrivals[-1] > period
            due += period
    except LinkError:
        pass
    print(json.dumps({"ticks": len(arrivals), "late": late, "slept": slept, "arrivals": list(arrivals)}), flush=True)


def run(address: str, token: str, outputs: int, sensors: int, period_ns: int, seconds: float) -> None:
    """Run a device that is controlled through a hub at the rate of `pace`."""
    device = Joints(outputs, sensors, period_ns)
    with Link(address, CALL, token) as link:
        side = ActuatorLink(link, "joints", device)
        pace(lambda: not side.step().safe, period_ns / SECOND, seconds)


def run_bare(path: str, period_ns: int, seconds: float) -> None:
    """Exchange bytes with the process that listens at `path`, at the rate of `pace`."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)

        def step() -> bool:
            link.sendall(bytes(BARE_BYTES))
            if not link.recv(4_096):
                raise LinkError("the other end closed the connection")
            return True

        pace(step, period_ns / SECOND, seconds)


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        run_bare(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        hub, token, output_count, sensor_count, nanoseconds, duration = sys.argv[1:]
        run(hub, token, int(output_count), int(sensor_count), int(nanoseconds), float(duration))
