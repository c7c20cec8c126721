"""Actuators that are connected, who steers each of them, and the safe values that they fall back to.

Everything happens on the event loop's thread. `now` is steady nanoseconds.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import le

from embereye.hub.access.roles import Principal
from embereye.process.timing.clock import lease_ns
from embereye.process.timing.running import Running
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import ZoneState
from embereye.v1.control_pb2 import Command, Controller, ControlResponse, Handshake, Output, State

DEFAULT_TIMEOUT_NS = SECOND  # where a handshake names none
LOOK_SECONDS = 0.05

Send = Callable[[ControlResponse], None]
End = Callable[[str], None]
Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class RefusedError(Exception):
    """A message that breaks the rules: the session of whoever sent it is over."""


class NotConnectedError(RefusedError):
    """The actuator that is to be steered is not there, or no longer."""


class TakenError(RefusedError):
    """The name, or the actuator, is another session's."""


@dataclass
class ControlCounts:
    """Totals since the start, for the metrics."""

    states: int = 0
    commands: int = 0
    missed: int = 0  # commands that did not come within the deadline
    fallbacks: int = 0  # times that safe values took the place of a controller's
    refused: int = 0  # sessions that ended for what they sent


class ConnectedActuator:
    """One actuator: its latest state, the command in force, and who steers it."""

    def __init__(self, owner: "Actuators", handshake: Handshake, who: Principal, send: Send, end: End) -> None:
        """`send` gets a Command for each State; `end` ends the session of an actuator that came back elsewhere."""
        actuator = handshake.actuator
        self.name = handshake.name
        self.who = who
        self.outputs = list(actuator.outputs)
        self.sensors = list(actuator.sensors)
        self.declared = actuator
        self.period_ns = actuator.period_ns
        self.timeout_ns = handshake.timeout_ns or DEFAULT_TIMEOUT_NS
        self.controller: ActiveController | None = None
        self.heard = owner.steady()
        self.told = ControlResponse(state=State())  # the latest state, as a controller is told it
        self.command = Command()
        self.commanded = 0  # steady nanoseconds; 0: never
        self.safe = True  # whether safe values are in force
        self.ticks = 0
        self._owner = owner
        self._send = send
        self.end = end
        self._safe_values = [output.safe for output in self.outputs]
        self._low = [bounds(output)[0] for output in self.outputs]
        self._high = [bounds(output)[1] for output in self.outputs]
        self._switches = [n for n, output in enumerate(self.outputs) if output.kind == Output.KIND_SWITCH]
        self._waiting = False  # for a command that answers its latest state
        self._timer: asyncio.TimerHandle | None = None

    def silent(self, now: int) -> bool:
        """Whether it counts as lost."""
        return now - self.heard > self.timeout_ns

    def values(self, now: int) -> list[float]:
        """What is in force at `now`, by output."""
        return self._safe_values if self.is_safe(now) else list(self.command.values)

    def is_safe(self, now: int) -> bool:
        """Whether its safe values are in force at `now`, as nobody steers it."""
        controller = self.controller
        return controller is None or not self.commanded or now - self.commanded > controller.timeout_ns

    def state_arrived(self, state: State) -> None:
        """Take up a State, and answer it: at once, or once the controller has, but no later than the deadline."""
        if len(state.measured) != len(self.outputs) or len(state.sensors) != len(self.sensors):
            raise RefusedError(
                f"a state with {len(state.measured)} measured values and {len(state.sensors)} of sensors: "
                f"the handshake has {len(self.outputs)} outputs and {len(self.sensors)} sensors"
            )
        if self.ticks and state.tick <= self.told.state.tick:
            raise RefusedError(f"tick {state.tick} does not follow {self.told.state.tick}: ticks grow")
        now = self._owner.steady()
        if self._waiting:
            self._miss(now)
        self.heard = now
        self.ticks += 1
        self._owner.counts.states += 1
        self.told = ControlResponse(state=state)
        controller = self.controller
        if controller is not None:
            controller.note_fault("")
        if controller is None or not controller.synchronised:
            self._answer(now)
            return
        self._waiting = True
        self._timer = self._owner.later(controller.deadline_ns / SECOND, self._deadline_passed)
        controller.offer()

    def command_arrived(self, command: Command) -> None:
        """Put a controller's Command in force; RefusedError where it is not within the limits."""
        values = command.values
        if len(values) != len(self.outputs):
            raise RefusedError(f"a command with {len(values)} values: {self.name} has {len(self.outputs)} outputs")
        if not (all(map(le, self._low, values)) and all(map(le, values, self._high))):
            raise RefusedError(self._out_of_limits(command))
        for place in self._switches:
            if values[place] not in {0.0, 1.0}:
                name = self.outputs[place].name
                raise RefusedError(f'output "{name}" of {self.name}: {values[place]:g} is neither 0 (off) nor 1 (on)')
        if command.sequence <= self.command.sequence:
            raise RefusedError(f"sequence {command.sequence} does not follow {self.command.sequence}: it grows")
        now = self._owner.steady()
        self._owner.counts.commands += 1
        self.command, self.commanded, self.safe = command, now, False
        # One that answers an earlier State was too late for it, and is in force from the next one on.
        if self._waiting and command.tick == self.told.state.tick:
            self._answer(now)

    def _out_of_limits(self, command: Command) -> str:
        for output, low, high, value in zip(self.outputs, self._low, self._high, command.values, strict=True):
            if not low <= value <= high:
                return f'output "{output.name}" of {self.name}: {value:g} is not between {low:g} and {high:g}'
        return ""

    def _answer(self, now: int) -> None:
        """One Command for the latest State."""
        self._waiting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        command = self.command
        if self.is_safe(now):
            if not self.safe:
                self.fall_back()
            command = Command(values=self._safe_values, safe=True, sequence=command.sequence)
        command.tick = self.told.state.tick
        self._send(ControlResponse(command=command))

    def fall_back(self) -> None:
        """Nobody steers it any more: from now on safe values are in force."""
        if not self.safe:
            self.safe, self.commanded = True, 0
            self._owner.counts.fallbacks += 1

    def _miss(self, now: int) -> None:
        self._owner.counts.missed += 1
        if self.controller is not None:
            self.controller.missed += 1
        self._answer(now)

    def _deadline_passed(self) -> None:
        self._timer = None
        if self._waiting:
            self._miss(self._owner.steady())

    def let_go(self) -> None:
        """Its controller is gone; a State that waits for a Command gets safe values at once."""
        self.controller = None
        self.fall_back()
        self.command = Command()
        if self._waiting:
            self._answer(self._owner.steady())

    def closed(self) -> None:
        """Its connection is gone."""
        self._waiting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ActiveController:
    """Whoever steers an actuator."""

    def __init__(self, owner: "Actuators", handshake: Handshake, who: Principal, send: Send, end: End) -> None:
        controller = handshake.controller
        self.name = handshake.name
        self.who = who
        self.actuator = owner.connected(controller.actuator)
        self.synchronised = controller.mode == Controller.MODE_SYNCHRONISED
        self.timeout_ns = handshake.timeout_ns or DEFAULT_TIMEOUT_NS
        self.deadline_ns = controller.deadline_ns or self.actuator.period_ns
        self.missed = 0
        self.end = end
        self._owner = owner
        self._send = send
        self._owed = self.synchronised  # a State, as soon as there is one that it has not seen
        self._seen = -1  # tick of the latest State that it was sent
        self._told = owner.steady()  # when it was
        self._faulty = ""

    def command_arrived(self, command: Command) -> None:
        """Put `command` in force, and answer it with a State: with the next one, or free-running with the latest.

        Synchronised, one that comes later than the timeout after the State that it was decided on is not put in force:
        somebody stood still meanwhile, the hub or the controller, and what was right then may be dangerous now.
        """
        late = self.synchronised and self._seen >= 0 and self._owner.steady() - self._told > self.timeout_ns
        if not late:
            self.actuator.command_arrived(command)
        if not self.synchronised:
            self._tell()
            return
        self._owed = True
        self.offer()

    def offer(self) -> None:
        """Send the latest State, where one is owed that was not seen."""
        if self._owed and self.actuator.ticks and self.actuator.told.state.tick != self._seen:
            self._tell()

    def note_fault(self, sentence: str) -> None:
        """Tell that the actuator cannot be relied on, or with '' that it can again."""
        if sentence != self._faulty:
            self._faulty = sentence
            if self.synchronised and self._owed and sentence:
                self._tell()

    def _tell(self) -> None:
        told = self.actuator.told
        state = told.state
        state.worst = self._owner.worst()
        if self.missed:
            state.missed = self.missed
        if self._faulty:
            state.fault = self._faulty
        elif state.fault:
            state.fault = ""
        self._owed = False
        self._seen, self._told = state.tick, self._owner.steady()
        self._send(told)


