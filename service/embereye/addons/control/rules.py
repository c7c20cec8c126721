"""The hub itself steers actuators: by rules from zones to outputs, and for other add-ons.

An output has the rule's value while a zone of it is in the declared state, else its safe value. A zone in test switches
nothing on, but what was on before the test stays on. Everything falls to safe values if the hub stops, stalls for a
second, or loses the actuator: its controller is one like any other, with the same time-out.

Another add-on may switch an output on, such as the lamp of a self-test. Where a rule also sets the output, the rule's
value counts.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from embereye.addons.control.actuators import Actuators, RefusedError, bounds
from embereye.addons.control.options import FAULT, PRE_ALARM, ActuatorOptions, Rule
from embereye.addons.control.session import VERSION, ControlSession
from embereye.hub.hub import Hub
from embereye.hub.outputs import OutputError
from embereye.hub.roles import Principal, Role
from embereye.levels import ZoneState
from embereye.process.condition import Condition
from embereye.v1.alarms_pb2 import Zone
from embereye.v1.control_pb2 import (
    Command,
    Controller,
    ControlRequest,
    ControlResponse,
    Handshake,
    Output,
)

logger = logging.getLogger(__name__)
NAME = "rules"  # of the controller
HUB = Principal("hub", Role.OPERATOR, "hub")
DELIVERY_SECONDS = 0.02  # between two looks whether an actuator has a command
PERIOD_SECONDS = 0.2  # between two commands; a controller counts as lost after a second
OPEN = frozenset({ZoneState.ALARM, ZoneState.ACKNOWLEDGED, ZoneState.RESTORED})


def is_reached(rule: Rule, zone: Zone) -> bool:
    """True if the zone's state is the one that the rule waits for."""
    state = ZoneState(zone.state)
    if rule.when == FAULT:
        return bool(zone.faults)
    if rule.until_acknowledged and state in {ZoneState.ACKNOWLEDGED, ZoneState.RESTORED}:
        return False
    return state in OPEN or (rule.when == PRE_ALARM and state == ZoneState.PRE_ALARM)


class Reaction:
    """Steers one actuator by its rules. Call `step` each period, and `close` at the end."""

    def __init__(self, options: ActuatorOptions, actuators: Actuators) -> None:
        self.options = options
        self.failing = Condition(logger, begin=logging.ERROR)
        self._actuators = actuators
        self._session: ControlSession | None = None
        self._outputs: Sequence[Output] = ()
        self._sequence = 0
        self.switched = set[str]()  # outputs that an add-on switched on
        self._on = set[tuple[int, str, str]]()  # what is on: the rule's number, and the zone

    def step(self, zones: Sequence[Zone]) -> None:
        """Command the outputs' values for the present state of `zones`; connect before that."""
        wanted = [self._is_on(number, rule, zones) for number, rule in enumerate(self.options.rules)]
        try:
            session = self._session or self._connect()
            command = Command(values=self._values(wanted), time_ns=time.time_ns(), sequence=self._sequence + 1)
            session.receive(ControlRequest(command=command))
        except RefusedError as error:
            self._end(str(error))
            return
        self._sequence += 1
        if self._session:
            self.failing.clear("actuator %s follows its rules again", self.options.name)

    def _is_on(self, number: int, rule: Rule, zones: Sequence[Zone]) -> bool:
        followed = [zone for zone in zones if rule.has_zone(zone.namespace, zone.name)]
        before = {key for key in self._on if key[0] == number}
        on = {
            key
            for zone in followed
            if is_reached(rule, zone) and (not zone.testing or (number, zone.namespace, zone.name) in before)
            for key in [(number, zone.namespace, zone.name)]
        }
        self._on = (self._on - before) | on
        return bool(on)

    def _connect(self) -> ControlSession:
        """Begin to steer; RefusedError if the actuator is gone, has another controller, or lacks an output."""
        session = ControlSession(self._actuators, HUB, self._receive, self._end)
        steered = Controller(actuator=self.options.name, mode=Controller.MODE_FREE_RUNNING)
        session.receive(ControlRequest(handshake=Handshake(version=VERSION, name=NAME, controller=steered)))
        self._session, self._sequence = session, self._actuators.find(self.options.name).command.sequence
        return session

    def _receive(self, response: ControlResponse) -> None:
        if response.HasField("welcome"):
            self._outputs = list(response.welcome.actuator.outputs)

    def _values(self, wanted: Sequence[bool]) -> list[float]:
        values = {output.name: output.safe for output in self._outputs}
        limits = {output.name: bounds(output) for output in self._outputs}
        for name in self.switched:
            if name not in values:
                raise RefusedError(f'it has no output "{name}". It has {", ".join(values)}.')
            values[name] = limits[name][1]
        for rule, is_on in zip(self.options.rules, wanted, strict=True):
            if rule.output not in values:
                raise RefusedError(f'it has no output "{rule.output}". It has {", ".join(values)}.')
            low, high = limits[rule.output]
            if not low <= rule.value <= high:
                raise RefusedError(f'output "{rule.output}": {rule.value:g} is not between {low:g} and {high:g}')
            if is_on:
                values[rule.output] = rule.value
        return list(values.values())

    def _end(self, why: str) -> None:
        self.close()
        self.failing.fail(why, "actuator %s does not follow its rules: %s", self.options.name, why)

    def close(self) -> None:
        """Let the actuator have its safe values."""
        session, self._session = self._session, None
        if session:
            session.close()


