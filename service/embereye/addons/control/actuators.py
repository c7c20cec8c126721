"""Connected actuators, their controllers, and the safe values that they fall back to.

An actuator sends States; each is answered by one Command. At most one controller steers an actuator. Safe values are
in force while no controller does, and from the moment that a controller's command is older than its timeout.

Everything happens on the event loop's thread. `now` is steady nanoseconds.

A `ControlSession` calls it for each message of either side. A state is answered at once, or, if its controller is
synchronised, when that controller's command arrives, but no later than the deadline.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import le

from embereye.hub.roles import Principal
from embereye.process.timing.clock import lease_ns
from embereye.process.timing.running import Running
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import ZoneState
from embereye.v1.control_pb2 import Command, Controller, ControlResponse, Handshake, Output, State

DEFAULT_TIMEOUT_NS = SECOND  # if a handshake has none
CHECK_SECONDS = 0.05  # between two checks for silent actuators

Send = Callable[[ControlResponse], None]
End = Callable[[str], None]
Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class RefusedError(Exception):
    """A message that breaks the rules: it ends the session of its sender."""


class NotConnectedError(RefusedError):
    """The actuator to be steered is not connected."""


class TakenError(RefusedError):
    """Another session has the name or the actuator."""


@dataclass
class ControlCounts:
    """Totals since the start, for the metrics."""

    states: int = 0
    commands: int = 0
    missed: int = 0  # commands that did not arrive within the deadline
    fallbacks: int = 0  # times that safe values replaced a controller's values
    refused: int = 0  # sessions ended because of a message that they sent


class OutputLimits:
    """The values that the outputs of the actuator `name` may have."""

    def __init__(self, name: str, outputs: Sequence[Output]) -> None:
        self.safe = [output.safe for output in outputs]
        self._name = name
        self._outputs = outputs
        self._low = [bounds(output)[0] for output in outputs]
        self._high = [bounds(output)[1] for output in outputs]
        self._switches = [n for n, output in enumerate(outputs) if output.kind == Output.KIND_SWITCH]

    def check(self, values: Sequence[float]) -> None:
        """Raise RefusedError if `values` are not one for each output, within its limits."""
        if len(values) != len(self._outputs):
            raise RefusedError(f"a command with {len(values)} values: {self._name} has {len(self._outputs)} outputs")
        if not (all(map(le, self._low, values)) and all(map(le, values, self._high))):
            raise RefusedError(self._out_of_limits(values))
        for place in self._switches:
            if values[place] not in {0.0, 1.0}:
                name = self._outputs[place].name
                raise RefusedError(f'output "{name}" of {self._name}: {values[place]:g} is neither 0 (off) nor 1 (on)')

    def _out_of_limits(self, values: Sequence[float]) -> str:
        for output, low, high, value in zip(self._outputs, self._low, self._high, values, strict=True):
            if not low <= value <= high:
                return f'output "{output.name}" of {self._name}: {value:g} is not between {low:g} and {high:g}'
        return ""


class ConnectedActuator:
    """One actuator: its latest state, the command in force, and its controller."""

    def __init__(self, owner: "Actuators", handshake: Handshake, who: Principal, send: Send, end: End) -> None:
        """`send` gets a Command for each State; `end` ends this session if the actuator connects again elsewhere."""
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
        self.latest = ControlResponse(state=State())  # the latest state, as its controller receives it
        self.command = Command()
        self.commanded = 0  # steady nanoseconds; 0: never
        self.safe = True  # True while safe values are in force
        self.ticks = 0
        self._owner = owner
        self._send = send
        self.end = end
        self._limits = OutputLimits(self.name, self.outputs)
        self._waiting = False  # True until a command answers the latest state
        self._timer: asyncio.TimerHandle | None = None

    def is_silent(self, now: int) -> bool:
        """True if the actuator counts as lost."""
        return now - self.heard > self.timeout_ns

    def values(self, now: int) -> list[float]:
        """The values in force at `now`, by output."""
        return self._limits.safe if self.is_safe(now) else list(self.command.values)

    def is_safe(self, now: int) -> bool:
        """True if safe values are in force at `now`, because no controller steers the actuator."""
        controller = self.controller
        return controller is None or not self.commanded or now - self.commanded > controller.timeout_ns

    def receive_state(self, state: State) -> None:
        """Accept a State and answer it: immediately, or when the controller has, but no later than the deadline."""
        if len(state.measured) != len(self.outputs) or len(state.sensors) != len(self.sensors):
            raise RefusedError(
                f"a state with {len(state.measured)} measured values and {len(state.sensors)} sensor values: "
                f"the handshake declared {len(self.outputs)} outputs and {len(self.sensors)} sensors"
            )
        if self.ticks and state.tick <= self.latest.state.tick:
            raise RefusedError(f"tick {state.tick} is not greater than {self.latest.state.tick}. Count ticks up.")
        now = self._owner.steady()
        if self._waiting:
            self._miss(now)
        self.heard = now
        self.ticks += 1
        self._owner.counts.states += 1
        self.latest = ControlResponse(state=state)
        controller = self.controller
        if controller is not None:
            controller.note_fault("")
        if controller is None or not controller.synchronised:
            self._answer(now)
            return
        self._waiting = True
        self._timer = self._owner.later(controller.deadline_ns / SECOND, self._deadline_passed)
        controller.offer()

    def receive_command(self, command: Command) -> None:
        """Put a controller's Command in force; RefusedError if it exceeds the limits."""
        self._limits.check(command.values)
        if command.sequence <= self.command.sequence:
            raise RefusedError(
                f"sequence {command.sequence} is not greater than {self.command.sequence}. Count commands up."
            )
        now = self._owner.steady()
        self._owner.counts.commands += 1
        self.command, self.commanded, self.safe = command, now, False
        # A command for an earlier State came too late for it; it is in force from the next State on.
        if self._waiting and command.tick == self.latest.state.tick:
            self._answer(now)

    def _answer(self, now: int) -> None:
        """Answer the latest State with one Command."""
        self._waiting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        command = self.command
        if self.is_safe(now):
            if not self.safe:
                self.fall_back()
            command = Command(values=self._limits.safe, safe=True, sequence=command.sequence)
        command.tick = self.latest.state.tick
        self._send(ControlResponse(command=command))

    def fall_back(self) -> None:
        """Put safe values in force: no controller steers the actuator any more."""
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

    def release(self) -> None:
        """Drop the controller. A State that waits for a Command gets safe values immediately."""
        self.controller = None
        self.fall_back()
        self.command = Command()
        if self._waiting:
            self._answer(self._owner.steady())

    def close(self) -> None:
        """End the session of the actuator: its connection is closed."""
        self._waiting = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ActiveController:
    """The controller of an actuator."""

    def __init__(self, owner: "Actuators", handshake: Handshake, who: Principal, send: Send, end: End) -> None:
        controller = handshake.controller
        self.name = handshake.name
        self.who = who
        self.actuator = owner.find(controller.actuator)
        self.synchronised = controller.mode == Controller.MODE_SYNCHRONISED
        self.timeout_ns = handshake.timeout_ns or DEFAULT_TIMEOUT_NS
        self.deadline_ns = controller.deadline_ns or self.actuator.period_ns
        self.missed = 0
        self.end = end
        self._owner = owner
        self._send = send
        self._state_due = self.synchronised  # send a State as soon as there is a new one
        self._sent_tick = -1  # tick of the latest State that it was sent
        self._sent_ns = owner.steady()  # when it was sent
        self._fault = ""

    def receive_command(self, command: Command) -> None:
        """Put `command` in force. Answer it with the next State if synchronised, else with the latest one.

        A synchronised command that arrives later than the timeout after its State is not put in force: the hub or the
        controller stalled meanwhile, and an old decision may be dangerous now.
        """
        late = self.synchronised and self._sent_tick >= 0 and self._owner.steady() - self._sent_ns > self.timeout_ns
        if not late:
            self.actuator.receive_command(command)
        if not self.synchronised:
            self._send_state()
            return
        self._state_due = True
        self.offer()

    def offer(self) -> None:
        """Send the latest State if one is due and the controller has not seen it."""
        if self._state_due and self.actuator.ticks and self.actuator.latest.state.tick != self._sent_tick:
            self._send_state()

    def note_fault(self, sentence: str) -> None:
        """Report that the actuator cannot be relied on, or with '' that it can again."""
        if sentence != self._fault:
            self._fault = sentence
            if self.synchronised and self._state_due and sentence:
                self._send_state()

    def _send_state(self) -> None:
        response = self.actuator.latest
        state = response.state
        state.worst = self._owner.worst()
        if self.missed:
            state.missed = self.missed
        if self._fault:
            state.fault = self._fault
        elif state.fault:
            state.fault = ""
        self._state_due = False
        self._sent_tick, self._sent_ns = state.tick, self._owner.steady()
        self._send(response)


