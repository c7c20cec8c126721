"""A hub reports to receivers: alarms, restores and faults, over failures of either side.

The receiver of these tests decodes with siadc09: pysiaalarm answers encrypted accounts wrongly.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.in_process import FLEET, act, report, running_hub, send_report, sign
from harness.stored import Stored

from embereye.addons.dc09.hub import Dc09Addon
from embereye.addons.dc09.options import CID, SIA, Dc09Options, Receiver, StationOptions
from embereye.addons.dc09.station import Station
from embereye.addons.dc09.tests.receivers import FakeReceiver, running_receiver
from embereye.hub.actions import Action
from embereye.hub.hub import Hub
from embereye.levels import Kind, Level
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.types_pb2 import Device

KEY = "850cba22f7dd4f033405da83e4c5bae9"


def options(*ports: int, **more: object) -> StationOptions:
    values: dict[str, object] = {"timeout": 5.0, "attempts": 2, "poll": 0.0, "zones": {"hall": 12}} | more
    receivers = [Receiver("127.0.0.1", port) for port in ports]
    return StationOptions("central", "0123", receivers, **values)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def hub_with(folder: Path, station: StationOptions) -> AsyncIterator[tuple[Hub, Station]]:
    addon = Dc09Addon(Dc09Options((station,)))
    async with running_hub(folder, lambda: addon) as (hub, parts):
        made: Station = parts.tasks["dc09-central"].__self__  # type: ignore[attr-defined]
        await eventually(lambda: made.queue.cursor >= 0)
        yield hub, made


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    ("form", "alarm", "restored"),
    [(SIA, "#0123|NFA012", "#0123|NFR012"), (CID, "#0123|1111 00 012", "#0123|3111 00 012")],
)
async def test_an_alarm_and_its_reset_are_acknowledged(
    form: str, alarm: str, restored: str, key: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(key)
    async with running_receiver(key=key) as receiver:
        station = options(receiver.port, format=form, key_file=file if key else None)
        async with hub_with(tmp_path / "hub", station) as (hub, made):
            report(hub, sign())
            await eventually(lambda: receiver.contents == [alarm])
            await act(hub, Action.ACKNOWLEDGE)
            await act(hub, Action.RESET)
            await eventually(lambda: receiver.contents == [alarm, restored])
            assert [message.seq for message in receiver.events] == [1, 2]
            assert b"L0#0123[" in receiver.frames[0]
            assert (KEY.encode() in b"".join(receiver.frames), b"0123|" in receiver.frames[0]) == (False, not key)
            await eventually(lambda: not made.queue.waiting)
            assert made.counts["acknowledged"] == 2


async def test_a_zones_faults_are_one_trouble_until_the_last_device_is_back(tmp_path: Path) -> None:
    async with running_receiver() as receiver, hub_with(tmp_path, options(receiver.port)) as (hub, _):
        devices = [Device(id=name, zone="hall") for name in ("s-01", "s-02")]
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=1, deadline_ns=10**6, devices=devices))
        await eventually(lambda: receiver.contents == ["#0123|NFT012"])
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=2, deadline_ns=10**6, devices=devices[:1]))
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=3, deadline_ns=10**6, devices=[]))
        await eventually(lambda: receiver.contents == ["#0123|NFT012", "#0123|NFJ012"])


@pytest.mark.parametrize(("kind", "code"), [(Kind.HEAT, "KA"), (Kind.GAS, "GA")])
async def test_each_kind_has_its_code(kind: Kind, code: str, tmp_path: Path) -> None:
    async with running_receiver() as receiver, hub_with(tmp_path, options(receiver.port)) as (hub, _):
        report(hub, sign(kind=kind, level=Level.CRITICAL))
        await eventually(lambda: receiver.contents == [f"#0123|N{code}012"])


@pytest.mark.parametrize("mood", ["silent", "garbage", "off"])
async def test_the_second_receiver_gets_what_the_first_does_not_acknowledge(mood: str, tmp_path: Path) -> None:
    async with running_receiver(mood=mood) as first, running_receiver() as second:
        if mood == "off":
            await first.stop()
        async with hub_with(tmp_path, options(first.port, second.port, timeout=0.3)) as (hub, made):
            report(hub, sign())
            await eventually(lambda: second.contents == ["#0123|NFA012"])
            assert len(first.frames) == (0 if mood == "off" else 2)
            assert [bool(condition) for condition in made.failing.values()] == [True, False]


async def test_a_refused_time_stamp_is_corrected_with_the_stations_clock(tmp_path: Path) -> None:
    async with (
        running_receiver(mood="NAK", ahead=timedelta(minutes=7)) as receiver,
        hub_with(tmp_path, options(receiver.port)) as (hub, made),
    ):
        report(hub, sign())
        await eventually(lambda: receiver.contents == ["#0123|NFA012"])
        assert made.counts["repeated"] == 0


async def test_a_message_that_all_refuse_is_given_up_and_the_next_is_sent(tmp_path: Path) -> None:
    async with running_receiver(mood="DUH") as receiver, hub_with(tmp_path, options(receiver.port)) as (hub, made):
        report(hub, sign())
        await eventually(lambda: made.counts["refused"] == 1)
        receiver.mood = "ACK"
        report(hub, sign("yard"))
        await eventually(lambda: receiver.contents == ["#0123|NFA000"])


async def test_an_encrypted_message_needs_an_encrypted_acknowledgement(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    async with (
        running_receiver(key=KEY, mood="plain") as receiver,
        hub_with(tmp_path, options(receiver.port, key_file=file, timeout=0.5)) as (hub, made),
    ):
        report(hub, sign())
        await eventually(lambda: made.counts["repeated"] >= 1)
        assert made.queue.waiting
        receiver.mood = "ACK"
        await eventually(lambda: not made.queue.waiting)


async def test_supervision_messages_go_to_each_receiver(tmp_path: Path) -> None:
    async with (
        running_receiver() as first,
        running_receiver() as second,
        hub_with(tmp_path, options(first.port, second.port, poll=0.1)) as (_, made),
    ):
        await eventually(lambda: first.polls > 2 and second.polls > 2)
        assert b'"NULL"0000L0#0123[]' in first.frames[0]
        await second.stop()
        await eventually(lambda: bool(list(made.failing.values())[1]))
        await second.start()
        await eventually(lambda: not list(made.failing.values())[1])


async def test_what_waits_survives_a_crash_with_its_sequence(tmp_path: Path) -> None:
    receiver = FakeReceiver()
    station = options(receiver.port, timeout=0.3)
    async with hub_with(tmp_path, station) as (hub, made):
        report(hub, sign())
        report(hub, sign("yard", "s-02"))
        await eventually(lambda: len(made.queue.waiting) == 2 and made.counts["repeated"] >= 1)
        await hub.committer.flush(30)
    await receiver.start()
    async with hub_with(tmp_path, station) as (hub, made):
        await eventually(lambda: receiver.contents == ["#0123|NFA012", "#0123|NFA000"])
        report(hub, sign("shop", "s-03"))
        await eventually(lambda: len(receiver.contents) == 3)
        assert {message.seq for message in receiver.events} == {1, 2, 3}
    await receiver.stop()


@pytest.mark.slow
async def test_a_hub_that_is_killed_again_and_again_skips_no_alarm(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    async with running_receiver() as receiver:
        file = tmp_path / "dc09.yaml"
        file.write_text(f"""
stations:
  - {{name: central, account: "0123", receivers: [{{host: 127.0.0.1, port: {receiver.port}}}], pollSeconds: 0}}
""")
        hub = make_hub(Stored(tmp_path), "--dc09", str(file))
        for number in range(5):
            hub.start()
            await hub.ready()
            await send_report(hub.control, sign(f"zone-{number}"))
            await asyncio.sleep(0.01 * number)
            hub.kill()
        hub.start()
        await eventually(lambda: len({message.seq for message in receiver.events}) == 5)
