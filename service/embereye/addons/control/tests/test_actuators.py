"""Control loops without a network, on a simulated clock."""

import math
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from embereye.addons.control.actuators import Actuators, RefusedError
from embereye.addons.control.session import ControlSession
from embereye.hub.roles import Principal, Role
from embereye.units import HOUR, MILLISECOND, SECOND
from embereye.v1.control_pb2 import (
    Actuator,
    Command,
    Controller,
    ControlRequest,
    ControlResponse,
    Handshake,
    Output,
    Sensor,
    State,
)

ADA = Principal("ada", Role.OPERATOR, "ada", "192.0.2.1")
PERIOD = 2 * MILLISECOND
HEAD = Actuator(
    period_ns=PERIOD,
    outputs=[
        Output(name="pan", kind=Output.KIND_ANGLE, min=-1.5, max=1.5, safe=0.25),
        Output(name="lamp", kind=Output.KIND_SWITCH, safe=0),
    ],
    sensors=[Sensor(name="hottest", unit="°C")],
)
SAFE = [0.25, 0.0]


class Timer:
    def __init__(self, due: int, act: Callable[[], None]) -> None:
        self.due, self.act = due, act

    def cancel(self) -> None:
        self.due = -1


class Site:
    """Actuators on a simulated clock."""

    def __init__(self) -> None:
        self.now = SECOND
        self.timers: list[Timer] = []
        self.actuators = Actuators(lambda: self.now, cast("Any", self.later))

    def later(self, seconds: float, act: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + round(seconds * SECOND), act))
        return self.timers[-1]

    def wait(self, nanoseconds: int) -> None:
        """Let time pass, and run the timers that are due."""
        until = self.now + nanoseconds
        while due := [timer for timer in self.timers if 0 <= timer.due <= until]:
            first = min(due, key=lambda timer: timer.due)
            self.now = max(self.now, first.due)
            first.cancel()
            first.act()
        self.now = until

    def side(self, handshake: Handshake) -> "Side":
        side = Side(self)
        side.receive(ControlRequest(handshake=handshake))
        return side

    def head(self, name: str = "head", **fields: Any) -> "Side":
        return self.side(Handshake(version=2, name=name, actuator=HEAD, **fields))

    def controller(self, mode: Any = Controller.MODE_SYNCHRONISED, **fields: Any) -> "Side":
        deadline = fields.pop("deadline_ns", 0)
        steers = Controller(actuator="head", mode=mode, deadline_ns=deadline)
        return self.side(Handshake(version=2, name="follower", controller=steers, **fields))


class Side:
    def __init__(self, site: Site) -> None:
        self.received: list[ControlResponse] = []
        self.ended: list[str] = []
        self.session = ControlSession(site.actuators, ADA, self.record, self.ended.append)
        self.ticks = self.sequence = 0

    def record(self, response: ControlResponse) -> None:
        copy = ControlResponse()
        copy.CopyFrom(response)
        self.received.append(copy)

    def receive(self, request: ControlRequest) -> None:
        self.session.receive(request)

    def state(self, pan: float = 0.0, hottest: float = 20.0) -> None:
        self.ticks += 1
        self.receive(ControlRequest(state=State(tick=self.ticks, measured=[pan, 0], sensors=[hottest])))

    def command(self, *values: float, tick: int = 0) -> None:
        self.sequence += 1
        self.receive(ControlRequest(command=Command(sequence=self.sequence, values=values, tick=tick)))

    @property
    def last(self) -> ControlResponse:
        return self.received[-1]


def test_without_a_controller_each_state_is_answered_with_safe_values() -> None:
    head = Site().head()
    head.state()
    assert head.last.command == Command(values=SAFE, safe=True, tick=1)


def test_a_command_from_before_the_machine_was_suspended_is_not_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.actuators = Actuators()
    head, follower = site.head(), site.controller(Controller.MODE_FREE_RUNNING)
    follower.command(1.0, 1)
    head.state()
    assert not head.last.command.safe
    real = time.clock_gettime_ns
    # CLOCK_MONOTONIC stops during a suspension.
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) + HOUR * (which == time.CLOCK_BOOTTIME))
    head.state()
    assert head.last.command == Command(values=SAFE, safe=True, sequence=1, tick=2)


