"""A hub and real Modbus servers: outputs follow zones, over failures of either side."""

import asyncio
import contextlib
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.in_process import act, report, running_hub, send_report, sign
from harness.stored import Stored

from embereye.addons.modbus.building import Building
from embereye.addons.modbus.hub import ModbusAddon
from embereye.addons.modbus.options import ModbusOptions, PanelOptions, Place, Rule, Table
from embereye.addons.modbus.tests.panels import FakePanel, babbling_panel, running_panel
from embereye.hub.actions import Action
from embereye.hub.hub import Hub
from embereye.levels import Level, ZoneState
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import CanaryPlan, Coverage

ALARM, SIREN, WATCHED = Place("coil", 0), Place("coil", 1), Place("coil", 2)
BEAT = Place("register", 0)
RULES = (
    Rule(ALARM, "alarm", ("*",)),
    Rule(SIREN, "alarm", ("hall",), until="acknowledged"),
    Rule(WATCHED, "watched", ("*",)),
)


def options(port: int, *rules: Rule) -> ModbusOptions:
    table = Table("relays", rules or RULES, BEAT)
    return ModbusOptions((PanelOptions("127.0.0.1", table, port, timeout=5.0, period=0.2),))


@contextlib.asynccontextmanager
async def hub_with(folder: Path, port: int, *rules: Rule) -> AsyncIterator[tuple[Hub, Building]]:
    addon = ModbusAddon(options(port, *rules))
    async with running_hub(folder, lambda: addon) as (hub, parts):
        yield hub, parts.tasks["modbus"].__self__  # type: ignore[attr-defined]


async def test_outputs_follow_an_alarm_to_its_reset(tmp_path: Path) -> None:
    async with running_panel() as panel, hub_with(tmp_path, panel.port) as (hub, building):
        await eventually(lambda: panel.coil(2) == 1)
        assert (panel.coil(0), panel.coil(1)) == (0, 0)
        report(hub, sign())
        await eventually(lambda: (panel.coil(0), panel.coil(1)) == (1, 1))
        assert not building.panels[0].failing
        await act(hub, Action.ACKNOWLEDGE)
        await eventually(lambda: (panel.coil(0), panel.coil(1)) == (1, 0))
        await act(hub, Action.RESET)
        await eventually(lambda: panel.coil(0) == 0)
        beats = len(set(panel.registers[0]))
        await eventually(lambda: len(set(panel.registers[0])) > beats + 3, goal="a heartbeat")


async def test_a_zone_in_test_never_switches_an_output_on(tmp_path: Path) -> None:
    async with running_panel() as panel, hub_with(tmp_path, panel.port) as (hub, _):
        report(hub, sign("store", level=Level.PRE_ALARM))
        await eventually(lambda: hub.zones.states().get(("default", "store")) == ZoneState.PRE_ALARM)
        await act(hub, Action.TEST, "store")
        await eventually(lambda: panel.coil(0) == 0)
        written = len(panel.coils[0])
        report(hub, sign("store", "s-02"))
        await eventually(lambda: hub.zones.states()["default", "store"] == ZoneState.ALARM)
        await eventually(lambda: len(panel.coils[0]) > written + 3)
        assert 1 not in panel.coils[0][written:]


async def test_a_panel_that_comes_back_gets_the_present_values(tmp_path: Path) -> None:
    async with running_panel() as panel, hub_with(tmp_path, panel.port) as (hub, building):
        await eventually(lambda: panel.coil(0) == 0)
        await panel.stop()
        await eventually(lambda: bool(building.panels[0].failing))
        report(hub, sign())
        panel.coils.clear()
        await panel.start()
        await eventually(lambda: panel.coil(0) == 1)
        await eventually(lambda: not building.panels[0].failing)


async def test_a_refused_output_is_named_and_keeps_no_other_from_its_place(tmp_path: Path) -> None:
    rules = Rule(Place("coil", 99), "alarm", ("*",)), *RULES
    async with running_panel() as panel, hub_with(tmp_path, panel.port, *rules) as (_, building):
        await eventually(lambda: panel.coil(2) == 1)
        await eventually(
            lambda: "coil 99: it has no such address (Modbus exception 2)" in building.panels[0].failing.why
        )


@pytest.mark.parametrize(
    "answer", [b"\x00" * 300, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x01\x00\x00\xff\xff\x01\x05"]
)
async def test_garbage_from_a_panel_is_a_failure_and_no_more(answer: bytes, tmp_path: Path) -> None:
    async with babbling_panel(answer) as port:
        addon = ModbusAddon(
            ModbusOptions((PanelOptions("127.0.0.1", Table("relays", RULES, BEAT), port, timeout=0.3, period=0.1),))
        )
        async with running_hub(tmp_path, lambda: addon) as (_, parts):
            building = parts.tasks["modbus"].__self__  # type: ignore[attr-defined]
            await eventually(lambda: building.panels[0].failed >= 2)
            assert building.panels[0].failing


async def test_an_overdue_canary_stops_the_heartbeat_and_drops_watched(tmp_path: Path) -> None:
    async with running_panel() as panel, hub_with(tmp_path, panel.port) as (hub, building):
        report(hub, sign())
        await eventually(lambda: (panel.coil(0), panel.coil(2)) == (1, 1))
        plan = CanaryPlan(process="p", interval_ns=SECOND // 10, within_ns=SECOND // 10)
        hub.canaries.expect(Coverage(fleet="default/sensors/hall", shard="hall-0", canary=plan))
        await eventually(lambda: panel.coil(2) == 0)
        assert "canaries are overdue: shard hall-0" in building.unwatched.why
        beat, written = panel.register(0), len(panel.coils[0])
        await eventually(lambda: len(panel.coils[0]) > written + 3)
        assert panel.register(0) == beat
        assert panel.coil(0) == 1


async def test_a_hub_that_stops_drops_watched_and_keeps_alarms(tmp_path: Path) -> None:
    async with running_panel() as panel:
        addon = ModbusAddon(options(panel.port))
        async with running_hub(tmp_path, lambda: addon) as (hub, parts):
            report(hub, sign())
            await eventually(lambda: (panel.coil(0), panel.coil(2)) == (1, 1))
            await parts.close()
            assert (panel.coil(0), panel.coil(2)) == (1, 0)


def press(hub: HubProcess, action: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{hub.http_port}/v1/zones/default/hall/{action}", b"{}", method="POST",
        headers={"Authorization": f"Bearer {hub.token}", "Content-Type": "application/json"},
    )  # fmt: skip
    urllib.request.urlopen(request, timeout=20).read()


async def test_a_killed_hub_resumes_its_outputs_also_of_a_zone_in_test(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    panel = FakePanel()
    await panel.start()
    file = tmp_path / "modbus.yaml"
    file.write_text(f"""
panels:
  - name: relays
    host: 127.0.0.1
    port: {panel.port}
    periodSeconds: 0.2
    timeoutSeconds: 5
    rules: [{{coil: 0, zones: ["*"]}}]
""")
    hub = make_hub(Stored(tmp_path), "--modbus", str(file))
    hub.start()
    await hub.ready()
    await send_report(hub.control, sign())
    await eventually(lambda: panel.coil(0) == 1)
    await asyncio.to_thread(press, hub, "test")
    hub.kill()
    panel.coils.clear()
    hub.start()
    await eventually(lambda: len(panel.coils.get(0, ())) > 3)
    assert set(panel.coils[0]) == {1}
    await panel.stop()