@dataclass
class Actuators:
    """All connected actuators by name."""

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
        """All actuators, ordered by name."""
        return [self._actuators[name] for name in sorted(self._actuators)]

    def find(self, name: str) -> ConnectedActuator:
        """Return the actuator called `name`; NotConnectedError."""
        try:
            return self._actuators[name]
        except KeyError:
            known = ", ".join(sorted(self._actuators)[:10]) or "none"
            raise NotConnectedError(f'no actuator "{name[:80]}" is connected. Connected: {known}.') from None

    def connect(self, handshake: Handshake, who: Principal, send: Send, end: End) -> ConnectedActuator:
        """Connect an actuator; TakenError if an actuator of that name is connected and not silent."""
        existing = self._actuators.get(handshake.name)
        if existing is not None:
            now = self.steady()
            # Data that arrived while the hub stalled has yet to be read.
            if now - max(existing.heard, self._running.since(now)) <= existing.timeout_ns:
                raise TakenError(f'an actuator "{handshake.name}" is connected already, by {existing.who.name}')
            self.disconnect(existing)
            existing.end(f"{handshake.name} has connected again elsewhere")
        actuator = ConnectedActuator(self, handshake, who, send, end)
        self._actuators[handshake.name] = actuator
        return actuator

    def disconnect(self, actuator: ConnectedActuator) -> None:
        """Remove an actuator whose connection closed, and end the session of its controller."""
        actuator.close()
        if self._actuators.get(actuator.name) is actuator:
            del self._actuators[actuator.name]
        if (controller := actuator.controller) is not None:
            actuator.controller = None
            controller.end(f"the actuator {actuator.name} is gone. Dial again once it is back.")

    def steer(self, handshake: Handshake, who: Principal, send: Send, end: End) -> ActiveController:
        """Let a controller steer an actuator; NotConnectedError, or TakenError if another one steers it."""
        controller = ActiveController(self, handshake, who, send, end)
        present = controller.actuator.controller
        if present is not None:
            raise TakenError(f"{controller.actuator.name} is steered by {present.name}. End that session first.")
        controller.actuator.controller = controller
        return controller

    def release(self, controller: ActiveController) -> None:
        """Release the actuator of a controller that is gone: it falls back to safe values."""
        if controller.actuator.controller is controller:
            controller.actuator.release()

    async def run(self) -> None:
        """Check for silent actuators, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check_silence()

    def check_silence(self) -> None:
        """Report silent actuators, and end commands that are too old. Safe values do not wait for this check."""
        now = self.steady()
        self._running.since(now)
        for actuator in self._actuators.values():
            controller = actuator.controller
            if controller is None:
                continue
            silent = actuator.is_silent(now)
            age = (now - actuator.heard) / SECOND
            controller.note_fault(f"{actuator.name} was heard last {age:.1f} s ago" if silent else "")
            if actuator.commanded and now - actuator.commanded > controller.timeout_ns:
                actuator.fall_back()


def bounds(output: Output) -> tuple[float, float]:
    """The lowest and the highest allowed value of `output`."""
    if output.kind in {Output.KIND_SWITCH, Output.KIND_OPENING}:
        return 0.0, 1.0
    return output.min, output.max