class Reactions:
    """All actuators that the hub steers: those with rules, and those of which an output is switched on."""

    def __init__(self, options: Sequence[ActuatorOptions], actuators: Actuators, hub: Hub) -> None:
        self.all = [Reaction(each, actuators) for each in options]
        self._others: dict[str, Reaction] = {}  # by name, without rules
        self._actuators = actuators
        self._hub = hub

    async def switch(self, actuator: str, output: str, *, on: bool) -> None:
        """Switch an output to its highest value, or end that; see `Outputs`."""
        ruled = next((each for each in self.all if each.options.name == actuator), None)
        reaction = ruled or self._others.get(actuator) or Reaction(ActuatorOptions(actuator, ()), self._actuators)
        (reaction.switched.add if on else reaction.switched.discard)(output)
        if not (ruled or reaction.switched):
            self._others.pop(actuator, None)
            reaction.close()
            return
        if not ruled:
            self._others[actuator] = reaction
        reaction.step(self._hub.zones.messages())
        if not on:
            return
        try:
            if why := str(reaction.failing.why):
                raise RefusedError(why)
            await self._delivered(actuator)
        except RefusedError as error:
            await self.switch(actuator, output, on=False)
            raise OutputError(str(error)) from error

    async def _delivered(self, name: str) -> None:
        """Wait until the actuator has the latest command; RefusedError if it is gone or silent."""
        actuator = self._actuators.find(name)
        before, began_ns = actuator.ticks, self._actuators.steady()
        while self._actuators.find(name).ticks == before:
            if self._actuators.steady() - began_ns > actuator.timeout_ns:
                raise RefusedError("it is silent")
            await asyncio.sleep(DELIVERY_SECONDS)

    async def run(self) -> None:
        """Steer until cancelled."""
        zones, seen = self._hub.zones.messages(), self._hub.feed.latest
        try:
            while True:
                steered = [*self.all, *self._others.values()]
                if steered and self._hub.feed.latest != seen:  # every change of a zone is an event
                    zones, seen = self._hub.zones.messages(), self._hub.feed.latest
                for reaction in steered:
                    reaction.step(zones)
                await asyncio.sleep(PERIOD_SECONDS)
        finally:
            for reaction in (*self.all, *self._others.values()):
                reaction.close()