def test_an_old_command_is_not_in_force_and_its_controller_decides_again() -> None:
    site = Site()
    head, follower = site.head(), site.controller(timeout_ns=SECOND)
    head.state()
    follower.command(0.5, 1, tick=1)
    head.state()
    for _ in range(5):  # the hub or the controller stalls: the command waits to be read, or to be sent
        site.wait(2 * SECOND)
        head.state()
    follower.command(0.75, 1, tick=2)
    assert follower.last.state.tick == head.ticks
    head.state()
    site.wait(PERIOD)
    assert head.last.command == Command(values=SAFE, safe=True, sequence=1, tick=head.ticks)
    follower.command(1.0, 1, tick=head.ticks - 1)
    head.state()
    site.wait(PERIOD)
    assert list(head.last.command.values) == [1.0, 1.0]
    assert follower.ended == []


def test_free_running_sides_get_the_latest_message_of_the_other_immediately() -> None:
    site = Site()
    head, follower = site.head(), site.controller(Controller.MODE_FREE_RUNNING)
    head.state(hottest=61.5)
    follower.command(1.0, 1)
    assert list(follower.last.state.sensors) == [61.5]
    follower.command(1.25, 1)
    assert follower.last.state.tick == 1
    head.state()
    head.state()
    assert [(list(response.command.values), response.command.tick) for response in head.received[-2:]] == [
        ([1.25, 1.0], 2),
        ([1.25, 1.0], 3),
    ]
    assert site.actuators.counts.missed == 0


