"""The device of a measured control loop, in a process of its own: so many outputs and sensors, and its own timings."""

import json
import sys
import time
from array import array

from embereye.client.control import CALL, ActuatorLink
from embereye.client.link import Link, LinkError
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Command, Output, Sensor, State


class Joints:
    """Outputs and sensors without anything behind them."""

    def __init__(self, outputs: int, sensors: int, period_ns: int) -> None:
        self.safe = 0  # commands that were its safe values
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


def run(address: str, token: str, outputs: int, sensors: int, period_ns: int, seconds: float) -> None:
    """Step once a period until the hub ends it or `seconds` have passed since it was first steered; print what it saw.

    {"ticks": steps while steered, "late": of them, those whose command came after the next tick was due,
    "slept": ticks that this process itself began a period late, "arrivals": seconds from tick to command}
    """
    device = Joints(outputs, sensors, period_ns)
    arrivals, late, slept = array("d"), 0, 0
    with Link(address, CALL, token) as link:
        side = ActuatorLink(link, "joints", device)
        print("ready", flush=True)
        period, due, until = period_ns / SECOND, time.perf_counter(), float("inf")
        try:
            while due < until:
                pause = due - time.perf_counter()
                if pause > 0:
                    time.sleep(pause)
                elif -pause > period:
                    slept += 1
                    due -= pause
                steered = not side.step().safe
                if steered and until == float("inf"):
                    until = due + seconds
                elif steered:
                    arrivals.append(time.perf_counter() - due)
                    late += arrivals[-1] > period
                due += period
        except LinkError:
            pass
    print(json.dumps({"ticks": len(arrivals), "late": late, "slept": slept, "arrivals": list(arrivals)}), flush=True)


if __name__ == "__main__":
    hub, shown, joints, sensed, nanoseconds, wanted = sys.argv[1:]
    run(hub, shown, int(joints), int(sensed), int(nanoseconds), float(wanted))
