"""The hub steers actuators by rules from zones, in a running hub with a simulated actuator."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.eventually import eventually
from harness.stored import Stored

from embereye.addons.control.actuators import Actuators
from embereye.addons.control.options import ActuatorOptions, parse_actuators
from embereye.addons.control.rules import Reactions
from embereye.addons.control.session import ControlSession
from embereye.hub.actions import Action
from embereye.hub.hub import Hub
from embereye.hub.outputs import OutputError
from embereye.hub.roles import Principal, Role
from embereye.levels import Kind, Level, Sense
from embereye.process.fields import DeclaredError
from embereye.process.tasks import beside
from embereye.v1.control_pb2 import Actuator, Controller, ControlRequest, ControlResponse, Handshake, Output, State
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device
from embereye_cli.declared import parse_declared

ADA = Principal("ada", Role.OPERATOR, "ada")
RULES = """
actuators:
  - name: damper
    rules:
      - {output: flap, zones: [hall], value: 0.5}
      - {output: lamp, zones: ["ha*"], when: pre-alarm, until: acknowledged}
"""
DAMPER = Actuator(
    period_ns=10**8,
    outputs=[Output(name="flap", kind=Output.KIND_OPENING), Output(name="lamp", kind=Output.KIND_SWITCH)],
)


def read(text: str = RULES) -> list[ActuatorOptions]:
    return parse_declared(text, parse_actuators)


class Site:
    """A hub that steers."""

    def __init__(self, hub: Hub, text: str) -> None:
        self.hub, self.actuators = hub, Actuators()
        self.reactions = Reactions(read(text), self.actuators, hub)

    def connect(self, declared: Actuator = DAMPER) -> ControlSession:
        session = ControlSession(self.actuators, ADA, lambda _: None, lambda _: None)
        session.receive(ControlRequest(handshake=Handshake(version=2, name="damper", actuator=declared)))
        return session

    def values(self) -> list[float]:
        return self.actuators.find("damper").values(self.actuators.steady())

    def failing(self) -> str:
        return self.reactions.all[0].failing.why

    def ignite(self, zone: str, level: Level = Level.ALARM) -> None:
        now = self.hub.timeline.now_ns()
        self.hub.inbox.admit(
            EvidenceItem(
                id=f"{zone}-{level}", episode=zone, fleet="default/sensors/all", device=f"s-{zone}", zone=zone,
                kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=level.wire, score=1, since_ns=now, until_ns=now,
            ),
            lambda _: None,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def running(stored: Stored, text: str = RULES) -> AsyncIterator[Site]:
    store = stored.threads()
    hub = Hub(store, retention_ns=10**18)
    await hub.open()
    site = Site(hub, text)
    async with beside(hub.run(), name="hub"), beside(site.reactions.run(), name="rules"):
        yield site
    await store.close()


async def test_outputs_follow_an_alarm_to_its_reset(stored: Stored) -> None:
    async with running(stored) as site:
        session = site.connect()
        await eventually(lambda: site.actuators.find("damper").controller)
        assert site.values() == [0.0, 0.0]
        site.ignite("hall", Level.PRE_ALARM)
        await eventually(lambda: site.values() == [0.0, 1.0])
        site.ignite("hall")
        await eventually(lambda: site.values() == [0.5, 1.0])
        await site.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")
        await eventually(lambda: site.values() == [0.5, 0.0])
        await site.hub.actions.perform(Action.RESET, ADA, "default", "hall")
        await eventually(lambda: site.values() == [0.0, 0.0])
        assert not site.failing()
        session.close()
        await eventually(lambda: 'no actuator "damper" is connected' in site.failing())
        site.connect()
        await eventually(lambda: not site.failing())


async def test_a_zone_in_test_switches_nothing_on(stored: Stored) -> None:
    async with running(stored) as site:
        site.connect()
        site.ignite("hangar", Level.PRE_ALARM)
        await eventually(lambda: site.values() == [0.0, 1.0])
        await site.hub.actions.perform(Action.TEST, ADA, "default", "hangar")
        devices = [Device(id="s-hall", zone="hall")]
        await site.hub.coverage.set_roster(
            FleetRoster(fleet="default/sensors/all", epoch=1, deadline_ns=1, devices=devices)
        )
        await eventually(lambda: site.hub.zones.has_zone("default", "hall"))
        await site.hub.actions.perform(Action.TEST, ADA, "default", "hall")
        site.ignite("hall")
        await eventually(lambda: any(zone.alarm and zone.testing for zone in site.hub.zones.messages()))
        sequence = site.actuators.find("damper").command.sequence
        await eventually(lambda: site.actuators.find("damper").command.sequence > sequence + 1)
        assert site.values() == [0.0, 1.0], "what was on stays on"


async def test_another_controller_and_a_missing_output_are_named(stored: Stored) -> None:
    async with running(stored) as site:
        session = site.connect(Actuator(period_ns=10**8, outputs=[Output(name="flap", kind=Output.KIND_OPENING)]))
        await eventually(lambda: 'it has no output "lamp". It has flap.' in site.failing())
        session.close()
        site.connect()
        await eventually(lambda: not site.failing())
        received: list[ControlResponse] = []
        other = ControlSession(site.actuators, ADA, received.append, lambda _: None)
        steer = Controller(actuator="damper", mode=Controller.MODE_FREE_RUNNING)
        site.reactions.all[0].close()
        other.receive(ControlRequest(handshake=Handshake(version=2, name="own", controller=steer)))
        await eventually(lambda: "is steered by own" in site.failing())
        other.close()
        await eventually(lambda: not site.failing())


async def send_states(session: ControlSession) -> None:
    """Send a State every 20 ms, as the damper does."""
    for tick in itertools.count(1):
        session.receive(ControlRequest(state=State(tick=tick, measured=[0, 0])))
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("text", [RULES, RULES.replace("damper", "another")], ids=["with rules", "without"])
async def test_an_add_on_switches_an_output_and_releases_it(stored: Stored, text: str) -> None:
    async with running(stored, text) as site:
        ruled = text == RULES
        session = site.connect()
        async with beside(send_states(session), name="damper"):
            await site.reactions.switch("damper", "lamp", on=True)
            assert site.values() == [0.0, 1.0]
            site.ignite("hall")
            await eventually(lambda: site.hub.zones.has_zone("default", "hall"))
            await eventually(lambda: site.values() == [0.5 if ruled else 0.0, 1.0])
            await site.hub.actions.perform(Action.ACKNOWLEDGE, ADA, "default", "hall")
            await site.reactions.switch("damper", "lamp", on=False)
            await eventually(lambda: site.values() == [0.5 if ruled else 0.0, 0.0])
            assert bool(site.actuators.find("damper").controller) == ruled


async def test_an_output_that_cannot_be_switched_is_refused_with_the_reason(stored: Stored) -> None:
    async with running(stored, RULES.replace("damper", "another")) as site:
        with pytest.raises(OutputError, match='no actuator "damper" is connected'):
            await site.reactions.switch("damper", "lamp", on=True)
        session = site.connect()
        with pytest.raises(OutputError, match=r'it has no output "siren"\. It has flap, lamp'):
            await site.reactions.switch("damper", "siren", on=True)
        with pytest.raises(OutputError, match="it is silent"):
            await site.reactions.switch("damper", "lamp", on=True)
        async with beside(send_states(session), name="damper"):
            await site.reactions.switch("damper", "lamp", on=True)
            await site.reactions.switch("damper", "lamp", on=False)
        assert site.actuators.find("damper").controller is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("actuators: []", "actuators has 0 entries"),
        ("actuators: [{name: a, rules: [{zones: hall}]}]", "output is missing"),
        ("actuators: [{name: a, rules: [{output: x, zones: hall, value: on}]}]", "true is not a number"),
        ("actuators: [{name: a, rules: [{output: x, zones: hall, when: dark}]}]", "is not one of pre-alarm, alarm"),
        ("actuators: [{name: a, rules: [{output: x, zones: []}]}]", "Name zones"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, sentence: str) -> None:
    with pytest.raises(DeclaredError, match=None) as caught:
        read(text)
    assert sentence in str(caught.value)


def test_any_number_is_a_value() -> None:
    (actuator,) = read("actuators: [{name: a, rules: [{output: x, zones: hall, value: -1.5}]}]")
    values: Any = actuator.rules[0].value
    assert values == -1.5