def test_synchronised_each_state_is_answered_by_its_own_command() -> None:
    site = Site()
    head, follower = site.head(), site.controller()
    for tick in range(1, 100):
        head.state(hottest=tick)
        assert list(follower.last.state.sensors) == [tick]
        site.wait(PERIOD // 2)
        follower.command(tick / 100, 1, tick=tick)
        assert (head.last.command.tick, head.last.command.values[0]) == (tick, tick / 100)
        site.wait(PERIOD // 2)
    assert len(head.received) == 1 + 99
    assert len(follower.received) == 1 + 99
    assert (site.actuators.counts.missed, site.actuators.counts.fallbacks) == (0, 0)


def test_past_the_deadline_the_previous_command_remains_and_the_miss_is_reported() -> None:
    site = Site()
    head, follower = site.head(), site.controller(deadline_ns=MILLISECOND)
    head.state()
    follower.command(0.5, 1, tick=1)
    site.wait(PERIOD)
    head.state()
    site.wait(MILLISECOND - 1)
    assert head.last.command.tick == 1
    site.wait(1)
    assert (head.last.command.tick, list(head.last.command.values)) == (2, [0.5, 1.0])
    follower.command(0.75, 1, tick=2)
    assert len(head.received) == 1 + 2  # too late for state 2, and not used as the answer to another
    site.wait(MILLISECOND)
    head.state()
    assert (follower.last.state.tick, follower.last.state.missed) == (3, 1)
    site.wait(MILLISECOND)
    assert list(head.last.command.values) == [0.75, 1.0]
    assert site.actuators.counts.missed == 2


def test_a_late_controller_continues_with_the_newest_state() -> None:
    site = Site()
    head, follower = site.head(), site.controller()
    head.state()
    for _ in range(3):
        site.wait(PERIOD)
        head.state()
    assert [response.state.tick for response in follower.received[1:]] == [1]
    follower.command(0.1, 0, tick=1)
    assert follower.last.state.tick == 4
    assert len(head.received) == 1 + 3
    follower.command(0.2, 0, tick=4)
    assert (head.last.command.tick, head.last.command.values[0]) == (4, 0.2)
    assert follower.last.state.tick == 4


def test_a_silent_controllers_commands_apply_until_its_timeout_then_safe_values() -> None:
    site = Site()
    head, follower = site.head(), site.controller(Controller.MODE_FREE_RUNNING, timeout_ns=10 * MILLISECOND)
    follower.command(1.0, 1)
    site.wait(10 * MILLISECOND)
    head.state()
    assert list(head.last.command.values) == [1.0, 1.0]
    site.wait(1)
    head.state()
    assert (list(head.last.command.values), head.last.command.safe) == (SAFE, True)
    assert site.actuators.counts.fallbacks == 1
    follower.command(0.5, 0)
    head.state()
    assert (list(head.last.command.values), head.last.command.safe) == ([0.5, 0.0], False)


def test_a_waiting_state_gets_safe_values_as_soon_as_the_controller_is_gone() -> None:
    site = Site()
    head, follower = site.head(), site.controller()
    head.state()
    follower.command(1.0, 1, tick=1)
    head.state()
    assert len(head.received) == 1 + 1
    follower.session.close()
    assert head.last.command == Command(values=SAFE, safe=True, tick=2)
    again = site.controller()
    again.command(0.5, 1, tick=2)  # a new controller starts counting again
    head.state()
    assert again.last.state.tick == 3


def test_a_lost_actuator_ends_its_controllers_session() -> None:
    site = Site()
    head, follower = site.head(), site.controller()
    head.session.close()
    assert follower.ended == ["the actuator head is gone. Dial again once it is back."]
    follower.session.close()
    assert len(site.actuators) == 0


def test_a_controller_learns_when_its_actuator_is_silent_and_when_it_is_back() -> None:
    site = Site()
    head, follower = site.head(timeout_ns=5 * MILLISECOND), site.controller()
    head.state()
    follower.command(0, 0, tick=1)
    site.wait(5 * MILLISECOND)
    site.actuators.check_silence()
    assert follower.last.state.fault == ""
    site.wait(MILLISECOND)
    site.actuators.check_silence()
    assert follower.last.state.fault == "head was heard last 0.0 s ago"
    site.actuators.check_silence()
    follower.command(0, 0, tick=1)
    head.state()
    site.actuators.check_silence()
    assert (follower.last.state.tick, follower.last.state.fault) == (2, "")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1.6, 0], 'output "pan" of head: 1.6 is not between -1.5 and 1.5'),
        ([math.nan, 0], 'output "pan" of head: nan is not between -1.5 and 1.5'),
        ([-math.inf, 0], 'output "pan" of head: -inf is not between -1.5 and 1.5'),
        ([0, 0.5], 'output "lamp" of head: 0.5 is neither 0 (off) nor 1 (on)'),
        ([0], "a command with 1 values: head has 2 outputs"),
        ([0, 0, 0], "a command with 3 values: head has 2 outputs"),
    ],
)
def test_a_command_outside_the_limits_is_refused_completely(values: list[float], sentence: str) -> None:
    site = Site()
    head, follower = site.head(), site.controller(Controller.MODE_FREE_RUNNING)
    follower.command(0.5, 1)
    with pytest.raises(RefusedError) as caught:
        follower.command(*values)
    assert str(caught.value) == sentence
    head.state()
    assert list(head.last.command.values) == [0.5, 1.0]
    assert site.actuators.counts.refused == 1


def test_repeated_or_unordered_messages_are_refused() -> None:
    site = Site()
    head, follower = site.head(), site.controller()
    head.state()
    with pytest.raises(RefusedError, match="tick 1 is not greater than 1"):
        head.receive(ControlRequest(state=State(tick=1, measured=[0, 0], sensors=[0])))
    follower.command(0, 0, tick=1)
    with pytest.raises(RefusedError, match="sequence 1 is not greater than 1"):
        follower.receive(ControlRequest(command=Command(sequence=1, values=[0, 0])))


def test_a_state_that_contradicts_the_handshake_is_refused() -> None:
    head = Site().head()
    with pytest.raises(
        RefusedError, match="2 measured values and 0 sensor values: the handshake declared 2 outputs and 1"
    ):
        head.receive(ControlRequest(state=State(tick=1, measured=[0, 0])))