@dataclass
class Actuators:
    """All that are connected, by name."""

    steady: Callable[[], int] = lease_ns
    later: Later = lambda seconds, act: asyncio.get_running_loop().call_later(seconds, act)
    worst: Callable[[], ZoneState.ValueType] = lambda: ZoneState.ZONE_STATE_NORMAL
    counts: ControlCounts = field(default_factory=ControlCounts)
    _actuators: dict[str, ConnectedActuator] = field(default_factory=dict)
    _running: Running = field(default_factory=Running)

    def __len__(self) -> int:
        return len(self._actuators)

    @property
    def all(self) -> list[ConnectedActuator]:
        """By name."""
        return [self._actuators[name] for name in sorted(self._actuators)]

    def connected(self, name: str) -> ConnectedActuator:
        """NotConnectedError where there is none of that name."""
        try:
            return self._actuators[name]
        except KeyError:
            known = ", ".join(sorted(self._actuators)[:10]) or "none"
            raise NotConnectedError(f'no actuator "{name[:80]}" is connected; there are: {known}') from None

    def connect(self, handshake: Handshake, who: Principal, send: Send, end: End) -> ConnectedActuator:
        """Count an actuator in; TakenError where one of that name is connected and heard."""
        other = self._actuators.get(handshake.name)
        if other is not None:
            now = self.steady()
            # What came while the hub stood still has yet to be read.
            if now - max(other.heard, self._running.since(now)) <= other.timeout_ns:
                raise TakenError(f'an actuator "{handshake.name}" is connected already, by {other.who.name}')
            self.disconnect(other)
            other.end(f"{handshake.name} has come back by another connection")
        actuator = ConnectedActuator(self, handshake, who, send, end)
        self._actuators[handshake.name] = actuator
        return actuator

    def disconnect(self, actuator: ConnectedActuator) -> None:
        """Its connection is gone, and with it the session of whoever steered it."""
        actuator.closed()
        if self._actuators.get(actuator.name) is actuator:
            del self._actuators[actuator.name]
        if (controller := actuator.controller) is not None:
            actuator.controller = None
            controller.end(f"the actuator {actuator.name} is gone: dial again once it is back")

    def steer(self, handshake: Handshake, who: Principal, send: Send, end: End) -> ActiveController:
        """Give an actuator to a controller; NotConnectedError, or TakenError where another one steers it."""
        controller = ActiveController(self, handshake, who, send, end)
        other = controller.actuator.controller
        if other is not None:
            raise TakenError(f"{controller.actuator.name} is steered by {other.name}: end that session first")
        controller.actuator.controller = controller
        return controller

    def release(self, controller: ActiveController) -> None:
        """The controller is gone: its actuator falls back to safe values."""
        if controller.actuator.controller is controller:
            controller.actuator.let_go()

    async def run(self) -> None:
        """Notice who is silent, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Notice who is silent. What is in force does not wait for it."""
        now = self.steady()
        self._running.since(now)
        for actuator in self._actuators.values():
            controller = actuator.controller
            if controller is None:
                continue
            silent = actuator.silent(now)
            age = (now - actuator.heard) / SECOND
            controller.note_fault(f"{actuator.name} was heard last {age:.1f} s ago" if silent else "")
            if actuator.commanded and now - actuator.commanded > controller.timeout_ns:
                actuator.fall_back()


def bounds(output: Output) -> tuple[float, float]:
    """Lowest and highest value that it may be set to."""
    if output.kind in {Output.KIND_SWITCH, Output.KIND_OPENING}:
        return 0.0, 1.0
    return output.min, output.max
