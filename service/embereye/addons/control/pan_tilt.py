"""Simulate a pan-tilt head with a thermal sensor, in a room in which a hot object moves.

The head is a `Device` of `addons.control.client`, and has no clock: each `measure` advances it by one period. In that
time it turns towards the commanded angles, and takes a new picture whenever the sensor's rate allows one. Equal seeds
and commands give equal runs.
"""

import math
from dataclasses import dataclass

import numpy as np

from embereye.detect.thermal.mlx90640 import COLUMNS, ROWS
from embereye.sim.scenes.thermal import NARROW, NOISE_K, Patch, Scene
from embereye.units import SECOND
from embereye.v1.control_pb2 import Actuator, Command, Output, Sensor, State

PAN, TILT = math.radians(80), math.radians(40)  # either way from the middle
FASTEST = math.radians(120)  # per second
STIFFNESS = 12.0  # 1/s: share of the remaining angle that it turns per second
DISTANCE = 4.0  # m to the wall that it faces
FRAMES = 16.0  # of the sensor, per second


@dataclass(frozen=True)
class Wanderer:
    """A hot object of 90 °C, 30 cm wide, that moves about the middle of the room."""

    reach: float = math.radians(40)  # radians either way
    lap: float = 20.0  # seconds from side to side and back

    def place(self, seconds: float) -> tuple[float, float]:
        """Its direction (pan, tilt), radians."""
        turn = 2 * math.pi * seconds / self.lap
        return self.reach * math.sin(turn), 0.4 * self.reach * math.sin(2 * turn)


class PanTiltHead:
    """Outputs: pan and tilt angles, their greatest speed, a lamp. Sensors: the hottest temperature, and its direction.

    Time is an argument of `advance`. `embereye.addons.control.client` calls the other methods.
    """

    def __init__(self, period_ns: int, wanderer: Wanderer | None = None, seed: int = 1) -> None:
        self.pan = self.tilt = 0.0  # radians
        self.lamp = False
        self.safe = True
        self.hottest = 0.0  # °C
        self.seen = 0.0, 0.0  # of the hottest pixel, radians from the sensor's axis
        self._wanderer = wanderer or Wanderer()
        self._period = period_ns / SECOND
        self._wanted = 0.0, 0.0
        self._speed = 0.0
        self._elapsed = 0.0
        self._pictured_at = -1.0
        self._dice = np.random.default_rng(seed)
        self.actuator = Actuator(
            period_ns=period_ns,
            outputs=[
                Output(name="pan", kind=Output.KIND_ANGLE, min=-PAN, max=PAN, safe=0),
                Output(name="tilt", kind=Output.KIND_ANGLE, min=-TILT, max=TILT, safe=0),
                Output(name="speed", kind=Output.KIND_VELOCITY, min=0, max=FASTEST, safe=math.radians(20)),
                Output(name="lamp", kind=Output.KIND_SWITCH, safe=0),
            ],
            sensors=[
                Sensor(name="hottest", unit="°C"), Sensor(name="hottest.pan", unit="rad"),
                Sensor(name="hottest.tilt", unit="rad"), Sensor(name="ambient", unit="°C"),
            ],
        )  # fmt: skip
        self._ambient = 0.0
        self.fall_back("no command yet")

    def advance(self, seconds: float) -> None:
        """Let time pass: move, and take pictures at the sensor's rate."""
        self._elapsed += seconds
        self.pan += _step(self._wanted[0] - self.pan, self._speed, seconds)
        self.tilt += _step(self._wanted[1] - self.tilt, self._speed, seconds)
        if self._pictured_at < 0 or self._elapsed - self._pictured_at >= 1 / FRAMES:
            self._pictured_at = self._elapsed
            self._take_picture()

    def error(self) -> float:
        """The angle between its axis and the hot object, radians."""
        pan, tilt = self._wanderer.place(self._elapsed)
        return math.hypot(pan - self.pan, tilt - self.tilt)

    def _take_picture(self) -> None:
        pan, tilt = self._wanderer.place(self._elapsed)
        across, up = pan - self.pan, tilt - self.tilt
        patches = []
        if max(abs(across), abs(up)) < math.radians(80):
            place = DISTANCE * math.tan(across), DISTANCE * math.tan(up)
            patches.append(Patch(*place, 0.3, 0.3, 90.0))
        picture = Scene("room", DISTANCE, lambda _: patches, math.inf).picture(self._elapsed)
        picture = picture + self._dice.normal(0, NOISE_K, picture.shape)
        row, column = divmod(int(picture.argmax()), COLUMNS)
        self.hottest, self._ambient = float(picture.max()), float(np.median(picture))
        wide, high = math.tan(math.radians(NARROW.across / 2)), math.tan(math.radians(NARROW.up / 2))
        self.seen = (
            math.atan(((column + 0.5) / COLUMNS * 2 - 1) * wide), math.atan((1 - (row + 0.5) / ROWS * 2) * high)
        )  # fmt: skip

    def measure(self, state: State) -> None:
        """Advance one period; write the position and the sensors' values into `state`."""
        self.advance(self._period)
        state.measured[:] = [self.pan, self.tilt, self._speed, float(self.lamp)]
        state.sensors[:] = [self.hottest, *self.seen, self._ambient]

    def carry_out(self, command: Command) -> None:
        """Start to move as the command says."""
        pan, tilt, self._speed, lamp = command.values
        self._wanted, self.lamp, self.safe = (pan, tilt), bool(lamp), command.safe

    def fall_back(self, reason: str) -> None:
        """Return to the middle, slowly, with the lamp off."""
        pan, tilt, self._speed, lamp = (output.safe for output in self.actuator.outputs)
        self._wanted, self.lamp, self.safe = (pan, tilt), bool(lamp), True


def follow_hottest(state: State) -> list[float]:
    """Turn the head to the hottest direction; if nothing in view has 40 °C, it stays where it is."""
    pan, tilt = state.measured[0], state.measured[1]
    hottest, across, up, _ = state.sensors
    if hottest < 40:
        return [pan, tilt, FASTEST, 0.0]
    return [
        min(max(pan + across, -PAN), PAN), min(max(tilt + up, -TILT), TILT), FASTEST,
        float(math.hypot(across, up) < math.radians(5)),
    ]  # fmt: skip


def _step(distance: float, speed: float, seconds: float) -> float:
    """The distance moved: slower and slower near the end, never faster than `speed`."""
    wanted = distance * min(1.0, STIFFNESS * seconds)
    return math.copysign(min(abs(wanted), speed * seconds), wanted)