def test_an_actuator_has_one_controller_and_a_name_has_one_actuator() -> None:
    site = Site()
    site.head()
    site.controller()
    with pytest.raises(RefusedError, match=r"head is steered by follower\. End that session first"):
        site.controller()
    with pytest.raises(RefusedError, match='an actuator "head" is connected already, by ada'):
        site.head()


def test_an_actuator_that_comes_back_replaces_its_dead_connection() -> None:
    site = Site()
    old, follower = site.head(), site.controller()
    site.actuators.check_silence()
    site.wait(SECOND + 1)
    site.head()
    assert old.ended == ["head has connected again elsewhere"]
    assert len(follower.ended) == 1
    old.session.close()  # late, and without effect
    follower.session.close()
    assert len(site.actuators) == 1
    site.controller()


def test_an_actuator_survives_a_stall_of_the_hub() -> None:
    site = Site()
    site.head()
    site.actuators.check_silence()
    site.wait(10 * SECOND)
    with pytest.raises(RefusedError, match='an actuator "head" is connected already, by ada'):
        site.head()
    for _ in range(20):
        site.wait(SECOND // 10)
        site.actuators.check_silence()
    site.head()


def _edited(**fields: Any) -> Handshake:
    handshake = Handshake(version=2, name="head", actuator=HEAD)
    for name, value in fields.items():
        if name == "output":
            handshake.actuator.outputs[0].MergeFrom(Output(**value))
        elif name == "period_ns":
            handshake.actuator.period_ns = value
        else:
            setattr(handshake, name, value)
    return handshake


def _doubled() -> Handshake:
    handshake = _edited()
    handshake.actuator.outputs[1].name = "pan"
    return handshake


STEERS = Controller(actuator="head", mode=Controller.MODE_SYNCHRONISED)


@pytest.mark.parametrize(
    ("handshake", "sentence"),
    [
        (_edited(version=1), "This hub speaks 2"),
        (_edited(name=""), "name"),
        (_edited(name="x" * 64), "1 to 63"),
        (_edited(name="a\nb"), "printable"),
        (_edited(timeout_ns=1), "timeout_ns 1 is not between"),
        (_edited(timeout_ns=-1), "timeout_ns -1 is not between"),
        (_edited(period_ns=1), "period_ns 1 is not between"),
        (_edited(output={"min": 2.0}), "min 2 and max 1.5 are not a range"),
        (_edited(output={"max": math.inf}), "are not a range"),
        (_edited(output={"safe": 3.0}), "safe 3 is not between -1.5 and 1.5"),
        (_edited(output={"safe": math.nan}), "safe nan is not between"),
        (_doubled(), 'actuator.outputs[1].name "pan"'),
        (Handshake(version=2, name="x"), "neither actuator nor controller"),
        (Handshake(version=2, name="x", actuator=Actuator(period_ns=PERIOD)), "0 outputs"),
        (
            Handshake(version=2, name="x", controller=Controller(mode=Controller.MODE_FREE_RUNNING)),
            "controller.actuator is empty",
        ),
        (Handshake(version=2, name="x", controller=Controller(actuator="head")), "controller.mode 0"),
        (Handshake(version=2, name="x", controller=STEERS), 'no actuator "head" is connected. Connected: none.'),
    ],
)
def test_an_impossible_handshake_is_refused_with_a_reason(handshake: Handshake, sentence: str) -> None:
    site = Site()
    with pytest.raises(RefusedError) as caught:
        site.side(handshake)
    assert sentence in str(caught.value)
    assert len(site.actuators) == 0


def test_each_side_sends_its_kind_of_message_after_one_handshake() -> None:
    site = Site()
    side = Side(site)
    with pytest.raises(RefusedError, match="the first message must be a handshake"):
        side.state()
    head = site.head()
    with pytest.raises(RefusedError, match="an actuator sends states after its handshake, not command"):
        head.command(0, 0)
    follower = site.controller()
    with pytest.raises(RefusedError, match="a controller sends commands after its handshake, not handshake"):
        follower.receive(ControlRequest(handshake=Handshake()))
    with pytest.raises(RefusedError, match="not nothing"):
        follower.receive(ControlRequest())
